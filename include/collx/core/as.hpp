// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx::as<T>(x): a view of a tensor whose element type is known only at run time, as a tensor of T. The type is
// checked when the view is made; the error names both types. Recognises DLPack's structs (any version, by the names of
// their fields) and torch::Tensor, without their headers. It must not know what is done with the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/buffer_families.hpp>
#include <collx/core/error.hpp>
#include <collx/core/fp8.hpp>
#include <collx/core/half.hpp>
#include <collx/core/mappings.hpp>
#include <collx/core/views.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The codes of DLDataTypeCode. They are part of DLPack's ABI and never change.
enum class dlpack_code : int {
    signed_integer = 0,
    unsigned_integer = 1,
    ieee_float = 2,
    brain_float = 4,
    complex = 5,
    boolean = 6,
    float8_e4m3fn = 10,
    float8_e5m2 = 12
};

// Whether the host can read memory with this DLDeviceType: its own, pinned by CUDA or ROCm, or managed by CUDA.
constexpr bool is_host_memory(int dlpack_device) {
    return dlpack_device == 1 || dlpack_device == 3 || dlpack_device == 11 || dlpack_device == 13;
}

// The DLPack code of T. -1 if it has none, as a struct: then only the width can be checked, of all lanes.
template <class T>
constexpr int dlpack_code_of() {
    if constexpr (std::is_same_v<T, bool>) return static_cast<int>(dlpack_code::boolean);
    else if constexpr (std::is_same_v<T, e4m3>) return static_cast<int>(dlpack_code::float8_e4m3fn);
    else if constexpr (std::is_same_v<T, e5m2>) return static_cast<int>(dlpack_code::float8_e5m2);
    else if constexpr (std::is_same_v<T, bf16>) return static_cast<int>(dlpack_code::brain_float);
    else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, f16>)
        return static_cast<int>(dlpack_code::ieee_float);
    else if constexpr (std::is_integral_v<T>)
        return static_cast<int>(std::is_signed_v<T> ? dlpack_code::signed_integer : dlpack_code::unsigned_integer);
    else if constexpr (complex_like<T>) return static_cast<int>(dlpack_code::complex);
    else return -1;
}

template <class T, class Tensor>
void require_dlpack_type(const Tensor& x) {
    constexpr int code = dlpack_code_of<T>();
    const int lanes = static_cast<int>(x.dtype.lanes), bits = static_cast<int>(x.dtype.bits) * lanes;
    const bool same_code = code < 0 || (code == static_cast<int>(x.dtype.code) && lanes == 1);
    // Producers older than DLPack 0.8 describe bool as an unsigned byte.
    const bool old_bool = std::is_same_v<T, bool> && static_cast<int>(x.dtype.code) == 1;
    if (!(same_code || old_bool) || bits != static_cast<int>(8 * sizeof(T)))
        fail(errc::invalid_argument, -1, -1, "name the type that the tensor has in collx::as<T>",
             "a DLPack tensor with type code %d and %d bits was taken for one of code %d and %d bits",
             static_cast<int>(x.dtype.code), bits, code, static_cast<int>(8 * sizeof(T)));
}

// The shape and strides of a DLPack tensor, from another library and so checked.
template <class Tensor>
strided_mapping dlpack_mapping(const Tensor& x) {
    strided_mapping mapping;
    bool fits = true;
    std::ptrdiff_t dense_stride = 1;
    for (int d = 0; d < static_cast<int>(x.ndim); ++d) {
        const auto extent = static_cast<std::ptrdiff_t>(x.shape[d]);
        if (extent < 0 || __builtin_mul_overflow(dense_stride, extent != 0 ? extent : 1, &dense_stride))
            fail(errc::invalid_argument, -1, -1, "is it a tensor that another program has released?",
                 "a DLPack tensor with a dimension of %lld elements", static_cast<long long>(extent));
    }
    for (int d = 0; d < static_cast<int>(x.ndim); ++d) {
        const auto extent = static_cast<std::ptrdiff_t>(x.shape[d]);
        if (extent > 0) dense_stride /= extent;
        const bool dense = x.strides == nullptr; // DLPack's mark for row-major without gaps
        fits = mapping.add(static_cast<std::size_t>(extent),
                           dense ? dense_stride : static_cast<std::ptrdiff_t>(x.strides[d])) &&
               fits;
    }
    if (!fits)
        fail(errc::unsupported, -1, -1, "make it contiguous first",
             "a DLPack tensor has more than %d dimensions with gaps between them", strided_mapping::max_rank);
    return mapping;
}

template <class T, class Tensor>
auto dlpack_view(Tensor& x) {
    require_dlpack_type<std::remove_cv_t<T>>(x);
    const strided_mapping mapping = dlpack_mapping(x);
    auto* bytes = static_cast<std::conditional_t<std::is_const_v<T>, const char, char>*>(x.data);
    if (bytes != nullptr) bytes += x.byte_offset;
    if (reinterpret_cast<std::uintptr_t>(bytes) % alignof(T) != 0)
        fail(errc::invalid_argument, -1, -1, "copy it, or take its bytes: collx::as<std::uint8_t>",
             "the elements of a DLPack tensor do not lie at multiples of %zu bytes", alignof(T));
    return located_view<mapped_view<T, strided_mapping>>({reinterpret_cast<T*>(bytes), mapping},
                                                         !is_host_memory(static_cast<int>(x.device.device_type)));
}

