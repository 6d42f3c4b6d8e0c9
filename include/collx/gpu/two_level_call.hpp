// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One collective on device memory in two levels: inside domains kernels move and reduce over the peers' memory; what
// must cross is staged, each rank of a rail its share, and the proxies run the same verb along the rails. Cut into
// pieces, of which one is on its way between domains while kernels work on the next.
//
// Staged bytes, S of a buffer or c of a part, G ranks in a domain, D domains, R rails:
//   all_reduce      S / R out and in, per rank of a rail      broadcast  S / R out in the root's domain, in elsewhere
//   reduce_scatter  c out for each rank whose part the rail   reduce     S / R out, in only in the root's domain
//   (and _v)        carries (D if even), in for its own       barrier    none, and one rank of a domain
//   all_gather      c out for each rank whose part the rail   all_to_all c for each rank of another domain, both ways
//                   carries here (1), in for the others (D - 1)
//
// Order: ranks of a domain in the order of ranks, then the domains in the order of their first ranks.
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
class two_level_call : two_level_pieces<Call, In, Out, Op> {
    using base = two_level_pieces<Call, In, Out, Op>;
    using base::in_, base::out_, base::s_, base::call_, base::d_, base::map_, base::before_, base::after_,
        base::pieces_;
    using base::local, base::share_of, base::send, base::receive, base::move, base::gone, base::range, base::alone,
        base::put_share, base::reduce_inside, base::launch_reduction, base::spread, base::completing;
    using typename base::in_type, typename base::out_type, typename base::piece;

public:
    using base::base;

    void all_reduce() {
        this->each_piece(
            s_.count, this->shared_room(),
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
        this->each_piece(
            s_.count, this->shared_room(),
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
        this->each_piece(
            s_.count, this->shared_room(),
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
                pieces_.template put<out_type>(out_, range({mine.at, is_there ? mine.count : 0}),
                                               this->template on_rail<out_type>(
                                                   mine.count, mine.count, [there](auto& c, auto x, auto y, auto with) {
                                                       with.root = there;
                                                       if (c.rank() == there)
                                                           std::memcpy(y.data(), x.data(), x.size() * sizeof(out_type));
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
        const std::size_t room = pieces_.room(static_cast<std::size_t>(d_.most_blocks()) * sizeof(out_type));
        this->each_piece(
            s_.count, [=](std::size_t) { return room; },
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
                    this->template on_rail<out_type>(sent, sent + others,
                                                     [counts, at](auto& c, auto x, auto y, auto& with) {
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
    // Parts of any sizes: a piece is made of a piece of each that is not over yet.
    void reduce_scatter(const count_table& parts) {
        const device_view<out_type> come(d_.template incoming<out_type>(), d_.room_bytes() / sizeof(out_type));
        const std::size_t out_at = s_.out_packed ? 0 : parts.offsets()[call_.g.rank()];
        std::size_t longest = 0;
        for (int r = 0; r < map_.ranks(); ++r) longest = parts.sizes()[r] > longest ? parts.sizes()[r] : longest;
        this->each_piece(
            longest, [&](std::size_t at) { return part_room(parts, at); },
            [&](piece p) {
                std::size_t filled[device::max_ranks] = {}; // of what goes along each rail
                for (int d = 0; d < map_.nodes(); ++d)
                    for (int first = 0; first < map_.size(d); first += d_.rails()) {
                        device::table_cuts cuts;
                        for (int k = 0; k < d_.rails() && first + k < map_.size(d); ++k) {
                            const piece own = part_of(parts, d, first + k, p);
                            cuts.sizes[k] = own.count, cuts.in_at[k] = own.at, cuts.out_at[k] = filled[k];
                            filled[k] += own.count;
                        }
                        if (cuts.largest(0, d_.rails()) != 0) launch_reduction(cuts);
                    }
                if (filled[local()] == 0) return; // always so off the rails
                std::vector<std::size_t> counts;
                for (int d = 0; d < map_.nodes(); ++d) counts.push_back(carried(parts, d, p));
                const std::size_t mine = counts[static_cast<std::size_t>(d_.node())];
                pieces_.template put<in_type>(
                    gone(), range({0, filled[local()]}),
                    this->template on_rail<in_type>(
                        filled[local()], mine,
                        [counts, op = completing(own_numbers(parts, p))](auto& c, auto x, auto y, auto& with) {
                            collx::reduce_scatter_v(c, x, y, counts, op, with);
                        }));
            },
            [&](piece p) {
                const piece own{out_at + p.at, part_of(parts, d_.node(), local(), p).count};
                std::size_t all = 0; // along this rail
                for (int d = 0; d < map_.nodes(); ++d) all += carried(parts, d, p);
                if (d_.size() == d_.rails()) {
                    if (all != 0) pieces_.take(out_, range(own));
                    return;
                }
                if (all != 0) pieces_.take(come, range({0, carried(parts, d_.node(), p)}));
                device::own_cuts cuts;
                std::size_t at = 0;
                for (int k = local(); d_.is_on_rail() && k < d_.size(); k += d_.rails()) {
                    const std::size_t count = part_of(parts, d_.node(), k, p).count;
                    send(cuts, k, {at, count});
                    at += count;
                }
                receive(cuts, local() % d_.rails(), own);
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
                this->template on_rail<char>(0, 0, [](auto& c, auto, auto, auto& with) { collx::barrier(c, with); }));
            pieces_.take(out_, device::staging_range());
        }
        wait_inside(after_);
        pieces_.check_peers();
    }

private:
    // ------------------------------------------------------------------------------------------ parts of any sizes
    // Elements of each part in a piece that begins here: parts that are over leave their room to the others.
    std::size_t part_room(const count_table& parts, std::size_t at) const {
        std::size_t most = 1; // that go along one rail
        for (int k = 0; k < d_.rails(); ++k) {
            std::size_t open = 0;
            for (int d = 0; d < map_.nodes(); ++d)
                for (int j = k; j < map_.size(d); j += d_.rails()) open += parts.sizes()[map_.rank_of(d, j)] > at;
            most = open > most ? open : most;
        }
        return pieces_.room(most * base::larger_bytes);
    }
    piece part_of(const count_table& parts, int node, int k, piece p) const {
        const int r = map_.rank_of(node, k);
        const std::size_t size = parts.sizes()[r], begin = p.at < size ? p.at : size, left = size - begin;
        return {parts.offsets()[r] + begin, left < p.count ? left : p.count};
    }
    // What this rank's rail has for a domain.
    std::size_t carried(const count_table& parts, int node, piece p) const {
        std::size_t sum = 0;
        for (int k = local(); d_.is_on_rail() && k < map_.size(node); k += d_.rails())
            sum += part_of(parts, node, k, p).count;
        return sum;
    }
    // Where the results of this rank's rail lie in their owners' buffers.
    device::staging_runs own_numbers(const count_table& parts, piece p) const {
        device::staging_runs runs;
        for (int k = local(); k < d_.size(); k += d_.rails()) {
            const piece own = part_of(parts, d_.node(), k, p);
            runs.add(s_.out_packed ? p.at : own.at, own.count);
        }
        return runs;
    }

    // ------------------------------------------------------------------------------------------ blocks of ranks
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
};

} // namespace detail
COLLX_END_NAMESPACE
