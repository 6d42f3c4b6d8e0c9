// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several fused calls in one launch: a block runs them one after the other, on as many lanes as each has. The calls of
// a group must not depend on one another: their buffers' doors are the launch's beginning and end.
#pragma once

#include <collx/exec/device/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One call, checked and cut, not launched yet.
template <class Protocol, int Groups, class Algorithm, class Types>
struct fused_call {
    using protocol = Protocol;
    static constexpr int groups = Groups;
    template <class Env>
    using executor_on = executor<Env, Algorithm, Types, Protocol, Groups>;
    fused_args<Algorithm, Types> args;
};

template <class... Calls>
struct call_list {};
template <class First, class... Rest>
struct call_list<First, Rest...> {
    First first;
    call_list<Rest...> rest;
};

namespace detail {

inline call_list<> list_of() { return {}; }
template <class First, class... Rest>
call_list<First, Rest...> list_of(const First& first, const Rest&... rest) {
    static_assert(First::groups == 1, "collx: the calls of a group run with one group of threads per block");
    call_list<First, Rest...> l{first, list_of(rest...)};
    l.first.args.is_one_launch = false; // what follows in this launch must hear of neighbours that still read
    return l;
}

} // namespace detail

template <class Env>
COLLX_HD void run_calls(Env&, const call_list<>&, block_state&, int, int) {}
// By all threads of the block.
template <class Env, class First, class... Rest>
COLLX_HD void run_calls(Env& env, const call_list<First, Rest...>& l, block_state& shared, int rank, int lane) {
    if (lane < l.first.args.lanes)
        typename First::template executor_on<Env>(env, l.first.args, shared, rank, lane).run();
    env.sync_block(); // the next call takes over the counts
    run_calls(env, l.rest, shared, rank, lane);
}

} // namespace device
COLLX_END_NAMESPACE
