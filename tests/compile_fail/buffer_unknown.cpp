// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: collx cannot find the elements of this type. Specialise collx::buffer_traits<X> with a static view(X&), or give X a member collx_buffer(), that returns collx::view(pointer, count).
// clang-format on
#include <collx/core/buffer.hpp>

#include <memory>

struct tensor {
    std::unique_ptr<float[]> memory = std::make_unique<float[]>(4);
};

#ifndef COLLX_FAIL
template <>
struct collx::buffer_traits<tensor> {
    static auto view(tensor& x) { return collx::view(x.memory.get(), 4); }
};
#endif

int main() {
    tensor x;
    return static_cast<int>(collx::buffer(x).size());
}
