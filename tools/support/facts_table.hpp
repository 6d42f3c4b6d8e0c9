// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables of docs/algorithms.md, derived from the schedules themselves: the documentation says what the verifier
// found. collx_facts prints them, a test compares them with the committed page.
#pragma once

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>

#include <collx/algo/aggregated.hpp>
#include <collx/algo/algorithms.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/leader.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/facts.hpp>

namespace collx::tools {

namespace detail {

// "7/4 S", "S", "–".
inline std::string share_of_buffer(std::int64_t part, std::int64_t whole) {
    if (part == 0 || whole == 0) return "–";
    const std::int64_t divisor = std::gcd(part, whole);
    part /= divisor;
    whole /= divisor;
    if (whole == 1) return part == 1 ? "S" : std::to_string(part) + " S";
    return std::to_string(part) + "/" + std::to_string(whole) + " S";
}

inline std::string number_or_dash(int x) { return x == 0 ? "–" : std::to_string(x); }

template <class Algorithm>
std::string facts_row(const Algorithm& a, int n) {
    const sched::facts f = sched::facts_of(a, n);
    const auto chunks = static_cast<std::int64_t>(a.chunks(n));
    const char* order = !reduces(Algorithm::op) ? "–" : sched::name_of(f.order);
    return std::string("| `") + Algorithm::name + "` | " + number_or_dash(static_cast<int>(chunks)) + " | " +
           std::to_string(f.steps) + " | " + std::to_string(f.rounds) + " | " + number_or_dash(f.messages) + " | " +
           share_of_buffer(f.chunks_sent, chunks) + " | " + share_of_buffer(f.window_chunks_written, n * chunks) +
           " | " + share_of_buffer(f.window_chunks_read, n * chunks) + " | " + number_or_dash(f.min_depth) + " | " +
           number_or_dash(f.min_window_depth) + " | " + share_of_buffer(f.tmp_chunks, chunks) + " | " + order + " |\n";
}

// The row of one algorithm on a map of nodes; `suites` names what it is made of.
template <class Algorithm>
std::string nodes_row(Algorithm a, const std::string& suites, const std::string& map_name, const node_map& m) {
    if constexpr (requires { a.nodes; }) a.nodes = m;
    const int n = m.view().ranks();
    const sched::schedule s = sched::record_all(a, n);
    const sched::facts f = sched::facts_of(s);
    const sched::crossings c = sched::messages_between(s, [&](int r) { return m.view().node_of(r); });
    const char* order = !reduces(Algorithm::op) ? "–" : sched::name_of(f.order);
    return std::string("| `") + Algorithm::name + "`" + suites + " | " + map_name + " | " + number_or_dash(s.chunks) +
           " | " + std::to_string(f.steps) + " | " + std::to_string(f.rounds) + " | " + number_or_dash(f.messages) +
           " | " + share_of_buffer(f.chunks_sent, s.chunks) + " | " +
           number_or_dash(static_cast<int>(c.total_messages)) + " | " + share_of_buffer(c.total_chunks, s.chunks) +
           " | " + number_or_dash(f.min_depth) + " | " + share_of_buffer(f.tmp_chunks, s.chunks) + " | " + order +
           " |\n";
}

// The plain algorithm and the hierarchical ones, on even nodes, on ranks that were dealt out, on uneven nodes.
template <collective C, class Flat>
std::string nodes_table(const Flat& flat, int n) {
    using algo::hierarchical, algo::rings, algo::trees;
    const node_map halves = node_map::blocks(n, (n + 1) / 2), cards = node_map::cyclic(n, 2),
                   uneven = node_map::blocks(n, n / 2 + 1);
    const auto number = [](int x) { return std::to_string(x); };
    const std::string even_name = number((n + 1) / 2) + " + " + number(n / 2), dealt_name = even_name + ", dealt out",
                      uneven_name = number(n / 2 + 1) + " + " + number(n - n / 2 - 1);
    std::string text = std::string("\n#### ") + name_of(C) +
                       "\n\n| algorithm | nodes | chunks | steps | rounds | messages | sent | messages between | sent "
                       "between | slots | scratch | order |\n"
                       "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n";
    text += nodes_row(flat, "", even_name, halves) + nodes_row(flat, "", dealt_name, cards);
    if constexpr (C == collective::all_to_all) {
        const algo::aggregated_all_to_all a{};
        const algo::leader_all_to_all led{};
        return text + nodes_row(a, "", even_name, halves) + nodes_row(a, "", dealt_name, cards) +
               nodes_row(a, "", uneven_name, uneven) + nodes_row(led, "", even_name, halves) +
               nodes_row(led, "", dealt_name, cards) + nodes_row(led, "", uneven_name, uneven);
    } else {
        if constexpr (C == collective::all_gather) {
            const algo::leader_all_gather led{};
            text += nodes_row(led, "", even_name, halves) + nodes_row(led, "", uneven_name, uneven);
        }
        return text + nodes_row(hierarchical<C, rings>{}, " rings", even_name, halves) +
               nodes_row(hierarchical<C, rings>{}, " rings", dealt_name, cards) +
               nodes_row(hierarchical<C, trees>{}, " trees", even_name, halves) +
               nodes_row(hierarchical<C, rings>{}, " rings", uneven_name, uneven);
    }
}

} // namespace detail

inline constexpr int facts_table_ranks = 8;

/// What crosses between two nodes, for all algorithms that use nodes, with the plain ones for comparison.
inline std::string nodes_tables(int n) {
    if (n < 4) return "";
    return "\n### On nodes\n" + detail::nodes_table<collective::all_reduce>(algo::ring_all_reduce{}, n) +
           detail::nodes_table<collective::reduce_scatter>(algo::ring_reduce_scatter{}, n) +
           detail::nodes_table<collective::all_gather>(algo::ring_all_gather{}, n) +
           detail::nodes_table<collective::broadcast>(algo::binomial_broadcast{}, n) +
           detail::nodes_table<collective::reduce>(algo::binomial_reduce{}, n) +
           detail::nodes_table<collective::barrier>(algo::dissemination_barrier{}, n) +
           detail::nodes_table<collective::all_to_all>(algo::pairwise_all_to_all{}, n);
}

/// All collectives, one table each, for `n` ranks and root 0; then the same on two nodes.
inline std::string facts_tables(int n = facts_table_ranks) {
    std::string text;
    const auto table = [&]<collective C>(std::integral_constant<collective, C>) {
        text += std::string("\n### ") + name_of(C) + "\n\n" +
                "| algorithm | chunks | steps | rounds | messages | sent | window written | window read | slots | "
                "stages | scratch | order |\n"
                "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n";
        algo::algorithms<C>::for_each([&](auto a) { text += detail::facts_row(a, n); });
    };
    table(std::integral_constant<collective, collective::all_reduce>{});
    table(std::integral_constant<collective, collective::reduce>{});
    table(std::integral_constant<collective, collective::broadcast>{});
    table(std::integral_constant<collective, collective::all_gather>{});
    table(std::integral_constant<collective, collective::reduce_scatter>{});
    table(std::integral_constant<collective, collective::gather>{});
    table(std::integral_constant<collective, collective::scatter>{});
    table(std::integral_constant<collective, collective::all_to_all>{});
    table(std::integral_constant<collective, collective::scan>{});
    table(std::integral_constant<collective, collective::exclusive_scan>{});
    table(std::integral_constant<collective, collective::barrier>{});
    return text + nodes_tables(n);
}

} // namespace collx::tools
