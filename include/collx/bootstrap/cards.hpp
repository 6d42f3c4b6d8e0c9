// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every rank tells all others one line through a store: rank 0 collects the lines and publishes them as one table, so
// that the store serves a few large words and not one per pair of ranks.
#pragma once

#include <string>
#include <vector>

#include <collx/bootstrap/store.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline constexpr std::size_t table_part_bytes = most_value_bytes - 1024;

[[gnu::cold]] inline std::vector<std::string> split_lines(const std::string& table, int lines, int rank) {
    std::vector<std::string> cards;
    for (std::size_t at = 0; at < table.size();) {
        const std::size_t end = table.find('\n', at);
        if (end == std::string::npos) break;
        cards.push_back(table.substr(at, end - at));
        at = end + 1;
    }
    if (cards.size() != static_cast<std::size_t>(lines))
        fail(errc::protocol, rank, 0, "use a store of its own for each job",
             "rank 0 left a table of %zu lines in the store, not of %d", cards.size(), lines);
    return cards;
}

} // namespace detail

// All cards, by rank. `round` names this exchange within the job `token`. Collective. Ensures: when it returns on rank
// 0 all ranks have them, so rank 0 may take the store away. Requires: no line break in a card. Errors: timeout, naming
// a missing rank; whatever the store throws. Cost: two words and a table in the store per rank.
template <Store S>
requires(!CollectiveStore<S>)
    [[gnu::cold]] std::vector<std::string> exchange_cards(S& store, const std::string& token, const char* round,
                                                          int rank, int size, const std::string& card,
                                                          const deadline& until) {
    const std::string base = "collx/" + token + "/" + round + "/", me = std::to_string(rank);
    const auto get = [&](const std::string& key, int who) {
        try {
            return store.get(base + key, until);
        } catch (const timed_out&) {
            fail(errc::timeout, rank, who, "is it alive? See its output", "rank %d says no more in the store", who);
        }
    };
    if (rank != 0) {
        store.set(base + me, card);
        std::string table = get("table/0", 0), part;
        for (int i = 1; !table.empty() && table.back() == '+'; ++i) {
            table.pop_back();
            table += get("table/" + std::to_string(i), 0);
        }
        store.set(base + "got/" + me, "");
        return detail::split_lines(table, size, rank);
    }
    std::string table = card + "\n";
    for (int r = 1; r < size; ++r) table += get(std::to_string(r), r) + "\n";
    for (std::size_t at = 0, i = 0; at < table.size(); at += detail::table_part_bytes, ++i) {
        const bool goes_on = at + detail::table_part_bytes < table.size();
        store.set(base + "table/" + std::to_string(i),
                  table.substr(at, detail::table_part_bytes) + (goes_on ? "+" : ""));
    }
    for (int r = 1; r < size; ++r) (void)get("got/" + std::to_string(r), r);
    return detail::split_lines(table, size, 0);
}

// As above, where a process manager lets everybody see everything after a barrier. Cost: one word and n - 1 looks per
// rank.
template <CollectiveStore S>
[[gnu::cold]] std::vector<std::string> exchange_cards(S& store, const std::string& token, const char* round, int rank,
                                                      int size, const std::string& card, const deadline& until) {
    const std::string base = "collx/" + token.substr(0, 8) + "/" + round + "/";
    store.set(base + std::to_string(rank), card);
    store.barrier(base, size, until);
    std::vector<std::string> cards;
    for (int r = 0; r < size; ++r) cards.push_back(r == rank ? card : store.get(base + std::to_string(r), until));
    return cards;
}

COLLX_END_NAMESPACE
