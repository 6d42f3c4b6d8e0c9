// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is known of this process's job, and the place where the PMIx component (interop/pmix.hpp) puts itself when a
// program includes it. Values only: who fills them in is launchers.hpp and environment.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/single_copy_mode.hpp>

COLLX_BEGIN_NAMESPACE

// How ranks wait: COLLX_WAIT.
enum class wait_choice { automatic, spin, yield };
// How much a rank says on stderr: COLLX_DEBUG.
enum class debug_level { warn, info, trace };

// What the environment says about this process.
struct job_description {
    int rank = 0, size = 1;
    int local_rank = 0, local_size = 1;
    kept_text job;                  // the launch's name; empty: alone, or still to be agreed on through `store`
    kept_text pmi_port;             // HOST:PORT of a process manager that will say how many ranks there are
    kept_text store;                // file:DIR, tcp:HOST:PORT, pmi:DESCRIPTOR, pmix:, or empty
    const char* found_by = "alone"; // the probe that decided
    // How ranks could find each other where neither job nor store says it.
    const char* remedy = "set COLLX_JOB or COLLX_STORE";

    std::int64_t timeout_ns = 60'000'000'000;
    int checked = -1;            // 0 or 1 as the user says, -1: nothing said
    std::size_t arena_bytes = 0; // 0: nothing said
    wait_choice waiting = wait_choice::automatic;
    single_copy_mode single_copy = single_copy_mode::automatic;
    debug_level debug = debug_level::warn;
    int record = 0;             // calls of each communicator to keep records of
    kept_text record_directory; // where, in files; empty: in memory
};

namespace detail {

// The PMIx client library is foreign and heavy, so the core only knows where its functions are. The last three are
// those of a CollectiveStore.
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
