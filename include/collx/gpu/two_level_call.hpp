// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One collective on device memory in two levels. Inside domains kernels move and reduce data in the peers' memory.
// Each rank of a rail stages its share of the data between domains, and the proxies run the same verb along the rails.
// The call is cut into pieces; one is under way between domains while kernels work on the next.
//
// Staged bytes, S of a buffer or c of a part, D domains, R rails:
//   all_reduce      S / R out and in, per rank of a rail      broadcast  S / R out in the root's domain, in elsewhere
//   reduce_scatter  c out for each rank whose part the rail   reduce     S / R out, in only in the root's domain
//   (and _v)        carries (D if even), in for its own       barrier    none, by one rank of each domain
//   all_gather      c out for each rank whose part the rail   all_to_all c for each rank of another domain, both ways
//                   carries here (1), in for the others (D - 1)
//
// Order: inside a domain the order of ranks, then domains in the order of their first ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <collx/algo/dissemination.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/barrier.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_scatter.hpp>
#include <collx/gpu/two_level_pieces.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// One call. The methods put it into the stream.
template <class Call, class In, class Out, class Op>
class two_level_call {
    using pieces = two_level_pieces<Call, In, Out, Op>;
    using in_type = typename pieces::in_type;
    using out_type = typename pieces::out_type;
    using piece = typename pieces::piece;

public:
    // Arguments: as two_level_pieces.
    two_level_call(collective what, const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s,
                   std::uint64_t hash = 0)
        : call_(what, call, in, out, op, s, hash) {}

