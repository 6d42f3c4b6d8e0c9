// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A strided matrix like mdspan, and a count of what a thread allocates. Included by one source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace lesson {

// [doc:grid]
// Like std::mdspan (C++23) with layout_stride. collx requires only these members, from any library.
struct grid {
    using element_type = float;
    using reference = float&;
    struct extents_type {
        using index_type = std::ptrdiff_t;
        std::array<std::ptrdiff_t, 2> n;
        static constexpr std::size_t rank() { return 2; }
        std::ptrdiff_t extent(std::size_t d) const { return n[d]; }
    };
    struct mapping_type {
        extents_type shape;
        std::array<std::ptrdiff_t, 2> strides;
        const extents_type& extents() const { return shape; }
        std::ptrdiff_t operator()(std::ptrdiff_t i, std::ptrdiff_t j) const { return i * strides[0] + j * strides[1]; }
        std::ptrdiff_t stride(std::size_t d) const { return strides[d]; }
        static constexpr bool is_always_exhaustive() { return false; }
        static constexpr bool is_always_strided() { return true; }
        static constexpr bool is_strided() { return true; }
    };
    float* data;
    mapping_type layout;
    float* data_handle() const { return data; }
    const mapping_type& mapping() const { return layout; }
    const extents_type& extents() const { return layout.shape; }
    static constexpr std::size_t rank() { return 2; }
};
// [doc:end]

inline thread_local std::uint64_t allocated_bytes = 0;

} // namespace lesson

[[gnu::noinline]] void* operator new(std::size_t n) {
    lesson::allocated_bytes += n;
    if (void* p = std::malloc(n)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
