// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls that go on after their line (async, groups) say to temporaries that would be gone by then. Views of memory
// that somebody else owns may be temporaries. Must not know what a verb does.
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

} // namespace detail

COLLX_END_NAMESPACE
