// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the default choice of an algorithm (plan/choices.hpp) depends on, and the size of pieces. Comments give the
// evidence for numbers; docs/performance.md has the measurements.
#pragma once

#include <cstddef>

#include <collx/plan/choose.hpp>
#include <collx/plan/schedules.hpp>

COLLX_BEGIN_NAMESPACE

class order_view;
struct links_choice;

// What a choice depends on. Everything in it is the same on all ranks.
struct problem {
    std::size_t bytes = 0; // of the whole buffer, on the wire
    int ranks = 1;
    int root = 0;
    int at_port = 0;
    bool zero_copy = false; // all buffers lie in windows
    bool oversubscribed = false;
    bool windows = true;                 // all ranks share memory
    bool ordered = false;                // operands must be combined in rank order
    bool serial = false;                 // and one after the other, as a loop would
    bool must_round_once = false;        // and the wire's type is narrower than the sums
    bool may_copy_once = false;          // processes of one host, as COLLX_SINGLE_COPY says
    const node_map* hosts = nullptr;     // several hosts of which some have several ranks
    const links_choice* links = nullptr; // null: nothing is known of the links between the ranks
};

// The choice for a communicator whose ranks know the machine they are on (plan/by_links.hpp).
struct links_choice {
    // Returns null where the choice is as without links.
    bound_schedule* (*select)(const links_choice&, collective, schedule_cache&, const problem&) = nullptr;
    const order_view* rings = nullptr; // each has all ranks; only where all are on one host. One ring: the first
    int ring_count = 0;
    bool beats_windows = false;      // rings load the links less than direct exchange between ranks
    bool has_rails = false;          // the ranks of a host have network cards on several rails
    const node_map* hosts = nullptr; // in place of problem's: ranks of a host along its ring and by rails
};

namespace detail {
// What the rows of the table are compared with (plan/choose.hpp). Callers that look at hosts and links add these.
[[gnu::always_inline]] constexpr choices::situation situation_of(const problem& p) {
    return {.bytes = p.bytes,
            .ranks = p.ranks,
            .zero_copy = p.zero_copy,
            .oversubscribed = p.oversubscribed,
            .ordered = p.ordered,
            .serial = p.serial,
            .must_round_once = p.must_round_once,
            .may_copy_once = p.may_copy_once};
}
constexpr choices::situation situation_on(const node_view& hosts, const problem& p) {
    choices::situation s = situation_of(p);
    s.hosts = hosts.nodes();
    s.largest_host = hosts.largest();
    return s;
}
} // namespace detail

// Binds the algorithm that selector.hpp chooses.
template <collective C>
bound_schedule& select(schedule_cache& cache, const problem& p);
// Binds the algorithm that private_selector.hpp chooses.
template <collective C>
bound_schedule& select_for_private_counts(schedule_cache& cache, const problem& p);

// The choice where ranks do not all share memory, by collective. Programs whose ranks share memory need not compile it.
using selection = bound_schedule& (*)(schedule_cache&, const problem&);
#if defined(COLLX_COMPILED)
extern const selection* selections_over_channels;
#else
// Written by: the initialisation of a program that may have ranks on several hosts (channel_selector.hpp, which
// collx/net.hpp includes); read by: select().
inline const selection* selections_over_channels = nullptr;
#endif

// Whether a call is one message, passed on or not. Pieces then save time: the receiver begins while its sender
// continues. In an exchange all ranks write at the same time, and then read.
constexpr bool is_one_message(collective c) {
    return c == collective::broadcast || c == collective::reduce || c == collective::send_recv;
}

// The number of bytes of one chunk that travel at once. Pieces overlap putting, reducing and taking and stay in the
// second-level cache; each costs a few hundred nanoseconds of signalling, or a context switch where ranks share cores.
// (2 ranks, pieces of at most 128 KiB, time relative to pieces of 16 KiB for chunks up to 128 KiB and of 32 KiB up to
// 256 KiB: all_gather 0.72 to 0.92 far and 0.80 to 0.87 near, all_reduce 0.83 to 0.93, reduce_scatter 0.81 to 0.93
// near; broadcast and reduce 1.05 to 1.19.)
constexpr std::size_t piece_bytes_of(collective what, bool is_window, std::size_t most, std::size_t chunk_bytes,
                                     bool oversubscribed, bool one_host) {
    if (!one_host) return chunk_bytes < most ? chunk_bytes : most; // the system cuts it into segments by itself
    std::size_t want = 64 * 1024;
    if (chunk_bytes <= most_short_bytes) {
        want = chunk_bytes;
    } else if (!oversubscribed) {
        want = 128 * 1024;
        if (is_one_message(what)) {
            // A slot waits for one peer, a stage for all ranks: windows take smaller pieces, from shorter chunks on.
            if (chunk_bytes <= 32 * 1024 && !is_window) want = chunk_bytes;
            else if (chunk_bytes <= 128 * 1024) want = 16 * 1024;
            else if (chunk_bytes <= 256 * 1024) want = 32 * 1024;
        }
        if (chunk_bytes < want) want = chunk_bytes;
    }
    return want < most ? want : most;
}
inline std::size_t piece_bytes(const bound_schedule& b, collective what, std::size_t chunk_bytes, bool oversubscribed,
                               bool one_host = true) {
    if (b.zero_copy) return chunk_bytes;
    return piece_bytes_of(what, b.window != nullptr, b.most_bytes, chunk_bytes, oversubscribed, one_host);
}

COLLX_END_NAMESPACE
