// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Macros for the differences between compilers. It must not know anything about ranks, operating systems or libraries,
// and no other header may test for a compiler where one of these macros would do.
#pragma once

#if defined(__CUDACC__)
// Host and device: everything in core/, sched/ and algo/ that a fused kernel inlines.
#define COLLX_HD __host__ __device__
// Put before a COLLX_HD template that calls a user's function, which may exist on one side only.
#define COLLX_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#else
#define COLLX_HD
#define COLLX_EXEC_CHECK_DISABLE
#endif

#if defined(__CUDACC__)
#define COLLX_ALWAYS_INLINE __forceinline__
#define COLLX_NOINLINE __noinline__
#elif defined(__GNUC__)
#define COLLX_ALWAYS_INLINE inline __attribute__((always_inline))
#define COLLX_NOINLINE __attribute__((noinline))
#else
#define COLLX_ALWAYS_INLINE inline
#define COLLX_NOINLINE
#endif

// Put before a function that throws and takes more arguments than fit into registers. clang merges the ends of two
// calls of such a function even if their stack depths differ; the unwinder then finds no handler.
#if defined(__clang__) && !defined(__CUDACC__)
#define COLLX_NOMERGE [[clang::nomerge]]
#else
#define COLLX_NOMERGE
#endif

// Put before a loop with a small, fixed number of iterations whose array must live in registers.
#if defined(__CUDACC__)
#define COLLX_UNROLL _Pragma("unroll")
// Put before a loop that a kernel's compiler would otherwise unroll four times without benefit.
#define COLLX_ROLLED _Pragma("unroll 1")
#else
#define COLLX_UNROLL _Pragma("GCC unroll 16")
#define COLLX_ROLLED
#endif

// Put before non-template functions. A header-only program compiles them with everything else. Where COLLX_COMPILED is
// defined for the whole program (the target collx::collx does), they are in a library. A device's pass over a .cu file
// does not need their bodies either: none of them launches a kernel.
#if defined(COLLX_COMPILED) || defined(__CUDA_ARCH__)
#define COLLX_ONCE
#define COLLX_ONLY_DECLARED
#else
#define COLLX_ONCE inline
#endif
