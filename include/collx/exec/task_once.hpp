// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of task.hpp and its parts, independent of element types: compiled once (docs/design/compile-once.md).
#pragma once

#include <collx/exec/channel_steps_once.hpp>
#include <collx/exec/task.hpp>
#include <collx/exec/window_steps_once.hpp>

COLLX_BEGIN_NAMESPACE

COLLX_ONCE task::task(links& net, bound_schedule& plan, element_ops& elements, chunk_layout in, chunk_layout out,
                      std::size_t piece_elems, std::uint64_t agreed, bool attached, const chunk_layout* relayed,
                      const pieces* whole)
    : call_{net, plan, elements, pieces(in, out, plan.chunks, piece_elems, relayed), *this, agreed}, channels_(call_),
      windows_(call_, attached) {
    call_.cuts.whole = whole;
    at_port = plan.at_port;
    if (plan.uses_results || (!elements.is.reduces && !net.is_one_host())) elements.stay_in_caches();
    elements.set_tmp(plan.scratch, plan.scratch_travels);
    for (const auto& s : plan.steps.strands) {
        strands_[count_] = {.pc = s.data(),
                            .begin = s.data(),
                            .end = s.data() + s.size(),
                            .piece = 0,
                            .count = count_for(s),
                            .position = windows_.first_position(),
                            .seen = 0,
                            .index = count_,
                            .covered = nullptr,
                            .awaited = nullptr};
        ++count_;
    }
}

COLLX_ONCE task_state task::advance() {
    bool moved = false, again;
    do {
        again = false;
        int left = 0;
        for (int s = 0; s < count_; ++s) {
            strand_cursor& st = strands_[s + turn_ < count_ ? s + turn_ : s + turn_ - count_];
            if (st.piece == st.count) continue;
            if (run_iteration(st)) {
                moved = true;
                // Another round: it may begin its next iteration, and it may have unblocked other strands.
                again |= count_ > 1 || st.pc == st.begin;
            }
            if (error) return task_state::failed;
            left += st.piece != st.count;
        }
        if (left == 0) {
            if ((channels_.must_return() || !call_.net.is_one_host()) && !channels_.is_returned())
                return task_state::blocked;
            channels_.end();
            return task_state::done;
        }
    } while (again);
    if (++turn_ >= count_) turn_ = 0;
    return moved ? task_state::moved : task_state::blocked;
}

// The place of the strand that is furthest behind: the others may wait for it.
[[gnu::cold]] COLLX_ONCE operation::place task::where() const {
    const strand_cursor* last = nullptr;
    for (int s = 0; s < count_; ++s)
        if (strands_[s].piece != strands_[s].count && (last == nullptr || strands_[s].piece < last->piece))
            last = &strands_[s];
    if (last == nullptr) return {};
    return {static_cast<int>(last->pc - last->begin), static_cast<int>(last->end - last->begin),
            static_cast<int>(last->piece), static_cast<int>(last->count)};
}

// Sizes received from other ranks may be wrong: a strand that uses none of them must not iterate up to them.
COLLX_ONCE std::size_t task::count_for(const detail::growing_array<sched::step>& steps) const {
    if (call_.cuts.relayed == nullptr) return call_.cuts.count;
    std::size_t most = 1;
    for (const sched::step& s : steps)
        if (const std::size_t n = call_.cuts.count_for(s); n > most) most = n;
    return most;
}

// Runs a strand to the end of this iteration or until it is blocked. True if anything was done.
COLLX_ONCE bool task::run_iteration(strand_cursor& st) {
    const sched::step* const first = st.pc;
    const int seen = st.seen;
    while (st.pc != st.end) {
        if (!run(*st.pc, st)) return st.pc != first || st.seen != seen;
        ++st.pc;
        st.seen = 0;
    }
    st.pc = st.begin;
    ++st.piece;
    st.position = windows_.next_position(st.position);
    return true;
}

COLLX_END_NAMESPACE
