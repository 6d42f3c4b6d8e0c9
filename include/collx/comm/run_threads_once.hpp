// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of run_threads.hpp.
#pragma once

#include <pthread.h>

#include <cstring>
#include <exception>
#include <utility>

#include <collx/comm/run_threads.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// One thread, its rank's job, and what it threw.
struct thread_rank {
    pthread_t thread{};
    counted_ptr<job> home;
    const thread_body* body = nullptr;
    std::exception_ptr error;

    static void* start(void* self);
};

[[gnu::cold]] COLLX_ONCE void* thread_rank::start(void* self) {
    auto& me = *static_cast<thread_rank*>(self);
    thread_job = me.home;
    try {
        communicator world(me.home);
        try {
            (*me.body)(world);
        } catch (...) {
            me.error = std::current_exception();
            me.home->say_failed();
            // The other ranks must not wait for this rank. (The body may have put another communicator into `world`.)
            if (!world.is_empty()) world.internals().net.report(failure(errc::peer_failed, world.rank()));
        }
    } catch (...) {
        if (!me.error) me.error = std::current_exception();
        me.home->say_failed();
    }
    thread_job.reset();
    me.home.reset(); // here, while the others still run: what was sent to them may be on its way
    return nullptr;
}

// Throws the error of the lowest rank that failed by itself, or, where all failed because of others, the first error.
[[gnu::cold]] inline void throw_first_error(const growing_array<thread_rank>& ranks) {
    std::exception_ptr first;
    for (const auto& r : ranks) {
        if (!r.error) continue;
        try {
            std::rethrow_exception(r.error);
        } catch (const peer_failed&) {
            if (!first) first = r.error; // a consequence: keep looking for the cause
        } catch (const aborted&) {       // a consequence of what an operator threw, or of a dropped handle
            if (!first) first = r.error;
        } catch (...) {
            first = r.error;
            break;
        }
    }
    if (first) std::rethrow_exception(first);
}

[[gnu::cold]] COLLX_ONCE void run_thread_jobs(growing_array<counted_ptr<job>> jobs, thread_body f) {
    const int n = static_cast<int>(jobs.size());
    growing_array<thread_rank> ranks(jobs.size());
    for (int r = 0; r < n; ++r) {
        auto& rank = ranks[r];
        rank.home = std::move(jobs[r]);
        rank.home->found_by = "run_threads";
        rank.body = &f;
    }
    int started = 0, reason = 0;
    const char* remedy = "";
    while (started < n && reason == 0) {
        auto& r = ranks[started];
        reason = ::pthread_create(&r.thread, nullptr, &thread_rank::start, &r);
        started += reason == 0;
        if (reason != 0) remedy = remedy_for_thread(); // while the others hold the resource that is short
    }
    // The started ranks wait for all others in their first communicator; it learns here that some will not come.
    for (int r = started; r < n; ++r) {
        ranks[r].home->say_failed();
        ranks[r].home.reset(); // closes its listener
    }
    for (int r = 0; r < started; ++r) ::pthread_join(ranks[r].thread, nullptr);
    if (started < n)
        fail(errc::resource, -1, started, remedy, "started %d of %d threads: %s", started, n, std::strerror(reason));
    throw_first_error(ranks);
}

[[gnu::cold]] COLLX_ONCE void run_on_threads(int n, thread_body f) {
    if (n < 1 || n > max_local_ranks)
        fail(errc::invalid_argument, -1, -1, "use 1 to 1024 threads", "run_threads(%d)", n);
    run_thread_jobs(thread_jobs(n), f);
}

[[gnu::cold]] COLLX_ONCE void run_on_threads(const growing_array<int>& host_of, thread_body f) {
    if (host_of.empty() || host_of.size() > max_local_ranks)
        fail(errc::invalid_argument, -1, -1, "use 1 to 1024 threads", "run_threads on hosts: %zu", host_of.size());
    bool is_one_host = true;
    for (const int h : host_of) is_one_host = is_one_host && h == host_of[0];
    run_thread_jobs(is_one_host ? thread_jobs(static_cast<int>(host_of.size())) : thread_jobs(host_of), f);
}

[[gnu::cold]] COLLX_ONCE void run_on_threads(const transports& over, int n, thread_body f) {
    if (n < 1 || n > max_local_ranks) return run_on_threads(n, f);
    growing_array<int> host_of;
    for (int r = 0; r < n; ++r) host_of.push_back(r);
    auto jobs = over.use_memory || n == 1 ? thread_jobs(n) : thread_jobs(host_of, over);
    for (auto& j : jobs) j->settings.over = over;
    run_thread_jobs(std::move(jobs), f);
}

} // namespace detail
COLLX_END_NAMESPACE
