// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of any.hpp: the table of loops, and the typed verbs on cells of 1, 2, 4, 8 and 16 bytes. Compiled once.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/call/check_call.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/any.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/gather.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_scatter.hpp>
#include <collx/comm/scan.hpp>
#include <collx/comm/scatter.hpp>
#include <collx/comm/send_recv.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/any_op.hpp>
#include <collx/exec/loops.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// ------------------------------------------------------------------ the table
template <class... X>
struct type_list {};
using any_types =
    type_list<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
              std::uint64_t, f16, bf16, float, double, bool, std::complex<float>, std::complex<double>>;
using any_ops = type_list<plus, multiplies, min, max, bit_and, bit_or, bit_xor, logical_and, logical_or, logical_xor>;

template <class T, class Op>
constexpr bool combines() {
    constexpr bool is_number = std::is_integral_v<T> || std::is_floating_point_v<T> || is_half_v<T>;
    if constexpr (std::is_same_v<Op, plus> || std::is_same_v<Op, multiplies>) return !std::is_same_v<T, bool>;
    else if constexpr (std::is_same_v<Op, min> || std::is_same_v<Op, max>) return is_number;
    else if constexpr (std::is_base_of_v<logical_op, Op>) return is_number;
    else return std::is_integral_v<T>;
}
template <class T, class Op>
void combine_elements(const void* a, const void* b, void* out, std::size_t n) {
    const T* both[2] = {static_cast<const T*>(a), static_cast<const T*>(b)};
    fold_fixed<2>(Op{}, static_cast<T*>(out), both, n);
}
template <class T, class Op>
constexpr any_loop loop_for() {
    any_loop l{nullptr, kind_hash<T, Op>(), static_cast<std::uint32_t>(type_hash<T>()),
               static_cast<std::uint32_t>(op_hash<Op>())};
    // Halves use float's loops; a loop that is not null says that the operator combines them.
    using number = std::conditional_t<is_half_v<T>, float, T>;
    if constexpr (combines<T, Op>()) l.combine = &combine_elements<number, Op>;
    return l;
}
struct any_table {
    any_loop loops[any_type_count][any_op_count];
};
template <class T, class... Ops>
constexpr void fill_row(any_loop* row, type_list<Ops...>) {
    int i = 0;
    ((row[i++] = loop_for<T, Ops>()), ...);
}
template <class... T>
constexpr any_table make_any_table(type_list<T...>) {
    static_assert(sizeof...(T) == any_type_count);
    any_table t{};
    int i = 0;
    (fill_row<T>(t.loops[i++], any_ops{}), ...);
    return t;
}

COLLX_ONCE const any_loop& any_loop_of(any_type t, any_op op) {
    static constexpr any_table table = make_any_table(any_types{});
    return table.loops[static_cast<int>(t)][static_cast<int>(op)];
}

// ------------------------------------------------------------------ the calls
// In a rooted call, a rank may pass anything as a buffer that it neither reads nor writes: it counts as an empty
// buffer of the other buffer's type.
inline any_request without_unused(int me, any_request r) {
    const verb_row& row = row_of(r.what);
    auto& [in, out, in_place] = r.on;
    if (!row.is_rooted() || in_place) return r;
    if (!has_input(row, me, r.options.root)) in = {nullptr, 0, out.type};
    if (!has_output(row, me, r.options.root)) out = {nullptr, 0, in.type};
    return r;
}
inline void require_any_buffer(int me, const any_buffer& b, const char* which) {
    const std::size_t bytes = size_of(b.type), align = b.type == any_type::complex64    ? 4
                                                       : b.type == any_type::complex128 ? 8
                                                                                        : bytes;
    if (bytes == 0)
        fail(errc::invalid_argument, me, -1, "types are the values of collx::any_type",
             "the %s buffer has the type number %d, which is none", which, static_cast<int>(b.type));
    if (reinterpret_cast<std::uintptr_t>(b.data) % align != 0)
        fail(errc::invalid_argument, me, -1, "allocate it for that type, or copy it",
             "the %s buffer is not aligned for %s", which, name_of(b.type));
}
inline void require_any(int me, const any_request& r) {
    const auto& [in, out, in_place] = r.on;
    require_any_buffer(me, in, in_place ? "only" : "input");
    require_any_buffer(me, out, "output");
    if (in.type != out.type)
        fail(errc::invalid_argument, me, -1, "give both the same type",
             "the input has elements of %s, the output of %s", name_of(in.type), name_of(out.type));
    if (!row_of(r.what).reduces()) return;
    if (static_cast<int>(r.op) >= any_op_count)
        fail(errc::invalid_argument, me, -1, "operators are the values of collx::any_op",
             "the operator has the number %d, which is none", static_cast<int>(r.op));
    if (any_loop_of(out.type, r.op).combine == nullptr)
        fail(errc::invalid_argument, me, -1, "use another operator, or another type",
             "%s does not combine elements of %s", name_of(r.op), name_of(out.type));
}

