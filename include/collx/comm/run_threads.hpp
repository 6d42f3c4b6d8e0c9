// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads as ranks: the same program as with processes, in one process, without a launcher. For tests, lessons and
// machines without fork.
#pragma once

#include <type_traits>

#include <collx/comm/communicator.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The body of each thread, f(communicator&) or f(), without the type of f: code that starts and joins threads is
// compiled once, not for each lambda. Refers to f, so it may only be used as an argument.
class thread_body {
public:
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, thread_body>)
        thread_body(F&& f) // NOLINT(google-explicit-constructor)
        : object_(const_cast<void*>(reinterpret_cast<const volatile void*>(
              __builtin_addressof(f)))), // std::addressof is in <memory>, which includes <ostream>
          call_([](void* object, communicator& world) {
              auto& g = *reinterpret_cast<std::remove_reference_t<F>*>(object);
              if constexpr (std::is_invocable_v<F&, communicator&>) g(world);
              else if constexpr (std::is_invocable_v<F&>) g();
          }) {
        static_assert(std::is_invocable_v<F&, communicator&> || std::is_invocable_v<F&>,
                      "collx: run_threads() runs f(collx::communicator&) or f()");
    }
    void operator()(communicator& world) const { call_(object_, world); }

private:
    void* object_;
    void (*call_)(void* object, communicator& world);
};

// Runs one thread for each job, and f in each.
[[gnu::cold]] COLLX_ONCE void run_thread_jobs(growing_array<counted_ptr<job>> jobs, thread_body f);
[[gnu::cold]] COLLX_ONCE void run_on_threads(int n, thread_body f);
[[gnu::cold]] COLLX_ONCE void run_on_threads(const growing_array<int>& host_of, thread_body f);
[[gnu::cold]] COLLX_ONCE void run_on_threads(const transports& over, int n, thread_body f);

} // namespace detail

// Runs f on n threads, each with a communicator of all of them: f(communicator& world), or f() that makes its own.
// Returns when all have returned. Throws what the lowest rank that failed by itself threw; others see peer_failed.
// Example: collx::run_threads(4, [](collx::communicator& world) { collx::barrier(world); });
template <class F>
void run_threads(int n, F&& f) {
    detail::run_on_threads(n, f);
}

// The same, but only threads with the same number in `host_of` share memory. The others communicate over sockets, as
// ranks on several hosts do.
template <class F>
void run_threads(const detail::growing_array<int>& host_of, F&& f) {
    detail::run_on_threads(host_of, f);
}

// The same over these transports only: run_threads(per_peer{sockets{}}, 4, f) gives each thread a host of its own.
template <class F>
void run_threads(const transports& over, int n, F&& f) {
    detail::run_on_threads(over, n, f);
}

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/run_threads_once.hpp>
#endif
