// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives of a group: each publishes its operand among those of all calls and finishes from what all ranks have
// published. What ranks must have alike in a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/call/signature.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/grouped_messages.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What ranks must have alike in a group: compared in words by checked calls, as a number by all.
struct group_signature {
    signature shown{.what = verb::all_reduce, .made_by = signature::group};
    std::uint64_t says = 0;
};

// One call of a group. Operands are laid out 8-byte aligned, one after the other, the same on all ranks.
struct grouped_call {
    virtual ~grouped_call() = default;
    virtual std::size_t bytes() const = 0;
    virtual void publish(std::byte* to) = 0;
    virtual void finish(const std::byte* const* ranks, std::size_t at, int n, int me) = 0;
    virtual void sign(group_signature&) const = 0;
};

// Mode: of the group. By itself a call is made at once, or made ready.
template <class Mode>
using made_alone = std::conditional_t<is_repeated_v<Mode>, persistent_call, void>;
template <class Mode>
struct grouped_call_in : grouped_call {
    virtual made_alone<Mode> run_alone(const call_options&) = 0;
};

// Adds one call to what ranks must agree on: all of them, in order.
template <class Element, class Op>
void sign_call(group_signature& g, collective what, std::size_t bytes, int root = -1) {
    constexpr std::uint32_t odd = 0x9e37'79b9;
    signature& s = g.shown;
    ++s.count;
    s.counts_hash = (s.counts_hash ^ bytes) * odd + 1;
    s.type_hash =
        (s.type_hash ^ static_cast<std::uint32_t>(type_hash<Element>()) ^ static_cast<std::uint32_t>(what)) * odd;
    s.op_hash = (s.op_hash ^ static_cast<std::uint32_t>(op_hash<Op>())) * odd;
    if (root >= 0)
        s.root = static_cast<std::int32_t>(static_cast<std::uint32_t>(s.root) * 31 + static_cast<unsigned>(root));
    constexpr std::uint64_t wide = 0x9e37'79b9'7f4a'7c15;
    g.says = (g.says ^ kind_hash<Element, Op>() ^ bytes * 0xd6e8'feb8'6659'fd93) * wide +
             static_cast<std::uint64_t>(what) * 1009 + static_cast<std::uint64_t>(root);
}

// What one_shot moves when it moves a group: bytes.
class group_mover {
public:
    using wire_type = std::byte;
    using acc_type = std::byte;
    static constexpr bool plain = false;
    static constexpr bool reduces = true;
    using calls = growing_array<sole_ptr<grouped_call>>;

    group_mover(calls& c, std::size_t first, std::size_t last) : calls_(&c), first_(first), last_(last) {}
    void set_tmp(std::byte*) {}
    void load(std::byte* to, sched::place, std::size_t, std::size_t) const {
        std::size_t at = 0;
        for (std::size_t i = first_; i < last_; ++i) {
            (*calls_)[i]->publish(to + at);
            at += round_up((*calls_)[i]->bytes(), 8);
        }
    }
    void fold_ranks(const std::byte** ranks, int n, int me, sched::place, std::size_t, sched::place, std::size_t,
                    std::byte*, std::size_t) {
        std::size_t at = 0;
        for (std::size_t i = first_; i < last_; ++i) {
            (*calls_)[i]->finish(ranks, at, n, me);
            at += round_up((*calls_)[i]->bytes(), 8);
        }
    }
    void store(sched::place, std::size_t, const std::byte*, std::size_t) {}
    void move(sched::place, std::size_t, sched::place, std::size_t, std::size_t) {}
    void combine(const std::byte*, bool, sched::place, std::size_t, sched::place, std::size_t, std::byte*,
                 std::size_t) {}

private:
    calls* calls_;
    std::size_t first_, last_;
};

template <class Mode, class View, class Op>
struct grouped_all_reduce final : grouped_call_in<Mode> {
    using element = element_of<View>;
    using mover_type = mover<View, View, Op, element>;
    grouped_all_reduce(communicator& c, View v, Op op, int root)
        : comm(&c), view(v), op(op), root(root), move(v, v, op, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(view.size()); }
    void publish(std::byte* to) override {
        move.load(reinterpret_cast<element*>(to), sched::place::in, 0, view.size());
    }
    void finish(const std::byte* const* ranks, std::size_t at, int n, int me) override {
        if (root >= 0 && root != me) return;
        detail::growing_array<const element*> sources;
        for (int k = 0; k < n; ++k) sources.push_back(reinterpret_cast<const element*>(ranks[k] + at));
        move.fold_ranks(sources.data(), n, me, sched::place::in, 0, sched::place::out, 0, nullptr, view.size());
    }
    made_alone<Mode> run_alone(const call_options& o) override {
        if (root >= 0) return detail::reduce_fn<Mode>{}(*comm, view, op, {.timeout = o.timeout, .root = root});
        return detail::all_reduce_fn<Mode>{}(*comm, view, op, o);
    }
    void sign(group_signature& s) const override {
        sign_call<element, Op>(s, root >= 0 ? collective::reduce : collective::all_reduce, bytes(), root);
    }
    communicator* comm;
    View view;
    Op op;
    int root; // -1: all receive
    mover_type move;
};

template <class Mode, class View>
struct grouped_broadcast final : grouped_call_in<Mode> {
    using element = element_of<View>;
    grouped_broadcast(communicator& c, View v, int root)
        : comm(&c), view(v), root(root), move(v, v, no_op{}, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(view.size()); }
    void publish(std::byte* to) override {
        if (comm->rank() == root) move.load(reinterpret_cast<element*>(to), sched::place::in, 0, view.size());
    }
    void finish(const std::byte* const* ranks, std::size_t at, int, int me) override {
        if (me != root)
            move.store(sched::place::out, 0, reinterpret_cast<const element*>(ranks[root] + at), view.size());
    }
    made_alone<Mode> run_alone(const call_options& o) override {
        return detail::broadcast_fn<Mode>{}(*comm, view, {.timeout = o.timeout, .root = root});
    }
    void sign(group_signature& s) const override { sign_call<element, no_op>(s, collective::broadcast, bytes(), root); }
    communicator* comm;
    View view;
    int root;
    mover<View, View, no_op, element> move;
};

template <class Mode, class In, class Out>
struct grouped_all_gather final : grouped_call_in<Mode> {
    using element = element_of<Out>;
    grouped_all_gather(communicator& c, In i, Out o) : comm(&c), in(i), out(o), move(i, o, no_op{}, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(in.size()); }
    void publish(std::byte* to) override { move.load(reinterpret_cast<element*>(to), sched::place::in, 0, in.size()); }
    void finish(const std::byte* const* ranks, std::size_t at, int n, int) override {
        for (int k = 0; k < n; ++k)
            move.store(sched::place::out, static_cast<std::size_t>(k) * in.size(),
                       reinterpret_cast<const element*>(ranks[k] + at), in.size());
    }
    made_alone<Mode> run_alone(const call_options& o) override {
        return detail::all_gather_fn<Mode>{}(*comm, in, out, o);
    }
    void sign(group_signature& s) const override { sign_call<element, no_op>(s, collective::all_gather, bytes()); }
    communicator* comm;
    In in;
    Out out;
    mover<In, Out, no_op, element> move;
};

} // namespace detail

COLLX_END_NAMESPACE
