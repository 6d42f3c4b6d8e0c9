// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A discrete-event simulation that runs the recorded programs of all ranks on a machine whose links messages share.
// The rules are the engines' (sched/network.hpp): a strand is sequential, a step begins when its message is there and
// its channel has room, the program runs once for each piece. A step then takes
//   gather    the windows that it reads travel to it
//   compute   the overhead of a message, and the reduction
//   spread    what it sends occupies the strand until the last byte has left; latency passes while the strand continues
// Local copies take no time. The same input gives the same output, to the picosecond.
#pragma once

#include <unordered_map>

#include <collx/sim/check_options.hpp>
#include <collx/sim/cost_model.hpp>
#include <collx/sim/event_queue.hpp>
#include <collx/sim/flows.hpp>
#include <collx/sim/placed_routes.hpp>
#include <collx/sim/recording.hpp>
#include <collx/sim/result.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

namespace detail {

class simulation {
public:
    simulation(const recording& s, fabric& f, const cost_model& m, const options& o)
        : s_(checked(s, f, m, o)), model_(m), options_(o), flows_(f.links()), routes_(s.ranks, f, o) {
        depth_ = std::max(o.depth, s.depth);
        const double shares = static_cast<double>(routes_.orders()) * o.pieces * std::max(1, s.chunks);
        chunk_bytes_ = o.bytes / shares;
        result_.link_bytes.assign(f.links().size(), 0);
        said_.resize(sized(routes_.orders()) * sized(s.ranks) * sized(s.signals));
        waiting_.resize(said_.size());
        for (int k = 0; k < routes_.orders(); ++k)
            for (const short_strand& one : s.strands) add(k, one);
    }

    result run() {
        for (int i = 0; i < static_cast<int>(strands_.size()); ++i) advance(i);
        for (;;) {
            if (events_.empty() || events_.time() > now_) {
                flows_.share(now_, [&](int flow, unsigned version, picoseconds at) {
                    push(at, event::flow_ends, flow, version);
                });
                if (events_.empty()) break;
                now_ = events_.time();
            }
            handle(events_.take());
        }
        require_end();
        result_.time_ns = static_cast<double>(last_) / 1e3 + model_.call_ns;
        return std::move(result_);
    }

private:
    struct strand {
        int rank = 0, order = 0, iteration = 0;
        int place = 0; // the rank of the machine that runs it
        const short_step *begin = nullptr, *end = nullptr, *at = nullptr;
        int done = 0;          // how often `at` has been run
        int in = -1, out = -1; // channels of the current step; kept, since the next step's are often the same
        int in_peer = -1, out_peer = -1;
        int pending = 0; // flows of the current phase
        bool is_spread = false, is_over = false;
    };
    struct channel {
        std::int64_t sent = 0, arrived = 0, taken = 0;
        int sender = -1, receiver = -1; // strands that are blocked
        const route* way = nullptr;     // of all its messages
    };
    struct event {
        enum type : unsigned char { flow_ends, message_arrives, window_arrives, computed, resumed };
        type what;
        int id;
        unsigned version;
    };
    struct load { // what a flow carries
        int strand = -1;
        int channel = -1;     // -1: a window's bytes
        int from = 0, to = 0; // places
        double bytes = 0;
        picoseconds begin = 0, latency = 0;
    };

    static const recording& checked(const recording& s, const fabric& f, const cost_model& m, const options& o) {
        check(m);
        check(s, f, o);
        return s;
    }
    static std::size_t sized(int i) { return static_cast<std::size_t>(i); }
    strand& at(int i) { return strands_[sized(i)]; }
    const route& way_of(channel& c, const strand& s, int from, int to) {
        if (c.way == nullptr) c.way = &routes_.between(s.order, from, to);
        return *c.way;
    }

    void add(int order, const short_strand& one) {
        strand s;
        s.rank = one.rank;
        s.order = order;
        s.place = routes_.place(order, one.rank);
        s.begin = s.at = s_.steps.data() + one.begin;
        s.end = s_.steps.data() + one.end;
        strands_.push_back(s);
    }
    void push(picoseconds at, typename event::type what, int id, unsigned version = 0) {
        if (at >= last_picosecond) [[unlikely]]
            require_in_time(static_cast<double>(at));
        events_.push(at, {what, id, version});
    }

