// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator takes from the arena of a host, which its ranks there share: words by which they find each other
// and learn of failures, and the table of its channels and windows.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/channel.hpp>

COLLX_BEGIN_NAMESPACE

// Ports separate traffic that may be under way at the same time: blocking calls, a few outstanding calls, messages
// between two ranks.
namespace port {
inline constexpr int blocking = 0;    // of blocking calls
inline constexpr int first_async = 1; // of outstanding calls, in turn
inline constexpr int async_ports = 3; // how many of these
inline constexpr int messages = 4;    // of send and recv
inline constexpr int count = 5;       // of all
} // namespace port

// One rank's part in the end of a communicator: whether its share of the memory is given up, whether it is in buffers
// of its peers (links::in_buffers), and which members it proposes for the communicator of the survivors
// (comm/shrink.hpp).
struct alignas(cache_line_bytes) survival_note {
    atomic<std::uint32_t> gave_up;       // exchanged to 1 once, by its rank or, when that is dead, by a survivor
    atomic<std::uint32_t> round;         // of shrinking in which it takes part; written by its rank, read by all
    atomic<std::uint32_t> is_in_buffers; // written by its rank
    std::uint64_t place;                 // proposed; written by its rank before `decided`, like the members
    std::uint64_t members[max_local_ranks / 64];
};

// What a communicator takes from the arena when it is made: words by which its ranks find each other. Also the shape of
// its channels. Channels and windows are taken on first use (links_places), so a communicator costs what it uses.
struct links_layout {
    // Whether so many ranks share a core that one writes all of its messages before another reads them.
    static constexpr bool run_in_turn(int ranks_per_core) { return ranks_per_core > 2; }

    int ranks = 1; // that share the arena
    int all = 1;   // of the communicator
    channel_shape channel{};

    static constexpr links_layout for_ranks(int n, int ranks_per_core = 1) {
        links_layout l;
        l.ranks = l.all = n;
        channel_shape& c = l.channel;
        // The rings of a rank to all its peers have 2 MiB together, as in windows; a single peer gets all of it. Ranks
        // that share a core run in turn. Data that one rank puts into its rings in its turn should still be in a cache
        // when the next takes it, so few long messages are under way at once. Each is long, because a rank that finds
        // no room waits for its next turn. docs/channels_and_windows.md has the times.
        std::size_t most = std::size_t{2} << 20;
        if (run_in_turn(ranks_per_core)) {
            c.ring_slots = 4;
            c.slot_bytes = 64 * 1024;
            most *= 2;
        }
        while (c.slot_bytes > 16 * 1024 &&
               c.slot_bytes * static_cast<std::size_t>(c.ring_slots) * static_cast<std::size_t>(n - 1) > most)
            c.slot_bytes /= 2;
        return l;
    }
    // For `here` of n ranks of a communicator that spans hosts: all channels have one shape, whatever the host. Slots
    // are few and large, because each message costs a round trip of a step; smaller where there are many peers
    // (docs/design/sockets.md). is_crowded: some host has several of the ranks, whose channels are rings of this shape
    // in shared memory.
    static constexpr links_layout across_hosts(int here, int n, bool is_crowded) {
        const std::size_t slot_bytes = std::size_t{is_crowded ? 512u : 1024u} * 1024;
        links_layout l{.ranks = here, .all = n, .channel = {.depth = 4, .slot_bytes = slot_bytes}};
        while (l.channel.slot_bytes > 64 * 1024 &&
               l.channel.ring_bytes() * static_cast<std::size_t>(n - 1) > (std::size_t{64} << 20))
            l.channel.slot_bytes /= 2;
        return l;
    }
    constexpr std::size_t bytes() const {
        return fixed_bytes() +
               round_up(notes_offset() + static_cast<std::size_t>(ranks) * sizeof(survival_note), page_bytes);
    }
    static constexpr std::size_t fixed_bytes();
    // Behind the fixed part: for each rank of the communicator a word that says for whom it waits, then the notes.
    constexpr std::size_t notes_offset() const {
        return round_up(static_cast<std::size_t>(all) * sizeof(std::uint64_t), cache_line_bytes);
    }
    // The table of channels: a word for each.
    constexpr std::size_t table_bytes() const { return place_in_table(port::count, 0, 0); }
    constexpr std::size_t place_in_table(int at_port, int from, int to) const {
        return static_cast<std::size_t>((at_port * ranks + from) * ranks + to) * sizeof(std::uint64_t);
    }
};

// The words of a communicator that all its ranks on a host share.
struct links_control {
    atomic<std::uint64_t> failed;              // see failure; written by the rank that notices first, read in all waits
    alignas(64) atomic<std::int32_t> users;    // ranks that still hold this communicator
    alignas(64) atomic<std::int32_t> attached; // ranks that have begun to use it
    atomic<std::uint64_t> decided;             // round of shrinking << 32 | rank whose proposal holds + 1; once a round
};

// Offsets in the arena of a communicator's parts; 0: not used yet. The rank that asks first takes a part. The table of
// channels is a separate piece, of which only the pages exist that name a channel.
struct links_places {
    static constexpr int max_windows = 512;
    atomic<std::uint64_t> table;
    arena_room room;
    atomic<std::uint64_t> windows[max_windows]; // in the order in which all ranks make them
};

// What a communicator has in the arena from the beginning.
struct links_fixed {
    alignas(page_bytes) links_control control;
    alignas(cache_line_bytes) links_places places;
};
constexpr std::size_t links_layout::fixed_bytes() { return round_up(sizeof(links_fixed), page_bytes); }

COLLX_END_NAMESPACE
