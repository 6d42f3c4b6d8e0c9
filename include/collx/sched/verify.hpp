// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verifier: runs the programs of all ranks on symbolic values (value.hpp), and compares what every rank holds at
// the end with what the collective promises. Works in static_assert and at run time. network.hpp says why one run
// proves it.
//
//   static_assert(collx::sched::verify(collx::algo::ring_all_reduce{}, 5).ok());
//
// Not proved here: that accesses to shared memory are ordered (races.hpp), that an engine executes steps as documented,
// anything about time.
#pragma once

#include <cstdint>

#include <collx/sched/network.hpp>
#include <collx/sched/ranges.hpp>
#include <collx/sched/value.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// Computes symbolic values. A value's chunk is iteration * chunks + c: data of another iteration are another chunk.
class value_reader {
public:
    constexpr value_reader(const schedule& s, bool in_place) : value_reader(s, in_place, s.op) {}
    // promise: the collective whose rules for chunks hold, where s.op promises less.
    constexpr value_reader(const schedule& s, bool in_place, collective promise)
        : s_(s), n_(s.ranks), chunks_(s.chunks), cells_(s.iterations() * s.chunks), in_place_(in_place),
          own_places_(promise != collective::all_to_all && promise != collective::send_recv),
          out_(sized(n_ * cells_), cell{}), trees_(sized(s.op == collective::all_reduce ? cells_ : 0), 0u),
          prefix_(sized(n_ + 1), 0u) {
        for (int r = 0; r < n_; ++r) prefix_[sized(r) + 1] = prefix_[sized(r)] + mix_bits(sized(r));
        if (s.op == collective::barrier) words_ = sized(n_ + 63) / 64;
        if (s.reaches_buffers && !s.on_devices) placed_.resize(sized(n_));
        if (words_ != 0) known_.resize(sized(strand_count()) * words_);
        if (words_ != 0) by_signal_.resize(sized(n_ * s.signals * s.calls()) * words_);
    }

    constexpr verdict result(verdict v) {
        if (v.ok()) v = missing(v);
        v.order = order_;
        v.in_place = in_place_ && !v.ok();
        return v;
    }

    // Whether the same run in place would read something else: a cell of `in` that already holds a result. Out of
    // place, `out` is never read before it is stored, so nothing else can differ.
    constexpr bool depends_on_place() const { return reads_overwritten_; }

    constexpr void channel_added(int depth) {
        for (int i = 0; i < depth; ++i) messages_.emplace_back();
        for (unsigned i = 0; i < sized(depth) * words_; ++i) by_slot_.push_back(0);
    }
    constexpr void enter(int rank, int, int first, int last) {
        if (words_ == 0) return;
        for (int i = first; i < last; ++i) {
            for (unsigned w = 0; w < words_; ++w) known_[sized(i) * words_ + w] = 0; // what is known of this call
            known_[sized(i) * words_ + sized(rank) / 64] |= bit(rank);
        }
    }

    constexpr fault act(const running& me, const step& st, int in_slot, int out_slot) {
        if (words_ != 0) return pass_on(me, in_slot, out_slot);
        const bool reducing = (st.what & (reduce | reduce_after)) != 0;
        const ref& shape = reducing || (st.what & recv) == 0 ? st.src : st.dst;
        const bool stores = (st.what & (copy | to_all)) != 0;
        const message* received = in_slot < 0 ? nullptr : &messages_[sized(in_slot)];
        message* sent = out_slot < 0 ? nullptr : &messages_[sized(out_slot)];
        if (received != nullptr && received->count != shape.chunks.count)
            return {problem::wrong_length, st.peer_from, shape.chunks.first};
        if (sent != nullptr) sent->clear();
        for (int i = 0; i < shape.chunks.count; ++i) {
            value v;
            if (const fault f = element(me, st, received, shape.chunks.at(i, chunks_), i, v); f.what != problem::none)
                return f;
            if (stores)
                if (const fault f = store_all(me, st, st.dst.chunks.at(i, chunks_), v); f.what != problem::none)
                    return f;
            if (sent != nullptr) sent->push(v);
        }
        return {};
    }

