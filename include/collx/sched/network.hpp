// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the programs of all ranks of a schedule against each other: strands, bounded channels and signals, but no data.
// The Reader keeps what messages and cells hold (values in verify.hpp, clocks in races.hpp, rounds in facts.hpp).
//
// Why one run is enough: a strand is sequential, names the channel it reads and never polls, and its control flow does
// not depend on what it reads. So the strands form a Kahn process network (Kahn, "The semantics of a simple language
// for parallel programming", 1974). A channel of bounded depth is such a network too, with a second channel that
// returns credits; so is a signal, whose counter only grows. Whether the run ends, and what each message holds, is
// therefore the same for every interleaving; this file picks one. Memory shared by strands or ranks (windows, tmp
// across strands, zero-copy buffers) is outside this argument; races.hpp must show that all accesses to it are ordered.
#pragma once

#include <cstdint>

#include <collx/sched/schedule.hpp>
#include <collx/sched/verdict.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// One strand of one rank while it runs.
struct running {
    int id = 0;
    int rank = 0;
    int strand = 0;
    int iteration = 0; // counted over all calls
    int call = 0;
    const step* begin = nullptr;
    const step* end = nullptr;
    const step* at = nullptr;

    enum class state : unsigned char { ready, message, credit, notice, others, ended };
    state now = state::ready;
    int on = -1;   // channel or counter it is blocked on
    int next = -1; // next strand in the list of those blocked on the same counter, or ready
    constexpr int index() const { return static_cast<int>(at - begin); }
};

// How to run a schedule.
struct run_options {
    int calls = 1;
    int iterations = 0; // in each call; 0: schedule::iterations()
    int depth = 0;      // of the channels; 0: schedule::depth
    // Calls from number `then_from` on run these programs instead; null: all run the same. They have as many strands.
    const schedule* then = nullptr;
    int then_from = 0;
};

template <class Reader>
class network {
public:
    constexpr network(const schedule& s, Reader& reader, run_options o = {})
        : s_(s), reader_(reader), calls_(o.calls), iterations_(o.iterations > 0 ? o.iterations : s.iterations()),
          then_(o.then), then_from_(o.then_from), channel_of_(sized(s.ranks) * sized(s.ranks), -1),
          depth_(useful(o.depth > 0 ? o.depth : s.depth)), counters_(sized(s.ranks * s.signals), 0),
          arrived_(sized(s.signals * iterations_ * calls_), 0), blocked_on_(counters_.size() + arrived_.size(), -1),
          first_of_(sized(s.ranks + 1), 0), ended_(sized(s.ranks), 0) {
        for (int r = 0; r < s.ranks; ++r) add(r, s.programs[sized(r)]);
    }

    constexpr verdict run() {
        for (int r = 0; r < s_.ranks; ++r) reader_.enter(r, 0, first_of_[sized(r)], first_of_[sized(r) + 1]);
        for (int i = static_cast<int>(strands_.size()); i-- > 0;) resume(strands_[sized(i)]);
        while (ready_ >= 0) {
            running& me = strands_[sized(ready_)];
            ready_ = me.next;
            while (me.now == running::state::ready) advance(me);
            if (!verdict_.ok()) return verdict_;
        }
        for (const running& me : strands_)
            if (me.now != running::state::ended) return blame(me);
        for (const channel& c : channels_)
            if (c.head != c.tail) return fail(problem::leftover, strands_[sized(c.sender)], c.to);
        return verdict_;
    }

private:
    struct channel {
        int from, to;
        int sender = -1, receiver = -1; // strands, known once they have used it
        unsigned head = 0, tail = 0;
    };
    using state = running::state;

    static constexpr unsigned sized(int i) { return static_cast<unsigned>(i); }