    void handle(const event& e) {
        switch (e.what) {
            case event::flow_ends:
                if (flows_.is_current(e.id, e.version)) flow_ended(e.id);
                return;
            case event::message_arrives: {
                channel& c = channels_[sized(e.id)];
                ++c.arrived;
                return wake(c.receiver);
            }
            case event::window_arrives:
                if (--at(e.id).pending == 0) after_flows(e.id);
                return;
            case event::computed: return spread(e.id);
            case event::resumed: return advance(e.id);
        }
    }
    void wake(int& who) {
        if (who < 0) return;
        const int blocked = who;
        who = -1;
        advance(blocked);
    }

    // Runs a strand until it blocks or a step takes time.
    void advance(int id) {
        strand& me = at(id);
        for (;;) {
            if (is_dead(me.place)) return;
            if (me.at == me.end) {
                if (++me.iteration < options_.pieces) {
                    me.at = me.begin;
                    continue;
                }
                me.is_over = true;
                last_ = std::max(last_, now_);
                return;
            }
            const short_step& st = *me.at;
            if ((st.what & sched::signal) != 0) give(me, st);
            else if ((st.what & sched::wait) != 0) {
                if (!has_seen(id, me, st)) return;
                next(me);
            } else if (!may_begin(id, me, st) || !begin(id, me, st)) return;
        }
    }
    bool is_dead(int place) const {
        return place == options_.dead_rank && static_cast<double>(now_) >= options_.dead_at_ns * 1e3;
    }

    int channel_of(int order, int from, int to) {
        const auto key =
            (static_cast<std::uint64_t>(order) * sized(s_.ranks) + sized(from)) * sized(s_.ranks) + sized(to);
        const auto [it, is_new] = number_of_.try_emplace(key, static_cast<int>(channels_.size()));
        if (is_new) channels_.emplace_back();
        return it->second;
    }
    static bool is_empty(const channel& c) { return c.arrived == c.taken; }
    bool may_begin(int id, strand& me, const short_step& st) {
        if ((st.what & sched::recv) != 0) {
            if (me.in_peer != st.peer_from) {
                me.in_peer = st.peer_from;
                me.in = channel_of(me.order, st.peer_from, me.rank);
            }
            channel& c = channels_[sized(me.in)];
            if (is_empty(c)) {
                c.receiver = id;
                return false;
            }
        }
        if ((st.what & sched::send) != 0) {
            if (me.out_peer != st.peer_to) {
                me.out_peer = st.peer_to;
                me.out = channel_of(me.order, me.rank, st.peer_to);
            }
            channel& c = channels_[sized(me.out)];
            if (c.sent - c.taken >= depth_) {
                c.sender = id;
                return false;
            }
        }
        return true;
    }

