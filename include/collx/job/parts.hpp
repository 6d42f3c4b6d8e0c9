// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator keeps for parts of the library whose contents it does not know: devices, the progress thread, a
// described machine, what outlives the communicator.
#pragma once

#include <pthread.h>

#include <collx/core/config.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE

class environment;
struct communicator_core;
class operation;

namespace detail {
// What a communicator keeps for calls on device memory (gpu/group.hpp).
struct device_part {
    virtual ~device_part() = default;
    // Throws if p is memory that only a device can read.
    virtual void require_host_memory(const void*, const char*) {}
};
// The progress thread, as a communicator sees it (progress_thread.hpp).
struct progress_link {
    virtual ~progress_link() = default;
    // Returns when the thread will not use the communicator any more.
    virtual void leave() noexcept = 0;
    // Tells the thread that an operation is outstanding. Requires: in a call.
    virtual void wake() = 0;
    // Called by the thread, in the handler of an exception that an operation threw.
    virtual void keep_exception(const operation&) = 0;
    // Throws the exception that was kept for this operation, if any; once. Requires: in a call.
    virtual void rethrow(const operation&) = 0;
};
// For a job with a description of its machine. Part of a program that includes collx/topology.hpp, or compiled once in
// collx::collx.
struct topology_component {
    // Fills job::machine. Collective, on the first communicator of a job.
    // Errors: on all ranks, naming the first rank whose file cannot be used.
    void (*merge)(communicator_core&);
    // Looks up what the machine says of these ranks, once for a communicator. together: all ranks are in this call and
    // take what the first finds; otherwise each searches by itself.
    void (*look_up)(communicator_core&, bool together);
    // The name of the network card beside the `place`-th of `here` ranks on this host; empty: none is known.
    kept_text (*own_card)(const environment&, int place, int here);
};
#if defined(COLLX_COMPILED)
extern const topology_component* topology;
#else
// Written by: the initialisation of a program that includes collx/topology.hpp; read by: start-up.
inline const topology_component* topology = nullptr;
#endif

// Shared by a communicator and what may outlive it (persistent calls, windows). Another thread holds the mutex while it
// looks at the communicator.
struct communicator_end {
    bool has_come = false;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};
} // namespace detail

COLLX_END_NAMESPACE
