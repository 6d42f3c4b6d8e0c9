// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocking calls whose time is that of a few cache lines, without the task that other calls are made into: short
// messages, and collectives in their straight reading (exec/short_call.hpp). Only where all ranks are on one host.
// Peers cannot tell the difference: the same numbers, sizes and tags at the same places. Compiled once
// (docs/design/compile-once.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/comm/core.hpp>
#include <collx/exec/lending.hpp>
#include <collx/exec/short_call.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Messages of one piece that are never lent. `tag`: see channel_steps::tag_of.
inline bool is_short_message(const communicator_core& c, std::size_t bytes) {
    return bytes < least_measured_bytes && bytes <= c.net.slot_bytes() && c.net.is_one_host();
}
void run_short(communicator_core& c, bound_schedule& plan, const short_call& call, std::int64_t timeout_ns);
void send_short(communicator_core& c, const void* from, std::size_t bytes, std::uint32_t tag, int peer,
                std::int64_t timeout_ns);
void receive_short(communicator_core& c, void* to, std::size_t bytes, std::uint32_t tag, int peer,
                   std::int64_t timeout_ns);

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/short_calls_once.hpp>
#endif
