// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the calls in two levels are made of: pieces and the rails' shares of them, kernels inside a domain, and orders
// for the proxies between domains. Knows no verb.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/gpu/between.hpp>
#include <collx/gpu/exchange.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Of one call.
template <class Call, class In, class Out, class Op>
class two_level_pieces {
public:
    // hash: what else all ranks say of the call and compare.
    two_level_pieces(collective what, const Call& call, const In& in, const Out& out, const Op& op,
                     const device_shape& s, std::uint64_t hash = 0)
        : what_(what), call_(call), in_(in), out_(out), op_(op), s_(s), hash_(hash), d_(*call.g.domains()),
          map_(d_.map()), before_(call), after_(call, true),
          pieces_(call.g, call.o.stream, call.stream.is_capturing, longer(call.timeout_ns(), rail_patience_ns)) {}

protected:
    using runtime = typename Call::runtime;
    using policies = typename Call::policies;
    using in_type = element_of<In>;
    using out_type = element_of<Out>;

    struct piece {
        std::size_t at, count; // elements
    };
    int local() const { return d_.rank(); }
    static constexpr std::size_t larger_bytes = sizeof(in_type) > sizeof(out_type) ? sizeof(in_type) : sizeof(out_type);

    // most(at): how many elements, of `total`, may be in a piece that begins there.
    template <class Most, class Begin, class End>
    void each_piece(std::size_t total, Most&& most, Begin&& begin, End&& end) {
        for (piece last{0, 0}; last.at + last.count < total || last.count != 0;) {
            piece next{last.at + last.count, 0};
            if (next.at < total) {
                const std::size_t room = most(next.at);
                next.count = total - next.at < room ? total - next.at : room;
                begin(next);
            }
            if (last.count != 0) end(last);
            last = next;
        }
        if (total != 0) pieces_.check_peers();
    }

    // ------------------------------------------------------------------------------------------ shares of the rails
    // Elements of a piece of which every rail carries a share.
    auto shared_room() {
        room_ = pieces_.room(larger_bytes);
        if (room_ > 16) room_ -= room_ % 16;
        return [all = room_ * static_cast<unsigned>(d_.rails())](std::size_t) { return all; };
    }
    // Alike on all ranks. Off the rails there is none.
    piece share_of(piece p, int k) const {
        const auto rails = static_cast<std::size_t>(d_.rails()), number = static_cast<std::size_t>(k);
        std::size_t each = (p.count + rails - 1) / rails;
        if (room_ % 16 == 0) each = (each + 15) / 16 * 16;
        const std::size_t begin = number < rails && number * each < p.count ? number * each : p.count;
        return {p.at + begin, p.count - begin < each ? p.count - begin : each};
    }
    void reduce_inside(piece p) {
        device::table_cuts cuts;
        for (int k = 0; k < d_.size(); ++k) cuts.sizes[k] = share_of(p, k).count, cuts.in_at[k] = share_of(p, k).at;
        launch_reduction(cuts);
    }
    template <class F>
    void put_share(piece p, F f) {
        if (const piece mine = share_of(p, local()); mine.count != 0)
            pieces_.template put<in_type>(gone(), range({0, mine.count}), on_rail<in_type>(mine.count, mine.count, f));
    }
    // From each rail's rank to all others of the domain, but to one that has all already.
    void spread(piece p, int but = -1) {
        if (d_.size() == 1) return;
        device::own_cuts cuts;
        for (int k = 0; k < d_.size(); ++k) {
            if (k == local()) continue;
            if (k != but) send(cuts, k, share_of(p, local()));
            if (local() != but) receive(cuts, k, share_of(p, k));
        }
        move(out_, out_, cuts, after_);
    }

    static device::staging_runs alone(piece p) {
        device::staging_runs r;
        r.add(p.at, p.count);
        return r;
    }

    // ------------------------------------------------------------------------------------------ kernels and orders
    static void send(device::own_cuts& cuts, int k, piece p) { cuts.sizes[0][k] = p.count, cuts.at[0][k] = p.at; }
    static void receive(device::own_cuts& cuts, int k, piece p) { cuts.sizes[1][k] = p.count, cuts.at[1][k] = p.at; }
    template <class A, class B>
    static void move(const A& from, const B& to, const device::own_cuts& cuts, const inside_call<Call>& inside) {
        device_exchange::over_links(inside, from, to, cuts, call_sign::of_parts());
    }
    device_view<in_type> gone() const { return {d_.template outgoing<in_type>(), d_.room_bytes() / sizeof(in_type)}; }
    // Each rail's part of the operands of this domain, to what goes between domains.
    void launch_reduction(const device::table_cuts& cuts) {
        const auto op = beginning_of<in_type>(op_, map_.ranks());
        using view = device_view<in_type>;
        using types = device::call_types<In, view, std::remove_const_t<decltype(op)>, wire_of<policies, view>,
                                         device::table_cuts, true>;
        by_kernel::launch<types>(
            device::simple_protocol{}, algo::one_shot_reduce_scatter{}, before_, in_, gone(), op,
            [&](int) { return cuts; }, sign());
    }
    call_sign sign() const { return {what_, s_.count, (type_hash<in_type>() + 3 * op_hash<Op>()) ^ hash_}; }
    auto completing(const device::staging_runs& numbers) const {
        return completion_of<in_type>(op_, map_.ranks(), numbers);
    }
    static device::staging_range range(piece p) { return {.at = p.at, .count = p.count}; }

    // What the proxy does with a piece: f(the rail with the call's policies, the views of the staging buffers,
    // options).
    template <class Sent, class F>
    gpu_proxy::order on_rail(std::size_t in_count, std::size_t out_count, F f) {
        using bound = std::remove_cvref_t<decltype(on_side(call_.comm, call_.c))>;
        const std::int64_t own_ns = call_.o.timeout.count();
        const call_options with{.timeout = duration::from_ns(own_ns > 0 ? longer(own_ns, rail_patience_ns) : own_ns)};
        const std::int64_t limit = longer(call_.core().settings.timeout_ns, rail_patience_ns);
        return [d = &d_, bound_to = bound(on_side(call_.comm, call_.c)), f, with, in_count, out_count,
                limit](communicator& side, const std::byte* in, std::byte* out) {
            d->on_rail(side, [&](communicator& rail) {
                rail.internals().settings.timeout_ns = limit;
                auto c = bound_to.rebound(rail);
                f(c, contiguous_view<const Sent>(reinterpret_cast<const Sent*>(in), in_count),
                  contiguous_view<out_type>(reinterpret_cast<out_type*>(out), out_count), with);
            });
        };
    }

    const collective what_;
    const Call& call_;
    const In& in_;
    const Out& out_;
    const Op& op_;
    const device_shape& s_;
    const std::uint64_t hash_;
    gpu_domains<runtime>& d_;
    node_view map_;
    inside_call<Call> before_, after_; // the rails
    staged_pieces<runtime> pieces_;
    std::size_t room_ = 0; // elements of one rail's share
};

} // namespace detail
COLLX_END_NAMESPACE