// DLManagedTensor, and DLManagedTensorVersioned, which says more.
template <class T, class Tensor>
auto managed_dlpack_view(Tensor& x) {
    if constexpr (requires { x.version.major; })
        if (x.version.major > 1)
            fail(errc::unsupported, -1, -1, "export it as DLPack 1", "a DLPack tensor of version %u",
                 static_cast<unsigned>(x.version.major));
    constexpr unsigned read_only = 1; // DLPACK_FLAG_BITMASK_READ_ONLY
    if constexpr (!std::is_const_v<T> && requires { x.flags; })
        if ((x.flags & read_only) != 0)
            fail(errc::invalid_argument, -1, -1, "say collx::as<const T>, or export a copy",
                 "a DLPack tensor that may only be read was taken for one that may be written");
    return dlpack_view<T>(x.dl_tensor);
}

// The number in c10::ScalarType of a type for which torch's data_ptr<T>() has a type of its own. -1: for none other.
template <class T>
constexpr int torch_code_of() {
    if constexpr (std::is_same_v<T, f16>) return 5;
    else if constexpr (complex_like<T>)
        return std::is_same_v<typename T::value_type, float>    ? 9
               : std::is_same_v<typename T::value_type, double> ? 10
                                                                : -1;
    else if constexpr (std::is_same_v<T, bf16>) return 15;
    else if constexpr (std::is_same_v<T, e5m2>) return 23;
    else if constexpr (std::is_same_v<T, e4m3>) return 24;
    else return -1;
}
template <class T, class Tensor>
T* torch_data(Tensor& x) {
    using element = std::remove_cv_t<T>;
    constexpr int code = torch_code_of<element>();
    if constexpr (code >= 0 && requires {
                      x.data_ptr();
                      x.scalar_type();
                  }) {
        if (static_cast<int>(x.scalar_type()) != code)
            fail(errc::invalid_argument, -1, -1, "name the type that the tensor has in collx::as<T>",
                 "a torch tensor with scalar type %d was taken for one of scalar type %d",
                 static_cast<int>(x.scalar_type()), code);
        return static_cast<T*>(x.data_ptr());
    } else {
        return x.template data_ptr<element>(); // torch checks the type, and throws
    }
}

template <class T, class Tensor>
auto torch_view(Tensor& x) {
    if constexpr (requires { static_cast<bool>(x.is_conj()); })
        if (x.is_conj() || x.is_neg())
            fail(errc::invalid_argument, -1, -1, "call resolve_conj() and resolve_neg() on it first",
                 "a torch tensor is conjugated or negated when it is read, and its memory holds other values");
    T* data = torch_data<T>(x);
    strided_mapping mapping;
    bool fits = true;
    if constexpr (requires {
                      x.dim();
                      x.size(0);
                      x.stride(0);
                  }) {
        for (int d = 0; d < static_cast<int>(x.dim()); ++d)
            fits = mapping.add(static_cast<std::size_t>(x.size(d)), static_cast<std::ptrdiff_t>(x.stride(d))) && fits;
    } else {
        fits = x.is_contiguous();
        mapping.add(static_cast<std::size_t>(x.numel()), 1);
    }
    if (!fits)
        fail(errc::unsupported, -1, -1, "call contiguous() on it first",
             "a torch tensor has gaps that collx cannot follow");
    bool is_on_device = false;
    if constexpr (requires { static_cast<bool>(x.is_cpu()); }) is_on_device = !x.is_cpu();
    return located_view<mapped_view<T, strided_mapping>>({data, mapping}, is_on_device);
}

} // namespace detail

// Views x, a DLPack tensor or a torch::Tensor, as a tensor of T.
// Shape: a mapped_view<T, strided_mapping>, numbered with the last index fastest; one run where the tensor is dense. If
//     x is in a device's memory, calls of the host throw invalid_argument; use on_device(as<T>(x)).
// Errors: invalid_argument when the elements are not of type T or not aligned, when they may only be read and T is not
//     const, or when torch conjugates them on reading · unsupported for more than eight dimensions with gaps.
// Example: collx::all_reduce(world, collx::as<float>(tensor));
template <class T, class Tensor>
auto as(Tensor&& x) {
    using tensor = std::remove_reference_t<Tensor>;
    if constexpr (detail::managed_dlpack_tensor<tensor>) return detail::managed_dlpack_view<T>(x);
    else if constexpr (detail::dlpack_tensor<tensor>) return detail::dlpack_view<T>(x);
    else if constexpr (detail::torch_tensor<tensor>) return detail::torch_view<T>(x);
    else
        static_assert(detail::dlpack_tensor<tensor>,
                      "collx::as: this is neither a DLPack tensor nor like torch::Tensor. If its element type is known "
                      "at compile time, pass it as it is; otherwise specialise collx::buffer_traits.");
}

COLLX_END_NAMESPACE
