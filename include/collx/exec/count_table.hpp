// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The counts of a v-variant, checked once: how many elements each rank's part has and where it begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/exec/layout.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Anything that lists one count per rank: vector, std::array, span, braces. Not of floating point: where an argument
// is forgotten, a buffer of floats stands in the place of the counts.
template <class X>
concept CountList = requires(const X& x) {
    { x.size() } -> std::convertible_to<std::size_t>;
    { *x.data() } -> std::convertible_to<std::size_t>;
    requires !std::is_floating_point_v<std::remove_cvref_t<decltype(*x.data())>>;
};

using count_list = detail::growing_array<std::size_t>; // the type of counts in braces

// Counts and where each part begins. Parts lie one after the other unless offsets are given.
class count_table {
public:
    count_table() = default;
    // Both reuse the memory of the table that was there before.
    template <CountList Counts>
    void assign(int me, int ranks, const Counts& counts, const char* which) {
        assign(me, ranks, counts, no_offsets{}, which);
    }
    template <CountList Counts, class Offsets>
    void assign(int me, int ranks, const Counts& counts, const Offsets& offsets, const char* which) {
        of_neighbors_ = false;
        fill(me, ranks, counts, offsets, which);
    }
    // For the neighbours in a graph, numbered as the program lists them.
    template <CountList Counts, class Offsets>
    void assign_neighbors(int me, std::size_t neighbors, const Counts& counts, const Offsets& offsets,
                          const char* which) {
        of_neighbors_ = true;
        fill(me, static_cast<int>(neighbors), counts, offsets, which);
    }
    // For a rank that knows only its own part.
    void assign_one(int me, int ranks, std::size_t count) {
        const auto n = static_cast<std::size_t>(ranks);
        numbers_.assign(2 * n, 0);
        numbers_[me] = end_ = total_ = count;
    }
    // Throws if two parts overlap. For parts that a call writes; parts that it reads may overlap. Cost: one look at
    // each part where they lie in rank order, else a sort.
    void require_disjoint(int me, const char* which) const {
        std::size_t end = 0;
        for (std::size_t i = 0, n = numbers_.size() / 2; i < n; ++i) {
            if (sizes()[i] == 0) continue;
            if (offsets()[i] < end) return require_disjoint_unordered(me, which);
            end = offsets()[i] + sizes()[i];
        }
    }

