// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The environment of a block on a GPU: the only code of the device executor that the host's tests do not run. Each
// function is one or two instructions; <cuda/atomic> would give the same ones and cost 3 s of compile time. The tests
// compare the four functions of the memory model with cuda::atomic_ref's, instruction by instruction.
#pragma once

#include <cstdint>

#include <collx/exec/device/control.hpp>
#include <collx/exec/device/multicast.cuh>
#include <collx/exec/device/units.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// ---------------------------------------------------------------------------------------------- memory model
// All words are in global memory (this device's, a peer's, or mapped host memory), so addresses are converted to it.
namespace ptx {

__device__ inline std::size_t global(const void* p) { return __cvta_generic_to_global(p); }

// cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*p).load(cuda::memory_order_relaxed)
__device__ inline std::uint64_t load_relaxed(const std::uint64_t* p) {
    std::uint64_t x;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(global(p)) : "memory");
    return x;
}
// cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*p).load(cuda::memory_order_acquire)
__device__ inline std::uint64_t load_acquire(const std::uint64_t* p) {
    std::uint64_t x;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(global(p)) : "memory");
    return x;
}
// cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*p).store(x, cuda::memory_order_relaxed)
__device__ inline void store_relaxed(std::uint64_t* p, std::uint64_t x) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(p)), "l"(x) : "memory");
}
// cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*p).store(x, cuda::memory_order_release)
__device__ inline void store_release(std::uint64_t* p, std::uint64_t x) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(global(p)), "l"(x) : "memory");
}

// Two words at once, each of them whole: for either, a relaxed load of cuda::atomic_ref, but in one instruction.
__device__ inline unit16 load_line(const unit16* p) {
    unit16 x;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(x.low), "=l"(x.high)
                 : "l"(global(p))
                 : "memory");
    return x;
}
__device__ inline void store_line(unit16* p, unit16 x) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(global(p)), "l"(x.low), "l"(x.high) : "memory");
}

} // namespace ptx

// ---------------------------------------------------------------------------------------------- block
struct cuda_handle {}; // empty: an environment knows only the hardware's own registers

// Groups of threads of a block run strands side by side. Each has a named barrier, from 1 on (0 is the block's).
template <int Groups>
class cuda_env {
    static_assert(
        Groups == 1 || Groups == 2 || Groups == 4,
        "collx: strands run in 1, 2 or 4 groups of a block, for barriers take whole warps. Use one of these.");

public:
    using block_env = cuda_env<1>;
    using handle = cuda_handle;
    __device__ static handle hand_over() { return {}; }
    __device__ static cuda_env take_over(handle) { return {}; }

    __device__ unsigned index() const { return Groups == 1 ? threadIdx.x : threadIdx.x % threads(); }
    __device__ unsigned threads() const { return blockDim.x / Groups; }
    __device__ int group() const { return Groups == 1 ? 0 : static_cast<int>(threadIdx.x / threads()); }
    __device__ unsigned index_in_block() const { return threadIdx.x; }
    __device__ unsigned threads_in_block() const { return blockDim.x; }

    // Ordinary loads and stores. Never through the read-only path (ld.global.nc): peers write what is read here.
    template <class Unit>
    __device__ static Unit load(const Unit* p) {
        __builtin_assume(__isGlobal(p));
        return load_anywhere(p);
    }
    template <class Unit>
    __device__ static void store(Unit* p, Unit x) {
        __builtin_assume(__isGlobal(p));
        store_anywhere(p, x);
    }
    // The same for memory of a program's kernel, which may also be a block's shared or a thread's own.
    template <class Unit>
    __device__ static Unit load_anywhere(const Unit* p) {
        if constexpr (std::is_same_v<Unit, words16>) {
            const uint4 x = *reinterpret_cast<const uint4*>(p);
            return {{x.x, x.y, x.z, x.w}};
        } else if constexpr (std::is_same_v<Unit, unit16>) {
            const ulonglong2 x = *reinterpret_cast<const ulonglong2*>(p);
            return {x.x, x.y};
        } else {
            return *p;
        }
    }
    template <class Unit>
    __device__ static void store_anywhere(Unit* p, Unit x) {
        if constexpr (std::is_same_v<Unit, words16>)
            *reinterpret_cast<uint4*>(p) = make_uint4(x.v[0], x.v[1], x.v[2], x.v[3]);
        else if constexpr (std::is_same_v<Unit, unit16>)
            *reinterpret_cast<ulonglong2*>(p) = make_ulonglong2(x.low, x.high);
        else *p = x;
    }
    __device__ static unit16 load_line(const unit16* p) { return ptx::load_line(p); }
    __device__ static void store_line(unit16* p, unit16 x) { ptx::store_line(p, x); }
    __device__ static std::uint64_t load_relaxed(const std::uint64_t* p) { return ptx::load_relaxed(p); }
    __device__ static std::uint64_t load_acquire(const std::uint64_t* p) { return ptx::load_acquire(p); }
    __device__ static void store_relaxed(std::uint64_t* p, std::uint64_t x) { ptx::store_relaxed(p, x); }
    __device__ static void store_release(std::uint64_t* p, std::uint64_t x) { ptx::store_release(p, x); }

