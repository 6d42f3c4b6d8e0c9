// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs an algorithm inside another one, with an executor that stands for some of the ranks and some of the chunks. The
// inner algorithm counts its ranks and chunks from 0; each of its steps is renumbered and handed to the executor below.
//
// Three rules keep proofs valid. The strands of the inner algorithm become one sequence, in the order in which it asks
// for them, because later steps must find everything done. Steps that would move no chunk are left out on both ends,
// because both ends count chunks alike. Only channel steps can be renumbered: a window belongs to all ranks of a
// communicator, and `wait_all` and `fold` mean all ranks or an interval.
#pragma once

#include <collx/sched/executor.hpp>
#include <collx/sched/node_map.hpp>
#include <collx/sched/renumbering.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

template <class Ex>
class sub_executor : public verbs<sub_executor<Ex>> {
public:
    COLLX_HD constexpr sub_executor(Ex& ex, const team& ranks, const chunk_part& chunks, places at = {})
        : ex_(ex), renumber_{ranks, chunks, at} {}

    COLLX_EXEC_CHECK_DISABLE
    template <action What>
    COLLX_HD constexpr void emit(sched::step s) {
        static_assert((What & (get | fold | to_all | sched::signal | sched::wait)) == 0,
                      "collx: an algorithm inside another one uses channels only; windows span all ranks.");
        if (!renumber_(s)) return;
        ex_.template emit<What>(s);
    }

private:
    Ex& ex_;
    renumbering renumber_;
};

// Runs `inner` as rank `rank` of `size` on a team. A recorder renumbers by itself, so that an algorithm that is
// recorded both alone and inside others is compiled once.
COLLX_EXEC_CHECK_DISABLE
template <class Ex, class Algorithm>
COLLX_HD constexpr void run_inside(Ex& ex, const Algorithm& inner, int rank, int size, const team& ranks,
                                   const chunk_part& chunks, places at = {}) {
    if constexpr (requires { ex.leave(); }) {
        static_assert(signals_v<Algorithm> == 0,
                      "collx: an algorithm inside another one uses channels only; windows span all ranks.");
        renumbering here{ranks, chunks, at};
        ex.enter(here);
        inner(ex, rank, size);
        ex.leave();
    } else {
        sub_executor<Ex> sub(ex, ranks, chunks, at);
        inner(sub, rank, size);
    }
}

// The executor that counts messages and keeps nothing.
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
