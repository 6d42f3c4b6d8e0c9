// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several fused calls in one launch: a block runs them one after the other, on as many lanes as each has. The calls of
// a group must not depend on one another: only the beginning and the end of the launch synchronise their buffers.
#pragma once

#include <new>

#include <collx/exec/device/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One call, checked and cut, not launched yet.
template <class Protocol, int Groups, class Algorithm, class Types>
struct fused_call {
    using protocol = Protocol;
    static constexpr int groups = Groups;
    template <class Env>
    using executor_on = executor<executor_kind<Env, Algorithm, Types, Protocol, Groups>>;
    fused_args<Algorithm, Types> args;
};

// The calls of a group, of any types, one after the other in memory.
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
    l.first.args.is_one_launch = false; // later calls of this launch must wait for neighbours that still read
    return l;
}

} // namespace detail

// Several calls of one kernel, for a rank with its own launch. Their number is known when they are made.
template <class Call>
class call_array {
public:
    using args_type = decltype(Call::args);
    // What a launch copies, however few calls there are.
    static constexpr std::size_t bytes = 16 * 1024;
    static constexpr int most = sizeof(args_type) * 16 <= bytes ? 16
                                : sizeof(args_type) <= bytes    ? static_cast<int>(bytes / sizeof(args_type))
                                                                : 1;
    int lanes = 1, first_rank = 0;

    COLLX_HD int size() const { return size_; }
    COLLX_HD const args_type& operator[](int i) const { return reinterpret_cast<const args_type*>(args_)[i]; }
    void add(const Call& call) {
        static_assert(Call::groups == 1, "collx: the calls of a group run with one group of threads per block");
        auto* a =
            ::new (static_cast<void*>(args_ + static_cast<unsigned>(size_++) * sizeof(args_type))) args_type(call.args);
        a->is_one_launch = false; // later calls of this launch must wait for neighbours that still read
        lanes = a->lanes > lanes ? a->lanes : lanes;
    }

private:
    int size_ = 0;
    alignas(args_type) std::byte args_[most * sizeof(args_type)];
};

// All threads of the block call it. False: the block has given up, and makes no further call.
template <class Call, class Env>
COLLX_HD bool run_call(Env& env, const decltype(Call::args)& args, block_state& shared, int rank, int lane) {
    bool goes_on = true;
    if (lane < args.lanes) {
        typename Call::template executor_on<Env> call(env, args, shared, rank, lane);
        call.run();
        goes_on = !call.has_stopped();
    }
    env.sync_block(); // the next call takes over the counts
    return goes_on;
}
template <class Env>
COLLX_HD void run_calls(Env&, const call_list<>&, block_state&, int, int) {}
template <class Env, class First, class... Rest>
COLLX_HD void run_calls(Env& env, const call_list<First, Rest...>& l, block_state& shared, int rank, int lane) {
    if (run_call<First>(env, l.first.args, shared, rank, lane)) run_calls(env, l.rest, shared, rank, lane);
}
template <class Env, class Call>
COLLX_HD void run_calls(Env& env, const call_array<Call>& l, block_state& shared, int rank, int lane) {
    COLLX_ROLLED
    for (int i = 0; i < l.size(); ++i)
        if (!run_call<Call>(env, l[i], shared, rank, lane)) return;
}

} // namespace device
COLLX_END_NAMESPACE
