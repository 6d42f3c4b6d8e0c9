// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts that calls in two levels are made of: pieces and the rails' shares of them, kernels inside a domain, and
// orders for the proxies between domains. Knows no verb.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/gpu/between.hpp>
#include <collx/gpu/exchange.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The pieces of one call; two_level_call and two_level_scan have one such object.
template <class Call, class In, class Out, class Op>
class two_level_pieces {
public:
    // facts: a hash of all else that the ranks compare.
    two_level_pieces(collective c, const Call& call, const In& from, const Out& to, const Op& op, const device_shape& s,
                     std::uint64_t facts = 0)
        : what(c), started(call), in(from), out(to), operation(op), shape(s), hash(facts), domains(*call.g.domains()),
          map(domains.map()), before(call), after(call, true),
          staging(call.g, call.o.stream, call.stream.is_capturing, longer(call.timeout_ns(), rail_patience_ns)) {}

    using runtime = typename Call::runtime;
    using policies = typename Call::policies;
    using in_type = element_of<In>;
    using out_type = element_of<Out>;

    struct piece {
        std::size_t at, count; // elements
    };
    int local() const { return domains.rank(); }
    static constexpr std::size_t larger_bytes = sizeof(in_type) > sizeof(out_type) ? sizeof(in_type) : sizeof(out_type);

    // Calls begin(piece), then end(the piece before). most(at): the most elements of a piece that begins there.
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
        if (total != 0) staging.check_peers();
    }

    // ------------------------------------------------------------------------------------------ shares of the rails
    // The argument `most` of each_piece() for pieces of which every rail carries a share.
    auto shared_room() {
        room_ = staging.room(larger_bytes);
        if (room_ > 16) room_ -= room_ % 16;
        return [all = room_ * static_cast<unsigned>(domains.rails())](std::size_t) { return all; };
    }
    // The share of rail k; the same on all ranks. Ranks on no rail have an empty one.
    piece share_of(piece p, int k) const {
        const auto rails = static_cast<std::size_t>(domains.rails()), number = static_cast<std::size_t>(k);
        std::size_t each = (p.count + rails - 1) / rails;
        if (room_ % 16 == 0) each = (each + 15) / 16 * 16;
        const std::size_t begin = number < rails && number * each < p.count ? number * each : p.count;
        return {p.at + begin, p.count - begin < each ? p.count - begin : each};
    }
    void reduce_inside(piece p) {
        device::table_cuts cuts;
        for (int k = 0; k < domains.size(); ++k) {
            cuts.sizes[k] = share_of(p, k).count;
            cuts.in_at[k] = share_of(p, k).at;
        }
        launch_reduction(cuts);
    }
    template <class F>
    void put_share(piece p, F f) {
        if (const piece mine = share_of(p, local()); mine.count != 0)
            staging.template put<in_type>(gone(), range({0, mine.count}), on_rail<in_type>(mine.count, mine.count, f));
    }
    // Each rank on a rail sends its share to all others of the domain except rank `but`, which has everything already.
    void spread(piece p, int but = -1) {
        if (domains.size() == 1) return;
        device::own_cuts cuts;
        for (int k = 0; k < domains.size(); ++k) {
            if (k == local()) continue;
            if (k != but) send(cuts, k, share_of(p, local()));
            if (local() != but) receive(cuts, k, share_of(p, k));
        }
        move(out, out, cuts, after);
    }

    static device::staging_runs alone(piece p) {
        device::staging_runs r;
        r.add(p.at, p.count);
        return r;
    }

    // ------------------------------------------------------------------------------------------ kernels and orders
    static void send(device::own_cuts& cuts, int k, piece p) {
        cuts.sizes[0][k] = p.count;
        cuts.at[0][k] = p.at;
    }
    static void receive(device::own_cuts& cuts, int k, piece p) {
        cuts.sizes[1][k] = p.count;
        cuts.at[1][k] = p.at;
    }
    template <class A, class B>
    static void move(const A& from, const B& to, const device::own_cuts& cuts, const inside_call<Call>& inside) {
        device_exchange::over_links(inside, from, to, cuts, call_sign::of_parts());
    }
    device_view<in_type> gone() const {
        return {domains.template outgoing<in_type>(), domains.room_bytes() / sizeof(in_type)};
    }
    device_view<out_type> come() const {
        return {domains.template incoming<out_type>(), domains.room_bytes() / sizeof(out_type)};
    }
    // Reduces each rail's part over this domain, into the buffer for what goes between domains.
    void launch_reduction(const device::table_cuts& cuts) {
        const auto op = beginning_of<in_type>(operation, map.ranks());
        using view = device_view<in_type>;
        using types = device::call_types<In, view, std::remove_const_t<decltype(op)>, wire_of<policies, view>,
                                         device::table_cuts, true>;
        by_kernel::launch<types>(
            device::simple_protocol{}, algo::one_shot_reduce_scatter{}, before, in, gone(), op,
            [&](int) { return cuts; }, sign());
    }
    call_sign sign() const { return {what, shape.count, (type_hash<in_type>() + 3 * op_hash<Op>()) ^ hash}; }
    auto completing(const device::staging_runs& numbers) const {
        return completion_of<in_type>(operation, map.ranks(), numbers);
    }
    static device::staging_range range(piece p) { return {.at = p.at, .count = p.count}; }

    // An order for the proxy that calls f(the rail with the call's policies, the views of the staging buffers,
    // options).
    template <class Sent, class F>
    gpu_proxy::order on_rail(std::size_t in_count, std::size_t out_count, F f) {
        const std::int64_t own_ns = started.o.timeout.count();
        const call_options with{.timeout = duration::from_ns(own_ns > 0 ? longer(own_ns, rail_patience_ns) : own_ns)};
        return order_on_views<Sent, out_type>(
            started, with, longer(started.core().settings.timeout_ns, rail_patience_ns), in_count, out_count,
            [d = &domains](communicator& side, const auto& then) { d->on_rail(side, then); }, f);
    }

    const collective what;
    const Call& started;
    const In& in;
    const Out& out;
    const Op& operation;
    const device_shape& shape;
    const std::uint64_t hash;
    gpu_domains<runtime>& domains;
    node_view map;
    inside_call<Call> before, after; // before and after the rails
    staged_pieces<runtime> staging;

private:
    std::size_t room_ = 0; // elements of one rail's share
};

} // namespace detail
COLLX_END_NAMESPACE