    // Lines of 128 bytes: eight neighbouring threads move one cell of 16 bytes each, so that a line is one access of
    // the warp. All eight call together.
    static constexpr unsigned line_threads = 8;
    __device__ bool any_of_line(bool mine) const { return __any_sync(0xffu << (threadIdx.x & 24u), mine) != 0; }
    __device__ bool try_load_lines(const unit16* pair, std::uint64_t flag, unit16 (&cells)[2][1]) const {
        const unsigned cell = threadIdx.x % line_threads;
        __syncwarp(0xffu << (threadIdx.x & 24u));
        cells[0][0] = ptx::load_line(pair + cell);
        cells[1][0] = ptx::load_line(pair + line_cells + cell);
        return !any_of_line(cell == line_cells - 1 && (cells[0][0].high != flag || cells[1][0].high != flag));
    }
    __device__ void store_lines(unit16* pair, const unit16 (&cells)[2][1]) const {
        const unsigned cell = threadIdx.x % line_threads;
        __syncwarp(0xffu << (threadIdx.x & 24u));
        ptx::store_line(pair + cell, cells[0][0]);
        ptx::store_line(pair + line_cells + cell, cells[1][0]);
    }

    // Reductions and stores by the switch: see multicast.cuh.
    template <class Types, class Args>
    __device__ static typename Types::wire_pack reduce_all(const Args& a, const typename Types::op_type&,
                                                           std::size_t at) {
        std::uint32_t x[4];
        ptx::reduce_all<typename Types::op_type, typename Types::wire_type>(
            a.multicast_in + at * sizeof(typename Types::wire_type), x);
        typename Types::wire_pack w;
        __builtin_memcpy(static_cast<void*>(&w), x, sizeof x);
        return w;
    }
    template <class Types, class Args>
    __device__ static void store_all(const Args& a, std::size_t at, const typename Types::wire_pack& w) {
        std::uint32_t x[4];
        __builtin_memcpy(x, static_cast<const void*>(&w), sizeof x);
        ptx::store_all(a.multicast_out + at * sizeof(typename Types::wire_type), x);
    }
    // The same for memories that are bound to one multicast object: `at` bytes behind its address.
    template <class Op, class T, int V>
    __device__ static pack<T, V> reduce_at(std::byte* const*, int, const std::byte* of_all, std::size_t at) {
        std::uint32_t x[4];
        ptx::reduce_all<Op, T>(of_all + at, x);
        pack<T, V> w;
        __builtin_memcpy(static_cast<void*>(&w), x, sizeof x);
        return w;
    }
    template <class T, int V>
    __device__ static void store_at(std::byte* const*, int, std::byte* of_all, std::size_t at, const pack<T, V>& w) {
        std::uint32_t x[4];
        __builtin_memcpy(x, static_cast<const void*>(&w), sizeof x);
        ptx::store_all(of_all + at, x);
    }
    __device__ static void fence_alias() { ptx::fence_alias(); }

    __device__ void sync() const {
        if constexpr (Groups == 1) __syncthreads();
        else asm volatile("barrier.cta.sync %0, %1;" ::"r"(group() + 1), "r"(threads()) : "memory");
    }
    __device__ bool any(bool mine) const {
        if constexpr (Groups == 1) return __syncthreads_or(mine) != 0;
        int result;
        asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %3, 0;\n\t"
                     "barrier.cta.red.or.pred q, %1, %2, p;\n\tselp.s32 %0, 1, 0, q;\n\t}"
                     : "=r"(result)
                     : "r"(group() + 1), "r"(threads()), "r"(static_cast<unsigned>(mine))
                     : "memory");
        return result != 0;
    }
    __device__ void sync_block() const { __syncthreads(); }
    __device__ bool any_of_block(bool mine) const { return __syncthreads_or(mine) != 0; }

    // Adds x and returns the value that was there. Relaxed, system.
    template <class T>
    __device__ static T add_atomically(T* p, T x) {
        if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
            return static_cast<T>(
                atomicAdd_system(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(x)));
        else return atomicAdd_system(p, x);
    }

    __device__ static void pause() {}
    __device__ static std::uint64_t now_ns() {
        std::uint64_t t;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
        return t;
    }
};

} // namespace device
COLLX_END_NAMESPACE
