// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Families of tensors recognised by their members, without their headers: ranges, Eigen, mdspan, DLPack, torch and
// vectors with wrapped pointers (Thrust). Each family is one concept and one function that makes the view. It must not
// know in which order they are tried; buffer.hpp decides that.
#pragma once

#include <cstddef>
#include <span> // std::iterator_traits and std::contiguous_iterator, of whose headers it costs least
#include <type_traits>
#include <utility>

#include <collx/core/element.hpp>
#include <collx/core/mappings.hpp>
#include <collx/core/views.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// ------------------------------------------------------------------------------------------------- ranges
// <ranges> costs 0.4 s, so begin and size are looked up here: array, member, or a function beside the type.
namespace adl {
template <class X, std::size_t N>
constexpr X* begin(X (&x)[N]) {
    return x;
}
template <class X>
concept has_free_begin = requires(X& x) {
    begin(x);
};
template <class X>
constexpr auto free_begin(X& x) {
    return begin(x);
}
} // namespace adl

template <class X>
concept has_member_begin = requires(X& x) {
    x.begin();
};
template <class X>
concept has_begin = has_member_begin<X> || adl::has_free_begin<X>;

template <class X>
constexpr auto range_begin(X& x) {
    if constexpr (has_member_begin<X>) return x.begin();
    else return adl::free_begin(x);
}
template <has_begin X>
using range_iterator = decltype(range_begin(std::declval<X&>()));

template <class It>
using difference_of = decltype(std::declval<const It&>() - std::declval<const It&>());

// (nvcc stops with an internal error if the type of `d` is computed from `it` in place.)
template <class It>
concept random_access = std::is_pointer_v<It> || requires(const It& it, difference_of<It> d) {
    *it;
    { it + d } -> std::convertible_to<It>;
    static_cast<std::ptrdiff_t>(d);
};

template <class X>
concept has_size = std::is_array_v<X> || requires(X& x) {
    static_cast<std::size_t>(x.size());
};
template <class X>
concept has_distance = requires(X& x) {
    static_cast<std::size_t>(x.end() - x.begin());
};

template <class X>
constexpr std::size_t range_size(X& x) {
    if constexpr (std::is_array_v<X>) return sizeof(X) / sizeof(std::remove_all_extents_t<X>);
    else if constexpr (has_size<X>) return static_cast<std::size_t>(x.size());
    else return static_cast<std::size_t>(x.end() - x.begin());
}

template <class X>
concept computed_range = has_begin<X> && random_access<range_iterator<X>> &&(has_size<X> || has_distance<X>);

template <class X>
concept has_raw_data = requires(X& x) {
    requires std::is_pointer_v<decltype(x.data())>;
};
// Its data() points to the elements that its iterators visit, not to the bytes of something else.
template <class X>
concept has_element_data = has_raw_data<X> && requires(X& x) {
    requires std::is_same_v<decltype(*x.data()), decltype(*range_begin(x))>;
};

// An owning vector whose iterators are not marked contiguous (thrust::host_vector). It can grow, and it has a pointer
// to its storage.
template <class X>
concept vector_like = has_element_data<X> && requires(std::remove_cv_t<X>& x) {
    x.capacity();
    x.push_back(x[0]);
};

template <class X>
concept contiguous_range = computed_range<X> &&(std::is_array_v<X> || std::is_pointer_v<range_iterator<X>> ||
                                                std::contiguous_iterator<range_iterator<X>> || vector_like<X>);

template <class X>
constexpr auto contiguous_range_data(X& x) {
    if constexpr (std::is_array_v<X>) {
        // A nested array is one block of its innermost elements.
        using element = std::remove_all_extents_t<X>;
        if constexpr (std::is_same_v<element, std::remove_extent_t<X>>) return static_cast<element*>(x);
        else return reinterpret_cast<element*>(&x);
    } else if constexpr (has_element_data<X>) {
        return x.data();
    } else if constexpr (std::is_pointer_v<range_iterator<X>>) {
        return range_begin(x);
    } else {
        return range_size(x) == 0 ? nullptr : __builtin_addressof(*range_begin(x));
    }
}

// std::vector<bool>, which packs its elements into bits: no pointer to a bool exists.
template <class X>
concept bit_vector = requires(std::remove_cv_t<X>& x) {
    typename X::reference;
    x.flip();
    requires std::is_same_v<typename X::value_type, bool>;
    requires std::is_class_v<typename X::reference>;
};

// ------------------------------------------------------------------------------------------------- Eigen
template <class X>
concept matrix_like = requires(X& x) {
    typename X::Scalar;
    requires std::is_pointer_v<decltype(x.data())>;
    { x.rows() } -> std::convertible_to<std::ptrdiff_t>;
    { x.cols() } -> std::convertible_to<std::ptrdiff_t>;
    { x.innerStride() } -> std::convertible_to<std::ptrdiff_t>;
    { x.outerStride() } -> std::convertible_to<std::ptrdiff_t>;
};

