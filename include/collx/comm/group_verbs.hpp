// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs as members of a group, of the host or of devices: each form once. Two verbs of one form differ only by
// their row in the table of verbs.
#pragma once

#include <utility>

#include <collx/call/verb_table.hpp>
#include <collx/comm/group_refusals.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/mover.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Group::add<verb, is in place, In, Out>(in, out, operator, root) and add_message<outgoing, X>(x, peer) add a call.
// Group::chain<verb, In, Out, Op>(f) returns the group by value after f(group), so that groups may be written as one
// chain. The type of a device group has one kind of call more after it.
template <class Group, bool OnDevice = false>
class group_verbs : public group_refusals<Group, OnDevice> {
    using refusals = group_refusals<Group, OnDevice>;

public:
    // Overloads for arguments that no form takes.
    using refusals::all_gather, refusals::all_reduce, refusals::all_to_all, refusals::broadcast;
    using refusals::exclusive_scan, refusals::recv, refusals::reduce, refusals::reduce_scatter;
    using refusals::scan, refusals::send;

    template <Buffer X, OpArgument Op = plus>
    Group& all_reduce(X&& x, Op op = {}) & {
        group().template add<verb::all_reduce, true, X, X>(x, x, op);
        return group();
    }
    template <Buffer X, OpArgument Op = plus>
    Group& reduce(X&& x, int root, Op op = {}) & {
        group().template add<verb::reduce, true, X, X>(x, x, op, root);
        return group();
    }
    template <Buffer In, Buffer Out, OpArgument Op = plus>
    Group& reduce_scatter(In&& in, Out&& out, Op op = {}) & {
        group().template add<verb::reduce_scatter, false, In, Out>(in, out, op);
        return group();
    }
    template <Buffer X, OpArgument Op = plus>
    Group& scan(X&& x, Op op = {}) & {
        group().template add<verb::scan, true, X, X>(x, x, op);
        return group();
    }
    template <Buffer X, OpArgument Op = plus>
    Group& exclusive_scan(X&& x, Op op = {}) & {
        group().template add<verb::exclusive_scan, true, X, X>(x, x, op);
        return group();
    }
    template <Buffer X>
    Group& broadcast(X&& x, int root) & {
        group().template add<verb::broadcast, true, X, X>(x, x, no_op{}, root);
        return group();
    }
    template <Buffer In, Buffer Out>
    Group& all_gather(In&& in, Out&& out) & {
        group().template add<verb::all_gather, false, In, Out>(in, out, no_op{});
        return group();
    }
    template <Buffer In, Buffer Out>
    Group& all_to_all(In&& in, Out&& out) & {
        group().template add<verb::all_to_all, false, In, Out>(in, out, no_op{});
        return group();
    }
    template <Buffer X>
    Group& send(X&& x, int peer) & {
        group().template add_message<true, X>(x, peer);
        return group();
    }
    template <Buffer X>
    Group& recv(X&& x, int peer) & {
        group().template add_message<false, X>(x, peer);
        return group();
    }

    // On a temporary: returns the group by value, so that the chain's result may be kept.
    template <Buffer X, OpArgument Op = plus>
    [[nodiscard]] auto all_reduce(X&& x, Op op = {}) && {
        return group().template chain<verb::all_reduce, X, X, Op>(
            [&](auto& g) { g.all_reduce(std::forward<X>(x), op); });
    }
    template <Buffer X, OpArgument Op = plus>
    [[nodiscard]] auto reduce(X&& x, int root, Op op = {}) && {
        return group().template chain<verb::reduce, X, X, Op>([&](auto& g) { g.reduce(std::forward<X>(x), root, op); });
    }
    template <Buffer In, Buffer Out, OpArgument Op = plus>
    [[nodiscard]] auto reduce_scatter(In&& in, Out&& out, Op op = {}) && {
        return group().template chain<verb::reduce_scatter, In, Out, Op>(
            [&](auto& g) { g.reduce_scatter(std::forward<In>(in), std::forward<Out>(out), op); });
    }
    template <Buffer X, OpArgument Op = plus>
    [[nodiscard]] auto scan(X&& x, Op op = {}) && {
        return group().template chain<verb::scan, X, X, Op>([&](auto& g) { g.scan(std::forward<X>(x), op); });
    }
    template <Buffer X, OpArgument Op = plus>
    [[nodiscard]] auto exclusive_scan(X&& x, Op op = {}) && {
        return group().template chain<verb::exclusive_scan, X, X, Op>(
            [&](auto& g) { g.exclusive_scan(std::forward<X>(x), op); });
    }
    template <Buffer X>
    [[nodiscard]] auto broadcast(X&& x, int root) && {
        return group().template chain<verb::broadcast, X, X, no_op>(
            [&](auto& g) { g.broadcast(std::forward<X>(x), root); });
    }
    template <Buffer In, Buffer Out>
    [[nodiscard]] auto all_gather(In&& in, Out&& out) && {
        return group().template chain<verb::all_gather, In, Out, no_op>(
            [&](auto& g) { g.all_gather(std::forward<In>(in), std::forward<Out>(out)); });
    }
    template <Buffer In, Buffer Out>
    [[nodiscard]] auto all_to_all(In&& in, Out&& out) && {
        return group().template chain<verb::all_to_all, In, Out, no_op>(
            [&](auto& g) { g.all_to_all(std::forward<In>(in), std::forward<Out>(out)); });
    }
    template <Buffer X>
    [[nodiscard]] auto send(X&& x, int peer) && {
        return group().template chain<verb::send, X, X, no_op>([&](auto& g) { g.send(std::forward<X>(x), peer); });
    }
    template <Buffer X>
    [[nodiscard]] auto recv(X&& x, int peer) && {
        return group().template chain<verb::recv, X, X, no_op>([&](auto& g) { g.recv(std::forward<X>(x), peer); });
    }

private:
    Group& group() { return static_cast<Group&>(*this); }
};

} // namespace detail
COLLX_END_NAMESPACE
