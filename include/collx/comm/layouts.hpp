// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Size checks of collectives that give each rank its own part: equal blocks, or a table of counts for the v-variants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <collx/comm/call.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline void require_size(const communicator_core& c, const char* which, std::size_t have, std::size_t need) {
    if (have != need)
        fail(errc::invalid_argument, c.net.rank(), -1, "sizes count elements, see the Shape line of this call",
             "the %s buffer has %zu elements and needs %zu", which, have, need);
}
inline void require_at_least(const communicator_core& c, const char* which, std::size_t have, std::size_t need) {
    if (have < need)
        fail(errc::invalid_argument, c.net.rank(), -1, "do the counts sum up to the size of the buffer?",
             "the %s buffer has %zu elements, its counts need %zu", which, have, need);
}
inline std::size_t part_of(const communicator_core& c, std::size_t whole) {
    const auto n = static_cast<std::size_t>(c.net.size());
    if (whole % n != 0)
        fail(errc::invalid_argument, c.net.rank(), -1, "pad it, or use the v-variant with counts",
             "%zu elements do not divide among %zu ranks", whole, n);
    return whole / n;
}

} // namespace detail

COLLX_END_NAMESPACE
