// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm inside another one: an executor that stands for some of the ranks and some of the chunks. The text that
// runs on it counts its own ranks and chunks from 0 and does not know; each step is renumbered and handed to the
// executor below.
//
// Three rules keep the proof what it is. Strands of the inner text become one sequence, in the order in which it asks
// for them, because what follows must find everything done. Steps that would move no chunk vanish on both ends, for
// both ends count chunks alike. And only channels can be renumbered: a window belongs to all ranks of a communicator,
// `wait_all` and `fold` mean all of them or an interval.
#pragma once

#include <collx/sched/executor.hpp>
#include <collx/sched/node_map.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// `size` positions from `base` on, of `total`, as `chunks` equal chunks of an inner algorithm. A single position is the
// last of the inner chunks, the others are empty.
struct chunk_part {
    int chunks = 1;
    int total = 1;
    int base = 0;
    int size = 1;
    const int* order = nullptr;

    COLLX_HD constexpr chunk_set operator()(const chunk_set& c) const {
        if (c.size != 0 || c.order != nullptr) return nothing_known(); // one level is enough so far
        chunk_set result;
        if (size % chunks == 0) {
            const int each = size / chunks;
            result = {c.first * each, c.count * each, c.run * each, c.period * each};
        } else if (size == 1) {
            result = {0, 0};
            for (int i = 0; i < c.count; ++i)
                if (c.at(i, chunks) == chunks - 1) result = {0, 1};
        } else {
            return nothing_known();
        }
        if (size != total) {
            result.base = base;
            result.size = size;
        }
        result.order = order;
        return result;
    }

private:
    COLLX_HD static constexpr chunk_set nothing_known() { return {-1, 1}; } // the verifier refuses it
};

// Where the inner algorithm finds its input and leaves its output. Between phases a partial result lives in tmp, beside
// the scratch of the phase itself: chunk c of either is cell c, so a text must not go back to its input of a chunk once
// it has written scratch of that chunk. The verifier notices.
struct places {
    place in = place::in;
    place out = place::out;
    COLLX_HD constexpr place operator()(place p) const { return p == place::in ? in : p == place::out ? out : p; }
};

template <class Ex>
class sub_executor : public verbs<sub_executor<Ex>> {
public:
    COLLX_HD constexpr sub_executor(Ex& ex, const team& ranks, const chunk_part& chunks, places at = {})
        : ex_(ex), ranks_(ranks), chunks_(chunks), places_(at) {}

    COLLX_EXEC_CHECK_DISABLE
    template <action What>
    COLLX_HD constexpr void emit(sched::step s) {
        static_assert((What & (get | fold | to_all | sched::signal | sched::wait)) == 0,
                      "collx: an algorithm inside another one uses channels only; windows span all ranks.");
        constexpr bool receives = (What & recv) != 0;
        constexpr bool reads = !receives || (What & (reduce | reduce_after)) != 0;
        constexpr bool writes = receives || (What & copy) != 0;
        if constexpr (receives) s.peer_from = ranks_.rank(s.peer_from);
        if constexpr ((What & send) != 0) s.peer_to = ranks_.rank(s.peer_to);
        if constexpr (reads) s.src = {places_(s.src.where), chunks_(s.src.chunks)};
        if constexpr (writes) s.dst = {places_(s.dst.where), chunks_(s.dst.chunks)};
        if ((reads ? s.src : s.dst).chunks.count == 0) return;
        if constexpr (What == copy)
            if (s.src == s.dst) return;
        ex_.template emit<What>(s);
    }

private:
    Ex& ex_;
    team ranks_;
    chunk_part chunks_;
    places places_;
};

// Runs `inner` as rank `rank` of `size` on a team.
COLLX_EXEC_CHECK_DISABLE
template <class Ex, class Algorithm>
COLLX_HD constexpr void run_inside(Ex& ex, const Algorithm& inner, int rank, int size, const team& ranks,
                                   const chunk_part& chunks, places at = {}) {
    sub_executor<Ex> sub(ex, ranks, chunks, at);
    inner(sub, rank, size);
}

// The reading that counts messages and keeps nothing.
class tally : public verbs<tally> {
public:
    int messages = 0;
    template <action What>
    COLLX_HD constexpr void emit(const sched::step&) {
        if constexpr ((What & send) != 0) ++messages;
    }
};

} // namespace sched
COLLX_END_NAMESPACE
