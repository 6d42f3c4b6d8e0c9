// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a program gets its job: that of run_threads in its threads, otherwise that of this process, joined at first use
// from what the launcher left in the environment. Implemented in start.hpp and, for jobs that need sockets, in
// net_start.hpp (collx/net.hpp); a program that links collx::collx compiles neither.
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/bootstrap/unique_id.hpp>
#include <collx/core/config.hpp>
#include <collx/core/duration.hpp>
#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/job.hpp>
#include <collx/transport/custom_connector.hpp>

COLLX_BEGIN_NAMESPACE

class any_store;
struct socket_calls;
struct host_description;
struct job_protection;
struct job_description;
struct communicator_core;

namespace detail {

// What a program needs for jobs beyond threads and the processes that one launcher started on one host: stores, process
// managers, sockets, RDMA.
struct net_component {
    counted_ptr<job> (*join)(job_description&, const transports* over);
    counted_ptr<job> (*by_store)(int rank, int size, any_store&, std::int64_t timeout_ns, const transports&);
    counted_ptr<job> (*by_id)(const unique_id&, int rank, int size, std::int64_t timeout_ns, const transports&);
    growing_array<counted_ptr<job>> (*threads_on_hosts)(const growing_array<int>& host_of, const transports&);
    growing_array<std::uint64_t> (*survivors)(communicator_core&, std::uint32_t round,
                                              sole_ptr<job_attachment>& answers);
};
#if defined(COLLX_COMPILED)
extern const net_component* net_starter;
#else
// Written by: the initialisation of a program that includes collx/net.hpp; read by: start-up.
inline const net_component* net_starter = nullptr;
#endif

// Errors: unsupported in a program without that component.
[[noreturn, gnu::cold]] inline void fail_for_net(int rank, const kept_text& why) {
    fail(errc::unsupported, rank, -1,
         "include <collx/net.hpp> in one source of the program, or link CMake's collx::collx",
         "%s, and this program was compiled for the threads and processes of one host", why.c_str());
}
inline const net_component& require_net(int rank, const char* why) {
    if (net_starter == nullptr) fail_for_net(rank, why);
    return *net_starter;
}

template <class S>
class store_face; // of a Store: in bootstrap/store.hpp, which a program with a store includes

// Returns the process's job. It is joined when the first communicator is made and left when the process ends, so that
// communicators may come and go. over: null: what it was joined over, or all transports.
// Errors: invalid_argument when it was joined over others.
COLLX_ONCE counted_ptr<job> this_job(const transports* over = nullptr);

// The job to use from here on: over the program's own transport if the job's per_peer has one. Collective then.
inline counted_ptr<job> join_custom(const counted_ptr<job>& near) {
    const custom_transport* const own = near->settings.over.custom;
    return own != nullptr ? own->join(near) : near;
}

// COLLX_TIMEOUT, or 60 seconds. Errors: environment where a variable makes no sense.
COLLX_ONCE duration time_limit_by_variables();

// Checks a time limit of a communicator, or of its start.
inline std::int64_t require_some_time(int rank, std::int64_t ns) {
    if (ns <= 0) [[unlikely]]
        fail(errc::invalid_argument, rank, -1, "say std::chrono::nanoseconds::max() for ever",
             "a time limit of %lld ns, which every wait would be past", static_cast<long long>(ns));
    return ns;
}

inline counted_ptr<job> join_by_store(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                      const transports& over) {
    return join_custom(
        require_net(rank, "a store brings ranks together").by_store(rank, size, store, timeout_ns, over));
}
template <class Store>
counted_ptr<job> join_by_store(int rank, int size, Store& store, std::int64_t timeout_ns, const transports& over) {
    if constexpr (std::is_base_of_v<any_store, Store>) {
        return join_by_store(rank, size, static_cast<any_store&>(store), timeout_ns, over);
    } else {
        store_face<Store> face(store);
        return join_by_store(rank, size, static_cast<any_store&>(face), timeout_ns, over);
    }
}

// Joins as a rank of that host, whatever the environment says, with the given system calls: for tests. (net_start.hpp)
COLLX_ONCE counted_ptr<job> join_by_store(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                          const host_description& h, const socket_calls& calls);

inline counted_ptr<job> join_by_id(const unique_id& id, int rank, int size, std::int64_t timeout_ns,
                                   const transports& over) {
    return join_custom(require_net(rank, "a unique id brings ranks together").by_id(id, rank, size, timeout_ns, over));
}

// Jobs of n threads that share memory.
COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(int n);
// Jobs of threads of which only some share memory, as if they were on several hosts. They listen on loopback.
inline growing_array<counted_ptr<job>> thread_jobs(const growing_array<int>& host_of, const transports& over = {}) {
    if (over.custom != nullptr) return over.custom->join_threads(host_of, over);
    return require_net(-1, "these threads do not all share memory").threads_on_hosts(host_of, over);
}
// by: one for each rank, or null. at: an address to listen on, see host_description. (net_start.hpp)
COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(const detail::growing_array<int>& host_of,
                                                       const socket_calls& calls, const job_protection* by = nullptr,
                                                       const char* at = "127.0.0.1", int lanes = 1,
                                                       const transports& over = {});

} // namespace detail

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/job/start.hpp>
#endif
