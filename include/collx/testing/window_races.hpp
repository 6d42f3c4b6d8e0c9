// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds races in recorded uses of windows: two accesses to the same bytes, at least one a write, neither of which is
// complete before the other begins. As in the schedules' verifier (sched/races.hpp), ranks have clocks: a signal
// carries its giver's, and a wait takes that of exactly the signal that it asks for. So the order found holds for every
// interleaving, and one run decides. The outcomes of test(), fetch() and exchange() are those of the run.
//
// A load, store, get or fetch is complete when its call returns. A put or accumulate to another host is not: it is
// complete once its target has waited for a later signal of its rank, its rank has flushed, or all have passed a fence.
// Only later data from its rank to the same target always come after it. A put that travels with its signal is complete
// when that signal is taken. So a record of threads also shows races that occur between hosts only.
//
// Cost: ranks^2 * windows numbers for each signal; accesses that all ranks know to be complete are dropped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include <collx/testing/window_uses.hpp>

COLLX_BEGIN_NAMESPACE
namespace testing {

// A use, by its number in the record of its rank, from 0 on.
struct window_use_at {
    int rank = -1;
    std::size_t number = 0;
};

// A race, and what would order its uses.
struct window_race {
    // no_signal: the first rank gives the second none after its use. unwaited: it does, and the second does not wait
    // for it before its own use. unflushed: the second knows of the first use, but its put may be under way. travels:
    // the first use is a put that travels with its signal. operators: both are atomic, but the result depends on their
    // order. starved: no race; the second use is a wait for more signals, or a fence of more ranks, than there are.
    enum class cause { no_signal, unwaited, unflushed, travels, operators, starved };
    cause why = cause::no_signal;
    window_use_at first, second;
    std::size_t at = 0, bytes = 0; // the bytes that both touch
    std::size_t signal = 0; // unwaited: the signal's number, from 1 on. no_signal: that of the last one before; 0: none
};

namespace detail {

// Reads a record once, rank by rank, as far as waits allow.
class window_races {
public:
    explicit window_races(const window_uses& uses)
        : uses_(uses), n_(sized(uses.ranks())), pairs_(sized(uses.windows()) * n_ * n_),
          ranks_(n_, rank_state{0, clock(n_ + 2 * pairs_, 0)}), signals_(pairs_), live_(sized(uses.windows()) * n_) {}

    std::vector<window_race> run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t r = 0; r < n_; ++r)
                while (step(r)) moved = true;
            moved = meet() || moved;
        }
        for (std::size_t r = 0; r < n_; ++r)
            if (ranks_[r].next < of(r).size()) {
                window_race x{window_race::cause::starved, {}, here(r), 0, 0, 0};
                if (const window_use& u = of(r)[ranks_[r].next]; u.what == kind::wait)
                    x.signal = signals_[pair(u.window, sized(u.peer), r)].clocks.size();
                races_.push_back(x);
            }
        return std::move(races_);
    }