    constexpr bool follows_signals() const { return words_ != 0; }
    constexpr void signalled(const running& me, int index) {
        if (index == 0 && !placed_.empty()) placed_[sized(me.rank)] = me.iteration + 1;
        for (unsigned w = 0; w < words_; ++w)
            by_signal_[said(me.rank, index, me.iteration) + w] = known_[sized(me.id) * words_ + w];
    }
    constexpr void waited(const running& me, int index, int rank, int iteration) {
        if (iteration != me.iteration) return; // an earlier call's
        for (unsigned w = 0; w < words_; ++w)
            known_[sized(me.id) * words_ + w] |= by_signal_[said(rank, index, iteration) + w];
    }

    // A barrier is correct if a rank that returns knows that all ranks have entered this call. A call is one iteration.
    constexpr fault leave(int, int, int first, int last) {
        for (int k = 0; k < n_ && words_ != 0; ++k) {
            bool known = false;
            for (int i = first; i < last; ++i)
                known = known || (known_[sized(i) * words_ + sized(k) / 64] & bit(k)) != 0;
            if (!known) return {problem::leaky_barrier, k, -1};
        }
        return {};
    }

private:
    struct cell {
        value held;
        bool stored = false;
    };
    // Most messages are one chunk, which needs no allocation.
    struct message {
        int count = 0;
        value first;
        detail::growing_array<value> rest;
        constexpr void clear() {
            count = 0;
            rest.clear();
        }
        constexpr void push(const value& v) {
            if (count++ == 0) first = v;
            else rest.push_back(v);
        }
        constexpr const value& at(int i) const { return i == 0 ? first : rest[sized(i - 1)]; }
    };

    static constexpr unsigned sized(int i) { return static_cast<unsigned>(i); }
    static constexpr std::uint64_t bit(int rank) { return std::uint64_t{1} << (sized(rank) % 64); }
    constexpr std::size_t said(int rank, int index, int iteration) const {
        return sized((rank * s_.signals + index) * s_.calls() + iteration) * words_;
    }
    constexpr int strand_count() const {
        int count = 0;
        for (const program& p : s_.programs) count += static_cast<int>(p.strands.size());
        return count;
    }

    // Computes what the step makes of one chunk, its i-th, which it names `chunk`.
    constexpr fault element(const running& me, const step& st, const message* received, int chunk, int i, value& v) {
        if ((st.what & fold) != 0) return folded(me, st, chunk, v);
        if (received == nullptr) {
            const int owner = (st.what & get) != 0 ? st.peer_from : me.rank;
            if (owner < 0 || owner >= n_) return {problem::bad_peer, owner, chunk};
            return load(me, owner, st.src.where, chunk, v);
        }
        v = received->at(i);
        if (own_places_ && v.chunk != me.iteration * chunks_ + chunk)
            return {other_data(v.chunk, chunk), st.peer_from, chunk};
        if ((st.what & (reduce | reduce_after)) == 0) return {};
        value mine;
        if (const fault f = load(me, me.rank, st.src.where, chunk, mine); f.what != problem::none) return f;
        return (st.what & reduce) != 0 ? reduced(v, mine, st.peer_from, v) : reduced(mine, v, st.peer_from, v);
    }

    // A value's chunk is not the wanted one.
    constexpr problem other_data(int found, int wanted) const {
        return found % chunks_ == wanted ? problem::wrong_iteration : problem::wrong_chunk;
    }

    constexpr fault folded(const running& me, const step& st, int chunk, value& v) {
        if (st.peer_from < 0 || st.peer_to > n_ || st.peer_from >= st.peer_to)
            return {problem::bad_fold, st.peer_from, chunk};
        for (int k = st.peer_from; k < st.peer_to; ++k) {
            value next;
            const place where = k == me.rank && st.own != place::none ? st.own : st.src.where;
            if (const fault f = load(me, k, where, chunk, next); f.what != problem::none) return f;
            if (k == st.peer_from) v = next;
            else if (const fault f = reduced(v, next, k, v); f.what != problem::none) return f;
        }
        return {};
    }

    constexpr fault reduced(value left, value right, int peer, value& v) const {
        if (left.chunk != right.chunk) {
            const int chunk = right.chunk % chunks_;
            return {other_data(left.chunk, chunk), peer, chunk};
        }
        if (overlaps(left, right, n_)) return {problem::overlap, peer, left.chunk % chunks_};
        v = combine(left, right, n_);
        return {};
    }

