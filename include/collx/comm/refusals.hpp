// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors of a verb for arguments that it cannot take: what is no tensor, and temporaries that would be gone before a
// group is launched. Without the overloads of `refusals` the compiler would list every form of the verb and why it
// does not fit; with them the error is the sentence that collx::buffer has for the type. Each overload is viable only
// where no form of the verb is. Too few or too many arguments and a misspelt option in braces, which they do not see,
// reach the last overload of `takes`. None of this depends on what a verb does.
#pragma once

#include <type_traits>
#include <utility>

#include <collx/comm/bound_communicator.hpp>
#include <collx/comm/options.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/core/buffer.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Refuses a temporary buffer that would be gone before its group is launched. X: as deduced for X&&.
template <class... X>
constexpr void require_staying() {
    static_assert(
        ((!owns_elements<X>(false) || is_lazy_view<X>()) && ...),
        "collx: this call continues after the statement that starts it, until launch(), and one of its "
        "buffers is a temporary that is gone by then. Keep it in a variable that lives until launch(), or pass "
        "a view of memory that stays.");
}

template <class X>
inline constexpr bool is_function_v = std::is_function_v<std::remove_pointer_t<std::remove_cvref_t<X>>>;

// A tensor that cannot be used as one: a pointer, a list, a vector of bool or of strings. Not a single struct, which
// may be an operator.
template <class X>
concept Unusable = !Buffer<X> && !is_function_v<X> && how_seen_v<std::remove_reference_t<X>> != seen_as::single &&
                   how_seen_v<std::remove_reference_t<X>> != seen_as::unknown;

// A second argument that may be an operator. An array that is meant as output arrives as a pointer and is none.
template <class Op>
concept OpArgument = !Buffer<Op> && !Unusable<Op> && !std::is_arithmetic_v<Op>;

template <bool TakesNumbers, class First, class... Rest>
inline constexpr bool misfit_v = !Buffer<First> || (Unusable<Rest> || ...) ||
                                 (!TakesNumbers && (std::is_arithmetic_v<std::remove_cvref_t<Rest>> || ...));

template <class X>
constexpr void refuse_tensor() {
    using tensor = std::remove_reference_t<X>;
    if constexpr (how_seen_v<tensor> >= seen_as::bits) refuse<tensor>();
    else static_cast<void>(sizeof(decltype(buffer(std::declval<X&>())))); // its elements are wrong
}
template <class X>
constexpr void refuse_unusable() {
    if constexpr (Unusable<X>) refuse_tensor<X>();
}

template <class First, class... Rest>
constexpr void refuse_arguments() {
    if constexpr (!Buffer<First>) refuse_tensor<First>();
    else if constexpr ((Unusable<Rest> || ...)) (refuse_unusable<Rest>(), ...);
    else
        static_assert(Unusable<First>,
                      "collx: a bare number cannot stand here. Options go by name: {.root = 1}; counts are lists with "
                      "one number for each rank; a number to be sent or reduced is collx::value(x).");
}

// TakesNumbers: peers are numbers.
template <bool TakesNumbers = false>
struct refusals {
    template <class First, class... Rest>
    requires(!Communicates<First> && !FusedTeam<First>) void operator()(First&&, Rest&&...) const {
        static_assert(Communicates<First>,
                      "collx: the first argument is the communicator, not const, then come the buffers: "
                      "collx::all_reduce(world, x).");
    }
    template <Communicates Comm, class... Args>
    requires(misfit_v<TakesNumbers, Args...>) void operator()(Comm&&, Args&&...) const { refuse_arguments<Args...>(); }
    // The same for options in braces, whose type a pack does not deduce. The last parameter, which no call gives, keeps
    // these apart from the verbs' own forms, which have the same parameters: clang 14 lets those hide these.
    template <Communicates Comm, class X>
    requires(misfit_v<TakesNumbers, X>) void operator()(Comm&&, X&&, const call_options&, int = 0) const {
        refuse_arguments<X>();
    }
    template <Communicates Comm, class X, class Y>
    requires(misfit_v<TakesNumbers, X, Y>) void operator()(Comm&&, X&&, Y&&, const call_options&, int = 0) const {
        refuse_arguments<X, Y>();
    }
    template <Communicates Comm, class X, class Y, class Z>
    requires(misfit_v<TakesNumbers, X, Y, Z>) void operator()(Comm&&, X&&, Y&&, Z&&, const call_options&,
                                                              int = 0) const {
        refuse_arguments<X, Y, Z>();
    }
};

