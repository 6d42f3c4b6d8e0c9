// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Takes one call from its arguments to a task: compares what the ranks are about to do, chooses a schedule, cuts the
// buffers. Independent of element types and compiled once; a verb describes its call in a call_request.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/call/check_call.hpp>
#include <collx/core/views.hpp>
#include <collx/exec/element_ops.hpp>
#include <collx/exec/relayed_task.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/plan/problem.hpp>
#include <collx/plan/recent_calls.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A call as its verb describes it.
struct call_request {
    const call_facts& facts;
    element_ops& elements;
    std::size_t kept_bytes, kept_align; // of an element of a partial result
    int at_port;
    bool in_windows;                                           // both buffers lie in windows
    bool attaches;                                             // the policy asks to read the buffers of peers
    bool ordered, serial;                                      // see problem
    bool is_persistent;                                        // prepared once, for any number of runs
    bool is_free_to_choose;                                    // no policy binds an algorithm
    std::size_t piece_bytes;                                   // fixed by a policy; 0: by none
    std::uint32_t type_hash = 0, op_hash = 0, policy_hash = 0; // for checked calls
    // Binds the algorithm of the policies, or the default one.
    bound_schedule& (*choose)(communicator_core&, const call_request&, const problem&);
    const void* policies;
};

// Compares, chooses and cuts. Throws if the call is wrong.
prepared_call prepare(communicator_core& c, const call_request& r);
// Prepares a call, or takes what an equal one was prepared to, and runs it to its end. Throws the error that ended it.
// Requires: not is_relayed().
void run_blocking(communicator_core& c, const call_request& r);
// Runs a prepared call to its end. Throws the error that ended it.
void run_prepared(communicator_core& c, const call_request& r, const prepared_call& p);
// Whether ranks pass on parts of others, with counts of their own. run_relayed() runs such a call.
inline bool is_relayed(const call_request& r, const prepared_call& p) {
    return r.facts.tables != nullptr && p.plan->counts != nullptr;
}
relayed_numbers numbers_of_relayed(communicator_core& c, const call_request& r, const prepared_call& p);
void run_relayed(communicator_core& c, const call_request& r, const prepared_call& p);
// Prepares a call and runs it to its end, relayed or not.
void run_perhaps_relayed(communicator_core& c, const call_request& r);

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/prepared_call_once.hpp>
#endif
