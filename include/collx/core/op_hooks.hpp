// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hooks and wrappers of operators. A hook changes single elements in the pass that reduces: `pre` is applied once to
// each rank's own contribution before it is combined, `post` once to each finished result. So scaling, casting or
// adding a bias needs no separate pass. The wrappers keep all other properties of the wrapped operator. It must not
// know when an executor calls the hooks.
#pragma once

#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/op_traits.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Op, class X>
concept has_plain_pre = requires(const Op& op, const X& x) {
    op.pre(x);
};
template <class Op, class X>
concept has_context_pre = requires(const Op& op, const X& x, hook_context context) {
    op.pre(x, context);
};

// Calls a user's hook, with the context if it takes one.
COLLX_EXEC_CHECK_DISABLE
template <class F, class X>
COLLX_HD constexpr decltype(auto) call_hook(const F& f, const X& x, hook_context context) {
    if constexpr (std::is_invocable_v<const F&, const X&, hook_context>) return f(x, context);
    else return f(x);
}

template <class F, class X>
concept hook_of = std::is_invocable_v<const F&, const X&> || std::is_invocable_v<const F&, const X&, hook_context>;

} // namespace detail

// Whether the operator has a hook for contributions of type X.
template <class Op, class X>
inline constexpr bool has_pre_v = detail::has_plain_pre<Op, X> || detail::has_context_pre<Op, X>;
// Whether it has a hook for results of type X.
template <class Op, class X>
inline constexpr bool has_post_v = requires(const Op& op, const X& x, hook_context context) {
    op.post(x, context);
};

// Applies the operator's hook for contributions, or for results. Returns x itself if there is no such hook.
COLLX_EXEC_CHECK_DISABLE
template <class Op, class X>
COLLX_HD constexpr X apply_pre(const Op& op, const X& x, [[maybe_unused]] hook_context context) {
    if constexpr (detail::has_context_pre<Op, X>) return static_cast<X>(op.pre(x, context));
    else if constexpr (detail::has_plain_pre<Op, X>) return static_cast<X>(op.pre(x));
    else return x;
}
COLLX_EXEC_CHECK_DISABLE
template <class Op, class X>
COLLX_HD constexpr X apply_post(const Op& op, const X& x, [[maybe_unused]] hook_context context) {
    if constexpr (has_post_v<Op, X>) return static_cast<X>(op.post(x, context));
    else return x;
}

// Holds an operator and has its properties, but not its hooks. (No [[no_unique_address]]: nvcc cannot pass such an
// empty object to a kernel.)
template <class Op>
struct bare_op {
    Op op;

    template <class T>
    static constexpr bool is_commutative_for = is_commutative_v<Op, T>;
    template <class T>
    static constexpr bool is_associative_for = is_associative_v<Op, T>;
    template <class T>
    static constexpr bool is_exact_for = is_exact_v<Op, T>;
    template <class T>
    static constexpr bool is_vectorisable_for = is_vectorisable_v<Op, T>;

    template <class T>
    requires has_identity_v<Op, T> COLLX_HD static constexpr T identity() { return collx::identity<Op, T>(); }

    COLLX_EXEC_CHECK_DISABLE
    template <class A, class B>
    requires std::is_invocable_v<const Op&, const A&, const B&> COLLX_HD constexpr decltype(auto)
    operator()(const A& a, const B& b) const {
        return op(a, b);
    }
    template <class T>
    requires ArrayOp<Op, T>
    constexpr void operator()(const T* in, T* inout, std::size_t n) const { op(in, inout, n); }
};

// The same with the operator's hooks. The wrappers below derive from it, and each changes one property.
template <class Op>
struct op_wrapper : bare_op<Op> {
    using bare_op<Op>::op;

    COLLX_EXEC_CHECK_DISABLE
    template <class X>
    requires detail::has_plain_pre<Op, X> COLLX_HD constexpr decltype(auto) pre(const X& x) const { return op.pre(x); }
    COLLX_EXEC_CHECK_DISABLE
    template <class X>
    requires detail::has_context_pre<Op, X> COLLX_HD constexpr decltype(auto) pre(const X& x,
                                                                                  hook_context context) const {
        return op.pre(x, context);
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class X>
    requires has_post_v<Op, X> COLLX_HD constexpr decltype(auto) post(const X& x, hook_context context) const {
        return op.post(x, context);
    }
};

// The result of commutative(op).
template <class Op>
struct commutative_op : op_wrapper<Op> {
    template <class T>
    static constexpr bool is_commutative_for = true;
};

// An operator with a hook that is called on each contribution, before the operator's own.
template <class Op, class F>
struct with_pre_op : op_wrapper<Op> {
    F hook;

    COLLX_EXEC_CHECK_DISABLE
    template <class X>
    requires(std::is_invocable_v<const F&, const X&> && !detail::has_context_pre<Op, X>)
        COLLX_HD constexpr auto pre(const X& x) const {
        return apply_pre(this->op, static_cast<X>(hook(x)), hook_context{});
    }
    template <class X>
    requires detail::hook_of<F, X> COLLX_HD constexpr auto pre(const X& x, hook_context context) const {
        return apply_pre(this->op, static_cast<X>(detail::call_hook(hook, x, context)), context);
    }
};

// An operator with a hook that is called on each result, after the operator's own.
template <class Op, class F>
struct with_post_op : op_wrapper<Op> {
    F hook;

    template <class X>
    requires detail::hook_of<F, X> COLLX_HD constexpr auto post(const X& x, hook_context context) const {
        return static_cast<X>(detail::call_hook(hook, apply_post(this->op, x, context), context));
    }
};

// Declares that op(a, b) equals op(b, a): algorithms may then reorder operands.
template <class Op>
COLLX_HD constexpr commutative_op<Op> commutative(Op op) {
    return {{{static_cast<Op&&>(op)}}};
}

// op, with f applied to each contribution, before op's own pre hook if it has one.
// Requires: f(x) or f(x, hook_context) returns something that converts to the type of x.
// Example: with_pre(plus{}, [](float x) { return x * x; })  sums squares.
template <class Op, class F>
COLLX_HD constexpr with_pre_op<Op, F> with_pre(Op op, F f) {
    return {{{static_cast<Op&&>(op)}}, static_cast<F&&>(f)};
}

// op, with f applied to each result, after op's own post hook if it has one.
template <class Op, class F>
COLLX_HD constexpr with_post_op<Op, F> with_post(Op op, F f) {
    return {{{static_cast<Op&&>(op)}}, static_cast<F&&>(f)};
}

COLLX_END_NAMESPACE