    // No channel holds more messages than its sender sends in all calls together, and a slot takes memory.
    constexpr int useful(int depth) {
        if (depth <= 2) return depth;
        int most = 1;
        const auto count = [&](const schedule& s) {
            for (int r = 0; r < s.ranks; ++r)
                for (const auto& strand : s.programs[sized(r)].strands)
                    for (const step& st : strand) {
                        if ((st.what & send) == 0 || !is_rank(st.peer_to)) continue;
                        const int sent = ++channel_of_[sized(r) * sized(s_.ranks) + sized(st.peer_to)] + 1;
                        most = sent > most ? sent : most;
                    }
        };
        count(s_);
        if (then_ != nullptr) count(*then_);
        for (int& c : channel_of_) c = -1;
        const std::int64_t all = std::int64_t{most} * iterations_ * calls_;
        return all < depth ? static_cast<int>(all) : depth;
    }

    constexpr void add(int rank, const program& p) {
        first_of_[sized(rank)] = static_cast<int>(strands_.size());
        for (unsigned k = 0; k < p.strands.size(); ++k) {
            running r{.id = static_cast<int>(strands_.size()), .rank = rank, .strand = static_cast<int>(k)};
            r.begin = r.at = p.strands[k].data();
            r.end = r.begin + p.strands[k].size();
            strands_.push_back(r);
        }
        first_of_[sized(rank) + 1] = static_cast<int>(strands_.size());
    }

    constexpr verdict& fail(problem what, const running& me, int peer = -1, int chunk = -1) {
        verdict_.what = what;
        verdict_.rank = me.rank;
        verdict_.strand = me.strand;
        verdict_.step = me.index();
        verdict_.iteration = me.iteration;
        verdict_.peer = peer;
        verdict_.chunk = chunk;
        return verdict_;
    }

    constexpr bool is_rank(int r) const { return r >= 0 && r < s_.ranks; }

    constexpr void advance(running& me) {
        if (me.at == me.end) return turn(me);
        const step& st = *me.at;
        if ((st.what & signal) != 0) return give(me, st);
        if ((st.what & wait) != 0) return await(me, st);
        int in = -1, out = -1;
        if ((st.what & recv) != 0 && !take(me, st.peer_from, in)) return;
        if ((st.what & send) != 0 && !offer(me, st.peer_to, out)) return;
        channel* const source = in < 0 ? nullptr : &channels_[sized(in)];
        channel* const target = out < 0 ? nullptr : &channels_[sized(out)];
        const int in_slot = source == nullptr ? -1 : in * depth_ + static_cast<int>(source->head % sized(depth_));
        const int out_slot = target == nullptr ? -1 : out * depth_ + static_cast<int>(target->tail % sized(depth_));
        if (const fault f = reader_.act(me, st, in_slot, out_slot); f.what != problem::none)
            return stop(me, fail(f.what, me, f.peer, f.chunk));
        ++me.at;
        if (source != nullptr) {
            ++source->head;
            wake(source->sender, state::credit, in);
        }
        if (target != nullptr) {
            ++target->tail;
            wake(target->receiver, state::message, out);
        }
    }

    constexpr void stop(running& me, const verdict&) {
        me.now = state::ended;
        ready_ = -1;
    }

    constexpr void block(running& me, state why, int on) {
        me.now = why;
        me.on = on;
    }

    constexpr void wake(int strand, state why, int on) {
        if (strand < 0) return;
        running& other = strands_[sized(strand)];
        if (other.now == why && other.on == on) resume(other);
    }

    constexpr void resume(running& me) {
        me.now = state::ready;
        me.next = ready_;
        ready_ = me.id;
    }

    constexpr int find_channel(int from, int to) {
        int& id = channel_of_[sized(from) * sized(s_.ranks) + sized(to)];
        if (id < 0) {
            id = static_cast<int>(channels_.size());
            channels_.push_back({from, to});
            reader_.channel_added(depth_);
        }
        return id;
    }