// What the forms of a verb have in common, for the sentence below.
enum class call_form { movement, reduction, counted, message, exchange, graph, signal, any };

#define COLLX_NO_FORM(TAKES)                                                                                          \
    "collx: no form of this verb takes these arguments. It takes the communicator, " TAKES "and options by name. Is " \
    "an argument missing, an option misspelt, a time without its unit (5s)?"
template <call_form F, class First>
constexpr bool refuse_call() {
    constexpr bool holds = sizeof(First*) == 0;
    static_assert(holds || F != call_form::movement, COLLX_NO_FORM("a buffer, or an input and an output, "));
    static_assert(holds || F != call_form::reduction,
                  COLLX_NO_FORM("a buffer, or an input and an output, then one operator (the sum if there is none), "));
    static_assert(holds || F != call_form::counted,
                  COLLX_NO_FORM("an input and an output with lists of counts (and of offsets), "));
    static_assert(holds || F != call_form::message, COLLX_NO_FORM("a buffer, the peer's rank, "));
    static_assert(holds || F != call_form::exchange,
                  COLLX_NO_FORM("a buffer, the rank to send it to, another, the rank to receive it from, "));
    static_assert(holds || F != call_form::graph,
                  COLLX_NO_FORM("the neighbours {sources, destinations}, an input and an output with their counts, "));
    static_assert(holds || F != call_form::signal, COLLX_NO_FORM("no buffer, "));
    static_assert(holds || F != call_form::any, COLLX_NO_FORM("any_buffers, then what the typed verb takes, "));
    return holds;
}
#undef COLLX_NO_FORM
// Constructed from any first argument of a call that no form takes. A compiler that chooses the overload below must
// know whether this throws before it looks at the other arguments, and so finds the sentence.
template <call_form F>
struct refused_call {
    template <class First>
    refused_call(First&&) noexcept(refuse_call<F, std::remove_reference_t<First>>()) {}
};

// A base of every verb. The ellipsis takes all that no other overload takes, even braces that initialise nothing.
template <call_form F>
struct takes : refusals<F == call_form::message || F == call_form::exchange> {
    using refusals<F == call_form::message || F == call_form::exchange>::operator();
    void operator()(refused_call<F>, ...) const;
};

// A base of the verbs that reduce: options may take the operator's place, and then the operator is the sum.
//   collx::all_reduce(world, x, {.timeout = 5s});
template <class Verb>
struct sums_by_default : takes<call_form::reduction> {
    using takes<call_form::reduction>::operator();

    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, X&& x, const call_options& o) const {
        return verb()(comm, std::forward<X>(x), plus{}, o);
    }
    template <Communicates Comm, HostBuffer In, HostBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const call_options& o) const {
        return verb()(comm, std::forward<In>(in), std::forward<Out>(out), plus{}, o);
    }
    template <Communicates Comm, DeviceBuffer X>
    auto operator()(Comm&& comm, X&& x, const device_call_options& o) const {
        return verb()(comm, std::forward<X>(x), plus{}, o);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const device_call_options& o) const {
        return verb()(comm, std::forward<In>(in), std::forward<Out>(out), plus{}, o);
    }

private:
    const Verb& verb() const { return static_cast<const Verb&>(*this); }
};

} // namespace detail

COLLX_END_NAMESPACE
