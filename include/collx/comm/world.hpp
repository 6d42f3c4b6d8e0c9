// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a program comes to its job: the one of run_threads in its threads, else the one of this process, joined at first
// use from what the launcher left in the environment. Done in start.hpp, which a program that links collx::collx
// does not compile again.
#pragma once

#include <cstdint>

#include <collx/bootstrap/unique_id.hpp>
#include <collx/comm/job.hpp>
#include <collx/core/config.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

class any_store;
class any_collective_store;
struct socket_calls;
struct host_description;
struct job_protection;

namespace detail {

template <class S>
struct face_of; // of a Store: in bootstrap/store.hpp, which a program with a store includes

// The process's job: joined when the first communicator is made, left when the process ends, so that communicators may
// come and go. over: null: what it was joined over, or all transports.
// Errors: invalid_argument when it was joined over others.
COLLX_ONCE counted_ptr<job> this_job(const transports* over = nullptr);

COLLX_ONCE counted_ptr<job> join_by_store(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                          const transports& over);
COLLX_ONCE counted_ptr<job> join_by_store(int rank, int size, any_collective_store& store, std::int64_t timeout_ns,
                                          const transports& over);
template <class Store>
counted_ptr<job> join_by_store(int rank, int size, Store& store, std::int64_t timeout_ns, const transports& over) {
    using face = typename face_of<Store>::type;
    face all(store);
    return join_by_store(rank, size, static_cast<typename face::base&>(all), timeout_ns, over);
}

// As a rank of that host, whatever the environment says, and with system calls of one's own: for tests.
COLLX_ONCE counted_ptr<job> join_by_store(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                          const host_description& h, const socket_calls& calls);

COLLX_ONCE counted_ptr<job> join_by_id(const unique_id& id, int rank, int size, std::int64_t timeout_ns,
                                       const transports& over);

// Jobs of n threads that share memory.
COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(int n);
// Jobs of threads of which only some share memory, as if they were on several hosts. They listen on loopback.
COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(const detail::growing_array<int>& host_of,
                                                       const transports& over = {});
// by: for each rank, or null. at: an address to listen on, see host_description.
COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(const detail::growing_array<int>& host_of,
                                                       const socket_calls& calls, const job_protection* by = nullptr,
                                                       const char* at = "127.0.0.1", int lanes = 1,
                                                       const transports& over = {});

} // namespace detail

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/start.hpp>
#endif
