// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Staged collectives on device memory: buffers are cut into pieces, and the proxy runs the same verb on each.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_scatter.hpp>
#include <collx/comm/scan.hpp>
#include <collx/gpu/by_kernel.hpp>
#include <collx/gpu/call.hpp>
#include <collx/gpu/staging.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Hooks get the element's number in the user's buffer, not in the piece.
template <class Op>
struct shifted_op : op_wrapper<Op> {
    device::staging_range in, out;

    template <class X>
    requires has_pre_v<Op, X>
    constexpr X pre(const X& x, hook_context c) const {
        c.index = in.index(c.index);
        return apply_pre(this->op, x, c);
    }
    template <class X>
    requires has_post_v<Op, X>
    constexpr X post(const X& x, hook_context c) const {
        c.index = out.index(c.index);
        return apply_post(this->op, x, c);
    }
};

struct staged_call {
    template <collective C, class Call, class In, class Out, class Op>
    static void run(const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s) {
        using in_type = element_of<In>;
        using out_type = element_of<Out>;
        if (call.core().settings.checked != 0) by_kernel::compare<C, Op, out_type>(call, s.count, 0);
        if constexpr (Call::policies::template has_algorithm<C>)
            by_kernel::refuse_peers_buffers(call, policies_of(call.comm).template algorithm<C>());
        const auto n = static_cast<std::size_t>(call.g.size());
        const std::size_t per_in = (s.in_parts ? n : 1) * sizeof(in_type),
                          per_out = (s.out_parts ? n : 1) * sizeof(out_type);
        staged_pieces<typename Call::runtime> pieces(call.g, call.o.stream, call.stream.is_capturing,
                                                     call.timeout_ns());
        const std::size_t most = pieces.room(per_in > per_out ? per_in : per_out);
        const std::size_t count = (s.count + most - 1) / most;
        const auto range = [&](std::size_t k, bool parts, std::size_t at) {
            device::staging_range r;
            r.count = s.count - k * most < most ? s.count - k * most : most;
            r.at = at + k * most;
            r.pitch = s.count;
            r.blocks = parts ? static_cast<unsigned>(n) : 1;
            return r;
        };
        const bool takes_nothing = (C == collective::reduce && call.o.root != call.g.rank()) ||
                                   (C == collective::exclusive_scan && call.g.rank() == 0);
        for (std::size_t k = 0; k <= count; ++k) {
            if (k < count) {
                const auto from = range(k, s.in_parts, s.in_at), to = range(k, s.out_parts, s.out_at);
                pieces.template put<in_type>(in, from, order_for<C, in_type, out_type>(call, op, from, to));
            }
            if (k == 0) continue;
            auto to = range(k - 1, s.out_parts, s.out_at);
            if (takes_nothing) to.count = 0; // take() still waits
            pieces.take(out, to);
        }
    }

    // reduce_scatter_v. A piece is a range of the whole buffer and may span several parts.
    template <class Call, class In, class Out, class Op>
    static void reduce_parts(const Call& call, const In& in, const Out& out, const Op& op, const count_table& t) {
        using in_type = element_of<In>;
        using out_type = element_of<Out>;
        if (call.core().settings.checked != 0)
            by_kernel::compare<collective::reduce_scatter, Op, out_type>(call, 0, t.hash());
        staged_pieces<typename Call::runtime> pieces(call.g, call.o.stream, call.stream.is_capturing,
                                                     call.timeout_ns());
        const std::size_t most = pieces.room(sizeof(in_type) > sizeof(out_type) ? sizeof(in_type) : sizeof(out_type));
        device::staging_range last;
        for (std::size_t at = 0; at < t.end(); at += most) {
            device::staging_range from, to;
            from.at = at;
            from.count = t.end() - at < most ? t.end() - at : most;
            std::vector<std::size_t> inside; // elements of each rank's part in this piece
            for (std::size_t k = 0; k < static_cast<std::size_t>(call.g.size()); ++k) {
                const std::size_t begin = t.offsets()[k] > at ? t.offsets()[k] : at;
                const std::size_t part_end = t.offsets()[k] + t.sizes()[k], piece_end = at + from.count;
                const std::size_t end = part_end < piece_end ? part_end : piece_end;
                inside.push_back(end > begin ? end - begin : 0);
                if (static_cast<int>(k) == call.g.rank() && end > begin) {
                    to.at = begin - t.offsets()[k];
                    to.count = end - begin;
                }
            }
            pieces.template put<in_type>(
                in, from,
                order_on<in_type, out_type>(call, from.size(), to.size(),
                                            [op, from, to, inside](auto& c, auto x, auto y, const call_options& with) {
                                                reduce_scatter_v(c, x, y, inside, with_numbers<in_type>(op, from, to),
                                                                 with);
                                            }));
            if (at != 0) pieces.take(out, last);
            last = to;
        }
        if (t.end() != 0) pieces.take(out, last);
    }

private:
    // The order for the proxy: runs the same verb on views of the staging buffers.
    template <collective C, class InType, class OutType, class Call, class Op>
    static gpu_proxy::order order_for(const Call& call, const Op& op, const device::staging_range& from,
                                      const device::staging_range& to) {
        const auto as_order = [&](auto f) { return order_on<InType, OutType>(call, from.size(), to.size(), f); };
        if constexpr (C == collective::all_gather)
            return as_order([](auto& c, auto in, auto out, const call_options& with) { all_gather(c, in, out, with); });
        else if constexpr (C == collective::all_to_all)
            return as_order([](auto& c, auto in, auto out, const call_options& with) { all_to_all(c, in, out, with); });
        else if constexpr (C == collective::broadcast)
            return as_order([](auto& c, auto in, auto out, const call_options& with) {
                if (c.rank() == with.root) std::memcpy(out.data(), in.data(), in.size() * sizeof(InType));
                broadcast(c, out, with);
            });
        else
            return as_order([op, from, to](auto& c, auto in, auto out, const call_options& with) {
                call_reduction<C>(c, in, out, with_numbers<InType>(op, from, to), with);
            });
    }
    // An order that calls f(the proxy's communicator with the same policies, views of the staging buffers, options).
    template <class InType, class OutType, class Call, class F>
    static gpu_proxy::order order_on(const Call& call, std::size_t in_count, std::size_t out_count, F f) {
        const call_options with{.timeout = call.o.timeout, .root = call.o.root};
        return order_on_views<InType, OutType>(
            call, with, call.core().settings.timeout_ns, in_count, out_count,
            [](communicator& side, const auto& then) { then(side); }, f);
    }
    template <collective C, class Comm, class In, class Out, class Op>
    static void call_reduction(Comm& c, const In& in, const Out& out, const Op& op, const call_options& with) {
        if constexpr (C == collective::all_reduce) all_reduce(c, in, out, op, with);
        else if constexpr (C == collective::reduce_scatter) reduce_scatter(c, in, out, op, with);
        else if constexpr (C == collective::scan) scan(c, in, out, op, with);
        else if constexpr (C == collective::exclusive_scan) exclusive_scan(c, in, out, op, with);
        else reduce(c, in, out, op, with);
    }
    template <class T, class Op>
    static auto with_numbers(const Op& op, const device::staging_range& in, const device::staging_range& out) {
        if constexpr (has_pre_v<Op, T> || has_post_v<Op, accumulator_t<T>>) return shifted_op<Op>{{op}, in, out};
        else return op;
    }
};

} // namespace detail
COLLX_END_NAMESPACE
