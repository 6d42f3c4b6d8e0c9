// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The reading that finds out what memory an algorithm needs, and keeps nothing else: a .cu file that launches kernels
// should not pay for <vector>. Looks at all ranks' programs, for all must cut their messages alike.
#pragma once

#include <initializer_list>
#include <type_traits>

#include <collx/sched/executor.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

class usage : public sched::verbs<usage> {
public:
    int message_chunks = 1; // most that travel in one message
    int strands = 1;
    bool channels = false, windows = false, scratch = false;
    bool copies = false;        // from place to place, not into a window
    bool peers_buffers = false; // in and out of other ranks are read or written

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

template <class Algorithm>
constexpr usage usage_of(const Algorithm& algorithm, int ranks) {
    usage u;
    for (int r = 0; r < ranks; ++r) algorithm(u, r, ranks);
    return u;
}

// Whether a kernel needs code for copies from place to place. Only algorithms that the compiler can run are looked at,
// for some numbers of ranks; a team checks the answer for its own (team.hpp). (Braces: to nvcc `Algorithm()` is no
// constant here where a member has an initialiser.)
template <class Algorithm>
inline constexpr bool may_copy_v = [] {
    if constexpr (requires { typename std::bool_constant<(usage_of(Algorithm{}, 3), true)>; }) {
        for (const int ranks : {1, 2, 3, 4, 8})
            if (usage_of(Algorithm{}, ranks).copies) return true;
        return false;
    } else {
        return true;
    }
}();

} // namespace device
COLLX_END_NAMESPACE
