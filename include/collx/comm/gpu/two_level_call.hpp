// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One collective on device memory in two levels: inside domains kernels move and reduce over the peers' memory; what
// must cross is staged, each rank of a rail its share, and the proxies run the same verb along the rails. Cut into
// pieces, of which one is on its way between domains while kernels work on the next.
//
// Staged bytes, S of a buffer or c of a part, G ranks in a domain, D domains, R rails:
//   all_reduce      S / R out and in, per rank of a rail      broadcast  S / R out in the root's domain, in elsewhere
//   reduce_scatter  c out for each rank whose part the rail   reduce     S / R out, in only in the root's domain
//                   carries (D if even), in for its own       barrier    none, and one rank of a domain
//   all_gather      c out for each rank whose part the rail   all_to_all c for each rank of another domain, both ways
//                   carries here (1), in for the others (D - 1)
//
// Order: ranks of a domain in the order of ranks, then the domains in the order of their first ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/algo/dissemination.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/barrier.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/gpu/between.hpp>
#include <collx/comm/gpu/exchange.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_scatter.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// One call. The methods put it into the stream.
template <class Call, class In, class Out, class Op>
class two_level_call {
    using runtime = typename Call::runtime;
    using policies = typename Call::policies;
    using in_type = element_of<In>;
    using out_type = element_of<Out>;

public:
    two_level_call(collective what, const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s)
        : what_(what), call_(call), in_(in), out_(out), op_(op), s_(s), d_(*call.g.domains()), map_(d_.map()),
          before_(call), after_(call, true),
          pieces_(call.g, call.o.stream, call.stream.is_capturing, longer(call.timeout_ns(), rail_patience_ns)) {}