    void all_reduce() {
        call_.each_piece(
            call_.shape.count, call_.shared_room(),
            [&](piece p) {
                call_.reduce_inside(p);
                call_.put_share(p, [op = call_.completing(pieces::alone(call_.share_of(p, call_.local())))](
                                       auto& c, auto x, auto y, auto& with) { collx::all_reduce(c, x, y, op, with); });
            },
            [&](piece p) {
                if (const piece mine = call_.share_of(p, call_.local()); mine.count != 0)
                    call_.staging.take(call_.out, pieces::range(mine));
                call_.spread(p);
            });
    }
    void reduce() {
        const int there = call_.map.node_of(call_.started.o.root), at = call_.map.local_of(call_.started.o.root);
        const bool is_there = there == call_.domains.node();
        call_.each_piece(
            call_.shape.count, call_.shared_room(),
            [&](piece p) {
                call_.reduce_inside(p);
                call_.put_share(p, [there, op = call_.completing(pieces::alone(call_.share_of(p, call_.local())))](
                                       auto& c, auto x, auto y, auto with) {
                    with.root = there;
                    collx::reduce(c, x, y, op, with);
                });
            },
            [&](piece p) {
                const piece mine = call_.share_of(p, call_.local());
                if (mine.count != 0) call_.staging.take(call_.come(), pieces::range({0, is_there ? mine.count : 0}));
                if (!is_there) return;
                device::own_cuts cuts;
                cuts.sizes[0][at] = mine.count;
                for (int k = 0; call_.local() == at && k < call_.domains.size(); ++k)
                    pieces::receive(cuts, k, call_.share_of(p, k));
                pieces::move(call_.come(), call_.out, cuts, call_.after);
            });
    }
    void broadcast() {
        const int there = call_.map.node_of(call_.started.o.root), at = call_.map.local_of(call_.started.o.root);
        const bool is_there = there == call_.domains.node();
        call_.each_piece(
            call_.shape.count, call_.shared_room(),
            [&](piece p) {
                if (is_there && call_.domains.size() > 1) { // from the root to the rails
                    device::own_cuts cuts;
                    for (int k = 0; k < call_.domains.size(); ++k)
                        if (call_.local() == at && k != at) pieces::send(cuts, k, call_.share_of(p, k));
                    if (call_.local() != at) pieces::receive(cuts, at, call_.share_of(p, call_.local()));
                    pieces::move(call_.out, call_.out, cuts, call_.before);
                }
                const piece mine = call_.share_of(p, call_.local());
                if (mine.count == 0) return;
                call_.staging.template put<out_type>(
                    call_.out, pieces::range({mine.at, is_there ? mine.count : 0}),
                    call_.template on_rail<out_type>(
                        mine.count, mine.count, [there](auto& c, auto x, auto y, auto with) {
                            with.root = there;
                            if (c.rank() == there) std::memcpy(y.data(), x.data(), x.size() * sizeof(out_type));
                            collx::broadcast(c, y, with);
                        }));
            },
            [&](piece p) {
                const piece mine = call_.share_of(p, call_.local());
                if (mine.count != 0) call_.staging.take(call_.out, pieces::range({mine.at, is_there ? 0 : mine.count}));
                call_.spread(p, is_there ? at : -1);
            });
    }
    // Kernels gather this domain's parts on all its ranks; then each rail carries its blocks to other domains.
    void all_gather() {
        const auto mine = static_cast<std::size_t>(
            call_.domains.blocks(call_.domains.node(), call_.local())); // not used by ranks on no rail
        const std::size_t room =
            call_.staging.room(static_cast<std::size_t>(call_.domains.most_blocks()) * sizeof(out_type));
        call_.each_piece(
            call_.shape.count, [=](std::size_t) { return room; },
            [&](piece p) {
                device::own_cuts cuts;
                for (int k = 0; k < call_.domains.size(); ++k) {
                    pieces::send(cuts, k, {call_.shape.in_at + p.at, p.count});
                    pieces::receive(cuts, k, block(call_.domains.node(), k, p));
                }
                pieces::move(call_.in, call_.out, cuts, call_.before);
                if (!call_.domains.is_on_rail()) return;
                // This domain's blocks come last in the staging buffer, because they are not copied in.
                std::vector<std::size_t> counts, at;
                std::size_t others = 0;
                for (int d = 0; d < call_.map.nodes(); ++d) {
                    counts.push_back(static_cast<std::size_t>(call_.domains.blocks(d, call_.local())) * p.count);
                    at.push_back(others);
                    if (d != call_.domains.node()) others += counts.back();
                }
                at[static_cast<std::size_t>(call_.domains.node())] = others;
                const std::size_t sent = mine * p.count;
                call_.staging.template put<out_type>(
                    call_.out, blocks_of(p, true),
                    call_.template on_rail<out_type>(sent, sent + others,
                                                     [counts, at](auto& c, auto x, auto y, auto& with) {
                                                         collx::all_gather_v(c, x, y, counts, at, with);
                                                     }));
            },
            [&](piece p) {
                if (call_.domains.is_on_rail()) call_.staging.take(call_.out, blocks_of(p, false));
                for (int d = 0; d < call_.map.nodes(); ++d)
                    for (int first = 0;
                         d != call_.domains.node() && call_.domains.size() > 1 && first < call_.map.size(d);
                         first += call_.domains.rails())
                        spread_blocks(d, first, p);
            });
    }
    // Kernels reduce the parts of each domain's ranks over this domain, into the buffers of the rails that carry them;
    // each rail then reduces its parts. Parts of any sizes: a piece has a piece of each part that has not ended.
    void reduce_scatter(const count_table& parts) {
        const std::size_t out_at = call_.shape.out_packed ? 0 : parts.offsets()[call_.started.g.rank()];
        std::size_t longest = 0;
        for (int r = 0; r < call_.map.ranks(); ++r) longest = parts.sizes()[r] > longest ? parts.sizes()[r] : longest;
        call_.each_piece(
            longest, [&](std::size_t at) { return part_room(parts, at); },
            [&](piece p) {
                std::size_t filled[device::max_ranks] = {}; // elements that go along each rail
                reduce_inside(parts, p, filled);
                if (filled[call_.local()] == 0) return; // always 0 for ranks on no rail
                std::vector<std::size_t> counts;
                for (int d = 0; d < call_.map.nodes(); ++d) counts.push_back(carried(parts, d, p));
                const std::size_t mine = counts[static_cast<std::size_t>(call_.domains.node())];
                call_.staging.template put<in_type>(
                    call_.gone(), pieces::range({0, filled[call_.local()]}),
                    call_.template on_rail<in_type>(
                        filled[call_.local()], mine,
                        [counts, op = call_.completing(own_numbers(parts, p))](auto& c, auto x, auto y, auto& with) {
                            collx::reduce_scatter_v(c, x, y, counts, op, with);
                        }));
            },
            [&](piece p) {
                const piece own{out_at + p.at, part_of(parts, call_.domains.node(), call_.local(), p).count};
                std::size_t all = 0; // elements along this rail
                for (int d = 0; d < call_.map.nodes(); ++d) all += carried(parts, d, p);
                if (call_.domains.size() == call_.domains.rails()) {
                    if (all != 0) call_.staging.take(call_.out, pieces::range(own));
                    return;
                }
                if (all != 0)
                    call_.staging.take(call_.come(), pieces::range({0, carried(parts, call_.domains.node(), p)}));
                device::own_cuts cuts;
                std::size_t at = 0;
                for (int k = call_.local(); call_.domains.is_on_rail() && k < call_.domains.size();
                     k += call_.domains.rails()) {
                    const std::size_t count = part_of(parts, call_.domains.node(), k, p).count;
                    pieces::send(cuts, k, {at, count});
                    at += count;
                }
                pieces::receive(cuts, call_.local() % call_.domains.rails(), own);
                pieces::move(call_.come(), call_.out, cuts, call_.after);
            });
    }
    void barrier() {
        const auto wait_inside = [&](const inside_call<Call>& inside) {
            if (call_.domains.size() > 1)
                by_kernel::launch<device::call_types<In, Out, device::move_only, char, device::even_cuts, true>>(
                    device::simple_protocol{}, algo::flag_barrier{}, inside, call_.in, call_.out, device::move_only{},
                    [](int) { return device::even_cuts(); }, {collective::barrier});
        };
        wait_inside(call_.before);
        if (call_.local() == 0) {
            call_.staging.template put<char>(
                call_.in, device::staging_range(),
                call_.template on_rail<char>(0, 0, [](auto& c, auto, auto, auto& with) { collx::barrier(c, with); }));
            call_.staging.take(call_.out, device::staging_range());
        }
        wait_inside(call_.after);
        call_.staging.check_peers();
    }

private:
    // ------------------------------------------------------------------------------------------ parts of any sizes
    // Elements of each part in a piece that begins here. Parts that have ended leave their room to the others.
    std::size_t part_room(const count_table& parts, std::size_t at) const {
        std::size_t most = 1; // parts that go along one rail
        for (int k = 0; k < call_.domains.rails(); ++k) {
            std::size_t open = 0;
            for (int d = 0; d < call_.map.nodes(); ++d)
                for (int j = k; j < call_.map.size(d); j += call_.domains.rails())
                    open += parts.sizes()[call_.map.rank_of(d, j)] > at;
            most = open > most ? open : most;
        }
        return call_.staging.room(most * pieces::larger_bytes);
    }
    // Reduces a piece of the parts of all domains over the ranks of this one; `filled` counts the elements that go
    // along each rail.
    void reduce_inside(const count_table& parts, piece p, std::size_t* filled) {
        for (int d = 0; d < call_.map.nodes(); ++d)
            for (int first = 0; first < call_.map.size(d); first += call_.domains.rails()) {
                device::table_cuts cuts;
                for (int k = 0; k < call_.domains.rails() && first + k < call_.map.size(d); ++k) {
                    const piece own = part_of(parts, d, first + k, p);
                    cuts.sizes[k] = own.count;
                    cuts.in_at[k] = own.at;
                    cuts.out_at[k] = filled[k];
                    filled[k] += own.count;
                }
                if (cuts.largest(0, call_.domains.rails()) != 0) call_.launch_reduction(cuts);
            }
    }
    piece part_of(const count_table& parts, int node, int k, piece p) const {
        const int r = call_.map.rank_of(node, k);
        const std::size_t size = parts.sizes()[r], begin = p.at < size ? p.at : size, left = size - begin;
        return {parts.offsets()[r] + begin, left < p.count ? left : p.count};
    }
    // The elements that this rank's rail carries for a domain.
    std::size_t carried(const count_table& parts, int node, piece p) const {
        std::size_t sum = 0;
        for (int k = call_.local(); call_.domains.is_on_rail() && k < call_.map.size(node); k += call_.domains.rails())
            sum += part_of(parts, node, k, p).count;
        return sum;
    }
    // Where the results of this rank's rail lie in their owners' buffers.
    device::staging_runs own_numbers(const count_table& parts, piece p) const {
        device::staging_runs runs;
        for (int k = call_.local(); k < call_.domains.size(); k += call_.domains.rails()) {
            const piece own = part_of(parts, call_.domains.node(), k, p);
            runs.add(call_.shape.out_packed ? p.at : own.at, own.count);
        }
        return runs;
    }

