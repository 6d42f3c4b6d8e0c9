// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How `collx::communicator world;` finds its job: the one of run_threads in its threads, else the one of this process,
// joined at first use from what the launcher left in the environment.
#pragma once

#include <collx/core/pointers.hpp>
#include <string>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/meet.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/unique_id.hpp>
#include <collx/comm/job.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline job_settings settings_for(int local_ranks) {
    job_settings s;
    const int cores = usable_cores();
    s.oversubscribed = local_ranks > cores;
    s.waiting = wait_policy::for_ranks(local_ranks, cores);
    return s;
}

inline counted_ptr<job> join_processes(const char* token, int rank, int size, const job_settings& s,
                                       std::size_t arena_bytes, const char* found_by) {
    if (arena_bytes == 0) arena_bytes = arena_bytes_for(size);
    auto memory = size == 1 ? make_memory_arena(1, arena_bytes)
                            : join_shm(token, rank, size, deadline::in_ns(s.timeout_ns), arena_bytes);
    auto j = make_counted<job>(std::move(memory), rank, size, s, size == 1);
    j->found_by = found_by;
    return j;
}

// Processes share memory, so far nothing else.
inline void require_one_host(const job_description& d) {
    if (d.local_size < d.size)
        fail(errc::unsupported, d.rank, -1, "start all ranks on one host: this version has no transport between hosts",
             "%s says that only %d of %d ranks are on this host", d.found_by, d.local_size, d.size);
}

// The process's job: joined when the first communicator is made, left when the process ends, so that communicators may
// come and go.
inline counted_ptr<job> this_job() {
    if (thread_job) return thread_job;
    static counted_ptr<job> process_job;
    if (process_job && process_job->mark.is_child())
        fail(errc::forked, process_job->rank, -1, "fork before the first communicator is made",
             "this process is a fork() of a rank");
    if (process_job) return process_job;
    job_description d = describe_job();
    require_one_host(d); // what the environment says
    const deadline until = deadline::in_ns(d.timeout_ns);
    meet(d, until);
    require_one_host(d); // what the launcher said meanwhile
    job_settings s = settings_for(d.local_size);
    s.timeout_ns = d.timeout_ns;
    if (d.checked >= 0) s.checked = d.checked == 1;
    if (d.waiting == wait_choice::spin) s.waiting.spins = UINT32_MAX;
    if (d.waiting == wait_choice::yield) s.waiting.spins = 0;
    s.lend = static_cast<lending>(d.lending);
    auto j = join_processes(d.job.c_str(), d.rank, d.size, s, d.arena_bytes, d.found_by);
    process_job = j;
    return j;
}

template <class Store>
counted_ptr<job> join_by_store(int rank, int size, Store& store, std::int64_t timeout_ns) {
    job_settings s = settings_for(size);
    s.timeout_ns = timeout_ns;
    const std::string token = rendezvous(store, rank, size, deadline::in_ns(timeout_ns));
    return join_processes(token.c_str(), rank, size, s, 0, "store");
}

inline counted_ptr<job> join_by_id(const unique_id& id, int rank, int size, std::int64_t timeout_ns, int local_size) {
    if (size < 1 || rank < 0 || rank >= size)
        fail(errc::invalid_argument, rank, -1, "", "rank %d of %d ranks", rank, size);
    job_settings s = settings_for(local_size);
    s.timeout_ns = timeout_ns;
    const std::string name(id.job(rank));
    return join_processes(name.c_str(), rank, size, s, 0, "unique id");
}

} // namespace detail

COLLX_END_NAMESPACE