// View: a view of cells.
template <class View>
View cells(const any_buffer& b) {
    return {static_cast<typename View::value_type*>(b.data), b.size};
}

template <class Mode, std::size_t Bytes>
auto call_on_cells(communicator& c, const any_request& r) {
    using view = contiguous_view<cell<Bytes>>;
    const view in = cells<view>(r.on.in), out = cells<view>(r.on.out);
    const call_options& o = r.options;
    // Calls a verb with the request's buffers, then what belongs to the verb.
    const auto call = [&](const auto& verb, const auto&... more) {
        return r.on.in_place ? verb(c, out, more...) : verb(c, in, out, more...);
    };
    const auto reduce = [&](const auto& verb, const auto&... counts) {
        return call(verb, counts..., any_operator<Bytes>(r.on.out.type, r.op), o);
    };
    switch (r.what) {
        case verb::all_reduce: return reduce(all_reduce_fn<Mode>{});
        case verb::reduce: return reduce(reduce_fn<Mode>{});
        case verb::reduce_scatter: return reduce(reduce_scatter_fn<Mode>{});
        case verb::reduce_scatter_v: return reduce(reduce_scatter_v_fn<Mode>{}, r.counts);
        case verb::scan: return reduce(scan_fn<Mode>{});
        case verb::exclusive_scan: return reduce(exclusive_scan_fn<Mode>{});
        case verb::broadcast: return broadcast_fn<Mode>{}(c, out, o);
        case verb::all_gather: return call(all_gather_fn<Mode>{}, o);
        case verb::all_gather_v: return all_gather_v_fn<Mode>{}(c, in, out, r.counts, r.offsets, o);
        case verb::gather: return gather_fn<Mode>{}(c, in, out, o);
        case verb::gather_v: return gather_v_fn<Mode>{}(c, in, out, r.counts, r.offsets, o);
        case verb::scatter: return scatter_fn<Mode>{}(c, in, out, o);
        case verb::scatter_v: return scatter_v_fn<Mode>{}(c, in, out, r.counts, r.offsets, o);
        case verb::all_to_all: return call(all_to_all_fn<Mode>{}, o);
        case verb::send: return send_fn<Mode>{}(c, in, r.peer, o);
        case verb::recv: return recv_fn<Mode>{}(c, out, r.peer, o);
        case verb::sendrecv: return sendrecv_fn<Mode>{}(c, in, r.peer, out, r.from_peer, o);
        default: break;
    }
    const all_to_all_v_fn<Mode> exchange;
    return r.on.in_place ? exchange(c, out, r.counts, r.offsets, o)
                         : exchange(c, in, r.counts, r.offsets, out, r.recv_counts, r.recv_offsets, o);
}
template <class Mode>
auto dispatch_any(communicator& c, const any_request& request) {
    const any_request r = without_unused(c.rank(), request);
    require_any(c.rank(), r);
    switch (size_of(r.on.out.type)) {
        case 1: return call_on_cells<Mode, 1>(c, r);
        case 2: return call_on_cells<Mode, 2>(c, r);
        case 4: return call_on_cells<Mode, 4>(c, r);
        case 8: return call_on_cells<Mode, 8>(c, r);
        default: return call_on_cells<Mode, 16>(c, r);
    }
}

COLLX_ONCE void run_any(communicator& c, const any_request& r) { dispatch_any<blocking_mode>(c, r); }
COLLX_ONCE work<void> start_any(communicator& c, const any_request& r) { return dispatch_any<async_mode>(c, r); }
COLLX_ONCE persistent_call make_any(communicator& c, const any_request& r) {
    return dispatch_any<persistent_mode>(c, r);
}

} // namespace detail

COLLX_END_NAMESPACE
