// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A task runs a schedule on the host: one cursor per strand over the recorded steps, which advance() moves on as far as
// messages and signals allow. Nothing in here blocks, so many operations can be under way. Nothing throws either,
// except operators of the program; errors are kept for the waiting call. A task moves bytes; element_ops does what
// steps do to elements.
#pragma once

#include <cstddef>

#include <collx/exec/channel_steps.hpp>
#include <collx/exec/window_steps.hpp>

COLLX_BEGIN_NAMESPACE

class task : public operation {
public:
    static constexpr int max_zero_copy_ranks = window_steps::max_zero_copy_ranks;

    // Refers to the elements: see typed_operation for calls that outlive them.
    // piece_elems: elements of one chunk that travel at once; the same number on all ranks.
    // agreed: see call_state.
    // attached: a zero-copy schedule on private buffers, read through the kernel.
    // relayed: the layout of chunks in scratch, where it is not the input's. whole: see pieces.
    task(links& net, bound_schedule& plan, element_ops& elements, chunk_layout in, chunk_layout out,
         std::size_t piece_elems, std::uint64_t agreed, bool attached = false, const chunk_layout* relayed = nullptr,
         const pieces* whole = nullptr);
    task(const task&) = delete; // its parts refer to each other

    void skip_empty() { channels_.skip_empty(); }             // see channel_steps
    void wait_for_readers() { channels_.wait_for_readers(); } // see channel_steps
    task_state advance() override;
    place where() const override;

private:
    std::size_t count_for(const detail::growing_array<sched::step>& steps) const;
    bool run_iteration(strand_cursor& st);
    bool run(const sched::step& s, strand_cursor& st) {
        return (s.what & (sched::recv | sched::send)) != 0 ? channels_.run(s, st) : windows_.run(s, st);
    }

    call_state call_;
    channel_steps channels_;
    window_steps windows_;
    int count_ = 0, turn_ = 0;            // turn_: the strand that advance() begins with
    strand_cursor strands_[most_strands]; // binding refuses more
};

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/exec/task_once.hpp>
#endif
