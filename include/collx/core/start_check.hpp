// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether the start has failed on another rank. Transports ask while they wait during start-up. The bootstrap answers:
// it receives such failures through the store.
#pragma once

#include <collx/core/clock.hpp>

COLLX_BEGIN_NAMESPACE

class start_check {
public:
    static constexpr std::int64_t interval_ns = 10'000'000; // between two requests to the store
    // Throws the failure that ended the start. Never blocks, and is cheap enough for every turn of a waiting loop.
    virtual void throw_if_ended() = 0;
    // Whether throw_if_ended() has thrown. Its error is then the verdict that all ranks share, and it replaces any
    // error that the waiting code observed itself.
    virtual bool has_ended() const = 0;

protected:
    ~start_check() = default;
};

namespace detail {

// The deadline of a wait in the kernel: `until` or the next request to the store, whichever comes first.
inline deadline next_look(const start_check* check, const deadline& until) {
    if (check == nullptr) return until;
    const deadline soon = deadline::in_ns(start_check::interval_ns);
    return soon.at_ns < until.at_ns ? soon : until;
}

} // namespace detail

COLLX_END_NAMESPACE
