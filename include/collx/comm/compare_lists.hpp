// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares lists that must be the same on all ranks, and finds out which rank has another one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <collx/comm/all_gather.hpp>
#include <collx/core/descriptor.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Where lists differ first. Most ranks are taken to be right: `rank` is the first that differs from them, `other` the
// first of them.
struct list_difference {
    int rank = -1, other = 0; // rank -1: the lists are the same
    std::size_t at = 0;       // index
    bool is_last_of_both = false;
};

// mine: what stands for each element, never 0. Collective; all ranks get the same answer. Costs one all_gather of 16
// bytes where the lists are the same, else another one of the longest list.
inline list_difference compare_lists(communicator& c, std::vector<std::uint64_t> mine) {
    const auto n = static_cast<std::size_t>(c.size());
    const std::uint64_t shown[] = {mine.size(),
                                   hash_bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * 8, 1)};
    std::vector<std::uint64_t> heads(2 * n);
    all_gather(c, shown, heads);
    std::size_t most = 0;
    bool are_alike = true;
    for (std::size_t r = 0; r < n; ++r) {
        most = std::max<std::size_t>(most, heads[2 * r]);
        are_alike &= heads[2 * r] == heads[0] && heads[2 * r + 1] == heads[1];
    }
    if (are_alike) return {};
    mine.resize(most); // with 0
    std::vector<std::uint64_t> all(most * n);
    all_gather(c, mine, all);
    for (std::size_t i = 0; i < most; ++i) {
        const auto of = [&](std::size_t r) { return all[r * most + i]; };
        std::size_t other = 0; // of rank 0, unless more than half have the same other value
        for (std::size_t r = 1; r < n; ++r) {
            std::size_t like = 0;
            for (std::size_t s = 0; s < n; ++s) like += of(s) == of(r);
            if (2 * like > n) other = r;
        }
        while (other > 0 && of(other - 1) == of(other)) --other;
        for (std::size_t r = 0; r < n; ++r)
            if (of(r) != of(other))
                return {static_cast<int>(r), static_cast<int>(other), i,
                        i + 1 == heads[2 * r] && i + 1 == heads[2 * other]};
    }
    return {};
}

} // namespace detail
COLLX_END_NAMESPACE
