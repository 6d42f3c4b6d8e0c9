// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads as ranks: the same program text as processes, in one process, without a launcher. For tests, lessons and
// machines without fork.
#pragma once

#include <pthread.h>

#include <cstring>
#include <exception>
#include <type_traits>

#include <collx/comm/communicator.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class F>
struct thread_rank {
    pthread_t thread{};
    counted_ptr<job> home;
    F* body = nullptr;
    std::exception_ptr error;

    static void* start(void* self) {
        auto& me = *static_cast<thread_rank*>(self);
        thread_job = me.home;
        try {
            communicator world;
            try {
                if constexpr (std::is_invocable_v<F&, communicator&>) (*me.body)(world);
                else (*me.body)();
            } catch (...) {
                me.error = std::current_exception();
                me.home->say_failed();
                // The others must not wait for this rank. (The body may have put another communicator into `world`.)
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
};

template <class F>
void run_thread_jobs(growing_array<counted_ptr<job>> jobs, F&& f) {
    const int n = static_cast<int>(jobs.size());
    using rank_type = thread_rank<std::remove_reference_t<F>>;
    growing_array<rank_type> ranks(jobs.size());
    for (int r = 0; r < n; ++r) {
        ranks[static_cast<std::size_t>(r)].home = std::move(jobs[static_cast<std::size_t>(r)]);
        ranks[static_cast<std::size_t>(r)].home->found_by = "run_threads";
        ranks[static_cast<std::size_t>(r)].body = &f;
    }
    int started = 0, reason = 0;
    const char* remedy = "";
    while (started < n && reason == 0) {
        auto& r = ranks[static_cast<std::size_t>(started)];
        reason = ::pthread_create(&r.thread, nullptr, &rank_type::start, &r);
        started += reason == 0;
        if (reason != 0) remedy = remedy_for_thread(); // while the others hold what is short
    }
    // Those who started wait for all in their first communicator, where they hear that some will not come.
    for (int r = started; r < n; ++r) {
        ranks[static_cast<std::size_t>(r)].home->say_failed();
        ranks[static_cast<std::size_t>(r)].home.reset(); // closes its listener
    }
    for (int r = 0; r < started; ++r) ::pthread_join(ranks[static_cast<std::size_t>(r)].thread, nullptr);
    if (started < n)
        fail(errc::resource, -1, started, remedy, "started %d of %d threads: %s", started, n, std::strerror(reason));
    std::exception_ptr first;
    for (auto& r : ranks) {
        if (!r.error) continue;
        try {
            std::rethrow_exception(r.error);
        } catch (const peer_failed&) {
            if (!first) first = r.error; // a consequence: keep looking for the cause
        } catch (const aborted&) {       // likewise, of what an operator threw, or a handle that was dropped
            if (!first) first = r.error;
        } catch (...) {
            first = r.error;
            break;
        }
    }
    if (first) std::rethrow_exception(first);
}

} // namespace detail

// Runs f on n threads, each with a communicator of all of them: f(communicator& world), or f() that makes its own.
// Returns when all have returned. Throws what the first rank to fail threw; ranks that waited for it see peer_failed.
// Example: collx::run_threads(4, [](collx::communicator& world) { int x = 1; collx::all_reduce(world, collx::value(x));
// });
template <class F>
void run_threads(int n, F&& f) {
    if (n < 1 || n > max_local_ranks)
        fail(errc::invalid_argument, -1, -1, "use 1 to 1024 threads", "run_threads(%d)", n);
    detail::run_thread_jobs(detail::thread_jobs(n), f);
}

// The same with threads that share memory only with those of the same number in `host_of` and talk over sockets to the
// others: what a program does on several hosts, in one process.
template <class F>
void run_threads(const detail::growing_array<int>& host_of, F&& f) {
    if (host_of.empty() || host_of.size() > max_local_ranks)
        fail(errc::invalid_argument, -1, -1, "use 1 to 1024 threads", "run_threads on hosts: %zu", host_of.size());
    bool is_one_host = true;
    for (const int h : host_of) is_one_host = is_one_host && h == host_of[0];
    detail::run_thread_jobs(
        is_one_host ? detail::thread_jobs(static_cast<int>(host_of.size())) : detail::thread_jobs(host_of), f);
}

// The same over these transports only: run_threads(per_peer{sockets{}}, 4, f) gives each thread a host of its own.
template <class F>
void run_threads(const transports& over, int n, F&& f) {
    if (n < 1 || n > max_local_ranks) return run_threads(n, f);
    detail::growing_array<int> host_of;
    for (int r = 0; r < n; ++r) host_of.push_back(r);
    auto jobs = over.use_memory || n == 1 ? detail::thread_jobs(n) : detail::thread_jobs(host_of, over);
    for (auto& j : jobs) j->settings.over = over;
    detail::run_thread_jobs(std::move(jobs), f);
}

COLLX_END_NAMESPACE
