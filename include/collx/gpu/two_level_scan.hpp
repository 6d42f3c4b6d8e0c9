// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scans on device memory in two levels, where domains are intervals of ranks. Each domain scans by itself while its
// sum, each rail's rank a share, is on its way; along the rails an exclusive scan of these sums; what comes is put
// before what the ranks of the domain have.
//
// Staged bytes, S of a buffer, D domains, R rails: S / R out in all domains but the last, S / R in in all but the
// first; (D - 1) S over all ranks, each way. Between domains (D - 1) S along a chain.
#pragma once

#include <collx/algo/preceding.hpp>
#include <collx/comm/scan.hpp>
#include <collx/gpu/two_level_pieces.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class Call, class In, class Out, class Op>
class two_level_scan : two_level_pieces<Call, In, Out, Op> {
    using base = two_level_pieces<Call, In, Out, Op>;
    using base::in_, base::out_, base::op_, base::s_, base::d_, base::map_, base::pieces_, base::local, base::share_of;
    using typename base::in_type, typename base::out_type, typename base::piece, typename base::policies;
    static_assert(std::is_same_v<in_type, out_type>);

public:
    using base::base;

    template <bool Exclusive>
    void run() {
        const bool is_first = d_.node() == 0, is_last = d_.node() == map_.nodes() - 1;
        const device_view<in_type> come(d_.template incoming<in_type>(), d_.room_bytes() / sizeof(in_type));
        this->each_piece(
            s_.count, this->shared_room(),
            [&](piece p) {
                if (!is_last) this->reduce_inside(p);
                const piece mine = share_of(p, local());
                // What the last one has is not read.
                if (mine.count != 0)
                    pieces_.template put<in_type>(
                        this->gone(), base::range({0, is_last ? 0 : mine.count}),
                        this->template on_rail<in_type>(
                            mine.count, mine.count,
                            [op = without_hooks<in_type>(op_)](auto& c, auto x, auto y, auto& with) {
                                collx::exclusive_scan(c, x, y, op, with);
                            }));
                scan_inside<Exclusive>(p);
            },
            [&](piece p) {
                const piece mine = share_of(p, local());
                if (mine.count != 0) pieces_.take(come, base::range({0, is_first ? 0 : mine.count}));
                if (!is_first) put_before<Exclusive>(p, come);
            });
    }

private:
    template <class From, class O, class A>
    void launch(const From& from, const O& op, A algorithm, const device::table_cuts& cuts,
                const inside_call<Call>& inside) const {
        using types = device::call_types<From, Out, O, wire_of<policies, Out>, device::table_cuts, true>;
        by_kernel::launch<types>(
            device::simple_protocol{}, algorithm, inside, from, out_, op, [&](int) { return cuts; }, this->sign());
    }
    template <bool Exclusive>
    void scan_inside(piece p) const {
        using text = std::conditional_t<Exclusive, algo::one_shot_exclusive_scan, algo::one_shot_scan>;
        device::table_cuts cuts;
        cuts.sizes[0] = p.count, cuts.in_at[0] = cuts.out_at[0] = p.at;
        launch(in_, beginning_of<in_type>(op_, map_.ranks()), text{}, cuts, this->before_);
    }
    template <bool Exclusive>
    void put_before(piece p, const device_view<in_type>& come) const {
        device::table_cuts cuts;
        for (int k = 0; k < d_.size(); ++k) cuts.sizes[k] = share_of(p, k).count, cuts.out_at[k] = share_of(p, k).at;
        launch(come, without_hooks<in_type>(op_), algo::preceding<Exclusive>{}, cuts, this->after_);
    }
};

} // namespace detail
COLLX_END_NAMESPACE
