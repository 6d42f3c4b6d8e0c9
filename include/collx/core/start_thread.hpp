// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Starts the library's own threads.
#pragma once

#include <pthread.h>

#include <cstring>

#include <collx/core/error.hpp>
#include <collx/core/signals_blocked.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] inline pthread_t start_thread(void* (*run)(void*), void* self, const char* name, const char* what,
                                            int rank) {
    pthread_t thread;
    const signals_blocked here; // the new thread inherits the mask: the program's handlers never run on it
    if (const int reason = ::pthread_create(&thread, nullptr, run, self); reason != 0)
        fail(errc::resource, rank, -1, remedy_for_thread(), "cannot start the thread %s: %s", what,
             std::strerror(reason));
    ::pthread_setname_np(thread, name);
    return thread;
}

// Starts a thread that runs (self->*Run)() with all signals blocked. The caller joins it. name: up to 15 characters,
// for debuggers. what: what it is for, for the error. Errors: resource.
template <auto Run, class T>
pthread_t start_thread(T* self, const char* name, const char* what, int rank = -1) {
    const auto run = [](void* object) -> void* {
        (static_cast<T*>(object)->*Run)();
        return nullptr;
    };
    return start_thread(run, self, name, what, rank);
}

} // namespace detail
COLLX_END_NAMESPACE
