// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx::buffer(x) makes a view of any tensor. Only this header decides how a user's type is seen, in this order:
//     1. buffer_traits<X>::view(x)                  for a type you do not own
//     2. x.collx_buffer(), or collx_buffer(x) beside the type
//     3. x is a view already
//     4. Eigen, mdspan and vectors with wrapped pointers, by shape (buffer_families.hpp)
//     5. a contiguous range with a size
//     6. any other random-access range with a size: an input, computed as it is read
// Any other type is refused with a message that says what to do. A type whose element type is known only at run time
// (DLPack, torch) is viewed by as<T>(x), in as.hpp. It must not know what is done with the view.
#pragma once

#include <cstddef>
#include <type_traits>

#include <collx/core/buffer_families.hpp>
#include <collx/core/scalar.hpp>
#include <collx/core/views.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Specialise with `static auto view(X& x)` (and for `const X` by a template or a second overload) returning a
// BufferView. Example: template <> struct collx::buffer_traits<their::image> {
//              static auto view(their::image& x) { return collx::strided2d(x.pixels, x.height, x.width, x.pitch); }
//              static auto view(const their::image& x) { ... }
//          };
template <class X>
struct buffer_traits {};

namespace detail {

// Hides any other collx_buffer, so that only functions in the namespace of the user's type are found.
namespace adl {
void collx_buffer() = delete;
template <class X>
concept has_free_buffer = requires(X& x) {
    collx_buffer(x);
};
template <class X>
constexpr auto free_buffer(X& x) {
    return collx_buffer(x);
}
} // namespace adl

template <class X>
concept has_traits_view = requires(X& x) {
    buffer_traits<std::remove_cv_t<X>>::view(x);
};
template <class X>
concept has_member_buffer = requires(X& x) {
    x.collx_buffer();
};

// How a type is seen. Types from `bits` on are refused.
enum class seen_as : unsigned char {
    traits,
    member,
    free_function,
    view,
    matrix,
    mdspan,
    wrapped,
    contiguous,
    computed,
    bits,
    untyped,
    pointer,
    single,
    unindexed,
    unknown
};

// X may be const.
template <class X>
constexpr seen_as how_seen() {
    using plain = std::remove_cv_t<X>;
    if constexpr (has_traits_view<X>) return seen_as::traits;
    else if constexpr (has_member_buffer<X>) return seen_as::member;
    else if constexpr (adl::has_free_buffer<X>) return seen_as::free_function;
    else if constexpr (BufferView<plain>) return seen_as::view;
    else if constexpr (bit_vector<X>) return seen_as::bits;
    else if constexpr (matrix_like<X>) return seen_as::matrix;
    else if constexpr (mdspan_like<X>) return seen_as::mdspan;
    else if constexpr (mdspan_shaped<X>) return seen_as::unknown;
    else if constexpr (untyped_tensor<X>) return seen_as::untyped;
    else if constexpr (fancy_vector<X>) return seen_as::wrapped;
    else if constexpr (contiguous_range<X>) return seen_as::contiguous;
    else if constexpr (computed_range<X>) return seen_as::computed;
    else if constexpr (std::is_pointer_v<plain>) return seen_as::pointer;
    else if constexpr (has_begin<X>) return seen_as::unindexed;
    else if constexpr (Element<plain>) return seen_as::single;
    else return seen_as::unknown;
}

template <class X>
inline constexpr seen_as how_seen_v = how_seen<X>();

// Each message says what was found and what to write instead.
template <class X>
constexpr void refuse() {
    constexpr seen_as kind = how_seen_v<X>;
    static_assert(kind != seen_as::bits,
                  "collx::buffer: std::vector<bool> packs its elements into bits, so no bool can be pointed to. Use "
                  "std::vector<char> or std::vector<std::uint8_t> with logical_and or logical_or.");
    static_assert(kind != seen_as::untyped,
                  "collx::buffer: this tensor knows its element type only at run time. Name the type: "
                  "collx::as<float>(tensor), from <collx/core/as.hpp>.");
    static_assert(
        kind != seen_as::pointer,
        "collx::buffer: a pointer does not say how many elements it points to. Use collx::view(pointer, count).");
    static_assert(kind != seen_as::single,
                  "collx::buffer: this is a single element, not a range. Use collx::value(x) to send it alone, or "
                  "specialise collx::buffer_traits if it is a tensor of your own.");
    static_assert(
        kind != seen_as::unindexed,
        "collx::buffer: the elements of this range have no numbers: it needs random access and a size. Copy it "
        "into a std::vector first.");
    static_assert(
        kind != seen_as::unknown,
        "collx::buffer: collx cannot find the elements of this type. Specialise collx::buffer_traits<X> with a "
        "static view(X&), or give X a member collx_buffer(), that returns collx::view(pointer, count).");
}

template <class X>
constexpr auto see(X& x) {
    constexpr seen_as kind = how_seen_v<X>;
    if constexpr (kind == seen_as::traits) return buffer_traits<std::remove_cv_t<X>>::view(x);
    else if constexpr (kind == seen_as::member) return x.collx_buffer();
    else if constexpr (kind == seen_as::free_function) return adl::free_buffer(x);
    else if constexpr (kind == seen_as::view) return std::remove_cv_t<X>(x);
    else if constexpr (kind == seen_as::matrix) return matrix_view(x);
    else if constexpr (kind == seen_as::mdspan) return mdspan_view(x);
    else if constexpr (kind == seen_as::wrapped) return fancy_view(x);
    else if constexpr (kind == seen_as::contiguous) {
        using element = std::remove_pointer_t<decltype(contiguous_range_data(x))>;
        return contiguous_view<element>(contiguous_range_data(x), range_size(x));
    } else if constexpr (kind == seen_as::computed) {
        return input_view<range_iterator<X>>(range_begin(x), range_size(x));
    } else {
        refuse<X>();
        return contiguous_view<std::byte>(); // so that the message is the only error
    }
}

template <class X>
using seen_t = decltype(see(std::declval<X&>()));

struct buffer_fn {
    template <class X>
    constexpr auto operator()(X&& x) const {
        using view = seen_t<std::remove_reference_t<X>>;
        if constexpr (requires { typename view::value_type; }) require_element<typename view::value_type>();
        else
            static_assert(BufferView<view>,
                          "collx::buffer: the view that was made is no collx::BufferView. Return "
                          "collx::view(pointer, count), collx::strided(...) or another view of collx.");
        return see(x);
    }
};

} // namespace detail