    void all_reduce() {
        each_piece(
            shared_room(),
            [&](piece p) {
                reduce_inside(p);
                put_share(p, [op = completing(alone(share_of(p, local())))](auto& c, auto x, auto y, auto& with) {
                    collx::all_reduce(c, x, y, op, with);
                });
            },
            [&](piece p) {
                if (const piece mine = share_of(p, local()); mine.count != 0) pieces_.take(out_, range(mine));
                spread(p);
            });
    }
    void reduce() {
        const int there = map_.node_of(call_.o.root), at = map_.local_of(call_.o.root);
        const bool is_there = there == d_.node();
        const device_view<out_type> come(d_.template incoming<out_type>(), d_.room_bytes() / sizeof(out_type));
        each_piece(
            shared_room(),
            [&](piece p) {
                reduce_inside(p);
                put_share(p, [there, op = completing(alone(share_of(p, local())))](auto& c, auto x, auto y, auto with) {
                    with.root = there;
                    collx::reduce(c, x, y, op, with);
                });
            },
            [&](piece p) {
                const piece mine = share_of(p, local());
                if (mine.count != 0) pieces_.take(come, range({0, is_there ? mine.count : 0}));
                if (!is_there) return;
                device::own_cuts cuts;
                cuts.sizes[0][at] = mine.count;
                for (int k = 0; local() == at && k < d_.size(); ++k) receive(cuts, k, share_of(p, k));
                move(come, out_, cuts, after_);
            });
    }
    void broadcast() {
        const int there = map_.node_of(call_.o.root), at = map_.local_of(call_.o.root);
        const bool is_there = there == d_.node();
        each_piece(
            shared_room(),
            [&](piece p) {
                if (is_there && d_.size() > 1) { // from the root to the rails
                    device::own_cuts cuts;
                    for (int k = 0; k < d_.size(); ++k)
                        if (local() == at && k != at) send(cuts, k, share_of(p, k));
                    if (local() != at) receive(cuts, at, share_of(p, local()));
                    move(out_, out_, cuts, before_);
                }
                const piece mine = share_of(p, local());
                if (mine.count == 0) return;
                pieces_.template put<out_type>(
                    out_, range({mine.at, is_there ? mine.count : 0}),
                    on_rail<out_type>(mine.count, mine.count, [there](auto& c, auto x, auto y, auto with) {
                        with.root = there;
                        if (c.rank() == there) std::memcpy(y.data(), x.data(), x.size() * sizeof(out_type));
                        collx::broadcast(c, y, with);
                    }));
            },
            [&](piece p) {
                const piece mine = share_of(p, local());
                if (mine.count != 0) pieces_.take(out_, range({mine.at, is_there ? 0 : mine.count}));
                spread(p, is_there ? at : -1);
            });
    }
    // The parts of this domain to all of it; then each rail carries its blocks to the other domains.
    void all_gather() {
        const auto mine = static_cast<std::size_t>(d_.blocks(d_.node(), local())); // of no meaning off the rails
        each_piece(
            block_room(sizeof(out_type)),
            [&](piece p) {
                device::own_cuts cuts;
                for (int k = 0; k < d_.size(); ++k)
                    send(cuts, k, {s_.in_at + p.at, p.count}), receive(cuts, k, block(d_.node(), k, p));
                move(in_, out_, cuts, before_);
                if (!d_.is_on_rail()) return;
                // This domain's own come last in the staging buffer: they need not be copied in.
                std::vector<std::size_t> counts, at;
                std::size_t others = 0;
                for (int d = 0; d < map_.nodes(); ++d) {
                    counts.push_back(static_cast<std::size_t>(d_.blocks(d, local())) * p.count);
                    at.push_back(others);
                    if (d != d_.node()) others += counts.back();
                }
                at[static_cast<std::size_t>(d_.node())] = others;
                const std::size_t sent = mine * p.count;
                pieces_.template put<out_type>(
                    out_, blocks_of(p, true),
                    on_rail<out_type>(sent, sent + others, [counts, at](auto& c, auto x, auto y, auto& with) {
                        collx::all_gather_v(c, x, y, counts, at, with);
                    }));
            },
            [&](piece p) {
                if (d_.is_on_rail()) pieces_.take(out_, blocks_of(p, false));
                for (int d = 0; d < map_.nodes(); ++d)
                    for (int first = 0; d != d_.node() && d_.size() > 1 && first < map_.size(d); first += d_.rails())
                        spread_blocks(d, first, p);
            });
    }
    // For each domain the parts of its ranks, reduced here, to the rail that carries them; each rail reduces its own.
    void reduce_scatter() {
        const std::size_t larger = sizeof(in_type) > sizeof(out_type) ? sizeof(in_type) : sizeof(out_type);
        const device_view<out_type> come(d_.template incoming<out_type>(), d_.room_bytes() / sizeof(out_type));
        const int own = d_.blocks(d_.node(), local());
        const bool passes_on = d_.size() != d_.rails();
        each_piece(
            block_room(larger),
            [&](piece p) {
                std::size_t slot[device::max_ranks] = {};
                std::vector<std::size_t> counts(static_cast<std::size_t>(map_.nodes()));
                for (int d = 0; d < map_.nodes(); ++d)
                    for (int first = 0; first < map_.size(d); first += d_.rails()) {
                        device::table_cuts cuts;
                        for (int k = 0; k < d_.rails() && first + k < map_.size(d); ++k) {
                            cuts.sizes[k] = p.count, cuts.in_at[k] = block(d, first + k, p).at;
                            cuts.out_at[k] = slot[k]++ * p.count;
                            if (k == local()) counts[static_cast<std::size_t>(d)] += p.count;
                        }
                        launch_reduction(cuts);
                    }
                if (!d_.is_on_rail()) return;
                const std::size_t all = slot[local()] * p.count, mine = static_cast<std::size_t>(own) * p.count;
                pieces_.template put<in_type>(
                    gone(), range({0, all}),
                    on_rail<in_type>(all, mine,
                                     [counts, op = completing(own_numbers(p))](auto& c, auto x, auto y, auto& with) {
                                         collx::reduce_scatter_v(c, x, y, counts, op, with);
                                     }));
            },
            [&](piece p) {
                if (!passes_on) return pieces_.take(out_, range({s_.out_at + p.at, p.count}));
                if (d_.is_on_rail()) pieces_.take(come, range({0, static_cast<std::size_t>(own) * p.count}));
                device::own_cuts cuts;
                for (int k = local(); d_.is_on_rail() && k < d_.size(); k += d_.rails())
                    send(cuts, k, {static_cast<std::size_t>(k / d_.rails()) * p.count, p.count});
                receive(cuts, local() % d_.rails(), {s_.out_at + p.at, p.count});
                move(come, out_, cuts, after_);
            });
    }
    void barrier() {
        const auto wait_inside = [&](const inside_call<Call>& inside) {
            if (d_.size() > 1)
                by_kernel::launch<device::call_types<In, Out, device::move_only, char, device::even_cuts, true>>(
                    device::simple_protocol{}, algo::flag_barrier{}, inside, in_, out_, device::move_only{},
                    [](int) { return device::even_cuts(); }, {collective::barrier});
        };
        wait_inside(before_);
        if (local() == 0) {
            pieces_.template put<char>(
                in_, device::staging_range(),
                on_rail<char>(0, 0, [](auto& c, auto, auto, auto& with) { collx::barrier(c, with); }));
            pieces_.take(out_, device::staging_range());
        }
        wait_inside(after_);
        pieces_.check_peers();
    }

private:
    struct piece {
        std::size_t at, count; // elements
    };
    int local() const { return d_.rank(); }

