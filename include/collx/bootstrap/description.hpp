// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is known about this process's job, and the hook through which the PMIx component (interop/pmix.hpp) registers
// itself when a program includes it. Values only: launchers.hpp and environment.hpp fill them in.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/single_copy_mode.hpp>

COLLX_BEGIN_NAMESPACE

// How ranks wait: COLLX_WAIT.
enum class wait_choice { automatic, spin, yield };
// What ranks print on stderr: COLLX_DEBUG. warn: mistakes that no call can report. info: communicators, too.
enum class debug_level { warn, info };

// What the environment says about this process.
struct job_description {
    int rank = 0, size = 1;
    int local_rank = 0, local_size = 1;
    kept_text job;                  // name of the launch; empty: one process alone, or agreed on through `store`
    kept_text pmi_port;             // HOST:PORT of a process manager that knows how many ranks there are
    kept_text store;                // file:DIR, tcp:HOST:PORT, pmi:DESCRIPTOR, pmix:, or empty
    const char* found_by = "alone"; // the probe that decided
    // What the user can do when neither `job` nor `store` says how ranks find each other.
    const char* remedy = "set COLLX_JOB or COLLX_STORE";

    std::int64_t timeout_ns = 60'000'000'000;
    int checked = -1;            // as the user sets it, 0 or 1; -1: not set
    std::size_t arena_bytes = 0; // 0: not set
    wait_choice waiting = wait_choice::automatic;
    single_copy_mode single_copy = single_copy_mode::automatic;
    debug_level debug = debug_level::warn;
    int record = 0;             // how many calls of each communicator the flight recorder keeps
    kept_text record_directory; // of the record files; empty: records stay in memory
};

namespace detail {

// The PMIx client library is large and from a third party, so the core only holds pointers to the component's
// functions. The last four are those of a CollectiveStore.
struct pmix_component {
    void (*describe)(job_description&); // rank, size, local_rank, local_size
    void (*set)(name_view key, name_view value);
    kept_text (*get)(name_view key, const deadline&);
    void (*barrier)(name_view name, int ranks, const deadline&);
    int (*next_turn)();
};
// Written by: the initialisation of a program that includes interop/pmix.hpp; read by: describe_job() and with_store().
inline const pmix_component* pmix = nullptr;

} // namespace detail

COLLX_END_NAMESPACE
