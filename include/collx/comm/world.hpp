// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How `collx::communicator world;` finds its job: the one of run_threads in its threads, else the one of this process, joined at first use from what
// the launcher left in the environment.
#pragma once

#include <memory>
#include <string>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/store.hpp>
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

inline std::shared_ptr<job> join_processes(const char* token, int rank, int size, const job_settings& s, const char* found_by) {
    auto memory = size == 1 ? make_memory_arena(1) : join_shm(token, rank, size, deadline::in_ns(s.timeout_ns));
    auto j = std::make_shared<job>(std::move(memory), rank, size, s, size == 1);
    j->found_by = found_by;
    return j;
}

inline std::shared_ptr<job> this_job() {
    if (thread_job) return thread_job;
    static std::weak_ptr<job> process_job;  // lives as long as a communicator of it
    if (auto j = process_job.lock(); j && !j->mark.is_child()) return j;
    const job_description d = describe_job();
    job_settings s = settings_for(d.local_size);
    if (d.timeout_ns > 0) s.timeout_ns = d.timeout_ns;
    auto j = join_processes(d.job.c_str(), d.rank, d.size, s, d.found_by);
    process_job = j;
    return j;
}

template <class Store>
std::shared_ptr<job> join_by_store(int rank, int size, Store& store, std::int64_t timeout_ns) {
    job_settings s = settings_for(size);
    s.timeout_ns = timeout_ns;
    const std::string token = rendezvous(store, rank, size, deadline::in_ns(timeout_ns));
    return join_processes(token.c_str(), rank, size, s, "store");
}

}  // namespace detail

COLLX_END_NAMESPACE
