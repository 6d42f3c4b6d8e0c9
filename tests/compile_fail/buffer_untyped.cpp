// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: this tensor knows its element type only at run time. Name the type: collx::as<float>(tensor), from <collx/core/as.hpp>.
// clang-format on
#include <collx/core/as.hpp>
#include <collx/core/buffer.hpp>

#include <cstdint>

struct tensor {
    void* data;
    struct {
        int device_type, device_id;
    } device;
    int ndim;
    struct {
        std::uint8_t code, bits;
        std::uint16_t lanes;
    } dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};

int main() {
    tensor x = {};
#ifdef COLLX_FAIL
    return static_cast<int>(collx::buffer(x).size());
#else
    return static_cast<int>(collx::buffer(collx::as<float>(x)).size());
#endif
}
