// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives of a group: each publishes its operand among those of all calls and finishes from what all ranks
// have published. Also the signature of a group, which must be the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/algo/window_moves.hpp>
#include <collx/call/signature.hpp>
#include <collx/comm/group_memory.hpp>
#include <collx/comm/grouped_messages.hpp>
#include <collx/comm/verb_fronts.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What must be the same on all ranks in a group. shown: compared field by field in checked mode. says: mixed into the
// agreed number in any mode.
struct group_signature {
    signature shown{.what = verb::all_reduce, .made_by = signature::group};
    std::uint64_t fingerprint = 0;
};

// One call of a group. Operands are laid out 8-byte aligned, one after the other, the same on all ranks.
struct grouped_call {
    virtual ~grouped_call() = default;
    virtual std::size_t bytes() const = 0;
    // Whether across hosts no algorithm of its verb can make it: every rank folds what all have published.
    virtual bool must_go_together() const { return false; }
    virtual void publish(std::byte* to) = 0;
    virtual void finish(const std::byte* const* ranks, std::size_t at, int n, int me) = 0;
    virtual void sign(group_signature&) const = 0;
    virtual void show_buffers(group_buffers&) const = 0;
};

// Mode: of the group. A call that runs alone runs at once, or is made ready.
template <class Mode>
using made_alone = std::conditional_t<is_repeated_v<Mode>, persistent_call, void>;
template <class Mode>
struct grouped_call_in : grouped_call {
    virtual made_alone<Mode> run_alone(communicator&, const call_options&) = 0;
};

// Adds one call to what ranks must agree on: all calls, in order.
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
    g.fingerprint = (g.fingerprint ^ kind_hash<Element, Op>() ^ bytes * 0xd6e8'feb8'6659'fd93) * wide +
                    static_cast<std::uint64_t>(what) * 1009 + static_cast<std::uint64_t>(root);
}

// The mover with which one_shot moves a group; its elements are bytes.
class group_mover {
public:
    using wire_type = std::byte;
    using acc_type = std::byte;
    static constexpr bool plain = false;
    static constexpr bool reduces = true;
    using calls = growing_array<sole_ptr<grouped_call>>;

    group_mover(calls& c, std::size_t first, std::size_t last) : calls_(&c), first_(first), last_(last) {}
    void set_tmp(std::byte*, bool) {}
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

// A collective of a group. It publishes and takes what the table of window_moves.hpp says, and publishes a rank's own
// part, too.
template <class Mode, verb V, bool IsInPlace, class In, class Out, class Op>
struct grouped_collective final : grouped_call_in<Mode> {
    static constexpr verb_row row = row_of(V);
    using moves = algo::window_moves<row.does>;
    using element = element_of<Out>;

    // elems: the count of call_facts. nth: its number in the group, from 1 on.
    grouped_collective(communicator& c, In i, Out o, Op f, int r, std::size_t elems, std::size_t nth)
        : in(i), out(o), op(f), root(r), me(c.rank()), number(static_cast<unsigned>(nth)),
          published(elems * (row.in == extent::parts ? static_cast<std::size_t>(c.size()) : 1)),
          move(i, o, f, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(published); }
    bool must_go_together() const override { return moves::is_scan && has_post_v<Op, accumulator_t<element>>; }
    void publish(std::byte* to) override {
        if (!moves::from_root || me == root) move.load(reinterpret_cast<element*>(to), sched::place::in, 0, published);
    }
    void finish(const std::byte* const* all, std::size_t at, int n, int) override {
        if (moves::to_root && me != root) return;
        const std::size_t count = row.in == extent::parts ? published / static_cast<std::size_t>(n) : published;
        // The place of this rank's part in what each rank has published.
        const std::size_t mine = moves::puts_parts ? static_cast<std::size_t>(me) * count : 0;
        const auto from = [&](int k) { return reinterpret_cast<const element*>(all[k] + at) + mine; };
        if constexpr (row.reduces()) {
            const int last = V == verb::exclusive_scan ? me : moves::is_scan ? me + 1 : n;
            if (last == 0) return;
            sources.clear();
            for (int k = 0; k < last; ++k) sources.push_back(from(k));
            move.fold_ranks(sources.data(), last, me < last ? me : -1, sched::place::in, mine, sched::place::out, 0,
                            nullptr, count);
        } else if constexpr (moves::from_root) {
            if (!IsInPlace || me != root) move.store(sched::place::out, 0, from(root), count);
        } else {
            for (int k = 0; k < n; ++k)
                move.store(sched::place::out, static_cast<std::size_t>(k) * count, from(k), count);
        }
    }
    made_alone<Mode> run_alone(communicator& comm, const call_options& o) override {
        using front = std::conditional_t<row.reduces(), reducing_fn<Mode, V>, moving_fn<Mode, V>>;
        const call_options mine{.timeout = o.timeout, .root = root};
        if constexpr (row.reduces() && IsInPlace) return front{}(comm, out, op, mine);
        else if constexpr (row.reduces()) return front{}(comm, in, out, op, mine);
        else if constexpr (IsInPlace) return front{}(comm, out, mine);
        else return front{}(comm, in, out, mine);
    }
    void sign(group_signature& s) const override {
        sign_call<element, Op>(s, row.does, bytes(), row.is_rooted() ? root : -1);
    }
    void show_buffers(group_buffers& all) const override {
        const bool is_root = me == root;
        const bool writes = moves::from_root ? !is_root : !moves::to_root || is_root;
        if (!IsInPlace) all.add(facts_of(in), false, name_of(V), number);
        all.add(facts_of(out), writes, name_of(V), number);
    }
    // No communicator: a persistent group may outlive a move of it.
    In in;
    Out out;
    Op op;
    int root, me;
    unsigned number;
    std::size_t published; // elements
    mover<In, Out, Op, element> move;
    growing_array<const element*> sources; // kept for the next run
};

} // namespace detail

COLLX_END_NAMESPACE
