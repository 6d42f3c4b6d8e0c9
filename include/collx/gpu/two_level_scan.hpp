// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scans on device memory in two levels, where domains are intervals of ranks. Each domain reduces its operands, each
// rank of a rail a share, and an exclusive scan of these sums runs along the rails. Meanwhile each domain scans by
// itself. Then the sum from the rail is put before the results of the domain's ranks.
//
// Staged bytes, for S bytes, D domains, R rails: S / R out in all domains but the last, S / R in in all but the first;
// (D - 1) S over all ranks, each way. Between domains (D - 1) S along a chain.
#pragma once

#include <collx/algo/preceding.hpp>
#include <collx/comm/scan.hpp>
#include <collx/gpu/two_level_pieces.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <bool Exclusive, class Call, class In, class Out, class Op>
class two_level_scan {
    using pieces = two_level_pieces<Call, In, Out, Op>;
    using in_type = typename pieces::in_type;
    using out_type = typename pieces::out_type;
    using piece = typename pieces::piece;
    static_assert(std::is_same_v<in_type, out_type>);

public:
    // Arguments: as two_level_pieces.
    two_level_scan(const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s)
        : call_(Exclusive ? collective::exclusive_scan : collective::scan, call, in, out, op, s) {}

    void run() {
        const bool is_first = call_.domains.node() == 0, is_last = call_.domains.node() == call_.map.nodes() - 1;
        call_.each_piece(
            call_.shape.count, call_.shared_room(),
            [&](piece p) {
                if (!is_last) call_.reduce_inside(p);
                const piece mine = call_.share_of(p, call_.local());
                // The sum of the last domain is not read.
                if (mine.count != 0)
                    call_.staging.template put<in_type>(
                        call_.gone(), pieces::range({0, is_last ? 0 : mine.count}),
                        call_.template on_rail<in_type>(
                            mine.count, mine.count,
                            [op = without_hooks<in_type>(call_.operation)](auto& c, auto x, auto y, auto& with) {
                                collx::exclusive_scan(c, x, y, op, with);
                            }));
                scan_inside(p);
            },
            [&](piece p) {
                const piece mine = call_.share_of(p, call_.local());
                if (mine.count != 0) call_.staging.take(call_.come(), pieces::range({0, is_first ? 0 : mine.count}));
                if (!is_first) put_before(p);
            });
    }

private:
    template <class From, class O, class A>
    void launch(const From& from, const O& op, A algorithm, const device::table_cuts& cuts,
                const inside_call<Call>& inside) const {
        using types = device::call_types<From, Out, O, wire_of<typename Call::policies, Out>, device::table_cuts, true>;
        by_kernel::launch<types>(
            device::simple_protocol{}, algorithm, inside, from, call_.out, op, [&](int) { return cuts; }, call_.sign());
    }
    void scan_inside(piece p) const {
        using text = std::conditional_t<Exclusive, algo::one_shot_exclusive_scan, algo::one_shot_scan>;
        device::table_cuts cuts;
        cuts.sizes[0] = p.count;
        cuts.in_at[0] = cuts.out_at[0] = p.at;
        launch(call_.in, beginning_of<in_type>(call_.operation, call_.map.ranks()), text{}, cuts, call_.before);
    }
    void put_before(piece p) const {
        device::table_cuts cuts;
        for (int k = 0; k < call_.domains.size(); ++k) {
            cuts.sizes[k] = call_.share_of(p, k).count;
            cuts.out_at[k] = call_.share_of(p, k).at;
        }
        launch(call_.come(), without_hooks<in_type>(call_.operation), algo::preceding<Exclusive>{}, cuts, call_.after);
    }

    pieces call_;
};

} // namespace detail
COLLX_END_NAMESPACE
