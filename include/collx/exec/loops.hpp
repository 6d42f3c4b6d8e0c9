// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The loops that touch the bytes. They reduce k arrays element by element, in order, into one destination or, block by
// block, into several. They use the compilers' vector extensions because g++ -O2 does not vectorise them by itself (a
// factor of 3 to 20 in the cache). They know no schedule.
#pragma once

#include <cstddef>
#include <cstring>

#include <collx/core/config.hpp>
#include <collx/core/op.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t vector_bytes = 32;
#else
inline constexpr std::size_t vector_bytes = 16;
#endif

template <class T>
struct pack_of {
    typedef T type __attribute__((vector_size(vector_bytes)));
    typedef T unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
    static constexpr std::size_t lanes = vector_bytes / sizeof(T);
};

template <class T>
COLLX_ALWAYS_INLINE typename pack_of<T>::type load_pack(const T* p) {
    return *reinterpret_cast<const typename pack_of<T>::unaligned*>(p);
}
template <class T>
COLLX_ALWAYS_INLINE void store_pack(T* p, typename pack_of<T>::type v) {
    *reinterpret_cast<typename pack_of<T>::unaligned*>(p) = v;
}

// to[i] = s[0][i] op s[1][i] op … op s[Sources - 1][i]. The destination may be one of the sources.
template <int Sources, class Op, class T>
void fold_fixed(const Op& op, T* to, const T* const* s, std::size_t n) {
    std::size_t i = 0;
#if !defined(__CUDACC__) // nvcc refuses vectors in functions that are also device code, as operators are
    if constexpr (is_vectorisable_v<Op, T>) {
        constexpr std::size_t lanes = pack_of<T>::lanes;
        const T* p[static_cast<std::size_t>(Sources)];
        for (int k = 0; k < Sources; ++k) p[k] = s[k];
        for (; i + 2 * lanes <= n; i += 2 * lanes) {
            auto a = load_pack(p[0] + i);
            auto b = load_pack(p[0] + i + lanes);
#pragma GCC unroll 8
            for (int k = 1; k < Sources; ++k) {
                a = op(a, load_pack(p[k] + i));
                b = op(b, load_pack(p[k] + i + lanes));
            }
            store_pack(to + i, a);
            store_pack(to + i + lanes, b);
        }
    }
#endif
    for (; i < n; ++i) {
        T a = s[0][i];
        for (int k = 1; k < Sources; ++k) a = static_cast<T>(op(a, s[k][i]));
        to[i] = a;
    }
}

template <class Op, class T>
[[gnu::noinline]] void fold_many(const Op& op, T* to, const T* const* s, int sources, std::size_t n) {
    switch (sources) {
        case 5: return fold_fixed<5>(op, to, s, n);
        case 6: return fold_fixed<6>(op, to, s, n);
        case 7: return fold_fixed<7>(op, to, s, n);
        default: break;
    }
    // Longer folds go through the cache in blocks: eight sources, then seven more onto the partial result, in order.
    constexpr std::size_t block = 2048 / sizeof(T) != 0 ? 2048 / sizeof(T) : 1;
    alignas(64) std::byte partial[block * sizeof(T)];
    T* acc = reinterpret_cast<T*>(partial);
    for (std::size_t at = 0; at < n; at += block) {
        const std::size_t m = n - at < block ? n - at : block;
        const T* part[8];
        for (int k = 0; k < 8; ++k) part[k] = s[k] + at;
        fold_fixed<8, Op, T>(op, acc, part, m);
        int done = 8;
        for (; sources - done >= 7; done += 7) {
            part[0] = acc;
            for (int k = 1; k < 8; ++k) part[k] = s[done + k - 1] + at;
            fold_fixed<8, Op, T>(op, acc, part, m);
        }
        for (; done < sources; ++done) {
            part[0] = acc;
            part[1] = s[done] + at;
            fold_fixed<2, Op, T>(op, acc, part, m);
        }
        std::memcpy(static_cast<void*>(to + at), partial, m * sizeof(T));
    }
}

template <class Op, class T>
[[gnu::noinline]] void fold_dispatch(const Op& op, T* to, const T* const* s, int sources, std::size_t n) {
    switch (sources) {
        case 1: return fold_fixed<1>(op, to, s, n);
        case 2: return fold_fixed<2>(op, to, s, n);
        case 3: return fold_fixed<3>(op, to, s, n);
        case 4: return fold_fixed<4>(op, to, s, n);
        default: return fold_many(op, to, s, sources, n);
    }
}

