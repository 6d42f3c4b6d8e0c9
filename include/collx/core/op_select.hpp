// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operators that say where a value is: arg_min and arg_max on (value, index) pairs, top_k on short sorted lists of
// them. All three use one total order, so any order and grouping of the operands gives the same bits: a NaN comes first
// (users must see it), then the better value, then the lower index; -0 and +0 are equal values.
// Requires: an index occurs once among all contributions (two entries with the same index cannot be distinguished).
// It must not know about buffers.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/core/config.hpp>
#include <collx/core/scalar.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// A value and the index where it was found. With a 4-byte value prefer a 4-byte index: `indexed<float, std::int32_t>`
// has 8 bytes without padding, `indexed<float>` has 16 with 4 unused ones.
template <class T, class Index = std::int64_t>
struct indexed {
    T value;
    Index index;

    friend constexpr bool operator==(const indexed&, const indexed&) = default;
};
template <class T, class Index>
indexed(T, Index) -> indexed<T, Index>;

namespace detail {

// indexed<T, I> and std::pair<T, I> (device code cannot assign a std::pair, so kernels take `indexed`).
template <class P>
struct entry_parts;
template <class T, class Index>
struct entry_parts<indexed<T, Index>> {
    using value_type = T;
    using index_type = Index;
    COLLX_HD static constexpr const T& value(const indexed<T, Index>& e) { return e.value; }
    COLLX_HD static constexpr const Index& index(const indexed<T, Index>& e) { return e.index; }
};
template <class T, class Index>
struct entry_parts<std::pair<T, Index>> {
    using value_type = T;
    using index_type = Index;
    COLLX_HD static constexpr const T& value(const std::pair<T, Index>& e) { return e.first; }
    COLLX_HD static constexpr const Index& index(const std::pair<T, Index>& e) { return e.second; }
};

template <class P>
concept indexed_entry = requires {
    typename entry_parts<P>::index_type;
};
template <class P>
concept bounded_entry =
    indexed_entry<P> && bounded<typename entry_parts<P>::value_type> && bounded<typename entry_parts<P>::index_type>;

// Whether `a` comes before `b`. `Largest`: larger values are better, else smaller ones.
COLLX_EXEC_CHECK_DISABLE
template <bool Largest, class P>
COLLX_HD constexpr bool comes_first(const P& a, const P& b) {
    using parts = entry_parts<P>;
    const auto& x = parts::value(a);
    const auto& y = parts::value(b);
    const bool lower_index = !(parts::index(b) < parts::index(a));
    const bool x_is_nan = is_nan(x);
    const bool y_is_nan = is_nan(y);
    if (x_is_nan || y_is_nan) return x_is_nan && (!y_is_nan || lower_index);
    if (x < y) return !Largest;
    if (y < x) return Largest;
    return lower_index;
}

template <bool Largest>
struct arg_op {
    template <class P>
    requires indexed_entry<P> COLLX_HD constexpr P operator()(const P& a, const P& b) const {
        return comes_first<Largest>(a, b) ? a : b;
    }
    template <class P>
    requires bounded_entry<P> COLLX_HD static constexpr P identity() {
        using parts = entry_parts<P>;
        constexpr auto worst = Largest ? lowest_v<typename parts::value_type> : highest_v<typename parts::value_type>;
        constexpr auto nowhere = highest_v<typename parts::index_type>;
        return P{worst, nowhere};
    }
    static constexpr bool is_commutative = true;
    static constexpr bool is_exact = true;
};

} // namespace detail

// Combines (value, index) pairs to the one with the smallest, or the largest, value.
struct arg_min : detail::arg_op<false> {};
struct arg_max : detail::arg_op<true> {};

// The K best (largest) entries of one or more ranks, best first. An unused place holds the highest index and the lowest
// value; in a new list all places are unused.
template <class T, int K, class Index = std::int64_t>
requires detail::bounded<T> && detail::bounded<Index> &&(K > 0) struct top_k_state {
    using value_type = T;
    using index_type = Index;
    using entry = indexed<T, Index>;
    entry entries[static_cast<std::size_t>(K)];

    COLLX_HD constexpr top_k_state() {
        for (entry& e : entries) e = detail::arg_op<true>::identity<entry>();
    }

    COLLX_HD constexpr int size() const {
        constexpr Index nowhere = detail::highest_v<Index>;
        int taken = 0;
        while (taken < K && entries[taken].index != nowhere) ++taken;
        return taken;
    }

    // Cost: at most K moves.
    COLLX_HD constexpr void insert(T value, Index index) {
        const entry candidate{value, index};
        int place = K;
        while (place > 0 && detail::comes_first<true>(candidate, entries[place - 1])) --place;
        for (int i = K - 1; i > place; --i) entries[i] = entries[i - 1];
        if (place < K) entries[place] = candidate;
    }

    friend constexpr bool operator==(const top_k_state&, const top_k_state&) = default;
};

// Merges two lists of the K best entries.
// Cost: K comparisons.
template <int K>
struct top_k {
    template <class T, class Index>
    COLLX_HD constexpr top_k_state<T, K, Index> operator()(const top_k_state<T, K, Index>& a,
                                                           const top_k_state<T, K, Index>& b) const {
        top_k_state<T, K, Index> merged;
        int i = 0;
        int j = 0;
        for (auto& e : merged.entries)
            e = detail::comes_first<true>(a.entries[i], b.entries[j]) ? a.entries[i++] : b.entries[j++];
        return merged;
    }
    template <class S>
    requires std::is_same_v<S,
                            top_k_state<typename S::value_type, K, typename S::index_type>> COLLX_HD static constexpr S
    identity() {
        return S{};
    }
    static constexpr bool is_commutative = true;
    static constexpr bool is_exact = true;
};

COLLX_END_NAMESPACE
