// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store of threads: a list under a lock. It is the reference model, for tests and for ranks that are threads of one
// process.
#pragma once

#include <pthread.h>

#include <vector>

#include <collx/bootstrap/store.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/locked_mutex.hpp>
#include <collx/core/monotonic_condition.hpp>

COLLX_BEGIN_NAMESPACE

class memory_store {
public:
    memory_store() = default;
    memory_store(const memory_store&) = delete;
    memory_store& operator=(const memory_store&) = delete;
    ~memory_store() { ::pthread_mutex_destroy(&mutex_); }

    void set(name_view key, name_view value) {
        detail::check_store_key(key);
        detail::check_store_value(value);
        const detail::locked_mutex here(mutex_);
        put(key, value);
    }
    kept_text get(name_view key, const deadline& until) {
        detail::check_store_key(key);
        const detail::locked_mutex here(mutex_);
        for (;;) {
            if (const kept_text* value = find(key)) return *value;
            if (until.passed()) detail::fail_store_timeout(key);
            changed_.wait(mutex_, until);
        }
    }
    std::int64_t add(name_view key, std::int64_t delta) {
        detail::check_store_key(key);
        const detail::locked_mutex here(mutex_);
        const std::int64_t sum = detail::add_to_text(find(key), delta, key);
        put(key, detail::joined({sum}));
        return sum;
    }
    void barrier(name_view name, int ranks, const deadline& until) {
        detail::barrier_by_counting(*this, name, ranks, until);
    }

private:
    struct entry {
        kept_text key, value;
    };
    kept_text* find(name_view key) {
        for (entry& e : entries_)
            if (e.key == key) return &e.value;
        return nullptr;
    }
    void put(name_view key, name_view value) {
        if (kept_text* held = find(key)) *held = value;
        else entries_.push_back({kept_text(key), kept_text(value)});
        changed_.broadcast();
    }

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    detail::monotonic_condition changed_;
    std::vector<entry> entries_;
};

COLLX_END_NAMESPACE
