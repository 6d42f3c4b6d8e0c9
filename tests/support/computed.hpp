// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A range whose elements are computed as they are read: std::views::iota(0, n) | std::views::transform(f), without
// <ranges>, whose views clang 14 cannot compile.
#pragma once

#include <cstddef>
#include <span> // std::ranges::view_base

namespace collx_test {

// Element i is f(i), for 0 <= i < n.
template <class F>
class computed : public std::ranges::view_base {
public:
    computed(int n, F f) : n_(n), f_(f) {}
    struct iterator {
        const F* f;
        int i;
        decltype(auto) operator*() const { return (*f)(i); }
        iterator operator+(std::ptrdiff_t d) const { return {f, i + static_cast<int>(d)}; }
        std::ptrdiff_t operator-(const iterator& o) const { return i - o.i; }
    };
    iterator begin() const { return {&f_, 0}; }
    std::size_t size() const { return static_cast<std::size_t>(n_); }

private:
    int n_;
    F f_;
};

} // namespace collx_test
