// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decides which calls on device memory go in two levels, where kernels reach the peers of a domain and not all.
// two_level_call.hpp and two_level_scan.hpp carry them out.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <collx/gpu/two_level_call.hpp>
#include <collx/gpu/two_level_scan.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

struct two_level {
    // False: the call does not go in two levels, and nothing is done.
    template <collective C, class Call, class In, class Out, class Op>
    static bool try_run(const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s) {
        if constexpr (may_take<C, Call, Op, element_of<In>> &&
                      (!is_scan<C> || std::is_same_v<element_of<In>, element_of<Out>>)) {
            if (!takes<C, Op, element_of<In>>(call)) return false;
            run<C>(call, in, out, op, s);
            return true;
        } else {
            return false;
        }
    }
    // reduce_scatter_v.
    template <class Call, class In, class Out, class Op>
    static bool try_parts(const Call& call, const In& in, const Out& out, const Op& op, const count_table& parts) {
        constexpr auto C = collective::reduce_scatter;
        if constexpr (may_take<C, Call, Op, element_of<In>>) {
            if (!takes<C, Op, element_of<In>>(call)) return false;
            if (call.core().settings.checked != 0) by_kernel::compare<C, Op, element_of<Out>>(call, 0, parts.hash());
            const device_shape s{.count = parts.total(), .out_packed = true};
            two_level_call<Call, In, Out, Op>(C, call, in, out, op, s, parts.hash()).reduce_scatter(parts);
            return true;
        } else {
            return false;
        }
    }
    template <class Call>
    static bool try_barrier(const Call& call) {
        if (call.g.domains() == nullptr) return false;
        using empty_view = contiguous_view<char>;
        const empty_view none;
        const device_shape s;
        two_level_call<Call, empty_view, empty_view, device::move_only>(collective::barrier, call, none, none, {}, s)
            .barrier();
        return true;
    }

private:
    template <collective C>
    static constexpr bool is_scan = C == collective::scan || C == collective::exclusive_scan;
    // Whether calls may go in two levels: not if the program has bound an algorithm, or asks for an order of operands
    // that two levels do not keep.
    template <collective C, class Call, class Op, class T>
    static constexpr bool may_take = [] {
        using policies = typename Call::policies;
        constexpr bool is_there = C == collective::all_reduce || C == collective::reduce_scatter ||
                                  C == collective::all_gather || C == collective::broadcast ||
                                  C == collective::reduce || C == collective::all_to_all || is_scan<C>;
        if constexpr (!is_there || policies::template has_algorithm<C>) return false;
        else if constexpr (std::is_same_v<Op, device::move_only> || !policies::rank_order) return true;
        else return is_exact_v<Op, T> && std::is_void_v<typename policies::wire_type>;
    }();
    template <collective C, class Op, class T, class Call>
    static bool takes(const Call& call) {
        const auto* d = call.g.domains();
        if (d == nullptr) return false;
        // The ranks before a rank are whole domains and a part of its own only if domains are intervals of ranks.
        if constexpr (is_scan<C> || (!std::is_same_v<Op, device::move_only> && !is_commutative_v<Op, T>))
            if (!d->map().in_rank_order()) return false;
        return C != collective::all_gather || d->most_blocks() <= staging_blocks::most;
    }
    template <class Call>
    static const count_table& equal_parts(const Call& call, const device_shape& s) {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(call.g.size()), s.count);
        call.core().tables.first.assign(call.g.rank(), call.g.size(), counts, "reduce_scatter");
        return call.core().tables.first;
    }
    template <collective C, class Call, class In, class Out, class Op>
    static void run(const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s) {
        if (call.core().settings.checked != 0) by_kernel::compare<C, Op, element_of<Out>>(call, s.count, 0);
        if constexpr (C == collective::all_to_all) {
            count_tables& t = call.core().tables;
            const std::vector<std::size_t> counts(static_cast<std::size_t>(call.g.size()), s.count);
            t.first.assign(call.g.rank(), call.g.size(), counts, "all_to_all");
            t.second.assign(call.g.rank(), call.g.size(), counts, "all_to_all");
            const std::uint64_t hash = type_hash<element_of<Out>>();
            const part_peers all = part_peers::all(part_kind(hash));
            device_exchange::run(call, in, out, exchange_parts::of(C, t, {all, all, hash}, counts.size()));
        } else if constexpr (is_scan<C>) {
            two_level_scan<C == collective::exclusive_scan, Call, In, Out, Op>(call, in, out, op, s).run();
        } else {
            two_level_call<Call, In, Out, Op> x(C, call, in, out, op, s);
            if constexpr (C == collective::all_reduce) x.all_reduce();
            else if constexpr (C == collective::reduce_scatter) x.reduce_scatter(equal_parts(call, s));
            else if constexpr (C == collective::all_gather) x.all_gather();
            else if constexpr (C == collective::broadcast) x.broadcast();
            else x.reduce();
        }
    }
};

} // namespace detail
COLLX_END_NAMESPACE
