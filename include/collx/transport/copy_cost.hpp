// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measured cost of moving large messages. By it a channel chooses between slots and a single copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// The cost of one way, in nanoseconds per MiB: a running mean. It falls quickly, and one outlier (another process had
// the core) raises it only a little.
struct piece_cost {
    std::uint32_t ns_per_mib = 0; // 0: not measured yet
    void add(std::int64_t ns, std::size_t bytes) {
        constexpr std::uint64_t longest = 1u << 30;
        std::uint64_t now = static_cast<std::uint64_t>(ns) * (1 << 20) / bytes + 1;
        if (now > longest) now = longest;
        const std::uint64_t old = ns_per_mib;
        if (old == 0) ns_per_mib = static_cast<std::uint32_t>(now);
        else if (now < old) ns_per_mib = static_cast<std::uint32_t>((old + now) / 2);
        else ns_per_mib = static_cast<std::uint32_t>((3 * old + (now < 4 * old ? now : 4 * old)) / 4);
    }
};

COLLX_END_NAMESPACE