    // Finds the channel from `peer`; false: it holds no message, or an error. Only one strand of a rank may use an end
    // of a channel: with several, the order of their messages would be arbitrary.
    constexpr bool take(running& me, int peer, int& id) {
        if (!is_rank(peer)) {
            stop(me, fail(problem::bad_peer, me, peer));
            return false;
        }
        id = find_channel(peer, me.rank);
        channel& c = channels_[sized(id)];
        if (c.receiver < 0) c.receiver = me.id;
        if (c.receiver != me.id) {
            stop(me, fail(problem::shared_channel, me, peer));
            return false;
        }
        if (c.head == c.tail) {
            block(me, state::message, id);
            return false;
        }
        return true;
    }

    constexpr bool offer(running& me, int peer, int& id) {
        if (!is_rank(peer)) {
            stop(me, fail(problem::bad_peer, me, peer));
            return false;
        }
        id = find_channel(me.rank, peer);
        channel& c = channels_[sized(id)];
        if (c.sender < 0) c.sender = me.id;
        if (c.sender != me.id) {
            stop(me, fail(problem::shared_channel, me, peer));
            return false;
        }
        if (c.tail - c.head == sized(depth_)) {
            block(me, state::credit, id);
            return false;
        }
        return true;
    }

    constexpr void give(running& me, const step& st) {
        const int id = me.rank * s_.signals + st.index;
        if (counters_[sized(id)] > me.iteration) return stop(me, fail(problem::signal_twice, me, -1, st.index));
        reader_.signalled(me, st.index);
        counters_[sized(id)] = me.iteration + 1;
        ++me.at;
        resume_all(id);
        const int all = signal_of_all(st.index, me.iteration);
        if (++arrived_[sized(all)] == s_.ranks) resume_all(s_.ranks * s_.signals + all);
    }

    constexpr void resume_all(int list) {
        int i = blocked_on_[sized(list)];
        blocked_on_[sized(list)] = -1;
        while (i >= 0) {
            const int next = strands_[sized(i)].next;
            resume(strands_[sized(i)]);
            i = next;
        }
    }

    constexpr int signal_of_all(int index, int iteration) const { return index * iterations_ * calls_ + iteration; }

    constexpr void await(running& me, const step& st) {
        const bool all = st.peer_from == all_ranks;
        if (!all && !is_rank(st.peer_from)) return stop(me, fail(problem::bad_peer, me, st.peer_from));
        const int iteration = me.iteration - st.lag;
        if (iteration >= 0) {
            const int id = all ? signal_of_all(st.index, iteration) : st.peer_from * s_.signals + st.index;
            if (all ? arrived_[sized(id)] < s_.ranks : counters_[sized(id)] <= iteration) {
                const int list = all ? s_.ranks * s_.signals + id : id;
                me.next = blocked_on_[sized(list)];
                blocked_on_[sized(list)] = me.id;
                return block(me, state::notice, list);
            }
            const int last = all ? s_.ranks : st.peer_from + 1;
            for (int k = all ? 0 : st.peer_from; reader_.follows_signals() && k < last; ++k)
                reader_.waited(me, st.index, k, iteration);
        }
        ++me.at;
    }

    // At the end of its program a strand begins the next iteration, or waits for its rank's other strands to end the
    // call.
    constexpr void turn(running& me) {
        ++me.iteration;
        if (me.iteration % iterations_ != 0) {
            me.at = me.begin;
            return;
        }
        const unsigned r = sized(me.rank);
        block(me, state::others, me.rank);
        if (++ended_[r] % (first_of_[r + 1] - first_of_[r]) != 0) return;
        if (const fault f = reader_.leave(me.rank, me.call, first_of_[r], first_of_[r + 1]); f.what != problem::none) {
            --me.iteration;
            return stop(me, fail(f.what, me, f.peer, f.chunk));
        }
        const bool again = me.call + 1 < calls_;
        if (again) reader_.enter(me.rank, me.call + 1, first_of_[r], first_of_[r + 1]);
        for (int i = first_of_[r]; i < first_of_[r + 1]; ++i) {
            running& other = strands_[sized(i)];
            other.now = state::ended;
            if (!again) continue;
            ++other.call;
            if (then_ != nullptr && other.call == then_from_) follow(other, *then_);
            other.at = other.begin;
            if (i == me.id) me.now = state::ready; // continues at once
            else resume(other);
        }
    }

