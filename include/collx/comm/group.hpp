// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// group: many small calls as one exchange. Each rank publishes the operands of all calls together, sees everybody
// else's with one synchronisation, and finishes every call from what it sees. The schedule is one_shot's; only the
// mover differs, it carries a list of operands instead of one. Across hosts one all_gather brings the operands of all
// ranks together. Sends and receives leave as one message per peer (grouped_messages.hpp).
//
//   collx::group g(world);
//   for (auto& layer : gradients) g.all_reduce(layer);
//   g.launch();
#pragma once

#include <collx/core/pointers.hpp>

#include <collx/algo/one_shot.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/grouped_messages.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/comm/signature.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What ranks must have alike in a group: compared in words by checked calls, as a number by all.
struct group_signature {
    signature shown{.what = collective::all_reduce, .made_by = signature::group};
    std::uint64_t says = 0;
};

// One call of a group. Operands are laid out 8-byte aligned, one after the other, the same on all ranks.
struct grouped_call {
    virtual ~grouped_call() = default;
    virtual std::size_t bytes() const = 0;
    virtual void publish(std::byte* to) = 0;
    virtual void finish(const std::byte* const* ranks, std::size_t at, int n, int me) = 0;
    virtual void run_alone(const call_options&) = 0;
    virtual void sign(group_signature&) const = 0;
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

template <class View, class Op>
struct grouped_all_reduce final : grouped_call {
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
    void run_alone(const call_options& o) override {
        if (root >= 0) detail::reduce_fn<blocking>{}(*comm, view, op, {.timeout = o.timeout, .root = root});
        else detail::all_reduce_fn<blocking>{}(*comm, view, op, o);
    }
    void sign(group_signature& s) const override {
        sign_call<element, Op>(s, root >= 0 ? collective::reduce : collective::all_reduce, bytes(), root);
    }
    communicator* comm;
    View view;
    Op op;
    int root; // -1: everybody receives
    mover_type move;
};

template <class View>
struct grouped_broadcast final : grouped_call {
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
    void run_alone(const call_options& o) override {
        detail::broadcast_fn<blocking>{}(*comm, view, {.timeout = o.timeout, .root = root});
    }
    void sign(group_signature& s) const override { sign_call<element, no_op>(s, collective::broadcast, bytes(), root); }
    communicator* comm;
    View view;
    int root;
    mover<View, View, no_op, element> move;
};

template <class In, class Out>
struct grouped_all_gather final : grouped_call {
    using element = element_of<Out>;
    grouped_all_gather(communicator& c, In i, Out o) : comm(&c), in(i), out(o), move(i, o, no_op{}, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(in.size()); }
    void publish(std::byte* to) override { move.load(reinterpret_cast<element*>(to), sched::place::in, 0, in.size()); }
    void finish(const std::byte* const* ranks, std::size_t at, int n, int) override {
        for (int k = 0; k < n; ++k)
            move.store(sched::place::out, static_cast<std::size_t>(k) * in.size(),
                       reinterpret_cast<const element*>(ranks[k] + at), in.size());
    }
    void run_alone(const call_options& o) override { detail::all_gather_fn<blocking>{}(*comm, in, out, o); }
    void sign(group_signature& s) const override { sign_call<element, no_op>(s, collective::all_gather, bytes()); }
    communicator* comm;
    In in;
    Out out;
    mover<In, Out, no_op, element> move;
};

} // namespace detail

// Collects calls; launch() runs them all. Every rank adds the same collectives in the same order; the transfers between
// two ranks are added by both, to one group each, in the same order. Buffers must stay in place until launch() returns.
// Cost: of collectives, one synchronisation for up to 1 MiB of operands per rank on one host, across hosts one
//     all_gather for up to 64 KiB per rank (256 KiB of all ranks); larger ones run by themselves, in order. Of sends
//     and receives, one message for all that goes to one peer, up to a slot (512 KiB across hosts for few ranks);
//     larger ones go by themselves in their turn. All are under way at once, so rings and exchanges of groups do not
//     lock.
// Errors: as all_reduce; mismatch naming the peer whose group has other transfers, types or counts.
class group {
public:
    explicit group(communicator& c) : comm_(&c) {}

    template <Buffer X, class Op = plus>
    void all_reduce(X&& x, Op op = {}) {
        require_output<X>();
        detail::require_staying<X>();
        add<detail::grouped_all_reduce<buffer_t<X>, Op>>(checked(buffer(x)), op, -1);
    }
    template <Buffer X, class Op = plus>
    void reduce(X&& x, int root, Op op = {}) {
        require_output<X>();
        detail::require_staying<X>();
        detail::require_root(comm_->internals(), root);
        add<detail::grouped_all_reduce<buffer_t<X>, Op>>(checked(buffer(x)), op, root);
    }
    template <Buffer X>
    void broadcast(X&& x, int root) {
        require_output<X>();
        detail::require_staying<X>();
        detail::require_root(comm_->internals(), root);
        add<detail::grouped_broadcast<buffer_t<X>>>(checked(buffer(x)), root);
    }
    template <Buffer In, Buffer Out>
    void all_gather(In&& in, Out&& out) {
        require_output<Out>();
        detail::require_staying<In, Out>();
        const auto a = checked(buffer(in));
        const auto b = checked(buffer(out));
        auto& c = comm_->internals();
        detail::require_size(c, "output", b.size(), a.size() * static_cast<std::size_t>(c.net.size()));
        detail::require_apart(c, a, b, a.size() * static_cast<std::size_t>(c.net.rank()));
        add<detail::grouped_all_gather<buffer_t<In>, buffer_t<Out>>>(a, b);
    }
    template <Buffer X>
    void send(X&& x, int peer) {
        detail::require_staying<X>();
        add_transfer<true>(checked(buffer(x)), peer);
    }
    template <Buffer X>
    void recv(X&& x, int peer) {
        require_output<X>();
        detail::require_staying<X>();
        add_transfer<false>(checked(buffer(x)), peer);
    }
    // What is no buffer: collx::buffer says why.
    template <class X, class... Rest>
    requires(!Buffer<X>) void all_reduce(X&& x, const Rest&...) { (void)buffer(x); }
    template <class X, class... Rest>
    requires(!Buffer<X>) void reduce(X&& x, const Rest&...) { (void)buffer(x); }
    template <class X>
    requires(!Buffer<X>) void broadcast(X&& x, int) { (void)buffer(x); }
    template <class X, class Y>
    requires(!Buffer<X> || !Buffer<Y>) void all_gather(X&& x, Y&& y) { (void)buffer(x), (void)buffer(y); }
    template <class X>
    requires(!Buffer<X>) void send(X&& x, int) { (void)buffer(x); }
    template <class X>
    requires(!Buffer<X>) void recv(X&& x, int) { (void)buffer(x); }
    std::size_t size() const { return calls_.size() + transfers_.size(); }

