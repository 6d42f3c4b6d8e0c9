// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of choices in words, for docs/algorithms.md and for explanations. Calls do not use it.
#pragma once

#include <string>

#include <collx/plan/choices.hpp>

COLLX_BEGIN_NAMESPACE
namespace choices {

// The algorithm's own name; variant_of() says what hierarchical ones are made of.
constexpr const char* name_of(name n) {
    constexpr const char* names[] = {"aggregated",
                                     "binomial",
                                     "bruck",
                                     "chain",
                                     "direct",
                                     "dissemination",
                                     "double_tree",
                                     "doubling",
                                     "flags",
                                     "halving",
                                     "halving_doubling",
                                     "hierarchical",
                                     "hierarchical",
                                     "hierarchical",
                                     "leader",
                                     "linear",
                                     "multicast",
                                     "multicast_two_shot",
                                     "one_shot",
                                     "pairwise",
                                     "recursive_doubling",
                                     "ring",
                                     "rings",
                                     "two_shot",
                                     "zero_copy",
                                     "none"};
    static_assert(sizeof names / sizeof names[0] == none + 1);
    return names[n];
}
constexpr const char* variant_of(name n) {
    return n == hierarchical_rings      ? " rings"
           : n == hierarchical_trees    ? " trees"
           : n == hierarchical_one_rail ? " trees, one rail"
                                        : "";
}
constexpr const char* name_of(venue p) {
    switch (p) {
        case memory: return "Ranks that share memory";
        case channels: return "Ranks that do not";
        case hosts: return "Several hosts of which some have several ranks";
        case links: return "Links that are known, ranks of one host or one on each";
        case rails: return "Links that are known, several hosts of which some have several ranks";
        case own_counts: return "Counts that each rank knows of its own only";
        case device: return "Devices whose kernels reach every peer";
        case switched: return "Devices behind a switch that reduces and multicasts";
        case team: return "Teams on one device";
    }
    return "";
}

} // namespace choices

namespace detail {

inline std::string bytes_in_words(std::size_t n) {
    if (n >= 1 << 20 && n % (1 << 20) == 0) return std::to_string(n >> 20) + " MiB";
    if (n >= 1024 && n % 1024 == 0) return std::to_string(n / 1024) + " KiB";
    return std::to_string(n) + " B";
}
inline std::string collectives_in_words(unsigned set) {
    std::string text;
    for (int c = 0; c < collective_count; ++c)
        if ((set & 1u << c) != 0) text += (text.empty() ? "" : ", ") + std::string(name_of(static_cast<collective>(c)));
    return text;
}
inline std::string ranks_in_words(const choices::range& r) {
    const std::string least = std::to_string(r.least), most = std::to_string(r.most);
    if (r.most == choices::any_ranks) return r.least <= 1 ? "" : least + " ranks or more";
    if (r.least <= 1) return "up to " + most + " ranks";
    return r.least == r.most ? most + " ranks" : least + " to " + most + " ranks";
}
// The conditions of a row, as "up to 16 KiB; 3 to 4 ranks"; "all others" where it has none.
inline std::string conditions_in_words(const choices::row& r) {
    constexpr struct {
        unsigned bit;
        const char* says;
    } conditions[] = {{choices::in_windows, "shared buffers"},
                      {choices::private_buffers, "private buffers"},
                      {choices::shared_cores, "more ranks than cores"},
                      {choices::own_cores, "a core for each rank"},
                      {choices::any_order, "an operator that commutes"},
                      {choices::rank_order, "an operator that does not commute"},
                      {choices::one_by_one, "`deterministic`"},
                      {choices::power_of_two, "2ᵏ ranks"},
                      {choices::rings_pay, "rings that load the links less"},
                      {choices::by_rail, "each rank with a card of its own"},
                      {choices::crowded_hosts, "several hosts of which some have several ranks"},
                      {choices::whole_sums, "not `deterministic` with f16, bf16 or a wire type"},
                      {choices::single_copies, "processes, single copies allowed"}};
    std::string text;
    const auto add = [&](const std::string& s) {
        if (!s.empty()) text += (text.empty() ? "" : "; ") + s;
    };
    const char* of = r.of == choices::measure::part            ? " for each rank"
                     : r.of == choices::measure::between_hosts ? " from host to host"
                                                               : "";
    if (r.above != 0) add("above " + bytes_in_words(r.above) + of);
    if (r.up_to != choices::any_bytes) add("up to " + bytes_in_words(r.up_to) + of);
    add(ranks_in_words(r.ranks));
    if (r.most_hosts != choices::any_ranks) add("up to " + std::to_string(r.most_hosts) + " hosts");
    for (const auto& f : conditions)
        if ((r.needs & f.bit) != 0) add(f.says);
    return text.empty() ? "all others" : text;
}

} // namespace detail
COLLX_END_NAMESPACE
