// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of group_memory.hpp.
#pragma once

#include <collx/comm/group_memory.hpp>
#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void group_memory::require_independent(int me) {
    spans reads = std::exchange(reads_, {}), writes = std::exchange(writes_, {});
    calls_ = 0;
    sort(writes);
    for (std::size_t i = 1; i < writes.size(); ++i)
        if (writes[i].begin < writes[i - 1].end) refuse(me, writes[i - 1], writes[i]);
    sort(reads);
    std::size_t first = 0; // of the written buffers that end behind where this one begins; they do not overlap
    for (const span& r : reads) {
        while (first < writes.size() && writes[first].end <= r.begin) ++first;
        for (std::size_t i = first; i < writes.size() && writes[i].begin < r.end; ++i)
            if (writes[i].call != r.call) refuse(me, writes[i], r); // a call's own were compared when it was added
    }
}

// By address. Shell sort, the longest gaps first.
COLLX_ONCE void group_memory::sort(spans& all) {
    std::size_t sorted = 1;
    while (sorted < all.size() && all[sorted - 1].begin <= all[sorted].begin) ++sorted;
    if (sorted >= all.size()) return;
    for (std::size_t gap = all.size() / 2; gap > 0; gap /= 2)
        for (std::size_t i = gap; i < all.size(); ++i)
            for (std::size_t j = i; j >= gap && all[j].begin < all[j - gap].begin; j -= gap)
                std::swap(all[j - gap], all[j]);
}

[[gnu::cold]] COLLX_ONCE void group_memory::refuse(int me, const span& written, const span& used) {
    fail(errc::invalid_argument, me, -1,
         "the calls of a group have no order: put one of the two into another group, or give it another buffer",
         "call %zu of this group (%s) writes memory that call %zu (%s) uses, too", written.call, written.verb,
         used.call, used.verb);
}

} // namespace detail
COLLX_END_NAMESPACE
