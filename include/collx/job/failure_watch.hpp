// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a rank that waits notices that it would wait in vain: another rank has reported a failure, a peer is dead, or the
// time limit is over.
#pragma once

#include <cstdint>

#include <collx/transport/failure.hpp>

COLLX_BEGIN_NAMESPACE

struct communicator_core;

namespace detail {

class failure_watch {
public:
    // The awaited rank where a call waits for all ranks: any dead rank matters at once.
    static constexpr int every_rank = -2;

    explicit failure_watch(communicator_core& c) : core_(c) {}
    failure_watch(const failure_watch&) = delete;

    // The slow checks of a wait. `until` is the time at which the wait is over; it begins as 0, and this function sets
    // it. Throws what ends the wait.
    void check(std::int64_t& until, std::int64_t timeout_ns, awaited waiting_for);

    // A call's own time limit is for the whole call. The communicator's limit is for the time in which nothing moves:
    // it detects a peer that does not come, and does not limit how much data a call may have.
    static void note_progress(std::int64_t& until, std::int64_t timeout_ns) {
        if (until > 0 && timeout_ns <= 0) until = counts_again;
    }
    // Never overflows: nanoseconds::max() means for ever.
    static constexpr std::int64_t later(std::int64_t now, std::int64_t ns) {
        return ns < INT64_MAX - now ? now + ns : INT64_MAX;
    }

    // A wait that spans several looks, of a caller that looks from time to time.
    struct looking {
        std::int64_t until = 0, next_watch_ns = 0;
        std::uint64_t seen_moves = 0;
        int suspect = -1; // of the last look; between two looks this rank may have waited for others
        void note(std::uint64_t moves, std::int64_t timeout_ns) {
            if (seen_moves != moves) note_progress(until, timeout_ns);
            seen_moves = moves;
        }
    };
    // One look. moves: how often an outstanding operation advanced so far.
    void look(looking& l, std::uint64_t moves, std::int64_t timeout_ns, awaited waiting_for) {
        l.note(moves, timeout_ns);
        next_watch_ns_ = l.next_watch_ns;
        suspect_ = l.suspect;
        check(l.until, timeout_ns, waiting_for);
        l.next_watch_ns = next_watch_ns_;
        l.suspect = suspect_;
    }

    // The first rank of a job of threads whose function threw, -1: none.
    int find_failed_thread() const;

private:
    static constexpr std::int64_t counts_again = -1;
    // Publishes which rank this one waits for, and checks whether that rank is alive.
    void look_around(std::int64_t now, std::int64_t limit, awaited waiting_for);
    // Returns the timeout with the rank that causes it. Follows the chain from the awaited rank to the one that that
    // rank waits for, and so on, up to a rank that does not wait. Old entries do not count, since a stopped rank may
    // have waited before. In a circle no rank is more to blame than the next, unless exactly one is silent.
    failure find_late(std::int64_t now, std::int64_t limit, awaited waiting_for) const;
    // Returns a dead peer whose end matters here, -1: none. It is an awaited peer, or one that ended without leaving.
    // Ranks that wait for it notice at once; the others a little later, in case no other rank seems to. A rank that
    // left properly has done its part.
    int find_dead(std::int64_t now, int waiting_for);
    // An awaited rank of this host that makes no more calls on this communicator, -1: none.
    int find_left(int waiting_for) const;

    communicator_core& core_;
    std::int64_t next_watch_ns_ = 0, died_since_ns_ = 0;
    int suspect_ = -1; // found dead at the last look
};

} // namespace detail
COLLX_END_NAMESPACE
