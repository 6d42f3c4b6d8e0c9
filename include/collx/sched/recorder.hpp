// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The executor that records: it writes the steps of one rank into flat lists, one per strand. The host engine walks
// these lists with a cursor; the verifier, the facts and the pictures read them too.
#pragma once

#include <collx/core/growing_array.hpp>
#include <collx/sched/executor.hpp>
#include <collx/sched/renumbering.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// What one rank does: a list of steps for each strand.
struct program {
    detail::growing_array<detail::growing_array<step>> strands;
};

inline constexpr int most_lag = 255; // of a wait: a step cannot count back further

class recorder : public verbs<recorder> {
public:
    constexpr recorder() = default;
    // Makes room for a program about as long as `like`.
    constexpr explicit recorder(const program& like) {
        result_.strands.reserve(like.strands.size());
        for (const auto& s : like.strands) {
            result_.strands.emplace_back();
            result_.strands.back().reserve(s.size());
        }
    }
    // The strands of an inner algorithm become one sequence.
    constexpr bool strand(int k) {
        if (inside_ == nullptr) open(k);
        return true;
    }
    template <action What>
    constexpr void emit(const sched::step& s) {
        add(s);
    }
    // Numbers that a step cannot hold are recorded as no signal, which the check of ranges refuses.
    COLLX_HD constexpr void signal(int index) {
        verbs<recorder>::signal(index < 0 || index > no_signal ? no_signal : index);
    }
    COLLX_HD constexpr void wait(int index, int rank, int lag = 0) {
        const bool fits = index >= 0 && index < no_signal && lag >= 0 && lag <= most_lag;
        verbs<recorder>::wait(fits ? index : no_signal, rank, fits ? lag : 0);
    }
    COLLX_HD constexpr void wait_all(int index, int lag = 0) { wait(index, all_ranks, lag); }
    // From here to leave(), steps come from an inner algorithm: see run_inside().
    constexpr void enter(renumbering& here) {
        here.around = inside_;
        inside_ = &here;
        renumber_ = &renumbering::operator(); // by its address: most programs record no inner algorithm
    }
    constexpr void leave() { inside_ = inside_->around; }
    constexpr program take() {
        if (asked_ == 0) open(0);
        result_.strands.resize(static_cast<unsigned>(asked_));
        return static_cast<program&&>(result_);
    }

private:
    constexpr void open(int k) {
        while (static_cast<int>(result_.strands.size()) <= k) result_.strands.emplace_back();
        if (k >= asked_) asked_ = k + 1;
        current_ = k;
    }
    // One body for all kinds of steps and all algorithms. It is cold, and so are its callers: recording is compiled for
    // size.
    [[gnu::cold, gnu::noinline]] constexpr void add(const sched::step& one) {
        sched::step s = one;
        for (const renumbering* at = inside_; at != nullptr; at = at->around)
            if (!(at->*renumber_)(s)) return;
        if (asked_ == 0) open(0);
        result_.strands[static_cast<unsigned>(current_)].push_back(s);
    }

    program result_;
    const renumbering* inside_ = nullptr;
    bool (renumbering::*renumber_)(sched::step&) const = nullptr;
    int current_ = 0;
    int asked_ = 0; // strands that the algorithm has named so far
};

// Records the steps of rank `rank` of `n`.
template <class Algorithm>
constexpr program record(const Algorithm& algorithm, int rank, int n) {
    recorder ex;
    algorithm(ex, rank, n);
    return ex.take();
}

// The same with another rank's program at hand: most have the same length, so lists need not grow while recording.
template <class Algorithm>
constexpr program record(const Algorithm& algorithm, int rank, int n, const program& like) {
    recorder ex(like);
    algorithm(ex, rank, n);
    return ex.take();
}

} // namespace sched
COLLX_END_NAMESPACE
