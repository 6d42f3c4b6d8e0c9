// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The second symbolic analysis, for memory that several strands or ranks touch. It checks that every access to a cell
// is ordered with every earlier access that conflicts with it. Values cannot show this: one interleaving may be right
// by luck.
//
// Each strand carries a vector clock, one number per strand; messages and signals carry the sender's (Mattern, "Virtual
// time and global states of distributed systems", 1989). A wait takes the clock of exactly the signal it asks for, and
// a receive that of its message; a free slot orders nothing. So the order found holds for every interleaving and every
// channel depth, and one run is enough here too.
//
// Two calls run back to back; of a barrier two more than its windows have stages, because each call is one iteration.
// Calls with other roots use the same windows, so a third one has another root. Before, between and after them the user
// writes all of `in` and `out`. That finds peers that still read a buffer whose call has returned, and stages that are
// reused while a rank lags a call behind.
//
// Cost: a clock of ranks * strands numbers at every event, so this is for small n (tests use n <= 17). Patterns do not
// change for larger n.
#pragma once

#include <collx/core/growing_array.hpp>
#include <collx/sched/accesses.hpp>
#include <collx/sched/network.hpp>
#include <collx/sched/ranges.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// Keeps vector clocks while a schedule runs, and finds accesses that they do not order.
class clock_reader {
public:
    // then: the programs of one more call; null: there is none.
    constexpr clock_reader(const schedule& s, bool in_place, const schedule* then)
        : s_(s), n_(s.ranks), calls_(then != nullptr ? 3
                                     : s.calls() > 2 ? s.calls()
                                                     : 2),
          iterations_(s.iterations() * calls_), in_place_(in_place), scratch_(scratch_named(s)) {
        if (then != nullptr)
            if (const int more = scratch_named(*then); more > scratch_) scratch_ = more;
        for (const program& p : s.programs) width_ += static_cast<unsigned>(p.strands.size());
        user_cells_ = s.iterations() * s.chunks; // the pieces of a buffer; every call uses the same buffers
        cells_per_rank_ = 2 * user_cells_ + scratch_ + 2 * s.window_depth * s.chunks;
        const std::size_t cells = std::size_t{sized(n_)} * sized(cells_per_rank_);
        written_by_.assign(cells, -1);
        written_at_.assign(cells, 0);
        reads_.assign(cells * width_, 0);
        clocks_.assign(width_ * width_, 0);
        by_signal_.assign(sized(n_ * s.signals * iterations_) * width_, 0);
        placed_by_.assign(sized(n_), -1);
        entered_.assign(sized(n_ * calls_), -1);
        for (unsigned i = 0; i < width_; ++i) clocks_[i * width_ + i] = 1;
    }

    constexpr int calls() const { return calls_; }
    constexpr void channel_added(int depth) {
        for (std::size_t more = sized(depth) * width_; more > 0; --more) by_slot_.push_back(0);
    }

    // Before and after a call the rank is one thread, the user's, which may touch all buffers of the call.
    constexpr void enter(int rank, int call, int first, int last) {
        for (int i = first + 1; i < last; ++i) join(clock(first), clock(i));
        if (call == 0) user_access(rank, first); // cannot fail: nothing has happened yet
        entered_[sized(rank * calls_ + call)] = clock(first)[first];
        for (int i = first + 1; i < last; ++i) join(clock(i), clock(first));
        for (int i = first; i < last; ++i) ++clock(i)[i];
    }
    constexpr fault leave(int rank, int call, int first, int last) {
        for (int i = first + 1; i < last; ++i) join(clock(first), clock(i));
        if (s_.op == collective::barrier)
            for (int k = 0; k < n_; ++k) {
                const int entry = entered_[sized(k * calls_ + call)];
                if (entry < 0 || clock(first)[first_strand(k)] < entry) return {problem::leaky_barrier, k, -1};
            }
        return user_access(rank, first);
    }

    constexpr fault act(const running& me, const step& st, int in_slot, int out_slot) {
        if (in_slot >= 0) join(clock(me.id), &by_slot_[sized(in_slot) * width_]);
        if (in_place_ && is_onto_itself(st)) return {};
        fault f{};
        for_each_access(st, me.rank, n_, s_.chunks, [&](const access& a) {
            if (a.rank < 0 || a.rank >= n_) f = {problem::bad_peer, a.rank, a.chunk};
            else if (a.chunk < 0 || a.chunk >= (a.where == place::tmp ? scratch_ : s_.chunks))
                f = {problem::bad_chunk, a.rank, a.chunk};
            else if (a.where != place::none) f = touch(me.id, cell(a.rank, a.where, me.iteration, a.chunk), a);
            if (f.what == problem::none && !has_placed(me, a)) f = {problem::unknown_buffer, a.rank, a.chunk};
            return f.what == problem::none;
        });
        if (out_slot >= 0) publish(&by_slot_[sized(out_slot) * width_], me.id);
        return f;
    }

    static constexpr bool follows_signals() { return true; }
    constexpr void signalled(const running& me, int index) {
        if (index == 0) placed_by_[sized(me.rank)] = me.id;
        publish(&by_signal_[said(me.rank, index, me.iteration)], me.id);
    }
    constexpr void waited(const running& me, int index, int rank, int iteration) {
        join(clock(me.id), &by_signal_[said(rank, index, iteration)]);
    }

private:
    // In place, a copy from in(c) to out(c) is a copy onto itself, which executors skip.
    static constexpr bool is_onto_itself(const step& st) {
        return st.what == copy && st.src.where == place::in && st.dst.where == place::out &&
               st.src.chunks == st.dst.chunks;
    }
    static constexpr unsigned sized(int i) { return static_cast<unsigned>(i); }
    constexpr int* clock(int strand) { return &clocks_[sized(strand) * width_]; }
    constexpr std::size_t said(int rank, int index, int iteration) const {
        return sized((rank * s_.signals + index) * iterations_ + iteration) * width_;
    }
    constexpr int first_strand(int rank) const {
        int id = 0;
        for (int r = 0; r < rank; ++r) id += static_cast<int>(s_.programs[sized(r)].strands.size());
        return id;
    }

