// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of group_memory.hpp.
#pragma once

#include <utility>

#include <collx/comm/group_memory.hpp>
#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void group_buffers::add(const buffer_facts& b, bool is_written, const char* verb, std::size_t call) {
    if (!b.has_address || b.bytes == 0) return;
    const auto* const at = static_cast<const std::byte*>(b.data);
    (is_written ? writes_ : reads_).push_back({at, at + b.bytes, verb, call});
}

COLLX_ONCE void group_buffers::require_independent(int me) {
    sort(writes_);
    for (std::size_t i = 1; i < writes_.size(); ++i)
        if (writes_[i].begin < writes_[i - 1].end) refuse(me, writes_[i - 1], writes_[i]);
    sort(reads_);
    std::size_t first = 0; // written buffer that ends behind r.begin; written buffers do not overlap
    for (const span& r : reads_) {
        while (first < writes_.size() && writes_[first].end <= r.begin) ++first;
        for (std::size_t i = first; i < writes_.size() && writes_[i].begin < r.end; ++i)
            if (writes_[i].call != r.call) refuse(me, writes_[i], r); // a call's own were compared when it was added
    }
}

// By address. Shell sort, the longest gaps first.
COLLX_ONCE void group_buffers::sort(spans& all) {
    std::size_t sorted = 1;
    while (sorted < all.size() && all[sorted - 1].begin <= all[sorted].begin) ++sorted;
    if (sorted >= all.size()) return;
    for (std::size_t gap = all.size() / 2; gap > 0; gap /= 2)
        for (std::size_t i = gap; i < all.size(); ++i)
            for (std::size_t j = i; j >= gap && all[j].begin < all[j - gap].begin; j -= gap)
                std::swap(all[j - gap], all[j]);
}

[[gnu::cold]] COLLX_ONCE void group_buffers::refuse(int me, const span& written, const span& used) {
    fail(errc::invalid_argument, me, -1,
         "the calls of a group have no order: put one of the two into another group, or give it another buffer",
         "call %zu of this group (%s) writes memory that call %zu (%s) uses, too", written.call, written.verb,
         used.call, used.verb);
}

} // namespace detail
COLLX_END_NAMESPACE