    template <class Begin, class End>
    void each_piece(std::size_t most, Begin&& begin, End&& end) {
        const std::size_t count = (s_.count + most - 1) / most;
        const auto at = [&](std::size_t k) {
            return piece{k * most, s_.count - k * most < most ? s_.count - k * most : most};
        };
        for (std::size_t k = 0; k <= count && count != 0; ++k) {
            if (k < count) begin(at(k));
            if (k > 0) end(at(k - 1));
        }
        if (count != 0) pieces_.check_peers();
    }

    // ------------------------------------------------------------------------------------------ shares of the rails
    // Elements of a piece of which every rail carries a share.
    std::size_t shared_room() {
        room_ = pieces_.room(sizeof(in_type) > sizeof(out_type) ? sizeof(in_type) : sizeof(out_type));
        if (room_ > 16) room_ -= room_ % 16;
        return room_ * static_cast<unsigned>(d_.rails());
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

    // ------------------------------------------------------------------------------------------ blocks of ranks
    std::size_t block_room(std::size_t elem_bytes) {
        return pieces_.room(static_cast<std::size_t>(d_.most_blocks()) * elem_bytes);
    }
    piece block(int node, int k, piece p) const {
        return {static_cast<std::size_t>(map_.rank_of(node, k)) * s_.count + p.at, p.count};
    }
    // That this rank's rail carries: of this domain, or of all others.
    staging_blocks blocks_of(piece p, bool own) const {
        staging_blocks b{.count = p.count, .pitch = s_.count, .at = p.at};
        for (int d = 0; d < map_.nodes(); ++d)
            for (int k = local(); (d == d_.node()) == own && k < map_.size(d); k += d_.rails())
                b.add(map_.rank_of(d, k));
        return b;
    }
    // Where the results of this rank's rail lie in their owners' buffers.
    staging_blocks own_numbers(piece p) const {
        staging_blocks b = blocks_of(p, true);
        if (s_.out_packed) b.pitch = 0;
        return b;
    }
    static staging_blocks alone(piece p) {
        staging_blocks b{.count = p.count, .at = p.at};
        b.add(0);
        return b;
    }
    // Blocks of another domain, one from each rail, to all of this one.
    void spread_blocks(int node, int first, piece p) {
        device::own_cuts cuts;
        for (int k = 0; k < d_.size(); ++k) {
            if (k == local()) continue;
            if (d_.is_on_rail() && first + local() < map_.size(node)) send(cuts, k, block(node, first + local(), p));
            if (k < d_.rails() && first + k < map_.size(node)) receive(cuts, k, block(node, first + k, p));
        }
        move(out_, out_, cuts, after_);
    }

    // ------------------------------------------------------------------------------------------ what is put into the
    // stream
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
        by_kernel::launch<types>(device::simple_protocol{}, algo::one_shot_reduce_scatter{}, before_, in_, gone(), op,
                                 [&](int) { return cuts; },
                                 {what_, s_.count, type_hash<in_type>() + 3 * op_hash<Op>()});
    }
    auto completing(const staging_blocks& numbers) const { return completion_of<in_type>(op_, map_.ranks(), numbers); }
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
    gpu_domains<runtime>& d_;
    node_view map_;
    inside_call<Call> before_, after_; // the rails
    staged_pieces<runtime> pieces_;
    std::size_t room_ = 0; // elements of one rail's share
};

} // namespace detail
COLLX_END_NAMESPACE