    double bytes_of(const short_step& st) const { return chunk_bytes_ * st.chunks; }
    // Begins a step. True: it is over already.
    bool begin(int id, strand& me, const short_step& st) {
        me.is_spread = false;
        const double bytes = bytes_of(st);
        if (options_.by_switch) { // packs are stored as they come: both flows at once. What a get reads is there
            if ((st.what & sched::fold) != 0)
                start(id, me.rank, me.rank, bytes, -1, &routes_.sum_to(me.order, me.rank));
            if ((st.what & (sched::fold | sched::to_all)) != 0)
                start(id, me.rank, me.rank, bytes, -1, &routes_.store_of(me.order, me.rank));
            return me.pending == 0 && compute(id, me, st);
        }
        if ((st.what & sched::get) != 0) start(id, st.peer_from, me.rank, bytes, -1);
        if ((st.what & sched::fold) != 0)
            for (int k = st.peer_from; k < st.peer_to; ++k)
                if (k != me.rank) start(id, k, me.rank, bytes, -1);
        return me.pending == 0 && compute(id, me, st);
    }
    void after_flows(int id) {
        strand& me = at(id);
        if (me.is_spread ? next(me) : compute(id, me, *me.at)) advance(id);
    }
    bool compute(int id, strand& me, const short_step& st) {
        double ns = model_.step_ns + ((st.what & sched::send) != 0 ? model_.overhead_ns : 0);
        const bool has_operator = (st.what & (sched::reduce | sched::reduce_after | sched::fold)) != 0;
        const int operands = (st.what & sched::fold) != 0 ? std::max(0, st.peer_to - st.peer_from - 1) : 1;
        if (has_operator && !options_.by_switch) ns += model_.reduce_ns_per_byte * bytes_of(st) * operands;
        ns *= options_.slowness_of(me.place);
        if (ns > 0) {
            push(now_ + to_picoseconds(ns), event::computed, id);
            return false;
        }
        return begin_spread(id, me, st);
    }
    void spread(int id) {
        strand& me = at(id);
        if (!is_dead(me.place) && begin_spread(id, me, *me.at)) advance(id);
    }
    bool begin_spread(int id, strand& me, const short_step& st) {
        me.is_spread = true;
        const double bytes = bytes_of(st);
        const int in = (st.what & sched::recv) != 0 ? me.in : -1;
        if ((st.what & sched::send) != 0) {
            ++channels_[sized(me.out)].sent;
            start(id, me.rank, st.peer_to, bytes, me.out);
        }
        if ((st.what & sched::to_all) != 0 && !options_.by_switch)
            for (int k = 0; k < s_.ranks; ++k)
                if (k != me.rank) start(id, me.rank, k, bytes, -1);
        const bool is_over = me.pending == 0 && next(me);
        if (in >= 0) { // the message has left its slot; waking may run other strands, so it comes last
            channel& c = channels_[sized(in)];
            ++c.taken;
            if (c.sender >= 0) push(now_, event::resumed, std::exchange(c.sender, -1));
        }
        return is_over;
    }
    static bool next(strand& me) {
        if (++me.done == me.at->times) {
            ++me.at;
            me.done = 0;
        }
        return true;
    }

    void start(int id, int from, int to, double bytes, int into, const route* way = nullptr) {
        strand& me = at(id);
        const route& r = way != nullptr ? *way
                         : into < 0     ? routes_.between(me.order, from, to)
                                        : way_of(channels_[sized(into)], me, from, to);
        const double wire = bytes * model_.wire_bytes_per_byte;
        const int place = routes_.place(me.order, from);
        const double slow = options_.slowness_of(place);
        double most = model_.most_bytes_per_s * model_.wire_bytes_per_byte;
        if (slow > 1) most = (most > 0 ? std::min(most, r.bytes_per_s) : r.bytes_per_s) / slow;
        ++me.pending;
        ++result_.messages;
        const bool is_near = r.links.empty() || (into < 0 && way == nullptr && model_.pushes);
        const double latency = is_near ? 0 : model_.latency_ns(r) * slow;
        for (const int l : r.links) result_.link_bytes[sized(l)] += wire;
        const int flow = flows_.start(r, wire, most, now_);
        if (sized(flow) >= loads_.size()) loads_.resize(sized(flow) + 1);
        loads_[sized(flow)] = {id, into, place, routes_.place(me.order, to), bytes, now_, to_picoseconds(latency)};
        if (r.links.empty()) push(now_, event::flow_ends, flow, flows_.version(flow));
    }
    void flow_ended(int flow) {
        flows_.end(flow);
        const load l = loads_[sized(flow)];
        const picoseconds arrival = now_ + l.latency;
        if (options_.with_transfers)
            result_.transfers.push_back(
                {l.from, l.to, l.bytes, static_cast<double>(l.begin) / 1e3, static_cast<double>(arrival) / 1e3});
        if (l.channel < 0) return push(arrival, event::window_arrives, l.strand);
        push(arrival, event::message_arrives, l.channel);
        if (--at(l.strand).pending == 0) after_flows(l.strand);
    }