private:
    using kind = window_use::kind;
    // For each rank: how many of its uses are known. Then for each window and pair of ranks: the use up to which the
    // puts of the one into the part of the other are complete; then the same for puts that travel with signals.
    using clock = std::vector<std::size_t>;
    struct rank_state {
        std::size_t next;
        clock knows;
    };
    struct given { // signals from one rank to one other
        std::vector<clock> clocks;
        std::vector<std::size_t> numbers; // the uses that gave them
        std::size_t taken = 0;
    };
    struct access {
        window_use_at who;
        const window_use* use;
        clock heard; // uses of each rank that were known when it began
    };

    static std::size_t sized(int i) { return static_cast<std::size_t>(i); }
    const std::vector<window_use>& of(std::size_t r) const { return uses_.of(static_cast<int>(r)); }
    window_use_at here(std::size_t r) const { return {static_cast<int>(r), ranks_[r].next}; }
    std::size_t pair(int window, std::size_t from, std::size_t to) const {
        return (sized(window) * n_ + from) * n_ + to;
    }
    std::size_t there(int window, std::size_t from, std::size_t to) const { return n_ + pair(window, from, to); }
    std::size_t stored(int window, std::size_t from, std::size_t to) const { return pairs_ + there(window, from, to); }
    static void join(clock& into, const clock& from) {
        for (std::size_t i = 0; i < into.size(); ++i) into[i] = from[i] > into[i] ? from[i] : into[i];
    }

    // Takes the next use of a rank. False: it must wait, or there is none.
    bool step(std::size_t r) {
        rank_state& me = ranks_[r];
        if (me.next == of(r).size()) return false;
        const window_use& u = of(r)[me.next];
        const std::size_t peer = u.peer < 0 ? 0 : sized(u.peer), after = me.next + 1;
        switch (u.what) {
            case kind::fence:
            case kind::meet: return false;
            case kind::wait: {
                given& g = signals_[pair(u.window, peer, r)];
                if (g.clocks.size() < g.taken + u.count) return false;
                g.taken += u.count;
                join(me.knows, g.clocks[g.taken - 1]);
                for (const std::size_t i : {there(u.window, peer, r), stored(u.window, peer, r)})
                    me.knows[i] = std::max(me.knows[i], g.numbers[g.taken - 1] + 1);
                break;
            }
            case kind::signal: {
                given& g = signals_[pair(u.window, r, peer)];
                me.knows[r] = after;
                g.clocks.push_back(me.knows);
                g.numbers.push_back(me.next);
                break;
            }
            case kind::flush: me.knows[there(u.window, r, peer)] = after; break;
            case kind::flush_all:
                for (std::size_t q = 0; q < n_; ++q) me.knows[there(u.window, r, q)] = after;
                break;
            default: touch(r, u);
        }
        me.knows[r] = me.next = after;
        return true;
    }
    // Takes the same fence, or call beside the window, on all ranks. False: they are not all in one.
    bool meet() {
        const window_use* first = nullptr;
        for (std::size_t r = 0; r < n_; ++r) {
            if (ranks_[r].next == of(r).size()) return false;
            const window_use& u = of(r)[ranks_[r].next];
            if (u.what != kind::fence && u.what != kind::meet) return false;
            if (first != nullptr && (u.what != first->what || u.window != first->window)) return false;
            first = &u;
        }
        clock all = ranks_[0].knows;
        for (std::size_t r = 0; r < n_; ++r) {
            join(all, ranks_[r].knows);
            all[r] = ranks_[r].next + 1;
        }
        for (std::size_t r = 0; r < n_ && first->what == kind::fence; ++r)
            for (std::size_t q = 0; q < n_; ++q)
                all[there(first->window, r, q)] = all[stored(first->window, r, q)] = ranks_[r].next + 1;
        for (rank_state& r : ranks_) {
            r.knows = all;
            ++r.next;
        }
        return true;
    }

    // Whether access a is complete before what rank r does now.
    bool is_done(const access& a, std::size_t r) const {
        const clock& knows = ranks_[r].knows;
        const std::size_t by = sized(a.who.rank), part = sized(a.use->peer);
        if (a.use->travels) return knows[stored(a.use->window, by, part)] > a.who.number;
        if (by == r) return true;
        if (a.use->what != kind::put && a.use->what != kind::accumulate) return knows[by] > a.who.number;
        if (part == by) return knows[by] > a.who.number; // complete at once in its own part
        return knows[there(a.use->window, by, part)] > a.who.number;
    }
    void touch(std::size_t r, const window_use& u) {
        const clock& knows = ranks_[r].knows;
        access now{here(r), &u, clock(knows.begin(), knows.begin() + static_cast<std::ptrdiff_t>(n_))};
        auto& [all, least] = live_[sized(u.window) * n_ + sized(u.peer)];
        for (const access& a : all) {
            const window_use& b = *a.use;
            if (b.at >= u.at + u.bytes || u.at >= b.at + b.bytes || (is_read(b.what) && is_read(u.what))) continue;
            const bool is_same = is_atomic(b.what) && is_atomic(u.what);
            if ((is_same && b.by == u.by) || is_done(a, r)) continue;
            add(a, now, is_same);
        }
        all.push_back(std::move(now));
        if (all.size() < least) return;
        std::deque<access> kept;
        for (access& a : all) {
            bool is_known = true;
            for (std::size_t s = 0; s < n_; ++s) is_known = is_known && is_done(a, s);
            if (!is_known) kept.push_back(std::move(a));
        }
        all.swap(kept);
        least = 2 * all.size() + 64;
    }
    // Adds a race, one for each pair of ranks and places in the program. a was read before b, but the program may have
    // meant the other order: see missing_order.
    void add(const access& a, const access& b, bool is_same) {
        for (const window_race& x : races_)
            if ((is_like(x.first, a.who) && is_like(x.second, b.who)) ||
                (is_like(x.first, b.who) && is_like(x.second, a.who)))
                return;
        using cause = window_race::cause;
        const bool has_heard = a.who.rank == b.who.rank || b.heard[sized(a.who.rank)] > a.who.number;
        const missing_order as_read = missing(a, b), turned = missing(b, a);
        const bool is_turned = !has_heard && turned < as_read;
        const missing_order& it = is_turned ? turned : as_read;
        const access &first = is_turned ? b : a, &second = is_turned ? a : b;
        const std::size_t from = std::max(a.use->at, b.use->at);
        const std::size_t end = std::min(a.use->at + a.use->bytes, b.use->at + b.use->bytes);
        window_race x{cause::no_signal, first.who, second.who, from, end - from, it.signals_before};
        if (is_same) x.why = cause::operators;
        else if (has_heard) x.why = first.use->travels ? cause::travels : cause::unflushed;
        else if (it.what != missing_order::no_signal) {
            x.why = cause::unwaited;
            ++x.signal;
        }
        races_.push_back(x);
    }
    bool is_like(const window_use_at& a, const window_use_at& b) const {
        const window_use &x = uses_.of(a.rank)[a.number], &y = uses_.of(b.rank)[b.number];
        return a.rank == b.rank && x.what == y.what && x.window == y.window && x.from.line == y.from.line;
    }

    // Which of two accesses should come first: preferably one that a signal follows which the other rank never takes;
    // then one without a later signal; last one whose signal the other rank takes later, as it may be meant for a later
    // use. Of two that are alike, the one with fewer uses up to it of which the other rank does not know.
    struct missing_order {
        enum order { never_taken, no_signal, taken_later } what;
        std::size_t uses_unheard, signals_before;
        bool operator<(const missing_order& o) const {
            return what != o.what ? what < o.what : uses_unheard < o.uses_unheard;
        }
    };
    missing_order missing(const access& first, const access& second) const {
        const std::size_t by = sized(first.who.rank);
        const std::size_t heard = second.heard[by], number = first.who.number;
        missing_order m{missing_order::no_signal, number > heard ? number - heard : 0, 0};
        const auto is_of = [&](const window_use& u, kind what, int peer) {
            return u.what == what && u.window == first.use->window && u.peer == peer;
        };
        const auto& uses = uses_.of(first.who.rank);
        bool has_later = false;
        for (std::size_t i = 0; i < uses.size(); ++i)
            if (is_of(uses[i], kind::signal, second.who.rank)) {
                if (i < number) ++m.signals_before;
                else has_later = true;
            }
        std::uint64_t taken = 0;
        for (const window_use& u : uses_.of(second.who.rank))
            if (is_of(u, kind::wait, first.who.rank)) taken += u.count;
        if (has_later) m.what = taken > m.signals_before ? missing_order::taken_later : missing_order::never_taken;
        return m;
    }

    struct part_state {
        std::deque<access> all{}; // not known to all ranks to be complete
        std::size_t least = 64;   // number at which those that are known are dropped
    };
    const window_uses& uses_;
    std::size_t n_, pairs_;
    std::vector<rank_state> ranks_;
    std::vector<given> signals_;   // by window, giver and taker
    std::vector<part_state> live_; // by window and part
    std::vector<window_race> races_;
};

} // namespace detail

// Returns all races of a record, one for each pair of ranks and places in the program, in the order of the second use;
// then the waits that no signal ends. Call it when the ranks have ended.
// Cost: accesses * accesses that are not yet known to be complete.
// Requires: orders by signals, fences, and met(). A lock that ranks make of values, say by exchange(), is none.
inline std::vector<window_race> races_of(const window_uses& uses) { return detail::window_races(uses).run(); }

} // namespace testing
COLLX_END_NAMESPACE