    // ------------------------------------------------------------------------------------------ blocks of ranks
    piece block(int node, int k, piece p) const {
        return {static_cast<std::size_t>(call_.map.rank_of(node, k)) * call_.shape.count + p.at, p.count};
    }
    // The blocks that this rank's rail carries: of this domain, or of all others.
    staging_blocks blocks_of(piece p, bool own) const {
        staging_blocks b{.count = p.count, .pitch = call_.shape.count, .at = p.at};
        for (int d = 0; d < call_.map.nodes(); ++d)
            for (int k = call_.local(); (d == call_.domains.node()) == own && k < call_.map.size(d);
                 k += call_.domains.rails())
                b.add(call_.map.rank_of(d, k));
        return b;
    }
    // Sends blocks of another domain, one from each rail, to all ranks of this one.
    void spread_blocks(int node, int first, piece p) {
        device::own_cuts cuts;
        for (int k = 0; k < call_.domains.size(); ++k) {
            if (k == call_.local()) continue;
            if (call_.domains.is_on_rail() && first + call_.local() < call_.map.size(node))
                pieces::send(cuts, k, block(node, first + call_.local(), p));
            if (k < call_.domains.rails() && first + k < call_.map.size(node))
                pieces::receive(cuts, k, block(node, first + k, p));
        }
        pieces::move(call_.out, call_.out, cuts, call_.after);
    }

    pieces call_;
};

} // namespace detail
COLLX_END_NAMESPACE
