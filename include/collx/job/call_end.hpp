// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The time limit of a call that consists of several waits, or of several calls.
#pragma once

#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/core/duration.hpp>
#include <collx/job/failure_watch.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// One time limit for all waits of a call, from its beginning on. 0: the communicator's, for each wait. A negative
// limit stays as it is: the first call refuses it.
class call_end {
public:
    explicit call_end(std::int64_t limit_ns)
        : limit_ns_(limit_ns), at_ns_(limit_ns > 0 ? failure_watch::later(now_ns(), limit_ns) : 0) {}
    explicit call_end(duration limit) : call_end(limit.count()) {}

    std::int64_t left_ns() const {
        if (at_ns_ == 0) return limit_ns_;
        const std::int64_t left = at_ns_ - now_ns();
        return left > 0 ? left : 1; // the wait looks once even then
    }
    // The options of the next of the call's calls.
    template <class Options>
    Options left_of(Options o) const {
        o.timeout = duration::from_ns(left_ns());
        return o;
    }

private:
    std::int64_t limit_ns_, at_ns_;
};

} // namespace detail
COLLX_END_NAMESPACE
