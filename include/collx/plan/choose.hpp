// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads the table of choices. with_choice() knows venue and collective at compile time: it becomes the comparisons of
// their rows, and compiles its function only for algorithms that these name. find_choice() does the same at run time.
#pragma once

#include <cstddef>
#include <utility>

#include <collx/plan/choices.hpp>

COLLX_BEGIN_NAMESPACE
namespace choices {

// What rows are compared with. All of it is the same on all ranks.
struct situation {
    std::size_t bytes = 0; // of the whole buffer, on the wire
    int ranks = 1;
    bool zero_copy = false, oversubscribed = false, ordered = false, serial = false;
    int hosts = 0, largest_host = 1; // hosts: 0 unless there are several, some with several ranks
    bool rings_pay = false, by_rail = false, must_round_once = false, may_copy_once = false;
};

// The size of a message from host to host, where each rank has `part` bytes for each other rank. 0 for parts of at most
// a byte, which no limit excludes: see most_part_bytes().
constexpr std::size_t bytes_between_hosts(std::size_t part, int largest_host) {
    const auto all = static_cast<std::size_t>(largest_host);
    return part <= 1 ? 0 : part * all * all;
}
// The longest part whose message between hosts the row still takes.
constexpr int most_part_bytes(const row& r, int largest_host) {
    const std::size_t part = r.up_to / static_cast<std::size_t>(largest_host) / static_cast<std::size_t>(largest_host);
    return part > 0 ? static_cast<int>(part) : 1;
}
constexpr std::size_t measured(measure m, const situation& s) {
    if (m == measure::buffer) return s.bytes;
    const std::size_t part = s.bytes / static_cast<std::size_t>(s.ranks);
    return m == measure::part ? part : bytes_between_hosts(part, s.largest_host);
}
// Whether all conditions in `needs` hold.
constexpr bool holds(unsigned needs, const situation& s) {
    if ((needs & in_windows) != 0 && !s.zero_copy) return false;
    if ((needs & private_buffers) != 0 && s.zero_copy) return false;
    if ((needs & shared_cores) != 0 && !s.oversubscribed) return false;
    if ((needs & own_cores) != 0 && s.oversubscribed) return false;
    if ((needs & any_order) != 0 && s.ordered) return false;
    if ((needs & rank_order) != 0 && !s.ordered) return false;
    if ((needs & one_by_one) != 0 && !s.serial) return false;
    if ((needs & power_of_two) != 0 && (s.ranks & (s.ranks - 1)) != 0) return false;
    if ((needs & rings_pay) != 0 && !s.rings_pay) return false;
    if ((needs & by_rail) != 0 && !s.by_rail) return false;
    if ((needs & whole_sums) != 0 && s.must_round_once) return false;
    if ((needs & single_copies) != 0 && !s.may_copy_once) return false;
    return (needs & crowded_hosts) == 0 || s.hosts != 0;
}
// Whether the row applies, apart from its venue and collective.
[[gnu::always_inline]] constexpr bool applies(const row& r, const situation& s) {
    if (!holds(r.needs, s)) return false;
    if (r.ranks.least > 1 && s.ranks < r.ranks.least) return false;
    if (r.ranks.most != any_ranks && s.ranks > r.ranks.most) return false;
    if (r.most_hosts != any_ranks && s.hosts > r.most_hosts) return false;
    if (r.above != 0 && measured(r.of, s) <= r.above) return false;
    return r.up_to == any_bytes || measured(r.of, s) <= r.up_to;
}

// The first row from `from` on that is for p and c; row_count: none.
constexpr int next_row(unsigned p, collective c, int from = 0) {
    while (from < row_count && !rows[from].is_for(p, c)) ++from;
    return from;
}
// The row for s, null where none applies.
constexpr const row* find_choice(venue p, collective c, const situation& s) {
    for (int i = next_row(p, c); i < row_count; i = next_row(p, c, i + 1))
        if (applies(rows[i], s)) return &rows[i];
    return nullptr;
}
// The last row, for all that no other row takes.
constexpr const row& last_choice(venue p, collective c) {
    int last = next_row(p, c);
    for (int i = last; i < row_count; i = next_row(p, c, i + 1)) last = i;
    return rows[last];
}
// The first row for p and c that names n.
constexpr const row& row_naming(venue p, collective c, name n) {
    int i = next_row(p, c);
    while (rows[i].use != n) i = next_row(p, c, i + 1);
    return rows[i];
}
// The first row for p and c after `first` that names another algorithm or protocol.
constexpr int end_of_run(unsigned p, collective c, int first) {
    int i = first;
    while (i < row_count && rows[i].use == rows[first].use && rows[i].by == rows[first].by) i = next_row(p, c, i + 1);
    return i;
}

// Whether the row has no conditions.
constexpr bool applies_always(const row& r) {
    return r.needs == 0 && r.ranks.least <= 1 && r.ranks.most == any_ranks && r.most_hosts == any_ranks &&
           r.above == 0 && r.up_to == any_bytes;
}

// Whether one of the rows [first, end) for p and c has no conditions.
constexpr bool runs_always(unsigned p, collective c, int first, int end) {
    for (int i = first; i < end; i = next_row(p, c, i + 1))
        if (applies_always(rows[i])) return true;
    return false;
}

// A choice as a type.
template <name N, protocol P = protocol::simple>
struct chosen {
    static constexpr name use = N;
    static constexpr protocol by = P;
};

// Whether one of the rows [From, End) for P and C applies.
template <venue P, collective C, int From, int End>
[[gnu::always_inline]] constexpr bool any_applies(const situation& s) {
    if constexpr (From >= End) return false;
    else {
        constexpr row r = rows[From];
        return applies(r, s) || any_applies<P, C, next_row(P, C, From + 1), End>(s);
    }
}
// Calls f(chosen<...>) with the row for s, or f(chosen<none>) where no row applies.
template <venue P, collective C, int Row = next_row(P, C), class F>
[[gnu::always_inline]] constexpr decltype(auto) with_choice(const situation& s, F&& f) {
    if constexpr (Row >= row_count) {
        return f(chosen<none>());
    } else {
        constexpr row r = rows[Row];
        constexpr int end = end_of_run(P, C, Row);
        if constexpr (runs_always(P, C, Row, end)) {
            return f(chosen<r.use, r.by>());
        } else {
            if (any_applies<P, C, Row, end>(s)) return f(chosen<r.use, r.by>());
            return with_choice<P, C, end>(s, std::forward<F>(f));
        }
    }
}

} // namespace choices
COLLX_END_NAMESPACE
