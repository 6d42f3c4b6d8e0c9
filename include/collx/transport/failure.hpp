// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two words that ranks leave for each other when things go wrong: what ended a communicator, and whom a rank waits
// for. Each fits one atomic word, and one frame between hosts.
#pragma once

#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE

// What ended a communicator: errc + 1 in the upper half (0: nothing), the guilty rank + 1 in the lower. The uppermost bit
// says that all ranks had come to use the communicator: such a failure does not end the making of it on a rank that is
// still about that, but the next call there. It travels with the word and is also set while nothing has failed.
struct failure {
    static constexpr std::uint64_t all_came_bit = std::uint64_t{1} << 63;
    std::uint64_t word = 0;
    constexpr failure() = default;
    constexpr explicit failure(std::uint64_t w) : word(w) {}
    constexpr failure(errc code, int rank)
        : word((static_cast<std::uint64_t>(code) + 1) << 32 |
               static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank + 1))) {}
    constexpr explicit operator bool() const { return (word & ~all_came_bit) != 0; }
    constexpr bool has_all_come() const { return (word & all_came_bit) != 0; }
    constexpr std::uint64_t code_word() const { return (word & ~all_came_bit) >> 32; } // 0: nothing failed
    constexpr errc code() const { return static_cast<errc>(code_word() - 1); }
    constexpr int rank() const { return static_cast<int>(word & 0xffff'ffff) - 1; }
};

// Puts a failure into a communicator's word: the first one stays.
inline void report_in(atomic<std::uint64_t>& word, failure f) {
    std::uint64_t was = word.load(memory_order::acquire);
    while (!failure(was))
        if (word.compare_exchange_strong(was, was | f.word, memory_order::acq_rel)) return;
    if (f.has_all_come() && !failure(was).has_all_come()) word.fetch_or(failure::all_came_bit, memory_order::acq_rel);
}

// What a rank that waits says of itself from time to time, so that who loses patience can name the rank at the end of
// the chain and not just its neighbour. When (in units of 2^16 ns) in the upper 48 bits, rank it waits for + 1 in the
// lower 16. Not taken back when the wait ends: an old word says nothing.
struct waiting_word {
    std::uint64_t word = 0;
    waiting_word() = default;
    explicit waiting_word(std::uint64_t w) : word(w) {}
    waiting_word(std::int64_t now, int peer)
        : word(static_cast<std::uint64_t>(now) >> 16 << 16 | static_cast<std::uint64_t>(peer < 0 ? 0 : peer + 1)) {}
    std::int64_t said_at_ns() const { return static_cast<std::int64_t>(word >> 16 << 16); }
    int peer() const { return static_cast<int>(word & 0xffff) - 1; }
    // For how long what a rank said tells that it still waits. Who waits says so every few milliseconds, if it runs: on
    // a busy machine it may not for a good part of a second.
    static constexpr std::int64_t fresh_ns(std::int64_t limit_ns) {
        const std::int64_t busy_ns = limit_ns / 4 * 3 < 1'000'000'000 ? limit_ns / 4 * 3 : 1'000'000'000;
        return limit_ns / 4 > busy_ns ? limit_ns / 4 : busy_ns;
    }
};

COLLX_END_NAMESPACE