    constexpr void join(int* into, const int* from) const {
        for (unsigned i = 0; i < width_; ++i)
            if (from[i] > into[i]) into[i] = from[i];
    }
    constexpr void publish(int* to, int strand) {
        const int* mine = clock(strand);
        for (unsigned i = 0; i < width_; ++i) to[i] = mine[i];
        ++clock(strand)[strand]; // later accesses are not covered
    }

    // A rank's cells in this order: in, out, tmp, windows by segment and stage.
    constexpr int cell(int rank, place where, int iteration, int chunk) const {
        const int base = rank * cells_per_rank_;
        const int piece = iteration % s_.iterations() * s_.chunks + chunk;
        if (where == place::in || (where == place::out && in_place_)) return base + piece;
        if (where == place::out) return base + user_cells_ + piece;
        if (where == place::tmp) return base + 2 * user_cells_ + chunk;
        const int stage = segment_of(where) * s_.window_depth + iteration % s_.window_depth;
        return base + 2 * user_cells_ + scratch_ + stage * s_.chunks + chunk;
    }

    // Whether this strand knows where a peer's buffer lies in this iteration: its signal 0 says so.
    constexpr bool has_placed(const running& me, const access& a) {
        if (a.rank == me.rank || (a.where != place::in && a.where != place::out) || s_.on_devices) return true;
        const int by = placed_by_[sized(a.rank)];
        if (by < 0) return false;
        const int at = by_signal_[said(a.rank, 0, me.iteration) + sized(by)];
        return at > 0 && clock(me.id)[by] >= at;
    }

    constexpr fault user_access(int rank, int strand) {
        for (int i = 0; i < 2 * user_cells_; ++i)
            if (const fault f = touch(strand, rank * cells_per_rank_ + i, {rank, place::in, i % s_.chunks, true});
                f.what != problem::none)
                return f;
        return {};
    }

    constexpr fault touch(int strand, int at, const access& a) {
        const unsigned c = sized(at);
        const int* now = clock(strand);
        if (written_by_[c] >= 0 && written_by_[c] != strand && now[written_by_[c]] < written_at_[c])
            return {problem::race, a.rank, a.chunk};
        int* reads = &reads_[c * width_];
        if (!a.write) {
            reads[strand] = now[strand];
            return {};
        }
        for (unsigned i = 0; i < width_; ++i) {
            if (static_cast<int>(i) != strand && reads[i] > now[i]) return {problem::race, a.rank, a.chunk};
            reads[i] = 0;
        }
        written_by_[c] = strand;
        written_at_[c] = now[strand];
        return {};
    }

    const schedule& s_;
    int n_, calls_, iterations_;
    bool in_place_;
    int scratch_;        // chunks of it that steps name
    unsigned width_ = 0; // strands of all ranks
    int user_cells_ = 0, cells_per_rank_ = 0;
    detail::growing_array<int> written_by_, written_at_;      // by cell: the last write
    detail::growing_array<int> reads_;                        // by cell and strand: reads since then
    detail::growing_array<int> clocks_, by_slot_, by_signal_; // by strand, slot, signal and iteration
    detail::growing_array<int> placed_by_;                    // by rank: the strand that gives signal 0
    detail::growing_array<int> entered_; // by rank and call: clock of the user's last access before it
};

// The verdict for one case: in place (out is in) or not. then: the programs of a third call; null: there is none.
constexpr verdict races_once(const schedule& s, bool in_place, const schedule* then = nullptr) {
    clock_reader clocks(s, in_place, then);
    network<clock_reader> run(s, clocks, {.calls = clocks.calls(), .then = then, .then_from = 2});
    verdict v = run.run();
    v.in_place = in_place && !v.ok();
    return v;
}

// Ensures: ok() means that any two conflicting accesses of two strands are ordered, in any number of calls back to
// back.
// Requires: a schedule that verify() accepts.
constexpr verdict races(const schedule& s, const schedule* then = nullptr) {
    const verdict v = races_once(s, false, then);
    if (!v.ok() || !may_be_in_place(s.op)) return v;
    const verdict again = races_once(s, true, then);
    return again.ok() ? v : again;
}

// The same for calls of one algorithm with two roots.
constexpr verdict races_of_roots(schedule s, schedule then) {
    for (unsigned r = 0; r < s.programs.size(); ++r) { // a strand that one of them lacks has no steps there
        auto &a = s.programs[r].strands, &b = then.programs[r].strands;
        const std::size_t strands = a.size() > b.size() ? a.size() : b.size();
        a.resize(strands);
        b.resize(strands);
    }
    s.uses |= then.uses;
    s.signals = s.signals > then.signals ? s.signals : then.signals;
    s.max_lag = s.max_lag > then.max_lag ? s.max_lag : then.max_lag;
    return races(s, &then);
}

template <class Algorithm>
constexpr verdict races(const Algorithm& a, int n) {
    const schedule s = record_all(a, n);
    if constexpr (has_root<Algorithm> && signals_v < Algorithm >> 0) {
        Algorithm b = a;
        set_root(b, (root_of(a) + 1) % (n > 1 ? n : 1));
        if (n > 1) return races_of_roots(s, record_all(b, n));
    }
    return races(s);
}

} // namespace sched
COLLX_END_NAMESPACE
