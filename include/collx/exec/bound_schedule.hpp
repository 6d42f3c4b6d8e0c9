// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The form that an algorithm takes on one communicator and port: recorded steps, a window to run them over, and
// scratch. plan/ makes and keeps bound schedules; a task runs one again and again, with other buffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/growing_array.hpp>
#include <collx/exec/layout.hpp>
#include <collx/sched/recorder.hpp>
#include <collx/transport/window.hpp>

COLLX_BEGIN_NAMESPACE

// The most strands of a rank that a task runs.
inline constexpr int most_strands = 8;

// The window of one algorithm on one port, and the number of iterations that have run over it. Stages and signal
// numbers continue where the last call stopped. Rooted algorithms share one window for all roots.
struct bound_window {
    window_memory memory;
    std::uint64_t iteration = 0;
    std::size_t position = 0; // in the chunks' rings: the same for all chunks and on all ranks
    // By this rank so far: in windows and, in zero-copy schedules, in the buffers of all ranks.
    std::uint64_t bytes_written = 0, bytes_read = 0;

    // What one call takes: iterations from `first` on, their data in signal lines or in the rings from `position` on.
    struct share {
        std::uint64_t first = 0, tag = 0; // tag: see signal_word
        bool is_inline = false;
        std::size_t position = 0, step_bytes = 0; // step_bytes: from piece to piece of a chunk; 0: no data
    };
    // How the pieces of one call lie: the same in each of its iterations, and each time the call is made.
    struct cut {
        bool is_inline;                     // in the signal lines
        std::size_t step_bytes, ring_bytes; // of a chunk
    };
    cut cut_for(std::size_t piece_bytes, bool fits_lines) const {
        const window_shape& shape = memory.shape();
        const bool is_inline =
            fits_lines && piece_bytes * static_cast<std::size_t>(shape.chunks) <= signal_line::inline_bytes;
        const std::size_t ring = memory.chunk_ring_bytes();
        const bool has_data = !is_inline && piece_bytes != 0 && ring != 0;
        return {is_inline, has_data ? memory.step_bytes(piece_bytes) : 0, ring};
    }
    // Takes `count` iterations and, for each, ring space for a piece of `piece_bytes` of each chunk. Later calls
    // continue behind that. agreed: see call_state.
    share take(std::size_t count, std::size_t piece_bytes, bool fits_lines, std::uint64_t agreed) {
        return take(count, cut_for(piece_bytes, fits_lines), agreed);
    }
    share take(std::size_t count, const cut& c, std::uint64_t agreed) {
        share s{.first = iteration, .tag = signal_word::tag(agreed), .is_inline = c.is_inline};
        iteration += count;
        past[(iteration - 1) % past_tags] = {iteration - 1, s.tag};
        if (count > 1) note_pieces(count, s.tag);
        const std::size_t each = s.step_bytes = c.step_bytes, ring = c.ring_bytes;
        if (each == 0) return s;
        s.position = position + each > ring ? 0 : position;
        const std::size_t end = s.position + each;
        if (count == 1 || end + (count - 1) * each <= ring) {
            position = end + (count - 1) * each;
        } else {
            const std::size_t until_end = (ring - s.position) / each;
            position = ((count - until_end - 1) % (ring / each) + 1) * each;
        }
        return s;
    }
    // Whether `word`, by which a peer has reached iteration `at` of this call or an earlier one, belongs to the call
    // that this rank made there. Always true for an iteration so old that its tag has been overwritten.
    bool agrees(const share& s, std::uint64_t word, std::uint64_t at) const {
        if (at >= s.first) return signal_word::fits(word, at + 1, s.tag);
        const past_call& then = past[at % past_tags];
        return then.iteration != at || signal_word::fits(word, at + 1, then.tag);
    }

    // Keeps the tag of a call's iterations except the last.
    void note_pieces(std::size_t count, std::uint64_t tag) {
        for (std::uint64_t back = 2; back <= count && back <= past_tags; ++back)
            past[(iteration - back) % past_tags] = {iteration - back, tag};
    }

    struct past_call {
        std::uint64_t iteration = ~std::uint64_t{0}, tag = 0;
    };
    static constexpr std::size_t past_tags = 16; // more than most schedules look back
    past_call past[past_tags] = {};
};

// Folds 64 bits into the 32 of a message's tag.
constexpr std::uint32_t folded(std::uint64_t bits) { return static_cast<std::uint32_t>(bits ^ bits >> 32); }

// A rank's own buffers: offsets in the arena or, where peers read them through the kernel, addresses in its process.
struct user_buffers {
    std::uint64_t in, out;
};

// A schedule bound to one communicator and port, ready to run again and again. plan/ makes it once.
struct bound_schedule {
    sched::program steps;
    detail::growing_array<detail::growing_array<int>> orders; // tables that chunk sets of the steps refer to
    int chunks = 1;
    int max_message_chunks = 1;
    int tmp_chunks = 0;
    int at_port = 0;
    const void* algorithm = nullptr; // its identity in this process: the address of detail::algorithm_id<...>
    const char* name = "";           // of the algorithm
    std::uint64_t parameters = 0;    // of the algorithm, including its root: the same bits on all ranks
    std::size_t most_bytes = 0;      // of one chunk that a slot or a window stage takes at once
    // Messages of so many bytes or more are put at the beginning of an empty ring (sending_end::restart_if_empty).
    std::size_t least_restarted_bytes = SIZE_MAX;
    bool zero_copy = false;          // peers read and write the user's own buffers
    bool allows_single_copy = false; // every message goes straight to an output, so it may be read where it lies
    bool is_short_form = false;      // it has a short form (exec/short_call.hpp)
    bool is_proved = false;          // checked calls have verified the algorithm for these ranks
    std::int64_t proof_steps = 0;    // what verifying it costs: the chunks of all ranks' steps, times the iterations
    // Schedules that run first where ranks relay parts whose counts they do not know. They bring a relaying rank the
    // counts of the ranks it relays for and, if it passes parts down to these, the counts that they expect. Null: none.
    bound_schedule *counts = nullptr, *expected_counts = nullptr;
    bound_schedule* directly = nullptr; // runs last, for parts that are too long to be relayed; null: there are none
    std::size_t most_relayed_bytes = 0; // of one part
    // By strand and step, between hosts: what may be done with the user's memory (see remote.hpp), and whether to send
    // at once.
    static constexpr char stays = 1; // what the step stores in `out` is not written again
    static constexpr char alone = 2; // no other step touches what it stores, or receives from its peer
    static constexpr char last = 4;  // it sends, and no step after it receives
    detail::growing_array<detail::growing_array<char>> remote;
    bool scratch_travels = false;   // a step does more with a tmp chunk than combine it with what it receives
    bool uses_results = false;      // between hosts: results in `out` are sent on or read again
    bound_window* window = nullptr; // null where only channels are used
    std::byte* scratch = nullptr;   // tmp chunks
    std::size_t scratch_bytes = 0;
    detail::growing_array<std::byte> scratch_memory;
    detail::growing_array<detail::growing_array<std::byte>> outgrown;
    detail::growing_array<const void*> sources; // operands of a fold
    // Of single copies, for the next call: a table of a call, and a piece that was read (channel_steps).
    detail::growing_array<std::size_t> spare_covered;
    detail::growing_array<std::byte> spare_piece;
};

COLLX_END_NAMESPACE