// A matrix with its own storage, or a part of a vector. Its type says that it has no gaps.
template <class X>
concept dense_matrix = matrix_like<X> &&(
    requires {
        typename X::PlainObject;
        requires std::is_same_v<typename X::PlainObject, std::remove_cv_t<X>>;
    } ||
    requires {
        requires bool(X::IsVectorAtCompileTime);
        requires int(X::InnerStrideAtCompileTime) == 1;
    });

template <class X>
concept has_both_orders = matrix_like<X> && requires {
    requires !bool(X::IsVectorAtCompileTime);
    bool(X::IsRowMajor);
};
// Two matrices whose elements are numbered differently.
template <class X, class Y>
constexpr bool orders_differ() {
    if constexpr (has_both_orders<X> && has_both_orders<Y>) return bool(X::IsRowMajor) != bool(Y::IsRowMajor);
    else return false;
}

// Elements are numbered in the matrix's storage order: column by column unless it is row-major.
template <class X>
constexpr auto matrix_view(X& x) {
    using element = std::remove_pointer_t<decltype(x.data())>;
    const auto rows = static_cast<std::size_t>(x.rows());
    const auto cols = static_cast<std::size_t>(x.cols());
    if constexpr (dense_matrix<X>) {
        return contiguous_view<element>(x.data(), rows * cols);
    } else {
        bool row_major = false;
        if constexpr (requires { bool(X::IsRowMajor); }) row_major = bool(X::IsRowMajor);
        return strided_view<element>(x.data(), row_major ? rows : cols, row_major ? cols : rows, x.outerStride(),
                                     x.innerStride());
    }
}

// ------------------------------------------------------------------------------------------------- mdspan
template <class X>
concept mdspan_shaped = requires(X& x) {
    typename X::element_type;
    x.data_handle();
    x.mapping();
    x.extents().extent(0);
};

template <class X>
concept says_reference = requires {
    typename X::reference;
};

template <class X>
concept refers_to_elements = !says_reference<X> || std::is_same_v<typename X::reference, typename X::element_type&>;

// Whether offset i of an mdspan is element i of its memory. The accessors of the standard library and of Kokkos do
// that; any other may leave gaps.
template <class X>
constexpr bool has_plain_accessor() {
    if constexpr (requires { typename X::accessor_type; }) {
        constexpr name_view name = type_name<typename X::accessor_type>();
        return name.find("default_accessor<") != name_view::npos || name.find("aligned_accessor<") != name_view::npos;
    }
    return true;
}

// An mdspan whose accessor returns references: values that are scaled or conjugated on reading do not lie in memory.
template <class X>
concept mdspan_like = mdspan_shaped<X> && refers_to_elements<X> && has_plain_accessor<X>() && requires(X& x) {
    requires std::is_same_v < std::remove_cvref_t<decltype(x.data_handle())>,
    typename X::element_type* > ;
    { x.extents().extent(0) } -> std::convertible_to<std::size_t>;
    { X::rank() } -> std::convertible_to<std::size_t>;
};

template <class X>
constexpr auto mdspan_view(X& x) {
    using element = typename X::element_type;
    using mapping = std::remove_cvref_t<decltype(x.mapping())>;
    if constexpr (X::rank() == 1 && mapping::is_always_exhaustive() && mapping::is_always_strided())
        return contiguous_view<element>(x.data_handle(), static_cast<std::size_t>(x.extents().extent(0)));
    else return mapped_view<element, mdspan_mapping<mapping>>(x.data_handle(), mdspan_mapping<mapping>(x.mapping()));
}

// ------------------------------------------------------------------------------------------------- wrapped pointers
template <class X>
concept fancy_vector = requires(X& x) {
    requires std::is_class_v<decltype(x.data())>;
    requires std::is_pointer_v<decltype(x.data().get())>;
    { x.size() } -> std::convertible_to<std::size_t>;
};

// A pointer that dereferences to a proxy points to memory that the host cannot read.
template <class X>
constexpr auto fancy_view(X& x) {
    using element = std::remove_pointer_t<decltype(x.data().get())>;
    using view = std::conditional_t<std::is_lvalue_reference_v<decltype(*x.data())>, contiguous_view<element>,
                                    device_view<element>>;
    return view(x.data().get(), static_cast<std::size_t>(x.size()));
}

// --------------------------------------------------------------------------------- element type at run time
template <class X>
concept dlpack_tensor = requires(X& x) {
    x.data;
    x.shape[0];
    x.strides;
    x.byte_offset;
    x.ndim;
    x.dtype.code;
    x.dtype.bits;
    x.dtype.lanes;
    x.device.device_type;
};
template <class X>
concept managed_dlpack_tensor = requires(X& x) {
    requires dlpack_tensor<decltype(x.dl_tensor)>;
};

// torch::Tensor. A concept cannot ask for data_ptr<T>() without a T; data_ptr<float>() always exists.
template <class X>
concept torch_tensor = requires(X& x) {
    x.template data_ptr<float>();
    { x.numel() } -> std::convertible_to<std::size_t>;
    { x.is_contiguous() } -> std::convertible_to<bool>;
};

template <class X>
concept untyped_tensor = dlpack_tensor<X> || managed_dlpack_tensor<X> || torch_tensor<X>;

} // namespace detail

COLLX_END_NAMESPACE