    // The number of a signal in said_, which has the time at which each iteration was published.
    std::size_t counter(int order, int rank, int index) const {
        return (sized(order) * sized(s_.ranks) + sized(rank)) * sized(s_.signals) + sized(index);
    }
    bool has_said(std::size_t signal, int iteration) const { return said_[signal].size() > sized(iteration); }
    void give(strand& me, const short_step& st) {
        const std::size_t id = counter(me.order, me.rank, st.index);
        said_[id].push_back(now_);
        next(me);
        for (const int other : std::exchange(waiting_[id], {})) push(now_, event::resumed, other);
    }
    bool has_seen(int id, strand& me, const short_step& st) {
        const int iteration = me.iteration - st.lag;
        if (iteration < 0) return true;
        picoseconds seen = now_;
        const bool all = st.peer_from == sched::all_ranks;
        for (int k = all ? 0 : st.peer_from; k < (all ? s_.ranks : st.peer_from + 1); ++k) {
            const std::size_t c = counter(me.order, k, st.index);
            if (!has_said(c, iteration)) {
                waiting_[c].push_back(id);
                return false;
            }
            if (k == me.rank) continue;
            const route& r = routes_.between(me.order, k, me.rank);
            const double ns = model_.latency_ns(r) * options_.slowness_of(routes_.place(me.order, k));
            seen = std::max(seen, said_[c][sized(iteration)] + to_picoseconds(ns));
        }
        if (seen > now_) {
            push(seen, event::resumed, id);
            return false;
        }
        return true;
    }

    // Nothing is under way any more. Errors: where strands of living ranks wait, because of the dead one, or because
    // the schedule is wrong.
    void require_end() const {
        const strand* first = nullptr; // of those that wait for the dead rank, or else of all
        int waiting = 0;
        const bool is_any_dead = options_.dead_rank >= 0 && is_dead(options_.dead_rank);
        for (const strand& s : strands_) {
            if (s.is_over || is_dead(s.place)) continue;
            ++waiting;
            const bool is_his = is_any_dead && waits_for_place(s) == options_.dead_rank;
            if (first == nullptr || (is_his && waits_for_place(*first) != options_.dead_rank)) first = &s;
        }
        if (first == nullptr) return;
        if (is_any_dead)
            fail(errc::peer_failed, first->place, options_.dead_rank,
                 "a job goes on without it after shrink(); simulate the ranks that are left",
                 "rank %d is dead from %g ns on, and %d strands wait for it or for each other at %g ns",
                 options_.dead_rank, options_.dead_at_ns, waiting, static_cast<double>(now_) / 1e3);
        fail(errc::protocol, first->rank, peer_of(*first), "verify the schedule first; sched::verify names the step",
             "the schedule does not end: step %d waits for rank %d", step_number(*first), peer_of(*first));
    }
    static int step_number(const strand& s) {
        int before = s.done;
        for (const short_step* k = s.begin; k != s.at; ++k) before += k->times;
        return before;
    }
    int waits_for_place(const strand& s) const { return routes_.place(s.order, peer_of(s)); }
    // The rank whose signal, message or room in a channel a blocked strand lacks.
    int peer_of(const strand& s) const {
        const short_step& st = *s.at;
        if ((st.what & sched::wait) != 0) {
            int k = st.peer_from == sched::all_ranks ? 0 : st.peer_from;
            while (has_said(counter(s.order, k, st.index), s.iteration - st.lag)) ++k;
            return k;
        }
        const bool lacks_message = (st.what & sched::recv) != 0 && is_empty(channels_[sized(s.in)]);
        return lacks_message ? st.peer_from : st.peer_to;
    }

    const recording& s_;
    const cost_model model_;
    const options options_;
    flow_set flows_;
    placed_routes routes_;
    std::vector<strand> strands_;
    std::vector<channel> channels_;
    std::unordered_map<std::uint64_t, int> number_of_;
    std::vector<std::vector<picoseconds>> said_;
    std::vector<std::vector<int>> waiting_;
    std::vector<load> loads_;
    event_queue<event> events_;
    picoseconds now_ = 0, last_ = 0;
    double chunk_bytes_ = 0;
    int depth_ = 1;
    result result_;
};

} // namespace detail

// Simulates a collective: its time, and the bytes on each link. Cost: one or two events for each message, more where
// flows share links. Errors: invalid_argument for options, costs, or ranks without a path; peer_failed where a strand
// waits for a dead rank; protocol where the schedule never ends. What the dead rank itself leaves undone is no error.
inline result simulate(const recording& s, fabric& f, const cost_model& m, const options& o) {
    return detail::simulation(s, f, m, o).run();
}
inline result simulate(const sched::schedule& s, fabric& f, const cost_model& m, const options& o) {
    return simulate(recording_of(s), f, m, o);
}

} // namespace sim
COLLX_END_NAMESPACE
