// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an algorithm may ask about a reduction operator; the wrappers that change the answers are in op_hooks.hpp. An
// operator is any callable `op(a, b)` on elements, or `op(in, inout, n)` on arrays. Of an unknown callable collx
// assumes only associativity, which every reduction needs, and not commutativity, which some algorithms could use;
// `commutative(f)` declares it.
//
// An operator has these members, or `op_traits<Op>` has them for an operator that cannot be changed:
//     static constexpr bool is_commutative, is_associative, is_exact, is_vectorisable;
//     static constexpr T identity();                       // or a template <class T>
// and, where the answer depends on the element type, `template <class T> static constexpr bool is_commutative_for` etc.
// It must not know any algorithm; the shipped operators are in op.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/element.hpp>
#include <collx/core/vector_ext.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Specialise for an operator that you do not own.
// Example: template <> struct collx::op_traits<their::join> { static constexpr bool is_commutative = true; };
template <class Op>
struct op_traits {
    using unspecialised = void;
};

// What a hook may use beside the value: the number of ranks, and the index of the element in the buffer.
struct hook_context {
    int nranks;
    std::size_t index;
};

struct plus;
struct multiplies;
struct bit_and;
struct bit_or;
struct bit_xor;
struct logical_and;
struct logical_or;

namespace detail {

// std::plus and similar classes are recognised by name: <functional>, where they are defined, costs 0.3 s, and they
// have no members that would tell plus from minus. Accepts both `std::plus<void>` and `std::__1::plus<int>`.
constexpr bool names_std_op(name_view name, name_view op) noexcept {
    if (!name.starts_with("std::") || name[name.size() - 1] != '>') return false;
    name = name.substr(5);
    if (name.starts_with("__") && name.find("::") != name_view::npos) name = name.substr(name.find("::") + 2);
    return name.size() > op.size() + 1 && name.starts_with(op) && name[op.size()] == '<';
}

template <class Op>
constexpr auto op_source_type() {
    constexpr name_view name = type_name<Op>();
    if constexpr (!requires { typename op_traits<Op>::unspecialised; }) return std::type_identity<op_traits<Op>>{};
    else if constexpr (names_std_op(name, "plus")) return std::type_identity<plus>{};
    else if constexpr (names_std_op(name, "multiplies")) return std::type_identity<multiplies>{};
    else if constexpr (names_std_op(name, "bit_and")) return std::type_identity<bit_and>{};
    else if constexpr (names_std_op(name, "bit_or")) return std::type_identity<bit_or>{};
    else if constexpr (names_std_op(name, "bit_xor")) return std::type_identity<bit_xor>{};
    else if constexpr (names_std_op(name, "logical_and")) return std::type_identity<logical_and>{};
    else if constexpr (names_std_op(name, "logical_or")) return std::type_identity<logical_or>{};
    else return std::type_identity<Op>{};
}

// The type whose members describe Op.
template <class Op>
using op_source = typename decltype(op_source_type<std::remove_cvref_t<Op>>())::type;

// What S says of an operator on elements T: the member is_NAME_for<T>, or is_NAME; OTHERWISE, where it has neither.
#define COLLX_SAYS(NAME, OTHERWISE)                                                                      \
    template <class S, class T>                                                                          \
    constexpr bool says_##NAME() {                                                                       \
        if constexpr (requires { typename std::bool_constant<S::template is_##NAME##_for<T>>; })         \
            return S::template is_##NAME##_for<T>;                                                       \
        else if constexpr (requires { typename std::bool_constant<S::is_##NAME>; }) return S::is_##NAME; \
        else return OTHERWISE;                                                                           \
    }
COLLX_SAYS(commutative, false)
COLLX_SAYS(associative, true)
COLLX_SAYS(exact, false)
COLLX_SAYS(vectorisable, false)
#undef COLLX_SAYS

template <class S, class T>
concept has_typed_identity = requires {
    { S::template identity<T>() } -> std::convertible_to<T>;
};
template <class S, class T>
concept has_plain_identity = requires {
    { S::identity() } -> std::convertible_to<T>;
};

template <class Op, class T>
constexpr bool takes_short_vectors() {
    if constexpr (is_lane_v<T>) {
        using vector = short_vector_t<T, 16>;
        return std::is_invocable_r_v<vector, const Op&, const vector&, const vector&>;
    } else {
        return false;
    }
}

} // namespace detail

// Whether op(a, b) equals op(b, a). False for a callable about which nothing is known.
template <class Op, class T>
inline constexpr bool is_commutative_v = detail::says_commutative<detail::op_source<Op>, T>();

// Whether op(op(a, b), c) equals op(a, op(b, c)), up to rounding. True for every operator that does not say otherwise.
template <class Op, class T>
inline constexpr bool is_associative_v = detail::says_associative<detail::op_source<Op>, T>();

// Whether any grouping (and, if commutative, any order) gives the same bits: integer sums, minima; not sums of floats.
template <class Op, class T>
inline constexpr bool is_exact_v = detail::says_exact<detail::op_source<Op>, T>();

// Whether op may be called on short vectors of T, element by element. Says nothing about hooks.
template <class Op, class T>
inline constexpr bool
    is_vectorisable_v = detail::says_vectorisable<detail::op_source<Op>, T>() && detail::takes_short_vectors<Op, T>();

// Whether the operator declares a value that changes no operand: identity<T>() or identity().
template <class Op, class T>
inline constexpr bool has_identity_v =
    detail::has_typed_identity<detail::op_source<Op>, T> || detail::has_plain_identity<detail::op_source<Op>, T>;

// The value e with op(e, x) == x == op(x, e).
template <class Op, class T>
requires has_identity_v<Op, T> COLLX_HD constexpr T identity() {
    if constexpr (detail::has_typed_identity<detail::op_source<Op>, T>)
        return detail::op_source<Op>::template identity<T>();
    else return detail::op_source<Op>::identity();
}

namespace detail {
// Whether Op is callable on two elements of type A, with a result that converts to one.
template <class Op, class A>
concept combines_two = std::is_invocable_r_v < A,
        const std::remove_cvref_t<Op>
&, const A&, const A& > ;

struct some_call {
    void operator()();
};
template <class Op>
struct named_twice : Op, some_call {};
template <class Op>
concept has_call_operator = std::is_class_v<Op> && !std::is_final_v<Op> && !requires {
    &named_twice<Op>::operator();
};
template <class Op>
struct beside_three : Op {
    using Op::operator();
    template <class A, class B, class C>
    int operator()(A, B, C) const;
};
// What is asked whether Op takes arrays. The result of [](auto... v) { return (v + ...); } on arrays is unknown until
// its body is compiled, for pointers. So three parameters stand beside it: they are preferred to any number of
// parameters, but not to those of an operator of arrays.
template <class Op, class T>
using asked_for_arrays = std::conditional_t<combines_two<Op, T> && has_call_operator<Op>, beside_three<Op>, Op>;
} // namespace detail

// An operator that takes arrays: op(const T* in, T* inout, std::size_t n) makes inout[i] = in[i] op inout[i] for all i.
// It returns nothing: what returns something takes two elements and has a third parameter of its own. One call takes
// up to 8 KiB, or one element that is longer; the arrays never overlap. An operator that takes both elements and arrays
// is called with arrays; one that takes elements in any number, with two.
template <class Op, class T>
concept ArrayOp = requires(const detail::asked_for_arrays<std::remove_cvref_t<Op>, T>& op, const T* in, T* inout,
                           std::size_t n) {
    requires std::is_void_v<decltype(op(in, inout, n))>;
};

// The type in which Op combines elements of type T: accumulator_t<T>, unless Op takes arrays of T only.
template <class Op, class T>
using combined_t = std::conditional_t<ArrayOp<Op, T> && !ArrayOp<Op, accumulator_t<T>>, T, accumulator_t<T>>;

// A reduction operator on elements T: it takes two T, or two accumulator_t<T>, or arrays of either.
template <class Op, class T>
concept ReduceOp = ((detail::combines_two<Op, T> ||
                     detail::combines_two<Op, accumulator_t<T>>)&&std::is_copy_assignable_v<T>) ||
                   ArrayOp<Op, T> || ArrayOp<Op, accumulator_t<T>>;

// Refuses, with a message, a callable that cannot reduce T. Verbs call it before they use the operator.
template <class Op, class T>
constexpr void require_reduce_op() {
    require_element<T>();
    constexpr bool assigns = ArrayOp<Op, T> || std::is_copy_assignable_v<T>;
    static_assert(assigns, "collx: sums are assigned to elements, and this element type cannot be assigned.");
    // For a concept compilers would list every unmet requirement.
    constexpr bool combines = ReduceOp<Op, T> || !assigns;
    static_assert(combines,
                  "collx: this reduction operator cannot combine two elements. It must be callable on a const operator "
                  "object as op(const T&, const T&) and return something that converts to T. An operator of arrays is "
                  "called as op(const T* in, T* inout, std::size_t n) and returns nothing.");
    static_assert(
        std::is_copy_constructible_v<std::remove_cvref_t<Op>>,
        "collx: this reduction operator can only be moved, and a call keeps a copy of it. Let it refer to what "
        "it owns: collx::all_reduce(world, x, [&op](auto a, auto b) { return op(a, b); }).");
}

// Refuses, with a message, an operator whose operands an algorithm would have to swap.
template <class Op, class T>
constexpr void require_commutative() {
    static_assert(is_commutative_v<Op, T>,
                  "collx: this algorithm changes the order of the operands, and the operator is not known to be "
                  "commutative. If op(a, b) equals op(b, a), say so with collx::commutative(op); otherwise choose an "
                  "algorithm that keeps rank order.");
}

// The name of an operator in messages, and a number by which ranks compare their operators.
template <class Op>
constexpr name_view op_name() noexcept {
    name_view name = type_name<std::remove_cvref_t<Op>>();
    if (name.starts_with("collx::")) name = name.substr(7);
    return name.starts_with("v0::") ? name.substr(4) : name;
}
template <class Op>
constexpr std::uint64_t op_hash() noexcept {
    return detail::spelling_hash(op_name<Op>());
}

// A hash of element type and operator that does not depend on the compiler: types other than numbers count by their
// size only, and all operators of the program count as one.
template <class T, class Op>
constexpr std::uint64_t kind_hash() noexcept {
    constexpr name_view name = type_name<Op>();
    bool is_plain = name.starts_with("collx::"); // compilers spell template arguments differently
    for (const char c : name) is_plain = is_plain && c != '<' && c != '(';
    std::uint64_t h = is_plain ? op_hash<Op>() : 0;
    if constexpr (std::is_arithmetic_v<T>) h ^= type_hash<T>();
    return (h ^ sizeof(T)) * 0x9e37'79b9'7f4a'7c15;
}

COLLX_END_NAMESPACE
