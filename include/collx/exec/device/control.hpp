// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory that ranks of a fused kernel share: where each word lies, who writes it and who reads it. Every rank owns
// one exchange memory of the same shape; peers load and store it directly (the same device, or peer access). Plain data
// and offsets: knows no step and no CUDA.
//
//   exchange memory of a rank:  rank_control | lane 0: lane_control, scratch, packets, windows, slots | lane 1: …
//
// Each protocol has its own slots: data that one protocol wrote must never be taken for a flag of another.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

inline constexpr int max_ranks = 16;           // of one fused call: one line of 8-byte words
inline constexpr int max_signals = 4;          // of one algorithm
inline constexpr std::size_t line_bytes = 128; // what a GPU's second-level cache moves

// All words are 64 bits wide, only grow and are never reset: a reset would race with a fast neighbour.
struct alignas(line_bytes) lane_control {
    // Messages that rank k has put into my slots. Written by rank k: release, system. Read by me: acquire, system.
    std::uint64_t tail[max_ranks];
    // My messages that rank k has taken out of its slots. Written by rank k: release; read by me: acquire.
    std::uint64_t head[max_ranks];
    // Iterations of the window for which rank k has given signal s. Written by rank k: release; read by me: acquire.
    std::uint64_t signal[max_signals][max_ranks];
    // Calls that rank k has finished on this lane. Written by rank k: release; read by me: acquire.
    std::uint64_t finished[max_ranks];
    // My own counts: only my block reads and writes them, and during a call they live in its shared memory. Of messages
    // (message_counts), windows, calls.
    std::uint64_t sent[max_ranks], received[max_ranks];
    std::uint64_t iterations; // of windows
    std::uint64_t packets;    // of windows whose words carry flags
    std::uint64_t calls;
};

// The messages to or from a peer in one word: those with data (56 bits), and a program's without elements (8 bits).
struct message_counts {
    COLLX_HD static constexpr std::uint64_t of(std::uint64_t data, std::uint8_t empty) {
        return data | static_cast<std::uint64_t>(empty) << 56;
    }
    COLLX_HD static constexpr std::uint64_t data(std::uint64_t w) { return w << 8 >> 8; }
    COLLX_HD static constexpr std::uint8_t empty(std::uint64_t w) { return static_cast<std::uint8_t>(w >> 56); }
};

inline constexpr unsigned max_slots = 64; // of a channel
// The calls whose words are kept. A rank that is further ahead of a peer overwrites words that the peer has not read.
inline constexpr unsigned said_calls = 8;

// One per rank. The blocks of lane 0 use what follows `abort`.
struct alignas(line_bytes) rank_control {
    // Nonzero once a rank gave up: why (stop_word). Written by any rank's block: relaxed, system; read by mine:
    // relaxed.
    std::uint64_t abort;
    // The two words of rank k for call c, at c modulo said_calls; they are stored at once. Written by rank k: relaxed,
    // system; read by me: relaxed.
    alignas(line_bytes) std::uint64_t said[said_calls][max_ranks][2];
    // The part_word of message m of rank k, at m modulo the slots. Written by rank k before tail: relaxed, system; read
    // by me: relaxed.
    std::uint64_t parts[max_ranks][max_slots];
    // My own, as in lane_control: calls that are compared and, for the last such call, the words that I expect of a
    // rank that had not sent them when the call ended.
    std::uint64_t calls;
    alignas(line_bytes) std::uint64_t unheard[max_ranks][2];
};

// What a block waits for.
enum class waits_for : unsigned char { nothing, message, room, signal, packet, neighbours, words };
// How its wait has ended, if it has.
// peer_left: its rank makes no more calls.
enum class wait_state : unsigned char { idle, waiting, timed_out, aborted, peer_left };

// What a block waits for, in one word, so that the host may read it while the kernel runs.
// Written by the block after a long wait and when it gives up: relaxed, system. Read by the host: relaxed.
struct wait_report {
    wait_state state = wait_state::idle;
    waits_for what = waits_for::nothing;
    int peer = 0;
    unsigned step = 0;                            // of the algorithm, counted from 1 in each piece
    unsigned piece = 0;                           // of this lane, modulo 65536
    unsigned call = 0;                            // of a group, from 1 to last_call; 0: alone
    static constexpr unsigned last_call = 0xffff; // stands for all later ones, too

    COLLX_HD constexpr bool has_given_up() const {
        return state == wait_state::timed_out || state == wait_state::aborted || state == wait_state::peer_left;
    }
    COLLX_HD constexpr std::uint64_t pack() const {
        return static_cast<std::uint64_t>(state) | static_cast<std::uint64_t>(what) << 4 |
               static_cast<std::uint64_t>(peer & 0xff) << 8 | static_cast<std::uint64_t>(call & 0xffffu) << 16 |
               static_cast<std::uint64_t>(step & 0xffffu) << 32 | static_cast<std::uint64_t>(piece & 0xffffu) << 48;
    }
    COLLX_HD static constexpr wait_report unpack(std::uint64_t w) {
        return {static_cast<wait_state>(w & 0xf), static_cast<waits_for>(w >> 4 & 0xf),
                static_cast<int>(w >> 8 & 0xff),  static_cast<unsigned>(w >> 32 & 0xffff),
                static_cast<unsigned>(w >> 48),   static_cast<unsigned>(w >> 16 & 0xffff)};
    }
};

