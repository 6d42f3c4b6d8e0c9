// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arguments of a fused kernel: everything a block knows. All blocks of a launch get one value, as the kernel's
// parameter. It holds addresses of exchange memories, but owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/call_words.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/device/cuts.hpp>
#include <collx/exec/device/operands.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// How payload travels. simple: slots with counters, best for long messages. packets: LL (words with flags), half the
// bandwidth and a third of the latency, for short messages. lines: 120 bytes of data and a flag of 8, for messages
// between these; only over channels, and only where the machine says that lines of 128 bytes arrive whole.
struct simple_protocol {
    static constexpr bool flags_words = false, flags_lines = false, multicasts = false;
};
struct packet_protocol : simple_protocol {
    static constexpr bool flags_words = true;
};
struct line_protocol : simple_protocol {
    static constexpr bool flags_lines = true;
};
// As simple, but a switch reduces over all ranks and stores to all, in its own order. Only where the machine has such a
// switch and the caller has multicast addresses of the buffers.
struct multicast_protocol : simple_protocol {
    static constexpr bool multicasts = true;
};

// Where things lie in a lane with the slots of one protocol. A kernel needs these sums at each step, so the host
// computes them once per launch.
struct lane_places {
    std::size_t lane_bytes = 0, packets = 0, windows = 0, slots = 0;
    lane_places() = default;
    template <class Protocol>
    lane_places(const exchange_shape& s, Protocol)
        : lane_bytes(s.lane_bytes()), packets(s.packets_at()), windows(s.windows_at()),
          slots(Protocol::flags_lines   ? s.lines_at()
                : Protocol::flags_words ? s.words_at()
                                        : s.slots_at()) {}
};

// The part of a kernel's arguments that depends on neither algorithm nor types: all that the waits and counts of a
// block need. Their code is compiled once for all kernels of a file (block.hpp).
struct call_args {
    exchange_shape shape;
    lane_places places;
    std::size_t piece_count = 1; // the same on all ranks
    int chunks = 1;
    int lanes = 1;              // of this call; at most the shape's
    int first_rank = 0;         // the ranks of this launch are first_rank, first_rank + 1, …
    bool is_one_launch = true;  // these are all ranks: a launch that has ended has ended everywhere
    bool skips_signals = false; // peers' buffers are ready when the launch begins and free when it ends
    std::uint32_t piece_elems = 1;
    std::uint16_t call = 0;        // its number in a group, see wait_report; 0: alone
    std::uint32_t own_cuts_at = 0; // bytes from here to the kernel's own_cuts; 0: it has other cuts
    std::uint32_t wire_bytes = 0;  // of an element
    std::uint64_t timeout_ns = 0;  // of one wait
    call_words words;              // what the ranks compare
    std::byte* exchange[max_ranks] = {};
    std::byte* exchange_of_all = nullptr;    // these memories at one address, where a switch reduces and multicasts
    const std::byte* multicast_in = nullptr; // all ranks' inputs at one address, where a switch reduces
    std::byte* multicast_out = nullptr;
    host_control* host = nullptr;
    std::uint64_t* reports = nullptr; // [rank][lane][group]

    // The count that rank r sends to a peer, or expects of it.
    COLLX_HD std::uint64_t count_for(bool is_expected, int r, int peer) const {
        return own_cuts_at != 0 && words.are_for_each() ? part_bytes(is_expected, r, peer) : words.count;
    }
    // Only where a kernel has own_cuts.
    COLLX_HD const own_cuts& parts() const {
        return *reinterpret_cast<const own_cuts*>(reinterpret_cast<const std::byte*>(this) + own_cuts_at);
    }
    COLLX_HD std::uint64_t part_bytes(bool is_out, int r, int peer) const {
        return parts().size(is_out, r, peer) * wire_bytes;
    }
    COLLX_HD std::size_t lane_at(int lane) const { // in each exchange memory
        return sizeof(rank_control) + static_cast<unsigned>(lane) * places.lane_bytes;
    }
    COLLX_HD std::byte* lane_of(int rank, int lane) const { return exchange[rank] + lane_at(lane); }
    COLLX_HD lane_control* control(int rank, int lane) const {
        return reinterpret_cast<lane_control*>(lane_of(rank, lane));
    }
    COLLX_HD std::uint64_t* report(int rank, int lane, int group) const {
        return reports +
               (static_cast<std::size_t>(rank) * static_cast<unsigned>(shape.lanes) + static_cast<unsigned>(lane)) *
                   max_groups +
               static_cast<unsigned>(group);
    }
};

// The arguments of a fused kernel: one call of all ranks of a team.
template <class Algorithm, class Types>
struct fused_args : call_args {
    Algorithm algorithm;
    typename Types::cuts_type cuts;
    // Raw storage, because views and operators need no default value.
    static constexpr int operand_count = Types::own_only ? 1 : max_ranks;
    alignas(rank_operands<Types>) std::byte operands[operand_count * sizeof(rank_operands<Types>)];

    fused_args() {
        wire_bytes = sizeof(typename Types::wire_type);
        if constexpr (Types::cuts_type::is_private)
            own_cuts_at = static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(&cuts) -
                                                     reinterpret_cast<const std::byte*>(this));
    }
    COLLX_HD const rank_operands<Types>& rank(int r) const {
        return reinterpret_cast<const rank_operands<Types>*>(operands)[Types::own_only ? 0 : r];
    }
};

// State that the threads of a block share: the lane's own counts. Written by single threads between barriers.
struct block_state {
    std::uint64_t sent[max_ranks], received[max_ranks];
    std::uint8_t empty[2][max_ranks]; // messages without elements: sent, received
    std::uint64_t drained[max_ranks]; // my messages that are known to have left the slots: saves looking at `head`
    std::uint64_t iterations, packets, calls;
    std::uint64_t number;                           // of this call, among those that are compared
    bool is_stopped;                                // by an earlier call
    bool announced[max_ranks], compared[max_ranks]; // by lane 0: the length of the first message to, and from, a rank
};

} // namespace device
COLLX_END_NAMESPACE
