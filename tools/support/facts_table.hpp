// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables of docs/algorithms.md, derived from the schedules themselves: what stands in the documentation is what the
// verifier found. collx_facts prints them, a test compares them with the committed page.
#pragma once

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>

#include <collx/algo/algorithms.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/facts.hpp>

namespace collx::tools {

namespace detail {

// "7/4 S", "S", "–".
inline std::string share_of_buffer(std::int64_t part, std::int64_t whole) {
    if (part == 0 || whole == 0) return "–";
    const std::int64_t divisor = std::gcd(part, whole);
    part /= divisor, whole /= divisor;
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

} // namespace detail

inline constexpr int facts_table_ranks = 8;

/// All collectives, one table each, for `n` ranks and root 0.
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
    return text;
}

} // namespace collx::tools