    static constexpr void follow(running& strand, const schedule& s) {
        const auto& steps = s.programs[sized(strand.rank)].strands[sized(strand.strand)];
        strand.begin = steps.data();
        strand.end = strand.begin + steps.size();
    }

    // Called when no strand can continue although not all have ended. Follows the waits from `me` to a wait that no
    // strand will end, or around a cycle.
    constexpr verdict blame(const running& me) {
        detail::growing_array<int> path;
        detail::growing_array<char> seen(strands_.size(), 0);
        const running* s = &me;
        for (;;) {
            seen[sized(s->id)] = 1;
            path.push_back(s->id);
            const int next = waits_for(*s);
            if (next < 0) return fail(never(*s), *s, peer_of(*s), s->now == state::notice ? s->at->index : -1);
            s = &strands_[sized(next)];
            if (seen[sized(next)] != 0) break;
        }
        unsigned start = 0;
        while (path[start] != s->id) ++start;
        fail(problem::deadlock, *s, peer_of(*s));
        for (unsigned i = start; i < path.size(); ++i) {
            const running& w = strands_[sized(path[i])];
            verdict_.note({w.rank, w.strand, w.index(), peer_of(w)});
        }
        return verdict_;
    }

    constexpr problem never(const running& s) const {
        return s.now == state::message  ? problem::missing_message
               : s.now == state::credit ? problem::leftover
                                        : problem::missing_signal;
    }

    constexpr int peer_of(const running& s) const {
        switch (s.now) {
            case state::message: return s.at->peer_from;
            case state::credit: return s.at->peer_to;
            case state::notice: return silent(*s.at, s.iteration - s.at->lag);
            default: return s.rank;
        }
    }

    // The rank whose signal a blocked wait lacks.
    constexpr int silent(const step& st, int iteration) const {
        int k = st.peer_from == all_ranks ? 0 : st.peer_from;
        while (counters_[sized(k * s_.signals + st.index)] > iteration) ++k;
        return k;
    }

    // A strand that has not ended and could still do what `s` is blocked on, or -1.
    constexpr int waits_for(const running& s) const {
        const int peer = peer_of(s);
        for (int i = first_of_[sized(peer)]; i < first_of_[sized(peer) + 1]; ++i) {
            const running& other = strands_[sized(i)];
            if (other.now == state::ended || (other.now == state::others && s.now != state::others)) continue;
            if (s.now == state::others) {
                if (other.now != state::others) return i;
                continue;
            }
            const bool last = (other.iteration + 1) % iterations_ == 0 && other.call + 1 == calls_;
            for (const step* st = last ? other.at : other.begin; st != other.end; ++st)
                if (releases(*st, s)) return i;
        }
        return -1;
    }

    constexpr bool releases(const step& st, const running& s) const {
        switch (s.now) {
            case state::message: return (st.what & send) != 0 && st.peer_to == s.rank;
            case state::credit: return (st.what & recv) != 0 && st.peer_from == s.rank;
            case state::notice: return (st.what & signal) != 0 && st.index == s.at->index;
            default: return false;
        }
    }

    const schedule& s_;
    Reader& reader_;
    int calls_, iterations_;
    const schedule* then_;
    int then_from_;
    verdict verdict_{};
    detail::growing_array<running> strands_;
    detail::growing_array<channel> channels_;
    detail::growing_array<int> channel_of_; // [from * ranks + to]
    int depth_;
    detail::growing_array<int> counters_;   // [rank * signals + index]: iterations signalled
    detail::growing_array<int> arrived_;    // [index, iteration]: ranks that have signalled
    detail::growing_array<int> blocked_on_; // first strand blocked on each counter, then on each number of arrivals
    detail::growing_array<int> first_of_;   // first strand of each rank, and one past the last
    detail::growing_array<int> ended_; // strands of the rank that have reached the end of a call, all calls together
    int ready_ = -1;                   // first of the list of strands that can continue
};

} // namespace sched
COLLX_END_NAMESPACE
