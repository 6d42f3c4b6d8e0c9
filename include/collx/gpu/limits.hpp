// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How long the calls on device memory wait, and who waits longer so that another reports first.
#pragma once

#include <cstdint>
#include <exception>

#include <collx/comm/barrier.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/comm/device_call.hpp>
#include <collx/comm/options.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

inline std::int64_t timeout_of(communicator& c, const device_call_options& o) {
    return o.timeout.count() > 0 ? o.timeout.count() : c.internals().settings.timeout_ns;
}

// Rails wait this much longer, so that kernels time out first: a kernel knows which rank it waits for.
inline constexpr std::int64_t rail_patience_ns = 3'000'000'000;

// A time limit with some time added. No limit stays no limit.
constexpr std::int64_t longer(std::int64_t ns, std::int64_t more_ns) {
    return ns < INT64_MAX - more_ns ? ns + more_ns : INT64_MAX;
}
// The time limit of a kernel behind calls of the proxies, which have the limit `ns`: these report first.
constexpr std::int64_t limit_behind(std::int64_t ns) { return longer(longer(ns, ns), 1'000'000'000); }
// The longest that a kernel of a call with the limit `ns` may wait.
constexpr std::int64_t longest_wait(std::int64_t ns, bool is_direct) {
    return is_direct ? ns : limit_behind(longer(ns, rail_patience_ns));
}

// How long the end of a communicator or window waits for ranks that may still use this rank's memory: as long as a
// call, because they are in a call or will make one. After a failure, or while an exception is thrown, they may never
// come: then two seconds. That is less than rail_patience_ns, so ranks that wait along a rail are notified in time.
inline call_options while_leaving(std::int64_t timeout_ns, bool has_failed = false) {
    return {.timeout = duration::from_ns(has_failed || std::uncaught_exceptions() > 0 ? 2'000'000'000 : timeout_ns)};
}

// Waits until all ranks have come to their end, too. False: some have not in time. A barrier would blame those that are
// late; this rank tells them that it has gone.
inline bool all_leave(communicator& c, const call_options& limit) {
    c.internals().is_in_last_call = true;
    c.internals().settings.checked = 0; // a comparison would blame them
    const duration usual = duration::from_ns(c.internals().settings.timeout_ns);
    auto come = async::barrier(c);
    if (come.wait_for(limit.timeout.count() > 0 ? limit.timeout : usual)) return true;
    c.abort();
    return false;
}

} // namespace detail
COLLX_END_NAMESPACE
