// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The window steps of a task: signals and waits, puts into windows, reads and folds out of them, and the same on the
// users' own buffers in zero-copy schedules. Nothing blocks; errors are kept for the waiting call.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/call_state.hpp>

COLLX_BEGIN_NAMESPACE

class window_steps {
public:
    static constexpr int max_zero_copy_ranks = 64;

    // attached: a zero-copy schedule on private buffers, read through the kernel.
    window_steps(call_state& call, bool attached);

    bool run(const sched::step& s, strand_cursor& st);
    std::size_t first_position() const { return share_.position; }
    // The position in the window's rings of the iteration after the one at `position`.
    std::size_t next_position(std::size_t position) const {
        position += share_.step_bytes;
        return position + share_.step_bytes > window_.chunk_ring_bytes() ? 0 : position;
    }

private:
    bool signal(const sched::step& s, const strand_cursor& st);
    bool wait(const sched::step& s, strand_cursor& st);
    bool is_signalled(const sched::step& s, int peer, std::uint64_t at);
    bool get(const sched::step& s, const strand_cursor& st);
    bool fold(const sched::step& s, const strand_cursor& st);
    void fold_chunk(const sched::step& s, const strand_cursor& st, int i);
    bool copy(const sched::step& s, const strand_cursor& st);

    std::byte* window_at(int rank, int segment, const strand_cursor& st, int chunk) const {
        if (!share_.is_inline) return window_.at(rank, segment, chunk, st.position);
        return window_.line(rank, segment, share_.first + st.piece).payload +
               static_cast<std::size_t>(chunk) * stride_bytes_;
    }
    void count_moved(int writes, int reads, std::size_t elems) {
        call_.plan.window->bytes_written += static_cast<std::size_t>(writes) * call_.bytes_of(elems);
        call_.plan.window->bytes_read += static_cast<std::size_t>(reads) * call_.bytes_of(elems);
    }

    // -------------------------------------------------------------- zero copy: the operand is a peer's own buffer
    void publish_buffers(signal_line& line) const;
    user_buffers buffers_of(int rank, const strand_cursor& st) const;
    const std::byte* remote_at(sched::place where, int rank, int chunk, const strand_cursor& st) const;
    bool read_attached(const sched::step& s, int chunk, pieces::part to, const strand_cursor& st);
    void fold_into_all(const std::byte** sources, int count, int chunk, const strand_cursor& st, pieces::part to);

    call_state& call_;
    std::size_t stride_bytes_; // of a piece
    window_memory window_;
    bound_window::share share_;
    bool attached_;
};

COLLX_END_NAMESPACE
