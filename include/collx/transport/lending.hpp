// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether large messages are read where their sender has them, by the receiver inside a host and by the system on their
// way to another; and what that is decided by: the cost of each way, measured while it is in use.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Large messages may be lent where that costs less than a copy, never, or wherever the system allows it.
enum class lending : unsigned char { automatic, never, always };

// What a way of moving large messages costs, in nanoseconds per MiB: a running mean that comes down quickly and that
// one outlier (the core was taken away) cannot drive up far.
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
