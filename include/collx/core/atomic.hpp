// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Words that threads and processes share, made of compiler builtins. The standard's <atomic> includes <string> in C++20
// (in libstdc++ waiting uses a mutex, whose errors have texts), which costs every user of collx.hpp 0.1 s. Names and
// meanings are the standard's. Functions are always inlined: otherwise the compiler does not know the order and uses
// the strongest one. Every type is lock-free on the machines that collx runs on.
#pragma once

#include <type_traits>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// The ordering of a load or store, as std::memory_order.
enum class memory_order : int {
    relaxed = __ATOMIC_RELAXED,
    acquire = __ATOMIC_ACQUIRE,
    release = __ATOMIC_RELEASE,
    acq_rel = __ATOMIC_ACQ_REL,
    seq_cst = __ATOMIC_SEQ_CST
};

template <class T>
class atomic {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(void*) &&
                      __atomic_always_lock_free(sizeof(T), nullptr),
                  "collx: an atomic is a word that the machine reads and writes at once");

public:
    atomic() = default;
    constexpr atomic(T value) : value_(value) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    [[gnu::always_inline]] T load(memory_order order = memory_order::seq_cst) const {
        T value; // clang 14 has __atomic_load_n only for integers and pointers, not for enumerations
        __atomic_load(&value_, &value, static_cast<int>(order));
        return value;
    }
    [[gnu::always_inline]] void store(T value, memory_order order = memory_order::seq_cst) {
        __atomic_store(&value_, &value, static_cast<int>(order));
    }
    [[gnu::always_inline]] T exchange(T value, memory_order order = memory_order::seq_cst) {
        return __atomic_exchange_n(&value_, value, static_cast<int>(order));
    }
    // On failure returns false and sets `expected` to the value found.
    [[gnu::always_inline]] bool compare_exchange_strong(T& expected, T desired,
                                                        memory_order order = memory_order::seq_cst) {
        return __atomic_compare_exchange_n(&value_, &expected, desired, false, static_cast<int>(order),
                                           on_failure(order));
    }
    [[gnu::always_inline]] bool compare_exchange_weak(T& expected, T desired,
                                                      memory_order order = memory_order::seq_cst) {
        return __atomic_compare_exchange_n(&value_, &expected, desired, true, static_cast<int>(order),
                                           on_failure(order));
    }
    [[gnu::always_inline]] T fetch_add(T by, memory_order order = memory_order::seq_cst) {
        return __atomic_fetch_add(&value_, by, static_cast<int>(order));
    }
    [[gnu::always_inline]] T fetch_sub(T by, memory_order order = memory_order::seq_cst) {
        return __atomic_fetch_sub(&value_, by, static_cast<int>(order));
    }
    [[gnu::always_inline]] T fetch_or(T bits, memory_order order = memory_order::seq_cst) {
        return __atomic_fetch_or(&value_, bits, static_cast<int>(order));
    }

private:
    // A failed exchange writes nothing, so there is nothing to release.
    static constexpr int on_failure(memory_order order) {
        return order == memory_order::acq_rel   ? __ATOMIC_ACQUIRE
               : order == memory_order::release ? __ATOMIC_RELAXED
                                                : static_cast<int>(order);
    }
    alignas(sizeof(T)) T value_{};
};

// A flag that one thread at a time can set, as std::atomic_flag.
class atomic_flag {
public:
    bool test_and_set(memory_order order = memory_order::seq_cst) { return set_.exchange(true, order); }
    void clear(memory_order order = memory_order::seq_cst) { set_.store(false, order); }

private:
    atomic<bool> set_{false};
};

COLLX_END_NAMESPACE
