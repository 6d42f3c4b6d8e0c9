// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this element type cannot travel between ranks as bytes. Make it trivially copyable, or say that its bytes suffice with collx::enable_wire<T> = true.
// clang-format on
#include <collx/core/buffer.hpp>

#include <string>
#include <vector>

struct angle {
    double radians = 0;
    angle() = default;
    angle(const angle& other) : radians(other.radians) {}
};

#ifndef COLLX_FAIL
template <>
inline constexpr bool collx::enable_wire<angle> = true;
#endif

int main() {
    std::vector<angle> angles(3);
    return static_cast<int>(collx::buffer(angles).size());
}
