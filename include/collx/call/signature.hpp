// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checked mode: before a call every rank publishes a signature of it, and all compare. This is one exchange of one
// cache line; a disagreement becomes the same error on all ranks instead of a hang.
#pragma once

#include <cstdint>

#include <collx/call/verb_table.hpp>
#include <collx/core/config.hpp>
#include <collx/job/call_record.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

// What a rank publishes about a call before it begins, for the comparison in checked mode.
struct signature {
    // What a rank calls: a verb, or another function.
    enum form : std::uint8_t { call, group, split, window };
    std::uint64_t count = 0;                   // elements per rank, as the collective counts them
    std::uint64_t counts_hash = 0;             // of the table of a v-variant that all ranks must share
    std::uint32_t sequence = 0;                // number of the call on its communicator
    std::uint32_t type_hash = 0;               // of the element type
    std::uint32_t op_hash = 0;                 // of the operator, 0 where there is none
    std::int32_t root = 0;                     // 0 where there is none
    std::uint32_t policy_hash = 0;             // of what with() has bound
    detail::verb what = detail::verb::barrier; // the verb of a call
    std::uint8_t zero_copy = 0;                // whether all buffers lie in shared memory
    form made_by = call;                       // what was called
    call_kind kind = call_kind::blocking;      // how
};
static_assert(sizeof(signature) <= signal_line::inline_bytes);

namespace detail {

// Each rank compares with rank 0 and names all ranks that differ from it, so that every rank prints the same names.
COLLX_ONCE void compare_signatures(communicator_core& c, signature mine, std::int64_t timeout_ns);

} // namespace detail

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/compare_signatures.hpp>
#endif
