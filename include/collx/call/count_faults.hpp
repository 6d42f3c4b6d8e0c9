// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The comparison of counts that each rank knows only in part: of gather_v, scatter_v and all_to_all_v, in checked
// calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/call/check_call.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A part whose two ends have different counts, in elements.
struct count_fault {
    int from = -1, to = -1; // -1: none
    std::size_t sent = 0, expected = 0;
};
// Shows all ranks what each has found. All throw the first fault: mismatch. No data has moved, so the communicator can
// be used on. Collective. Cost: one exchange.
void refuse_first_fault(communicator_core& c, const count_fault& mine, std::int64_t timeout_ns);
// Compares each rank's own count with the table of the root. Collective. Cost: two exchanges. Errors: as above.
void compare_with_root(communicator_core& c, const call_facts& f, std::int64_t timeout_ns);

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/count_faults_once.hpp>
#endif