// The same for an array operator, which writes over its right operand. The partial result and a copy of the next source
// alternate between two blocks in the first-level cache. Still ((s[0] op s[1]) op s[2]) …
template <class Op, class T>
[[gnu::noinline]] void fold_runs(const Op& op, T* to, const T* const* s, int sources, std::size_t n) {
    if constexpr (requires { op.fold(to, s, sources, n); }) return op.fold(to, s, sources, n);
    constexpr std::size_t block = 8192 / sizeof(T) != 0 ? 8192 / sizeof(T) : 1;
    alignas(64) std::byte room[2][block * sizeof(T)];
    for (std::size_t at = 0; at < n; at += block) {
        const std::size_t m = n - at < block ? n - at : block;
        const T* partial = s[0] + at;
        for (int k = 1; k < sources; ++k) {
            T* const next = reinterpret_cast<T*>(room[k % 2]);
            std::memcpy(static_cast<void*>(next), s[k] + at, m * sizeof(T));
            op(partial, next, m);
            partial = next;
        }
        std::memmove(static_cast<void*>(to + at), partial, m * sizeof(T));
    }
}

} // namespace detail

// left[i] = left[i] op right[i]; may overwrite right.
template <class Op, class T>
void combine_into_left(const Op& op, T* left, T* right, std::size_t n) {
    if constexpr (ArrayOp<Op, T>) {
        op(static_cast<const T*>(left), right, n);
        std::memcpy(static_cast<void*>(left), right, n * sizeof(T));
    } else {
        for (std::size_t i = 0; i < n; ++i) left[i] = static_cast<T>(op(left[i], right[i]));
    }
}

// to[i] = s[0][i] op … op s[sources - 1][i]. The destination may be one of the sources.
template <class Op, class T>
COLLX_ALWAYS_INLINE void fold_arrays(const Op& op, T* to, const T* const* s, int sources, std::size_t n) {
    if constexpr (ArrayOp<Op, T>) detail::fold_runs(op, to, s, sources, n);
    else if (sources == 2) detail::fold_fixed<2>(op, to, s, n);
    else detail::fold_dispatch(op, to, s, sources, n);
}

inline constexpr int most_in_blocks = 64; // the most arrays that fold_in_blocks() folds
// (Time of all_reduce of 4 MiB relative to the loops alone: on cores without a common cache 0.77, 0.68, 0.64, 0.61 with
// blocks of 4, 8, 16, 32 KiB; on cores that share a cache of 512 KiB and more 1.03 to 1.05.)
inline constexpr std::size_t block_for_others = 16 * 1024;

// The same in blocks: folds each block into `kept` or, where that is null, into a local buffer, and calls
// `deliver(result, at, count)`, which copies it to where it is wanted. Requires: at most most_in_blocks sources.
//
// Memory that another core reads is written by such copies, never by the loops (transport/write_for_others.hpp).
template <std::size_t BlockBytes, class Op, class T, class Deliver>
COLLX_ALWAYS_INLINE void fold_in_blocks(const Op& op, T* kept, const T* const* s, int sources, std::size_t n,
                                        Deliver deliver) {
    constexpr std::size_t block = BlockBytes / sizeof(T) != 0 ? BlockBytes / sizeof(T) : 1;
    alignas(64) std::byte room[block * sizeof(T)];
    const T* part[most_in_blocks];
    for (std::size_t at = 0; at < n; at += block) {
        const std::size_t m = n - at < block ? n - at : block;
        for (int k = 0; k < sources; ++k) part[k] = s[k] + at;
        T* const result = kept != nullptr ? kept + at : reinterpret_cast<T*>(room);
        fold_arrays(op, result, part, sources, m);
        deliver(static_cast<const T*>(result), at, m);
    }
}

// to[0][i] = to[1][i] = … = s[0][i] op s[1][i] op …, and kept[i] unless null. Other ranks read the memory at `to`.
template <class Op, class T>
[[gnu::noinline]] void fold_for_others(const Op& op, T* kept, T* const* to, int destinations, const T* const* s,
                                       int sources, std::size_t n) {
    const auto deliver = [&](const T* result, std::size_t at, std::size_t m) {
        for (int d = 0; d < destinations; ++d)
            if (to[d] + at != result) write_for_others(to[d] + at, result, m * sizeof(T));
    };
    if (sources <= most_in_blocks) return fold_in_blocks<block_for_others>(op, kept, s, sources, n, deliver);
    T* const result = kept != nullptr ? kept : to[0];
    fold_arrays(op, result, s, sources, n);
    deliver(result, 0, n);
}

COLLX_END_NAMESPACE