// Makes the view of x. The view of a const buffer or of a computed range is no output.
// Requires: x outlives the view (a temporary does until the end of the full expression).
// Cost: none; no element is touched.
inline constexpr detail::buffer_fn buffer{};

// A type X for which collx::buffer(x) compiles.
template <class X>
concept Buffer = detail::how_seen_v<std::remove_reference_t<X>> <
                 detail::seen_as::bits&& BufferView<detail::seen_t<std::remove_reference_t<X>>>;

// The view that buffer(x) makes of an X.
template <class X>
using buffer_t = detail::seen_t<std::remove_reference_t<X>>;

// Buffers in a device's or in the host's memory. The kind selects the overload of a verb.
template <class X>
concept DeviceBuffer = Buffer<X> && memory_kind_v<buffer_t<X>>
== memory_kind::device;
template <class X>
concept HostBuffer = Buffer<X> && memory_kind_v<buffer_t<X>>
== memory_kind::host;

// Marks a view's memory as a device's: on_device(strided(p, n, 3)). Not needed for device_view, nor for pointers whose
// type says so (Thrust's).
template <class X>
constexpr auto on_device(X&& x) {
    using view = buffer_t<X>;
    if constexpr (memory_kind_v<view> == memory_kind::device) return buffer(x);
    else if constexpr (requires { typename view::without_place; })
        return on_device_view<typename view::without_place>(buffer(x));
    else if constexpr (view::is_contiguous)
        return device_view<std::remove_pointer_t<decltype(buffer(x).data())>>(buffer(x).data(), buffer(x).size());
    else return on_device_view<view>(buffer(x));
}

namespace detail {
template <class In, class Out>
inline constexpr bool loses_fractions_v =
    is_float_v<element_of<buffer_t<In>>>&& std::is_integral_v<element_of<buffer_t<Out>>>;
} // namespace detail

// Refuses, with a message, a buffer that cannot take a result. Verbs call it with the types of their output and input.
template <class X, class In = X>
constexpr void require_output() {
    static_assert(!detail::orders_differ<std::remove_reference_t<X>, std::remove_reference_t<In>>(),
                  "collx: one of these matrices is stored by rows and the other by columns, so the result would be "
                  "transposed. Copy one into a matrix of the other's storage order.");
    constexpr bool is_text = std::is_array_v<std::remove_reference_t<X>> &&
                             std::is_same_v<std::remove_extent_t<std::remove_reference_t<X>>, const char>;
    static_assert(is_text || !detail::loses_fractions_v<In, X>,
                  "collx: the input has floating-point numbers and the output integers, so every fraction would be "
                  "lost without a word. Give both buffers one element type.");
    static_assert(!is_text, "collx: a text stands where an operator or an output is expected. Operators are objects: "
                            "collx::plus{}, collx::max{}; by names that are known when the program runs: collx::any.");
    static_assert(
        is_text || buffer_t<X>::is_output,
        "collx: the result cannot be written into this buffer: it is const, or computed as it is read. Pass a "
        "buffer of your own that is not const, for example a std::vector.");
}

// Marks x as both input and output of a call where the arguments alone could mean something else.
template <class X>
constexpr in_place_view<buffer_t<X>> in_place(X&& x) {
    require_output<X>();
    return {buffer(x)};
}

COLLX_END_NAMESPACE