inline constexpr int max_groups = 4; // strands of a block that run side by side

// Host memory that the device maps; one block of reports per rank and lane follows.
// abort: written by the host, release; read by waiting blocks, relaxed, once in about a thousand polls.
// left: bit k: rank k makes no more calls, and its kernels have ended. Written by the host, release; read as `abort`
// is, acquire.
//
// disagreement: a stop_word once ranks were found in different calls; differs: for each peer, its words and those that
// this rank expected. Written by blocks: differs relaxed, then disagreement, release. Read by the host: acquire.
//
// gave_up: a stop_word once some block's report says that it gave up, so that the host need not look at all reports.
// Written by blocks after their report: release. Read by the host: acquire.
struct alignas(line_bytes) host_control {
    std::uint64_t abort;
    std::uint64_t left;
    std::uint64_t disagreement;
    std::uint64_t gave_up;
    std::uint64_t differs[max_ranks][4];
};

// The sizes in an exchange memory; the same on all ranks, fixed when the team is made.
struct exchange_shape {
    int ranks = 1;
    int lanes = 1;
    unsigned slots = 4;                    // of one channel; a power of two, at least 2
    std::uint32_t slot_bytes = 32768;      // multiples of line_bytes, like all that follows
    std::uint32_t flag_slot_bytes = 16384; // of slots whose words or lines carry flags; a multiple of 256
    unsigned stages = 4;                   // of a window's ring; a power of two, at least 2
    std::uint32_t stage_bytes = 65536;
    std::uint32_t packet_bytes = 16384; // of one rank's LL words for a segment, half of it data
    std::uint32_t scratch_bytes = 65536;

    constexpr bool operator==(const exchange_shape&) const = default;

    // For n ranks. stage: bytes of a stage; 0: each rank's chunk of it has twice what a block of 512 threads loads at
    // once (four packs of 16 bytes each). (Time relative to that, 8 ranks on an H200, 64 MiB: 1.2 with half of it, 2.0
    // with a quarter: each chunk is a step with its own latency.)
    constexpr void set_ranks(int n, std::uint32_t stage = 0) {
        constexpr std::uint32_t at_once = 512 * 4 * 16;
        ranks = n;
        stage_bytes = stage != 0 ? stage : 2 * at_once * static_cast<std::uint32_t>(n < 2 ? 2 : n);
    }

    COLLX_HD constexpr std::size_t scratch_at() const { return sizeof(lane_control); }
    COLLX_HD constexpr std::size_t packets_at() const { return scratch_at() + scratch_bytes; }
    COLLX_HD constexpr std::size_t windows_at() const {
        return packets_at() + std::size_t{2} * 2 * static_cast<unsigned>(ranks) * packet_bytes;
    }
    COLLX_HD constexpr std::size_t slots_at() const { return windows_at() + std::size_t{2} * stages * stage_bytes; }
    // Slots with words that carry flags, and with lines that do; those with counters lie before them.
    COLLX_HD constexpr std::size_t words_at() const { return slots_at() + slot_count() * slot_bytes; }
    COLLX_HD constexpr std::size_t lines_at() const { return words_at() + slot_count() * flag_slot_bytes; }
    COLLX_HD constexpr std::size_t lane_bytes() const { return lines_at() + slot_count() * flag_slot_bytes; }
    COLLX_HD constexpr std::size_t lane_at(int lane) const {
        return sizeof(rank_control) + static_cast<std::size_t>(lane) * lane_bytes();
    }
    COLLX_HD constexpr std::size_t bytes() const { return lane_at(lanes); } // of one rank's exchange memory

    // The index of a slot, of a stage of the windows, of a cell for LL words.
    COLLX_HD constexpr std::size_t slot_number(int peer, std::uint64_t message) const {
        return static_cast<std::size_t>(static_cast<std::uint64_t>(peer) * slots + (message & (slots - 1)));
    }
    COLLX_HD constexpr std::size_t stage_number(int segment, std::uint64_t iteration) const {
        return static_cast<std::size_t>(segment) * stages + static_cast<unsigned>(iteration & (stages - 1));
    }
    COLLX_HD constexpr std::size_t cell_number(int segment, int peer, std::uint64_t iteration) const {
        return (static_cast<unsigned>(segment) * 2 + static_cast<unsigned>(iteration & 1)) *
                   static_cast<unsigned>(ranks) +
               static_cast<unsigned>(peer);
    }

private:
    COLLX_HD constexpr std::size_t slot_count() const { return std::size_t{slots} * static_cast<unsigned>(ranks); }
};

} // namespace device
COLLX_END_NAMESPACE