    constexpr value& tmp_cell(int rank, int chunk) {
        // As far as this rank's steps reach: an algorithm may declare far more scratch, and one rank use more than
        // others.
        if (tmp_.empty()) tmp_.resize(sized(n_));
        detail::growing_array<value>& mine = tmp_[sized(rank)];
        const std::size_t at = sized(chunk);
        if (at >= mine.size()) mine.resize(at < 2 * mine.size() ? 2 * mine.size() : at + 1);
        return mine[at];
    }
    constexpr value& window_cell(int rank, place where, int iteration, int chunk) {
        if (windows_.empty()) windows_.resize(sized(n_ * 2 * s_.window_depth * chunks_));
        const int stage = iteration % s_.window_depth;
        return windows_[sized(((rank * 2 + segment_of(where)) * s_.window_depth + stage) * chunks_ + chunk)];
    }
    constexpr cell& out_cell(int rank, int iteration, int chunk) {
        return out_[sized(rank * cells_ + iteration * chunks_ + chunk)];
    }

    constexpr value input(int rank, int iteration, int chunk) const {
        const contribution c = input_of(s_.op, rank, chunk, n_, s_.root);
        return c.count == 0 ? value{} : leaf(iteration * chunks_ + chunk, rank);
    }

    constexpr fault load(const running& me, int rank, place where, int chunk, value& v) {
        if (where == place::tmp) v = tmp_cell(rank, chunk);
        else if (is_window(where)) v = window_cell(rank, where, me.iteration, chunk);
        else if (where == place::in || where == place::out) {
            if (!has_placed(me, rank)) return {problem::unknown_buffer, rank, chunk};
            const cell& c = out_cell(rank, me.iteration, chunk);
            if (c.stored && (in_place_ || where == place::out)) v = c.held;
            else if (in_place_ || where == place::in) v = input(rank, me.iteration, chunk);
            reads_overwritten_ |= c.stored && where == place::in;
        }
        if (!v.is_set()) return {problem::unset_read, rank, chunk};
        if (own_places_ && v.chunk != me.iteration * chunks_ + chunk) return {other_data(v.chunk, chunk), rank, chunk};
        return {};
    }

    // Whether a rank has said where its buffers lie in this iteration: with its signal 0.
    constexpr bool has_placed(const running& me, int rank) const {
        return rank == me.rank || placed_.empty() || placed_[sized(rank)] > me.iteration;
    }

    constexpr fault store_all(const running& me, const step& st, int chunk, const value& v) {
        if ((st.what & to_all) != 0) {
            for (int k = 0; k < n_; ++k)
                if (const fault f = store(me, k, st.dst.where, chunk, v); f.what != problem::none) return f;
        } else if (const fault f = store(me, me.rank, st.dst.where, chunk, v); f.what != problem::none) {
            return f;
        }
        return st.also == place::none ? fault{} : store(me, me.rank, st.also, chunk, v);
    }

    constexpr fault store(const running& me, int rank, place where, int chunk, const value& v) {
        if (where == place::in || where == place::none) return {problem::writes_input, rank, chunk};
        if (where == place::out) return finish(me, rank, chunk, v);
        if (own_places_ && v.chunk != me.iteration * chunks_ + chunk) return {other_data(v.chunk, chunk), rank, chunk};
        if (where == place::tmp) tmp_cell(rank, chunk) = v;
        else window_cell(rank, where, me.iteration, chunk) = v;
        return {};
    }

    // Stores to `out`, where values must be final.
    constexpr fault finish(const running& me, int rank, int chunk, const value& v) {
        cell& c = out_cell(rank, me.iteration, chunk);
        const contribution want = output_of(s_.op, rank, chunk, n_, s_.root);
        if (s_.op != collective::send_recv) {
            if (want.count == 0) return {problem::not_an_output, rank, chunk};
            if (c.stored) return {problem::out_twice, rank, chunk};
            if (v.chunk != me.iteration * chunks_ + want.chunk) return {other_data(v.chunk, want.chunk), rank, chunk};
            if (v.count < want.count) return {problem::incomplete_out, rank, chunk};
            if (v.count != want.count || v.members != members(want)) return {problem::wrong_contribution, rank, chunk};
            if (reduces(s_.op))
                if (const problem p = order_of(v, want); p != problem::none) return {p, rank, chunk};
        }
        c.held = v;
        c.stored = true;
        return {};
    }

