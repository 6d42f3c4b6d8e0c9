// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An executor that finds out what memory an algorithm needs, and keeps nothing else: a .cu file that launches kernels
// should not pay for <vector>. It runs all ranks' programs, because all ranks must cut their messages alike.
#pragma once

#include <initializer_list>
#include <type_traits>

#include <collx/exec/device/control.hpp>
#include <collx/sched/executor.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

class usage : public sched::verbs<usage> {
public:
    int message_chunks = 1; // the most that travel in one message
    int strands = 1;
    bool channels = false, windows = false, scratch = false;
    bool copies = false;        // from place to place, not into a window
    bool peers_buffers = false; // it reads or writes in and out of other ranks

    constexpr bool strand(int k) {
        strands = k + 1 > strands ? k + 1 : strands;
        return true;
    }
    template <sched::action What>
    constexpr void emit(const sched::step& s) {
        if constexpr ((What & (sched::recv | sched::send)) != 0) {
            channels = true;
            for (const sched::ref* r : {&s.src, &s.dst})
                message_chunks = r->chunks.count > message_chunks ? r->chunks.count : message_chunks;
        }
        if constexpr ((What & (sched::get | sched::fold)) != 0)
            peers_buffers = peers_buffers || s.src.where == sched::place::in || s.src.where == sched::place::out;
        if constexpr (What == sched::copy) copies = copies || !sched::is_window(s.dst.where);
        windows = windows || sched::is_window(s.src.where) || sched::is_window(s.dst.where) || sched::is_window(s.also);
        scratch = scratch || s.src.where == sched::place::tmp || s.dst.where == sched::place::tmp;
    }
};

// What all ranks of a team together use.
template <class Algorithm>
constexpr usage usage_of(const Algorithm& algorithm, int ranks) {
    usage u;
    for (int r = 0; r < ranks; ++r) algorithm(u, r, ranks);
    return u;
}

// Whether a kernel needs code for copies from place to place: whether the algorithm makes one for any number of ranks
// that a team may have. True where the compiler cannot run the algorithm. A member such as the root may change the
// answer, so a team checks its own algorithm (team.hpp). One number of ranks at a time, because compilers limit how
// long a constant may take. (Braces: to nvcc `Algorithm()` is no constant here where a member has an initialiser.)
template <class Algorithm, int Ranks = 1>
constexpr bool may_copy() {
    if constexpr (Ranks > max_ranks) {
        return false;
    } else if constexpr (requires { typename std::bool_constant<(usage_of(Algorithm{}, Ranks), true)>; }) {
        constexpr bool copies = usage_of(Algorithm{}, Ranks).copies;
        if constexpr (copies) return true;
        else return may_copy<Algorithm, Ranks + 1>();
    } else {
        return true;
    }
}
// may_copy() as a value.
template <class Algorithm>
inline constexpr bool may_copy_v = may_copy<Algorithm>();

} // namespace device
COLLX_END_NAMESPACE
