// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Short lists of ranks.
#pragma once

#include <cstddef>

#include <collx/core/growing_array.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline bool is_in(const detail::growing_array<int>& list, int rank) {
    for (const int r : list)
        if (r == rank) return true;
    return false;
}
inline void remove_rank(detail::growing_array<int>& list, int rank) {
    for (std::size_t i = 0; i < list.size(); ++i)
        if (list[i] == rank) return void(list.erase_at(i));
}

} // namespace detail

COLLX_END_NAMESPACE
