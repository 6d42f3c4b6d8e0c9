// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether elements that lie at several strides have an address each.
#pragma once

#include <cstddef>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

struct dimension {
    std::size_t extent = 1;
    std::ptrdiff_t stride = 0;
    COLLX_HD constexpr std::size_t step() const {
        return stride < 0 ? std::size_t{0} - static_cast<std::size_t>(stride) : static_cast<std::size_t>(stride);
    }
};

// Two dimensions share an address if i a = j b for some 0 < i < m, 0 < j < n; the least are b / g and a / g, where g is
// the greatest common divisor of a and b.
COLLX_HD constexpr bool share_an_address(dimension x, dimension y) {
    const std::size_t a = x.step(), b = y.step();
    std::size_t g = a;
    for (std::size_t rest = b; rest != 0;) {
        const std::size_t next = g % rest;
        g = rest;
        rest = next;
    }
    return b / g < x.extent && a / g < y.extent;
}

// Whether several of the elements, at i d[0].stride + j d[1].stride + ..., lie at one address. True also for more than
// two dimensions where a stride is not longer than all that smaller strides span: no part of a dense tensor is like
// that, and finding out would take a search. Reorders the dimensions, of which each has more than one element.
COLLX_HD constexpr bool may_share_addresses(dimension* d, int count) {
    for (int i = 1; i < count; ++i) // by their strides
        for (int k = i; k > 0 && d[k].step() < d[k - 1].step(); --k) {
            const dimension longer = d[k - 1];
            d[k - 1] = d[k];
            d[k] = longer;
        }
    if (count > 0 && d[0].stride == 0) return true;
    if (count == 2) return share_an_address(d[0], d[1]);
    std::size_t span = 0; // from the first element to the last of the smaller strides
    for (int i = 0; i < count; ++i) {
        if (d[i].step() <= span) return true;
        span += (d[i].extent - 1) * d[i].step();
    }
    return false;
}

} // namespace detail
COLLX_END_NAMESPACE
