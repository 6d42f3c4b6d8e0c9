// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Implements world.hpp: finds the job of this process and joins it, if its launcher gave it a name and all ranks share
// memory. net_start.hpp joins all other jobs. Part of every program, or compiled once in collx::collx.
#pragma once

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/host.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/join.hpp>
#include <collx/job/world.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Throws if a call asks for other transports than the job's: a job is joined only once.
inline const counted_ptr<job>& require_same(const counted_ptr<job>& j, const transports* over) {
    if (over != nullptr && !(*over == j->settings.over))
        fail(errc::invalid_argument, j->rank, -1, "give all communicators of a process the same per_peer",
             "this process has joined its job over per_peer{%s}, and is asked for per_peer{%s}", j->settings.over.text,
             over->text);
    return j;
}

// Joins the process's job in a program that has no net component.
[[gnu::cold]] inline counted_ptr<job> join_near(const job_description& d, const transports* over) {
    job_settings s;
    if (over != nullptr) s.over = *over;
    if (d.size > 1 && (d.job.empty() || d.local_size < d.size))
        fail_for_net(d.rank,
                     joined({d.found_by, " says that ", d.size, " ranks meet through a store or a process manager"}));
    if (d.size > 1 && !s.over.use_memory && s.over.custom == nullptr)
        fail_for_net(d.rank, joined({"per_peer{", s.over.text, "} has no shm"}));
    settings_from(d, s);
    settle_waiting(d, d.local_size, s);
    return join_processes(d.job.c_str(), d.rank, d.size, s, d.arena_bytes, d.found_by, deadline::in_ns(d.timeout_ns),
                          connection_words({})); // another rank's program may have the component
}

[[gnu::cold]] COLLX_ONCE counted_ptr<job> this_job(const transports* over) {
    if (thread_job) return require_same(thread_job, over);
    static counted_ptr<job> process_job;
    if (process_job && process_job->mark.is_child())
        fail(errc::forked, process_job->rank, -1, "fork before the first communicator is made",
             "this process is a fork() of a rank");
    if (process_job) return require_same(process_job, over);
    job_description d = describe_job();
    auto j = net_starter != nullptr ? net_starter->join(d, over) : join_near(d, over);
    process_job = j = join_custom(j);
    return j;
}

[[gnu::cold]] COLLX_ONCE duration time_limit_by_variables() {
    job_description d;
    read_settings(environment(), d);
    return duration::from_ns(d.timeout_ns);
}

[[gnu::cold]] COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(int n) {
    const auto memory = make_memory_arena(n, arena_bytes_for(n));
    const job_settings s = settings_for(n);
    growing_array<counted_ptr<job>> jobs;
    for (int r = 0; r < n; ++r) jobs.push_back(make_counted<job>(memory, r, n, s, true));
    return jobs;
}

} // namespace detail

COLLX_END_NAMESPACE
