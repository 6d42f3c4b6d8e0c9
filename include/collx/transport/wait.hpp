// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How to wait for another rank: spin while an answer can come within a cache-line transfer, yield the core when ranks
// share it, nap when the wait has become long. No system call ends a wait, so publishing stays one store. The price is
// a delay of at most an eighth of the time already waited (docs/design/waiting.md).
#pragma once

#include <sched.h>
#include <time.h>

#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Lets the other hardware thread of the core go first, between two looks at a word. Takes some tens of cycles: ARM's
// `yield` does nothing on most cores, and `isb`, which empties the pipeline, takes about as long as x86's `pause`.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

// spins: polls before the core is offered to others. nap_after_ns: waiting time after which it sleeps between polls.
struct wait_policy {
    unsigned spins = 4000;
    std::int64_t nap_after_ns = 2'000'000;
    constexpr bool operator==(const wait_policy&) const = default;

    // One core each: a line transfer takes 0.03 to 0.3 us, so spin first. More ranks than cores: the awaited rank may
    // need this very core.
    static constexpr wait_policy for_ranks(int local_ranks, int cores) {
        return {.spins = local_ranks > cores ? 0u : 4000u, .nap_after_ns = 2'000'000};
    }
    // Polling sockets is a system call: thousands of polls before others get the core are pointless.
    constexpr wait_policy across_hosts() const {
        return {.spins = spins > 32 && spins != UINT32_MAX ? 32 : spins, .nap_after_ns = nap_after_ns};
    }
};

// The cores that this process may run on.
inline cpu_set_t core_set() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    return set;
}
inline int usable_cores() {
    const cpu_set_t set = core_set();
    return CPU_COUNT(&set);
}

// One wait. pause() is called after each poll that found nothing. It returns true when the slow checks are due: are all
// ranks alive, has one aborted, has the deadline passed.
class backoff {
public:
    explicit backoff(const wait_policy& p) : policy_(p) {}

    bool pause() {
        if (++turn_ <= policy_.spins) {
            cpu_relax();
            return (turn_ & 1023) == 0;
        }
        if (nap_ns_ == 0) {
            sched_yield();
            const std::int64_t now = now_ns();
            if (asked_at_ns_ == 0) asked_at_ns_ = now;
            const bool is_turn = ((turn_ - policy_.spins) & 63) == 0;
            // Beside busy programs a yield takes as long as their time slices.
            if (!is_turn && now - asked_at_ns_ < longest_unasked_ns) return false;
            asked_at_ns_ = now;
            if (is_turn && since_ == 0) since_ = now;
            if (is_turn && now - since_ > policy_.nap_after_ns) nap_ns_ = 20'000;
            return true;
        }
        const timespec t{0, static_cast<long>(nap_ns_)};
        nanosleep(&t, nullptr);
        const std::int64_t waited = now_ns() - since_;
        nap_ns_ = waited / 8 < 1'000'000 ? waited / 8 : 1'000'000;
        return true;
    }
    // Something has moved. asked_at_ns_ stays: messages that keep coming must not put off the slow checks for ever.
    void reset() {
        turn_ = 0;
        since_ = 0;
        nap_ns_ = 0;
    }

private:
    static constexpr std::int64_t longest_unasked_ns = 1'000'000;
    wait_policy policy_;
    unsigned turn_ = 0;
    std::int64_t since_ = 0, nap_ns_ = 0, asked_at_ns_ = 0;
};

COLLX_END_NAMESPACE
