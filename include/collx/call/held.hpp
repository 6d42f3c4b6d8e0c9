// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What must stay alive and in place while a call is under way: buffers that were moved into it, and tables of counts.
// `keep` moves the arguments that an async call would otherwise lose into the call.
#pragma once

#include <span> // std::ranges::enable_borrowed_range, of whose headers it costs least
#include <type_traits>
#include <utility>

#include <collx/core/buffer.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/count_table.hpp>
#include <collx/job/call_record.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// How a verb runs: blocking, as work, with errors as values, or any number of times (persistent.hpp).
struct blocking_mode {};
struct async_mode {};
struct try_mode {};
struct persistent_mode {};

template <class Mode>
inline constexpr call_kind call_kind_of = std::is_same_v<Mode, persistent_mode> ? call_kind::persistent
                                          : std::is_same_v<Mode, async_mode>    ? call_kind::async
                                                                                : call_kind::blocking;

// Of what is compared before the call: making a persistent call compares it.
template <class Mode>
inline constexpr call_kind kind_of_comparison =
    std::is_same_v<Mode, persistent_mode> ? call_kind::made : call_kind_of<Mode>;

// Whether a call continues after the statement that makes it.
template <class Mode>
inline constexpr bool outlives_statement_v = std::is_same_v<Mode, async_mode> || std::is_same_v<Mode, persistent_mode>;

// Whether an argument is a temporary that owns its elements. X: as deduced for X&&. For types with traits or members
// of their own this cannot be known; then the answer is `unknown`.
template <class X>
constexpr bool owns_elements(bool unknown) {
    using plain = std::remove_cvref_t<X>;
    constexpr seen_as kind = how_seen_v<std::remove_reference_t<X>>;
    if constexpr (std::is_lvalue_reference_v<X>) return false;
    else if constexpr (kind == seen_as::matrix && requires { typename plain::PlainObject; })
        return std::is_same_v<typename plain::PlainObject, plain>; // else a Map or a Block of other memory
    else if constexpr (kind == seen_as::wrapped || kind == seen_as::contiguous || kind == seen_as::computed)
        return !std::ranges::enable_borrowed_range<plain>;
    else if constexpr (kind == seen_as::traits || kind == seen_as::member || kind == seen_as::free_function)
        return unknown;
    else return false;
}

// Whether X is a lazy view that can be kept by value: its iterators refer to it, and a copy costs little and reads the
// same memory. (Views of range-v3 are known by their name, because none of their headers is needed here.) A container
// whose elements are computed is none: the program may change it until the call reads it.
template <class X>
constexpr bool is_lazy_view() {
    using plain = std::remove_cvref_t<X>;
    if constexpr (how_seen_v<std::remove_reference_t<X>> != seen_as::computed ||
                  std::ranges::enable_borrowed_range<plain> || !std::is_constructible_v<plain, X>)
        return false;
    else return std::ranges::enable_view<plain> || type_name<plain>().starts_with("ranges::");
}

struct nothing {};

// R: the type that wait() returns.
template <class R>
struct held_operation {
    std::conditional_t<std::is_void_v<R>, nothing, R> held;
    count_tables tables; // of v-variants
};
// The same, and an input that was moved or copied into the call.
template <class R, class In>
struct held_with_input : held_operation<R> {
    In in;
};

template <class Mode, class X>
inline constexpr bool is_moved_in_v = outlives_statement_v<Mode> && (owns_elements<X>(true) || is_lazy_view<X>());

template <class X>
constexpr void require_movable() {
    static_assert(std::is_move_constructible_v<std::remove_cv_t<X>>,
                  "collx: this call continues after the statement that starts it, until wait(), and one of its buffers "
                  "is a temporary that can "
                  "neither be moved nor copied into the call. Keep it in a variable.");
}

// Refuses a temporary as the output of a persistent call: the program could not read the result.
template <class Mode, class Out>
constexpr void require_reachable() {
    static_assert(!std::is_same_v<Mode, persistent_mode> || !owns_elements<Out>(false),
                  "collx: this call is made again and again, and its output is a temporary that the program cannot "
                  "read. Keep it in a variable, or pass a view of memory that stays.");
}

// The buffers of one call while it runs: in the program's variables or, if they were moved in, in `held`.
template <class R = void, class Out = nothing, class In = nothing>
struct kept_buffers {
    counted_ptr<held_operation<R>> held; // null: nothing is held
    Out* out = nullptr;
    In* in = nullptr;
    // The tables of a v-variant. An outstanding call has its own; blocking calls reuse the communicator's and allocate
    // nothing.
    template <class Core>
    count_tables& tables(Core& c) const {
        return held ? held->tables : c.tables;
    }
};

// Moves temporaries that own their elements into an async or persistent call: wait() returns the output, and the input
// lives as long as the handle. Lazy views are copied into it. Everything else stays where it is. In, Out: as deduced
// for In&&, Out&&. Tables: whether the call uses count_tables.
template <class Mode, class In, class Out, bool Tables = false>
auto keep(std::remove_reference_t<In>& in, std::remove_reference_t<Out>& out) {
    constexpr bool holds_in = is_moved_in_v<Mode, In>, holds_out = is_moved_in_v<Mode, Out>;
    using plain_in = std::remove_cv_t<std::remove_reference_t<In>>;
    using plain_out = std::remove_cv_t<std::remove_reference_t<Out>>;
    using result = std::conditional_t<holds_out, plain_out, void>;
    using buffers = kept_buffers<result, std::remove_reference_t<Out>, std::remove_reference_t<In>>;
    require_reachable<Mode, Out>();
    if constexpr (holds_in) {
        require_movable<plain_in>();
        if constexpr (holds_out) {
            require_movable<plain_out>();
            auto all = make_counted<held_with_input<result, plain_in>>(
                held_with_input<result, plain_in>{{std::move(out), {}}, static_cast<In&&>(in)});
            return buffers{all, &all->held, &all->in};
        } else {
            auto all = make_counted<held_with_input<result, plain_in>>(
                held_with_input<result, plain_in>{{{}, {}}, static_cast<In&&>(in)});
            return buffers{all, &out, &all->in};
        }
    } else if constexpr (holds_out) {
        require_movable<plain_out>();
        auto all = make_counted<held_operation<result>>(held_operation<result>{std::move(out), {}});
        return buffers{all, &all->held, &in};
    } else if constexpr (Tables && outlives_statement_v<Mode>) {
        return buffers{make_counted<held_operation<void>>(), &out, &in};
    } else {
        return buffers{nullptr, &out, &in};
    }
}
// The same for one buffer that is both input and output.
template <class Mode, class X, bool Tables = false>
auto keep(std::remove_reference_t<X>& x) {
    static nothing none;
    return keep<Mode, nothing&, X, Tables>(none, x);
}

} // namespace detail

COLLX_END_NAMESPACE
