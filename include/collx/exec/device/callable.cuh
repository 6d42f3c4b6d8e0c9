// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refuses, at compile time, operators, hooks, conversions and views that a kernel cannot call. Without this nvcc would
// silently leave them out of the kernel, and results would be wrong: code for both sides may call what exists on one
// side only (COLLX_EXEC_CHECK_DISABLE), and nothing behind such code is checked. So what the library's operators,
// wrappers and views do with a program's types is written out here, in functions of the device alone, where nvcc
// refuses what exists on the host only. The functions are never run; their names are part of the compiler's message.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <collx/core/mappings.hpp>
#include <collx/core/op.hpp>
#include <collx/core/views.hpp>
#include <collx/exec/device/args.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// ---------------------------------------------------------------------------------------------- operators
// What an operator of the library, or one that derives from it, does with elements. x: a contribution, a: accumulator.
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const void*, const T&, const A&) {}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const plus*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(a + a));
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const average*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(a + a));
    if constexpr (!std::is_arithmetic_v<A> && !is_short_vector_v<A>)
        static_cast<void>(static_cast<A>(a / static_cast<collx::detail::scalar_of<A>>(hook_context{}.nranks)));
}
template <class Scale, class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const premultiplied_sum<Scale>* op, const T& x, const A& a) {
    static_cast<void>(static_cast<A>(a + a));
    static_cast<void>(static_cast<T>(x * op->scale));
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const multiplies*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(a * a));
}
template <class A>
__device__ void order_must_be_marked_COLLX_HD(const A& a) {
    if constexpr (is_short_vector_v<A>) static_cast<void>(a < a);
    else static_cast<void>(a < a ? a : a);
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const min*, const T&, const A& a) {
    order_must_be_marked_COLLX_HD(a);
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const max*, const T&, const A& a) {
    order_must_be_marked_COLLX_HD(a);
}
template <bool Largest, class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const collx::detail::arg_op<Largest>*, const T&, const A& a) {
    using parts = collx::detail::entry_parts<A>;
    order_must_be_marked_COLLX_HD(parts::value(a));
    order_must_be_marked_COLLX_HD(parts::index(a));
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const bit_and*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(a & a));
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const bit_or*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(a | a));
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const bit_xor*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(a ^ a));
}
template <class T, class A>
__device__ void library_operator_must_be_marked_COLLX_HD(const collx::detail::logical_op*, const T&, const A& a) {
    static_cast<void>(static_cast<A>(static_cast<bool>(a)));
}

// A hook of with_pre() or with_post().
template <class F, class T>
__device__ void hook_must_be_marked_COLLX_HD(const F& f, const T& x) {
    if constexpr (std::is_invocable_v<const F&, const T&, hook_context>)
        static_cast<void>(static_cast<T>(f(x, hook_context{})));
    else if constexpr (std::is_invocable_v<const F&, const T&>) static_cast<void>(static_cast<T>(f(x)));
}

// What an operator is, of the library or of the program; and what a wrapper holds.
template <class Op, class T, class A>
__device__ void operator_must_be_marked_COLLX_HD(const Op& op, const T& x, const A& a);
template <class T, class A>
__device__ void wrapped_operator_must_be_marked_COLLX_HD(const void*, const T&, const A&) {}
template <class Op, class T, class A>
__device__ void wrapped_operator_must_be_marked_COLLX_HD(const bare_op<Op>* w, const T& x, const A& a) {
    operator_must_be_marked_COLLX_HD(w->op, x, a);
}
template <class Op, class F, class T, class A>
__device__ void wrapped_operator_must_be_marked_COLLX_HD(const with_pre_op<Op, F>* w, const T& x, const A& a) {
    operator_must_be_marked_COLLX_HD(w->op, x, a);
    hook_must_be_marked_COLLX_HD(w->hook, x);
}
template <class Op, class F, class T, class A>
__device__ void wrapped_operator_must_be_marked_COLLX_HD(const with_post_op<Op, F>* w, const T& x, const A& a) {
    operator_must_be_marked_COLLX_HD(w->op, x, a);
    hook_must_be_marked_COLLX_HD(w->hook, a);
}
template <class Op, class T, class A>
__device__ void operator_must_be_marked_COLLX_HD(const Op& op, const T& x, const A& a) {
    static_cast<void>(static_cast<A>(op(a, a)));
    if constexpr (collx::detail::has_context_pre<Op, T>) static_cast<void>(static_cast<T>(op.pre(x, hook_context{})));
    else if constexpr (collx::detail::has_plain_pre<Op, T>) static_cast<void>(static_cast<T>(op.pre(x)));
    if constexpr (has_post_v<Op, A>) static_cast<void>(static_cast<A>(op.post(a, hook_context{})));
    library_operator_must_be_marked_COLLX_HD(&op, x, a);
    wrapped_operator_must_be_marked_COLLX_HD(&op, x, a);
}