    constexpr std::uint64_t members(const contribution& c) const {
        const int end = c.first + c.count;
        if (end <= n_) return prefix_[sized(end)] - prefix_[sized(c.first)];
        return prefix_[sized(n_)] - prefix_[sized(c.first)] + prefix_[sized(end - n_)];
    }

    constexpr problem order_of(const value& v, const contribution& want) {
        const reduction_order o = !v.contiguous           ? reduction_order::unordered
                                  : v.first != want.first ? reduction_order::rotated
                                                          : reduction_order::rank_order;
        if (o > order_) order_ = o;
        if (s_.in_rank_order && o != reduction_order::rank_order) return problem::wrong_order;
        if (trees_.empty()) return problem::none;
        std::uint64_t& tree = trees_[sized(v.chunk)];
        if (tree == 0) tree = v.tree;
        return tree == v.tree ? problem::none : problem::different_bits;
    }

    constexpr verdict missing(verdict v) const {
        if (s_.op == collective::barrier || s_.op == collective::send_recv) return v;
        for (int r = 0; r < n_; ++r)
            for (int i = 0; i < cells_; ++i) {
                if (out_[sized(r * cells_ + i)].stored || output_of(s_.op, r, i % chunks_, n_, s_.root).count == 0)
                    continue;
                v.what = problem::missing_out;
                v.rank = r;
                v.iteration = i / chunks_;
                v.chunk = i % chunks_;
                return v;
            }
        return v;
    }

    // In a barrier messages carry, instead of values, the set of ranks that are known to have entered.
    constexpr fault pass_on(const running& me, int in_slot, int out_slot) {
        for (unsigned w = 0; w < words_; ++w) {
            std::uint64_t& mine = known_[sized(me.id) * words_ + w];
            if (in_slot >= 0) mine |= by_slot_[sized(in_slot) * words_ + w];
            if (out_slot >= 0) by_slot_[sized(out_slot) * words_ + w] = mine;
        }
        return {};
    }

    const schedule& s_;
    int n_, chunks_, cells_;
    bool in_place_;
    bool own_places_; // chunk c always lives in cell c: chunks may differ in size
    bool reads_overwritten_ = false;
    reduction_order order_ = reduction_order::rank_order;
    detail::growing_array<cell> out_;
    detail::growing_array<detail::growing_array<value>> tmp_; // by rank
    detail::growing_array<value> windows_;
    detail::growing_array<message> messages_;     // by slot
    detail::growing_array<std::uint64_t> trees_;  // the first result of each chunk
    detail::growing_array<std::uint64_t> prefix_; // sums of the ranks' hashes
    detail::growing_array<int> placed_;           // where peers' buffers are used: iterations of each rank's signal 0
    unsigned words_ = 0;
    detail::growing_array<std::uint64_t> known_, by_slot_,
        by_signal_; // barriers: sets of ranks by strand, slot, signal and iteration
};

// Verifies one case: in place (out is in) or not.
// Requires: a schedule that is in range.
constexpr verdict verify_once(const schedule& s, bool in_place) {
    value_reader values(s, in_place);
    network<value_reader> run(s, values, {.calls = s.calls()});
    return values.result(run.run());
}

// Verifies both cases. The second run is left out where it would repeat the first step by step.
constexpr verdict verify(const schedule& s) {
    if (const verdict v = out_of_range(s); !v.ok()) return v;
    value_reader values(s, false);
    network<value_reader> run(s, values, {.calls = s.calls()});
    const verdict v = values.result(run.run());
    if (!v.ok() || !may_be_in_place(s.op) || !values.depends_on_place()) return v;
    const verdict again = verify_once(s, true);
    return again.ok() ? v : again;
}

// Ensures: ok() means that for these n ranks the algorithm ends on channels of the declared depth and leaves every rank
// with exactly what the collective promises, in rank order if it declares so, with the same bits on all ranks.
// Cost: about 0.1 µs a step at run time.
template <class Algorithm>
constexpr verdict verify(const Algorithm& a, int n) {
    return verify(record_all(a, n));
}

} // namespace sched
COLLX_END_NAMESPACE
