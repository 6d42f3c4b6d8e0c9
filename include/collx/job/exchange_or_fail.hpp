// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A step of start-up that each rank takes by itself and that may fail there, and the exchange of its results. A rank
// whose step has failed takes part in the exchange all the same, because the others wait for it.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>

#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Calls attempt(line), which sets a few bytes for the others, and then take(rank, line) for each rank. Collective.
// Rethrows what attempt() threw here. Returns the first rank where it threw; -1: none.
template <class Line, class Attempt, class Take>
[[gnu::cold]] int exchange_or_fail(communicator_core& all, std::int64_t timeout_ns, Attempt&& attempt, Take&& take) {
    struct {
        Line line;
        bool has_failed = false;
    } mine;
    std::exception_ptr trouble;
    try {
        attempt(mine.line);
    } catch (...) {
        trouble = std::current_exception();
        mine.has_failed = true;
    }
    int failed = -1;
    exchange_by_channels(
        all, &mine, sizeof mine,
        [&](int r, const std::byte* bytes) {
            auto theirs = mine;
            std::memcpy(&theirs, bytes, sizeof theirs);
            if (theirs.has_failed && failed < 0) failed = r;
            take(r, theirs.line);
        },
        timeout_ns);
    if (trouble) std::rethrow_exception(trouble);
    return failed;
}

} // namespace detail

COLLX_END_NAMESPACE
