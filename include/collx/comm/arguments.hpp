// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What verbs say of buffers that they cannot take: of types that are none, and of temporaries that would be gone before
// the call is done. Only sentences; nothing here runs.
#pragma once

#include <string_view> // <ranges>' least costly neighbour: it declares std::ranges::enable_borrowed_range
#include <type_traits>

#include <collx/comm/call.hpp>
#include <collx/core/buffer.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Whether what is seen of an X stays when the X goes. Of types with traits or members of their own nobody can tell.
template <class X>
constexpr bool stays_behind() {
    using plain = std::remove_cvref_t<X>;
    constexpr seen_as kind = how_seen_v<std::remove_reference_t<X>>;
    if constexpr (std::is_lvalue_reference_v<X>) return true;
    else if constexpr (kind == seen_as::matrix && requires { typename plain::PlainObject; })
        return !std::is_same_v<typename plain::PlainObject, plain>; // a Map or a Block of some other's memory
    else if constexpr (kind == seen_as::wrapped || kind == seen_as::contiguous || kind == seen_as::computed)
        return std::ranges::enable_borrowed_range<plain>;
    else return true;
}

// Refuses, with a sentence, buffers that are gone before a call that is not done at once. X: as deduced for X&&.
template <class Mode, class... X>
constexpr void require_staying() {
    if constexpr (std::is_same_v<Mode, nonblocking>)
        static_assert((stays_behind<X>() && ...),
                      "collx: this call goes on after its line, until wait() or launch(), and one of its buffers is a "
                      "temporary that is gone by then. Keep it in a variable, or pass a view of memory that stays.");
}

// What stands where a verb has its second buffer and can be none of its other arguments: no operator, no options.
template <class X>
constexpr bool is_no_second_buffer() {
    using plain = std::remove_cvref_t<X>;
    constexpr seen_as kind = how_seen_v<std::remove_reference_t<X>>;
    if constexpr (Buffer<X>) return false;
    else if constexpr (std::is_pointer_v<plain>) return std::is_object_v<std::remove_pointer_t<plain>>;
    else
        return std::is_arithmetic_v<plain> || kind == seen_as::bits || kind == seen_as::untyped ||
               kind == seen_as::unindexed;
}
template <class X>
concept NoSecondBuffer = is_no_second_buffer<X>();

// A verb with a buffer that is none: collx::buffer says why. Options in braces have no type, hence so many forms.
struct refuses_first_buffer {
    template <Communicates Comm, class X, class... Rest>
    requires(!Buffer<X>) void operator()(Comm&&, X&& x, const Rest&...) const { (void)buffer(x); }
    template <Communicates Comm, class X>
    requires(!Buffer<X>) void operator()(Comm&&, X&& x, const call_options&) const { (void)buffer(x); }
    template <Communicates Comm, class X, class A>
    requires(!Buffer<X>) void operator()(Comm&&, X&& x, const A&, const call_options&) const { (void)buffer(x); }
    template <Communicates Comm, class X, class A, class B>
    requires(!Buffer<X>) void operator()(Comm&&, X&& x, const A&, const B&, const call_options&) const {
        (void)buffer(x);
    }
};
struct refuses_buffers : refuses_first_buffer {
    using refuses_first_buffer::operator();
    template <Communicates Comm, Buffer In, NoSecondBuffer X, class... Rest>
    void operator()(Comm&&, In&&, X&& x, const Rest&...) const {
        (void)buffer(x);
    }
    template <Communicates Comm, Buffer In, NoSecondBuffer X>
    void operator()(Comm&&, In&&, X&& x, const call_options&) const {
        (void)buffer(x);
    }
    template <Communicates Comm, Buffer In, NoSecondBuffer X, class A>
    void operator()(Comm&&, In&&, X&& x, const A&, const call_options&) const {
        (void)buffer(x);
    }
};

} // namespace detail

COLLX_END_NAMESPACE
