// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loads that a switch reduces and stores that it multicasts (NVLS; multimem instructions, compute capability 9.0).
// Addresses lie in a multicast object, to which every rank's buffer is bound at the same place. Never run: it needs
// several devices behind one switch. The tests run the reference in twin_env.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/half.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/device/units.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {
namespace ptx {

// Kernels that are compiled for less have no instructions for the switch. A device of this capability may run such a
// kernel, from its PTX, so cuda_runtime asks the kernels and not the device.
inline constexpr int multimem_arch = 90;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define COLLX_MULTIMEM(instruction)                               \
    asm volatile(instruction " {%0, %1, %2, %3}, [%4];"           \
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) \
                 : "l"(__cvta_generic_to_global(from))            \
                 : "memory")

// Loads 16 bytes of every rank, reduced by the switch in its own order; 16-bit floats are summed in float.
template <class Op, class T>
__device__ inline void reduce_all(const void* from, std::uint32_t (&x)[4]) {
    if constexpr (std::is_same_v<T, float>) {
        float f[4];
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3])
                     : "l"(__cvta_generic_to_global(from))
                     : "memory");
        __builtin_memcpy(x, f, sizeof f);
    } else if constexpr (std::is_same_v<T, bf16>) {
        if constexpr (std::is_same_v<Op, min>) COLLX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.min.v4.bf16x2");
        else if constexpr (std::is_same_v<Op, max>)
            COLLX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.max.v4.bf16x2");
        else COLLX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2");
    } else {
        if constexpr (std::is_same_v<Op, min>) COLLX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.min.v4.f16x2");
        else if constexpr (std::is_same_v<Op, max>)
            COLLX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.max.v4.f16x2");
        else COLLX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2");
    }
}
#undef COLLX_MULTIMEM

// Stores the same 16 bytes to every rank.
__device__ inline void store_all(void* to, const std::uint32_t (&x)[4]) {
    float f[4];
    __builtin_memcpy(f, x, sizeof f);
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "f"(f[0]), "f"(f[1]), "f"(f[2]), "f"(f[3])
                 : "memory");
}
// Stands between accesses to the same memory by its two addresses.
__device__ inline void fence_alias() { asm volatile("fence.proxy.alias;" ::: "memory"); }
#else
template <class Op, class T>
__device__ inline void reduce_all(const void*, std::uint32_t (&)[4]) {
    __trap(); // cuda_runtime::facts() then says that nothing multicasts
}
__device__ inline void store_all(void*, const std::uint32_t (&)[4]) { __trap(); }
__device__ inline void fence_alias() {}
#endif

} // namespace ptx
} // namespace device
COLLX_END_NAMESPACE