    // A template, so that programs without groups do not compile what groups need.
    template <class Options = call_options>
    void launch(const Options& options = {}) {
        comm_->internals().or_abandon([&] { launch_all(options); });
    }

private:
    template <class Options>
    void launch_all(const Options& o) {
        comm_->internals().require_time_limit(o.timeout.count());
        auto calls = std::move(calls_);
        calls_.clear();
        auto transfers = std::move(transfers_);
        transfers_.clear();
        auto under_way = detail::transfer_packer(*comm_, o).start(std::move(transfers));
        if (calls.size() != 0) agree_on(calls, o);
        const bool is_one_host = comm_->internals().net.is_one_host();
        const std::size_t room = is_one_host
                                     ? comm_->internals().schedules.stage_bytes(1, algo::one_shot_all_reduce{}.depth)
                                     : far_room(static_cast<std::size_t>(comm_->size()));
        for (std::size_t first = 0; first < calls.size();) {
            std::size_t last = first, bytes = 0;
            while (last < calls.size() && bytes + round_up(calls[last]->bytes(), 8) <= room)
                bytes += round_up(calls[last++]->bytes(), 8);
            if (last == first || (last == first + 1 && !is_one_host)) last = first + 1, calls[first]->run_alone(o);
            else if (is_one_host) exchange(calls, first, last, bytes, o);
            else gather<detail::blocking>(calls, first, last, bytes, o);
            first = last;
        }
        for (auto& w : under_way) w.wait();
    }
    template <class View>
    View checked(View v) const {
        detail::require_memory(comm_->internals(), v, "group's");
        return v;
    }
    template <class Call, class... Args>
    void add(Args&&... args) {
        calls_.push_back(make_sole<Call>(*comm_, std::forward<Args>(args)...));
    }

    template <bool Outgoing, class View>
    void add_transfer(View v, int peer) {
        detail::require_peer(comm_->internals(), peer);
        transfers_.push_back(make_sole<detail::typed_transfer<View, Outgoing>>(*comm_, v, peer));
    }

    template <class Mover = detail::group_mover>
    void exchange(typename Mover::calls& calls, std::size_t first, std::size_t last, std::size_t bytes,
                  const call_options& o) {
        auto& c = comm_->internals();
        auto& plan = c.schedules.bind(algo::one_shot_all_reduce{}, port::blocking);
        const auto l = chunk_layout::even(bytes, 1);
        typed_elements<Mover> elements(Mover(calls, first, last));
        task t(c.net, plan, elements, l, l, bytes, c.agree(bytes));
        c.run(t, o.timeout.count());
    }

    // The whole group at once: how it is cut follows from it.
    void agree_on(const detail::group_mover::calls& calls, const call_options& o) {
        auto& c = comm_->internals();
        c.begin_collective();
        detail::group_signature all;
        for (const auto& call : calls) call->sign(all);
        if (c.settings.checked != 0) detail::compare_signatures(c, all.shown, o.timeout.count());
        (void)c.agree(all.says);
    }

    // Everybody sends what it has to everybody: worth it while a call costs its messages and not its bytes.
    static std::size_t far_room(std::size_t n) {
        constexpr std::size_t of_all = 256 * 1024, most = 64 * 1024;
        return of_all / n < most ? of_all / n / 8 * 8 : most;
    }
    template <class Mode>
    void gather(detail::group_mover::calls& calls, std::size_t first, std::size_t last, std::size_t bytes,
                const call_options& o) {
        const auto n = static_cast<std::size_t>(comm_->size()), me = static_cast<std::size_t>(comm_->rank());
        detail::growing_array<std::byte> all(n * bytes);
        detail::group_mover operands(calls, first, last);
        const contiguous_view<std::byte> mine(all.data() + me * bytes, bytes);
        user_code([&] { operands.load(mine.data(), sched::place::in, 0, bytes); });
        detail::all_gather_fn<Mode>{}(*comm_, mine, all, o);
        detail::growing_array<const std::byte*> ranks;
        for (std::size_t r = 0; r < n; ++r) ranks.push_back(all.data() + r * bytes);
        user_code([&] {
            operands.fold_ranks(ranks.data(), comm_->size(), comm_->rank(), sched::place::in, 0, sched::place::out, 0,
                                nullptr, bytes);
        });
    }
    // Iterators and operators: see communicator_core::advance().
    template <class F>
    void user_code(F&& f) {
        try {
            f();
        } catch (...) {
            comm_->internals().abandon();
            throw;
        }
    }

    communicator* comm_;
    detail::group_mover::calls calls_;
    detail::packed_message::parts transfers_;
};

COLLX_END_NAMESPACE
