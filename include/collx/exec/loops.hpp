// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The loops in which the bytes are touched: reduce k arrays element by element, in order, into one or two destinations.
// Written with the compilers' vector extensions because g++ -O2 does not vectorise them by itself (a factor of 3 to 20
// in the cache). Knows no schedule.
#pragma once

#include <cstddef>
#include <cstring>

#include <collx/core/config.hpp>
#include <collx/core/op.hpp>

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

// Whether there is a second destination. `perhaps` tests in the loop, where the sums hide the test: each loop is
// compiled for each type and operator.
enum class second_is { none, there, perhaps };

// first[i] = second[i] = s[0][i] op s[1][i] op … op s[Sources - 1][i]. Destinations may be one of the sources.
template <int Sources, second_is Second, class Op, class T>
void fold_fixed(const Op& op, T* first, T* second, const T* const* s, std::size_t n) {
    std::size_t i = 0;
#if !defined(__CUDACC__) // nvcc refuses vectors in functions that are also code of the device, as operators are
    if constexpr (is_vectorisable_v<Op, T>) {
        constexpr std::size_t lanes = pack_of<T>::lanes;
        const T* p[Sources];
        for (int k = 0; k < Sources; ++k) p[k] = s[k];
        for (; i + 2 * lanes <= n; i += 2 * lanes) {
            auto a = load_pack(p[0] + i);
            auto b = load_pack(p[0] + i + lanes);
#pragma GCC unroll 8
            for (int k = 1; k < Sources; ++k) {
                a = op(a, load_pack(p[k] + i));
                b = op(b, load_pack(p[k] + i + lanes));
            }
            store_pack(first + i, a);
            store_pack(first + i + lanes, b);
            if (Second == second_is::there || (Second == second_is::perhaps && second != nullptr)) {
                store_pack(second + i, a);
                store_pack(second + i + lanes, b);
            }
        }
    }
#endif
    for (; i < n; ++i) {
        T a = s[0][i];
        for (int k = 1; k < Sources; ++k) a = static_cast<T>(op(a, s[k][i]));
        first[i] = a;
        if (Second == second_is::there || (Second == second_is::perhaps && second != nullptr)) second[i] = a;
    }
}

template <class Op, class T>
[[gnu::noinline]] void fold_many(const Op& op, T* first, T* second, const T* const* s, int sources, std::size_t n) {
    switch (sources) {
        case 5: return fold_fixed<5, second_is::perhaps>(op, first, second, s, n);
        case 6: return fold_fixed<6, second_is::perhaps>(op, first, second, s, n);
        case 7: return fold_fixed<7, second_is::perhaps>(op, first, second, s, n);
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
        fold_fixed<8, second_is::none, Op, T>(op, acc, nullptr, part, m);
        int done = 8;
        for (; sources - done >= 7; done += 7) {
            part[0] = acc;
            for (int k = 1; k < 8; ++k) part[k] = s[done + k - 1] + at;
            fold_fixed<8, second_is::none, Op, T>(op, acc, nullptr, part, m);
        }
        for (; done < sources; ++done) {
            part[0] = acc;
            part[1] = s[done] + at;
            fold_fixed<2, second_is::none, Op, T>(op, acc, nullptr, part, m);
        }
        std::memcpy(static_cast<void*>(first + at), partial, m * sizeof(T));
        if (second != nullptr) std::memcpy(static_cast<void*>(second + at), partial, m * sizeof(T));
    }
}

template <second_is Second, class Op, class T>
[[gnu::noinline]] void fold_dispatch(const Op& op, T* first, T* second, const T* const* s, int sources, std::size_t n) {
    switch (sources) {
        case 1: return fold_fixed<1, Second>(op, first, second, s, n);
        case 2: return fold_fixed<2, Second>(op, first, second, s, n);
        case 3: return fold_fixed<3, Second>(op, first, second, s, n);
        case 4: return fold_fixed<4, Second>(op, first, second, s, n);
        default: return fold_many(op, first, second, s, sources, n);
    }
}

// The same for an operator of arrays, which writes over its right operand: the partial result and a copy of the next
// source change places in the first-level cache. Still ((s[0] op s[1]) op s[2]) …
template <class Op, class T>
void fold_runs(const Op& op, T* first, T* second, const T* const* s, int sources, std::size_t n) {
    if constexpr (requires { op.fold(first, second, s, sources, n); }) return op.fold(first, second, s, sources, n);
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
        std::memmove(static_cast<void*>(first + at), partial, m * sizeof(T));
        if (second != nullptr) std::memmove(static_cast<void*>(second + at), partial, m * sizeof(T));
    }
}

} // namespace detail

// left[i] = left[i] op right[i]; right may change.
template <class Op, class T>
void combine_into_left(const Op& op, T* left, T* right, std::size_t n) {
    if constexpr (ArrayOp<Op, T>) {
        op(static_cast<const T*>(left), right, n);
        std::memcpy(static_cast<void*>(left), right, n * sizeof(T));
    } else {
        for (std::size_t i = 0; i < n; ++i) left[i] = static_cast<T>(op(left[i], right[i]));
    }
}

// first[i] = s[0][i] op … op s[sources - 1][i], and second[i] too unless it is null.
template <class Op, class T>
COLLX_ALWAYS_INLINE void fold_arrays(const Op& op, T* first, T* second, const T* const* s, int sources, std::size_t n) {
    using enum detail::second_is;
    if constexpr (ArrayOp<Op, T>) detail::fold_runs(op, first, second, s, sources, n);
    else if (sources == 2 && second == nullptr) detail::fold_fixed<2, none>(op, first, second, s, n);
    else if (second != nullptr) detail::fold_dispatch<there>(op, first, second, s, sources, n);
    else detail::fold_dispatch<none>(op, first, second, s, sources, n);
}

// The same into any number of destinations: once through the cache in blocks, then copied to each.
template <class Op, class T>
void fold_to_arrays(const Op& op, T* const* to, int destinations, const T* const* s, int sources, std::size_t n) {
    if (destinations == 2) return fold_arrays(op, to[0], to[1], s, sources, n);
    if (destinations == 1) return fold_arrays(op, to[0], static_cast<T*>(nullptr), s, sources, n);
    constexpr std::size_t block = 4096 / sizeof(T) != 0 ? 4096 / sizeof(T) : 1;
    constexpr int most = 64;
    for (std::size_t at = 0; at < n; at += block) {
        const std::size_t m = n - at < block ? n - at : block;
        const T* part[most];
        for (int k = 0; k < sources; ++k) part[k] = s[k] + at;
        fold_arrays(op, to[0] + at, static_cast<T*>(nullptr), part, sources, m);
        for (int d = 1; d < destinations; ++d) std::memcpy(static_cast<void*>(to[d] + at), to[0] + at, m * sizeof(T));
    }
}

COLLX_END_NAMESPACE
