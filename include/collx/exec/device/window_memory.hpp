// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory of a window on devices: where each word lies, who writes it and who reads it. Every rank owns one such
// memory, which the kernels of all ranks load and store directly. Plain data and offsets: knows no CUDA.
//
//   memory of a rank:  window_control | window_table | line 0 | line 1 | … | part
//
// A block of a kernel signals and waits on its own line, so blocks neither share counts nor wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/control.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// All words only grow. One block at a time uses those of a line.
struct alignas(line_bytes) window_line {
    // Signals that rank k has given on this line. Written by rank k: release, system; read by me: acquire, system.
    std::uint64_t signals[max_ranks];
    // My own counts: signals that I gave rank k on this line, and signals of rank k that I have waited for.
    std::uint64_t given[max_ranks], taken[max_ranks];
};

// Why a block ended the window, or found it ended.
enum class window_end : std::uint64_t {
    none,
    by_peer,
    timed_out,
    outside,
    no_peer,
    no_line,
    no_atomics,
    aborted,
    peer_left // and has not given the signal
};

// Who ended a window and why, in one word that is not 0.
struct ended_word {
    COLLX_HD static constexpr std::uint64_t of(int rank, window_end why, int peer) {
        return static_cast<std::uint64_t>(rank + 1) | static_cast<std::uint64_t>(why) << 16 |
               static_cast<std::uint64_t>(peer + 1) << 32;
    }
    static constexpr int rank(std::uint64_t w) { return static_cast<int>(w & 0xffff) - 1; }
    static constexpr window_end why(std::uint64_t w) { return static_cast<window_end>(w >> 16 & 0xffff); }
    static constexpr int peer(std::uint64_t w) { return static_cast<int>(w >> 32 & 0xffff) - 1; } // -1: none
};

// The word that all of a rank's blocks look at.
struct alignas(line_bytes) window_control {
    // An ended_word once a rank has ended the window. Written by any rank's block: relaxed, system; read by mine:
    // relaxed.
    std::uint64_t ended;
};

// In host memory that the device maps: one for each line and one for blocks that have none. Written by the line's
// block: `why` last, release; read by the host: `why` first, acquire. A report whose `why` is set is not written again.
struct alignas(line_bytes) window_report {
    std::uint64_t why;
    std::uint64_t peer, line;
    std::uint64_t at, bytes;  // the place outside the peer's part
    std::uint64_t want, have; // signals; by_peer: have is the ended_word
};
// Before the reports.
struct alignas(line_bytes) window_host {
    std::uint64_t abort;   // written by the host, release; read by waiting blocks, now and then
    std::uint64_t left;    // bit k: rank k has ended its window, and its kernels before; likewise, acquire
    std::uint64_t gave_up; // written by blocks after their report, release
};

// What kernels of a rank know of a window. It lies in this rank's memory, so that a handle is one pointer.
struct alignas(line_bytes) window_table {
    std::byte* memory[max_ranks];   // of each rank, as this device sees it
    std::uint64_t bytes[max_ranks]; // of their parts
    window_host* host;              // as the device sees it; the reports lie behind it
    std::uint64_t part_at;          // where a part begins in its memory
    std::uint64_t timeout_ns;
    std::int32_t rank, ranks;
    std::uint32_t lines;
    std::uint32_t has_atomics; // bit k: additions into the memory of rank k are atomic

    static constexpr std::size_t at = sizeof(window_control);
    COLLX_HD static constexpr std::size_t line_at(unsigned line);
    COLLX_HD static constexpr std::size_t part_of(unsigned lines) { return line_at(lines); }

    COLLX_HD window_control* control(int r) const { return reinterpret_cast<window_control*>(memory[r]); }
    COLLX_HD window_line* line(int r, unsigned k) const {
        return reinterpret_cast<window_line*>(memory[r] + line_at(k));
    }
    COLLX_HD std::byte* part(int r) const { return memory[r] + part_at; }
    COLLX_HD window_report* report(unsigned k) const { return reinterpret_cast<window_report*>(host + 1) + k; }
};
COLLX_HD constexpr std::size_t window_table::line_at(unsigned line) {
    return sizeof(window_control) + sizeof(window_table) + line * sizeof(window_line);
}

// Stores the table where kernels look for it. One block.
struct window_setup {
    window_table table;

    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        if (env.index() == 0) *reinterpret_cast<window_table*>(table.memory[table.rank] + window_table::at) = table;
    }
};

} // namespace device
COLLX_END_NAMESPACE
