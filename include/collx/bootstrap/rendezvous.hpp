// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How ranks that share nothing but a store agree on a name for their job. Rank 0 compares what everybody says, then
// publishes the name or, in its place, what is wrong: all ranks that came throw the same error.
#pragma once

#include <string>

#include <collx/bootstrap/store.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// At the deadline rank 0 says who is missing: so long do the others wait for its words, and it for their having heard
// them.
inline constexpr std::int64_t verdict_grace_ns = 250'000'000;

// The verdict of rank 0 is one letter (k: the token follows, m: mismatch, t: timeout), for errors the guilty rank and a
// blank, then the text.
[[gnu::cold]] inline std::string read_verdict(const std::string& verdict, int rank) {
    if (verdict.size() == 33 && verdict[0] == 'k') return verdict.substr(1);
    const std::size_t blank = verdict.find(' ');
    std::int64_t guilty = -1;
    if (blank == std::string::npos || blank == 0 || !read_sum(std::string_view(verdict).substr(1, blank - 1), guilty))
        fail(errc::protocol, rank, 0, "use a store of its own for each job",
             "rank 0 left something unknown in the store");
    fail(verdict[0] == 't' ? errc::timeout : errc::mismatch, rank, static_cast<int>(guilty),
         verdict[0] == 't' ? "start the missing ranks or see their output" : "give all ranks the same size", "%s",
         verdict.c_str() + blank + 1);
}

// Rank 0: hears everybody and says what came of it.
template <class S>
[[gnu::cold]] std::string judge_ranks(S& store, const std::string& turn, int size, const deadline& until) {
    std::string late;
    int first_late = -1, late_ranks = 0;
    for (int r = 1; r < size; ++r) {
        std::string said;
        try {
            // Once one is missing the time is over: the others are only looked for.
            said = store.get(turn + "rank/" + std::to_string(r), late_ranks == 0 ? until : deadline{1});
        } catch (const timed_out&) {
            if (late_ranks++ == 0) first_late = r;
            if (late.size() < 100) late += (late.empty() ? "" : ", ") + std::to_string(r);
            continue;
        }
        if (said != std::to_string(size))
            return "m" + std::to_string(r) + " rank " + std::to_string(r) + " says " + said.substr(0, 20) +
                   " ranks, rank 0 says " + std::to_string(size);
    }
    if (late_ranks == 0) return "k" + random_token();
    return "t" + std::to_string(first_late) + " " + std::to_string(late_ranks) + " of " + std::to_string(size) +
           " ranks did not come to the store: " + late + (late.size() < 100 ? "" : " and more");
}

} // namespace detail

// The name of the job, random and the same on all `size` ranks. Collective; may be called again with the same store for
// the next job. Ensures: when it returns on rank 0 all ranks have the name, so rank 0 may take the store away. Errors:
// timeout (names the missing ranks) · mismatch (sizes differ) · whatever the store throws. Cost: three words in the
// store per rank.
template <Store S>
requires(!CollectiveStore<S>) [[gnu::cold]] std::string
    rendezvous(S& store, int rank, int size, const deadline& until) {
    if (size < 1 || rank < 0 || rank >= size)
        fail(errc::invalid_argument, rank, -1, "", "rank %d of %d ranks", rank, size);
    const std::string me = std::to_string(rank);
    // Each rank counts for itself which meeting of this store this is; a rank number used twice shows as a meeting that
    // the others never reach.
    const std::string turn = "collx/" + std::to_string(store.add("collx/turn/" + me, 1)) + "/";
    if (rank == 0) {
        const std::string verdict = detail::judge_ranks(store, turn, size, until);
        store.set(turn + "verdict", verdict);
        const bool is_good = verdict[0] == 'k';
        const deadline last = is_good ? until : deadline::in_ns(detail::verdict_grace_ns);
        for (int r = 1; r < size; ++r) {
            try {
                (void)store.get(turn + "got/" + std::to_string(r), last);
            } catch (const timed_out&) {
                if (is_good) throw;
            }
        }
        return detail::read_verdict(verdict, 0);
    }
    store.set(turn + "rank/" + me, std::to_string(size));
    std::string verdict;
    try {
        verdict = store.get(turn + "verdict", deadline{until.at_ns < INT64_MAX - detail::verdict_grace_ns
                                                           ? until.at_ns + detail::verdict_grace_ns
                                                           : INT64_MAX});
    } catch (const timed_out&) {
        fail(errc::timeout, rank, 0, "is every rank started once, with the same store, and is the store new?",
             "rank 0 published no job in the store");
    }
    store.set(turn + "got/" + me, "");
    return detail::read_verdict(verdict, rank);
}

// As above. Cost: one value, one barrier. Errors: as the store's; who is missing, only its process manager knows.
template <CollectiveStore S>
std::string rendezvous(S& store, int rank, int size, const deadline& until) {
    const std::string key = "collx/job/" + std::to_string(store.next_turn());
    if (rank == 0) store.set(key, detail::random_token());
    store.barrier(key, size, until);
    std::string name = store.get(key, until);
    if (name.size() != 32)
        fail(errc::protocol, rank, 0, "build all ranks with the same version of collx",
             "rank 0 left something unknown in the store");
    return name;
}

COLLX_END_NAMESPACE