// ---------------------------------------------------------------------------------------------- conversions
// Between the elements of a buffer, their accumulators and what travels.
template <class To, class From>
__device__ void conversion_must_be_marked_COLLX_HD(const From& x) {
    if constexpr (!std::is_same_v<To, From> && std::is_constructible_v<To, const From&>)
        static_cast<void>(static_cast<To>(x));
}

// ---------------------------------------------------------------------------------------------- views
// The place of an element; the mapping of an mdspan is the program's.
template <class Mapping>
__device__ void mapping_must_be_device_code(const Mapping& m) {
    static_cast<void>(m.offset(std::size_t{}));
}
template <class Mapping, std::size_t... D>
__device__ void layout_must_be_device_code(const Mapping& m, std::index_sequence<D...>) {
    using extents = std::remove_cvref_t<decltype(m.extents())>;
    if constexpr (sizeof...(D) != 0) static_cast<void>(m.extents().extent(typename extents::rank_type{}));
    static_cast<void>(m(static_cast<typename extents::index_type>(D)...));
}
// The numbers of an mdspan's dimensions.
template <class Mapping>
using indices_of =
    std::make_index_sequence<std::remove_cvref_t<decltype(std::declval<const Mapping&>().extents())>::rank()>;
template <class Mapping>
__device__ void mapping_must_be_device_code(const mdspan_mapping<Mapping>& m) {
    layout_must_be_device_code(reinterpret_cast<const Mapping&>(m), indices_of<Mapping>());
}

// How a view of the library finds its elements.
__device__ inline void place_must_be_device_code(const void*) {}
template <class T, class Mapping>
__device__ void place_must_be_device_code(const mapped_view<T, Mapping>* v) {
    mapping_must_be_device_code(v->mapping());
}
template <class Iterator>
__device__ void place_must_be_device_code(const input_view<Iterator>* v) {
    const auto& it = reinterpret_cast<const Iterator&>(*v);
    static_cast<void>(
        static_cast<typename input_view<Iterator>::value_type>(*(it + static_cast<decltype(it - it)>(1))));
}
template <class View>
__device__ void view_must_be_device_code(const View& v) {
    if constexpr (View::is_contiguous) {
        static_cast<void>(v.data());
    } else {
        using value = typename View::value_type;
        static_cast<void>(static_cast<value>(v[std::size_t{}]));
        if constexpr (requires { v.walk(0).next(); }) static_cast<void>(v.walk(0).next());
        if constexpr (View::is_output) v[std::size_t{}] = static_cast<value>(v[std::size_t{}]);
        place_must_be_device_code(&v);
    }
}

// ---------------------------------------------------------------------------------------------- kernels
// Refuses what a kernel of these types cannot call.
template <class Types, class Operands>
__device__ void require_device_code(const Operands& r, const typename Types::acc_type& a) {
    using in = typename Types::in_type;
    using out = typename Types::out_type;
    using wire = typename Types::wire_type;
    using acc = typename Types::acc_type;
    const auto& x = reinterpret_cast<const in&>(a);
    if constexpr (Types::reduces) operator_must_be_marked_COLLX_HD(r.op, x, a);
    view_must_be_device_code(r.in);
    view_must_be_device_code(r.out);
    conversion_must_be_marked_COLLX_HD<acc>(x);
    conversion_must_be_marked_COLLX_HD<wire>(a);
    conversion_must_be_marked_COLLX_HD<acc>(reinterpret_cast<const wire&>(a));
    conversion_must_be_marked_COLLX_HD<out>(a);
}
// The same for the arguments of a launch.
template <class Algorithm, class Types>
__device__ void require_device_code_of(const fused_args<Algorithm, Types>& a) {
    require_device_code<Types>(a.rank(0), typename Types::acc_type{});
}
// The same for a kernel that copies elements between a view and a staging buffer.
template <class Body>
__device__ void require_device_code_of_lanes(const Body& body) {
    if constexpr (requires { body.in; }) {
        using in = std::remove_cvref_t<decltype(body.in)>;
        view_must_be_device_code(body.in);
        conversion_must_be_marked_COLLX_HD<typename Body::value_type>(
            reinterpret_cast<const std::remove_cv_t<typename in::value_type>&>(body));
    }
    if constexpr (requires { body.out; }) view_must_be_device_code(body.out);
}

} // namespace device
COLLX_END_NAMESPACE