    const std::size_t* sizes() const { return numbers_.data(); }
    const std::size_t* offsets() const { return numbers_.data() + numbers_.size() / 2; }
    std::size_t end() const { return end_; } // a buffer must have at least this many elements
    std::size_t total() const { return total_; }
    int ranks() const { return static_cast<int>(numbers_.size() / 2); }
    chunk_layout layout() const { return chunk_layout::table(sizes(), offsets(), ranks()); }
    std::uint64_t hash() const { return hash_of(sizes(), ranks()); }

private:
    template <class Counts, class Offsets>
    void fill(int me, int parts, const Counts& counts, const Offsets& offsets, const char* which) {
        const auto n = static_cast<std::size_t>(parts);
        if (counts.size() != n)
            fail(errc::invalid_argument, me, -1, "give one count for each", "%s counts: %zu numbers for %zu %ss", which,
                 static_cast<std::size_t>(counts.size()), n, unit());
        require_offsets(me, n, offsets, which);
        if (numbers_.size() != 2 * n) numbers_.resize(2 * n);
        std::size_t *const sizes = numbers_.data(), *const begins = sizes + n;
        std::size_t next = 0, end = 0, total = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const auto& count = counts.data()[i];
            if (std::is_signed_v<std::remove_cvref_t<decltype(count)>> && !(count >= 0))
                fail(errc::invalid_argument, me, rank_of(i), "counts are numbers of elements",
                     "%s count of %s %zu is negative", which, unit(), i);
            const auto size = static_cast<std::size_t>(count);
            const std::size_t at = offset(offsets, i, next);
            if (at > SIZE_MAX / 2 || size > SIZE_MAX / 2 - at)
                fail(errc::invalid_argument, me, rank_of(i), "is a count negative?", "%s counts overflow at %s %zu",
                     which, unit(), i);
            if (total > SIZE_MAX / 2 - size)
                fail(errc::invalid_argument, me, rank_of(i), "is a count wrong?",
                     "the sum of the %s counts overflows at %s %zu", which, unit(), i);
            sizes[i] = size;
            begins[i] = at;
            next = at + size;
            total += size;
            end = next > end ? next : end;
        }
        end_ = end;
        total_ = total;
    }
    // For error messages.
    const char* unit() const { return of_neighbors_ ? "neighbour" : "rank"; }
    int rank_of(std::size_t part) const { return of_neighbors_ ? -1 : static_cast<int>(part); }
    static std::uint64_t hash_of(const std::size_t* counts, int n) {
        std::uint64_t h = 0xcbf2'9ce4'8422'2325;
        for (int i = 0; i < n; ++i) h = (h ^ counts[i]) * 0x0000'0100'0000'01b3;
        return h;
    }
    struct no_offsets {};
    void require_offsets(int, std::size_t, no_offsets, const char*) const {}
    template <class Offsets>
    void require_offsets(int me, std::size_t n, const Offsets& o, const char* which) const {
        if (o.size() != 0 && o.size() != n)
            fail(errc::invalid_argument, me, -1, "give one offset for each, or none",
                 "%s offsets: %zu numbers for %zu %ss", which, static_cast<std::size_t>(o.size()), n, unit());
        for (std::size_t i = 0; i < o.size(); ++i)
            if (std::is_signed_v<std::remove_cvref_t<decltype(o.data()[i])>> && !(o.data()[i] >= 0))
                fail(errc::invalid_argument, me, rank_of(i), "offsets count elements from the start of the buffer",
                     "%s offset of %s %zu is negative", which, unit(), i);
    }
    static std::size_t offset(no_offsets, std::size_t, std::size_t next) { return next; }
    template <class Offsets>
    static std::size_t offset(const Offsets& o, std::size_t i, std::size_t next) {
        return o.size() == 0 ? next : static_cast<std::size_t>(o.data()[i]);
    }
    // Sorts the parts by where they begin (Shell sort, the longest gaps first), and looks at neighbouring ones.
    [[gnu::cold, gnu::noinline]] void require_disjoint_unordered(int me, const char* which) const {
        growing_array<std::size_t> by_place;
        const std::size_t n = numbers_.size() / 2;
        for (std::size_t i = 0; i < n; ++i)
            if (sizes()[i] != 0) by_place.push_back(i);
        for (std::size_t gap = by_place.size() / 2; gap > 0; gap /= 2)
            for (std::size_t i = gap; i < by_place.size(); ++i)
                for (std::size_t j = i; j >= gap && offsets()[by_place[j - gap]] > offsets()[by_place[j]]; j -= gap)
                    std::swap(by_place[j - gap], by_place[j]);
        for (std::size_t i = 1; i < by_place.size(); ++i) {
            const std::size_t a = by_place[i - 1], b = by_place[i], end = offsets()[a] + sizes()[a];
            if (end > offsets()[b])
                fail(errc::invalid_argument, me, rank_of(b), "give each part a place of its own",
                     "%s parts overlap: %s %zu's ends before element %zu, and %s %zu's begins with element %zu", which,
                     unit(), a, end, unit(), b, offsets()[b]);
        }
    }
    detail::growing_array<std::size_t> numbers_;
    std::size_t end_ = 0, total_ = 0;
    bool of_neighbors_ = false; // else of ranks; for error messages
};

struct count_tables {
    count_table first, second;
    detail::growing_array<std::size_t> relayed; // see relayed_numbers::room
    detail::growing_array<std::byte> copied;    // the data that an exchange in place sends
};

} // namespace detail

COLLX_END_NAMESPACE
