// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two words by which ranks inform each other of failures: what ended a communicator, and for whom a rank waits.
// Each fits one atomic word, and one frame between hosts.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/clock.hpp>
#include <collx/core/error.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE

// What ended a communicator: errc + 1 in the upper half (0: nothing), the guilty rank + 1 in the lower half. The
// uppermost bit says that all ranks had begun to use the communicator. A rank that is still making it then completes
// it, and the failure ends its next call. The bit travels with the word, and is also set while nothing has failed.
struct failure {
    static constexpr std::uint64_t all_came_bit = std::uint64_t{1} << 63;
    // Of a timeout: ranks wait for each other in a circle, and `rank` is one of them (waiting_words name the others).
    static constexpr std::uint64_t circle_bit = std::uint64_t{1} << 62;
    // For errc::resource: four bits above the code say what that rank is short of.
    static constexpr int shortage_at = 56;
    static constexpr std::uint64_t shortage_bits = std::uint64_t{15} << shortage_at;
    static_assert(static_cast<int>(detail::last_shortage) < 16);
    std::uint64_t word = 0;
    constexpr failure() = default;
    constexpr explicit failure(std::uint64_t w) : word(w) {}
    constexpr failure(errc code, int rank)
        : word(static_cast<std::uint64_t>(code) << 32 |
               static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank + 1))) {}
    constexpr failure(errc code, int rank, detail::shortage s) : failure(code, rank) {
        word |= static_cast<std::uint64_t>(s) << shortage_at;
    }
    constexpr explicit operator bool() const { return (word & ~all_came_bit) != 0; }
    constexpr bool has_all_come() const { return (word & all_came_bit) != 0; }
    constexpr bool is_circle() const { return (word & circle_bit) != 0; }
    constexpr std::uint64_t code_word() const { // 0: nothing failed
        return (word & ~(all_came_bit | circle_bit | shortage_bits)) >> 32;
    }
    constexpr errc code() const { return static_cast<errc>(code_word()); }
    constexpr detail::shortage short_of() const { // `unknown`: a value that this library does not know
        const auto s = (word & shortage_bits) >> shortage_at;
        return s > static_cast<std::uint64_t>(detail::last_shortage) ? detail::shortage::unknown
                                                                     : static_cast<detail::shortage>(s);
    }
    static constexpr failure no_descriptor(int rank, int reason) { // reason: errno of the failed call
        return failure(errc::resource, rank, detail::shortage_of_descriptor(reason));
    }
    static constexpr failure circle_of(int rank) { return failure(failure(errc::timeout, rank).word | circle_bit); }
    constexpr int rank() const { return static_cast<int>(word & 0xffff'ffff) - 1; }
    // Whether the word is valid in a communicator of that many ranks: words from other processes are checked.
    constexpr bool is_sound(int ranks) const {
        return is_errc(static_cast<std::int64_t>(code_word())) && rank() >= (is_circle() ? 0 : -1) && rank() < ranks;
    }
};

// A message that this rank did not expect, for the text of the error.
struct odd_message {
    static constexpr std::size_t unknown = SIZE_MAX;
    int peer = -1;                      // -1: none
    std::size_t came = 0, expected = 0; // bytes
    std::size_t whole = 0;              // of all messages of which this was the first that differs
};

// Stores a failure in a communicator's word. The first failure stays.
inline void report_in(atomic<std::uint64_t>& word, failure f) {
    std::uint64_t was = word.load(memory_order::acquire);
    while (!failure(was))
        if (word.compare_exchange_strong(was, was | f.word, memory_order::acq_rel)) return;
    if (f.has_all_come() && !failure(was).has_all_come()) word.fetch_or(failure::all_came_bit, memory_order::acq_rel);
}

// The rank that a rank waits for, and what for. An operation with several strands names one of several ranks.
struct awaited {
    enum class why : std::uint8_t { one_of_several, message, room }; // room: it sends, and the peer does not receive
    int rank = -1;
    why what = why::one_of_several;
    constexpr awaited() = default;
    constexpr awaited(int peer, why w = why::one_of_several) : rank(peer), what(w) {}
    constexpr operator int() const { return rank; }
};

// A waiting rank publishes this word from time to time, so that a rank that times out can name the rank at the end of
// the chain and not just its neighbour. The upper 48 bits hold the time (in units of 2^16 ns), the next 2 what it waits
// for, the lower 14 the awaited rank + 1. The word is not cleared when the wait ends: an old word says nothing. The
// uppermost bit says that the rank makes no more calls. Other hosts do not get it: it could overtake the rank's
// messages.
struct waiting_word {
    static constexpr std::int64_t unit_ns = 1 << 16;
    static constexpr int most_ranks = (1 << 14) - 1;
    static constexpr std::uint64_t end_bit = std::uint64_t{1} << 63;
    std::uint64_t word = 0;
    waiting_word() = default;
    explicit waiting_word(std::uint64_t w) : word(w) {}
    waiting_word(std::int64_t now, awaited a)
        : word(static_cast<std::uint64_t>(now) >> 16 << 16 | static_cast<std::uint64_t>(a.what) << 14 |
               static_cast<std::uint64_t>(a.rank < 0 || a.rank >= most_ranks ? 0 : a.rank + 1)) {}
    std::int64_t said_at_ns() const { return static_cast<std::int64_t>((word & ~end_bit) >> 16 << 16); }
    int peer() const { return static_cast<int>(word & most_ranks) - 1; }
    awaited::why what() const { return static_cast<awaited::why>(word >> 14 & 3); }
    bool is_end() const { return (word & end_bit) != 0; } // stays true
    // For how long a word shows that its rank still waits. A waiting rank renews its word every few milliseconds while
    // it runs. On a busy machine it may not run for a good part of a second.
    static constexpr std::int64_t fresh_ns(std::int64_t limit_ns) {
        const std::int64_t busy_ns = limit_ns / 4 * 3 < 1'000'000'000 ? limit_ns / 4 * 3 : 1'000'000'000;
        return limit_ns / 4 > busy_ns ? limit_ns / 4 : busy_ns;
    }
    // The interval at which it is sent to other hosts, which pass it on: from k hosts away it is k intervals late.
    static constexpr std::int64_t pause_ns(std::int64_t limit_ns) {
        return limit_ns / 64 < 1'000'000'000 ? limit_ns / 64 : 1'000'000'000;
    }
};

// The words of all ranks of a communicator, as far as they are known on this host. Each rank of this host writes its
// own word. The word of another rank is written by any rank here that receives it, and the newest stays.
struct waiting_words {
    atomic<std::uint64_t>* at = nullptr; // null: nothing is kept
    int ranks = 0;
    waiting_word of(int r) const { return waiting_word(at[r].load(memory_order::acquire)); }
    void say_end(int r) const { at[r].fetch_or(waiting_word::end_bit, memory_order::release); }
    void say(int r, waiting_word w) const { at[r].store(w.word, memory_order::relaxed); }
    void hear(int r, waiting_word w) const {
        std::uint64_t was = of(r).word; // what another host heard of a rank here is older than what this rank says
        if (!waiting_word(was).is_end() && waiting_word(was).said_at_ns() < w.said_at_ns())
            (void)at[r].compare_exchange_strong(was, w.word, memory_order::relaxed);
    }
    // From another host, with its age: clocks of hosts differ. False for a word of no rank of this communicator, or for
    // none. Does nothing where no words are kept.
    bool hear_from_host(std::uint32_t r, std::uint32_t low, std::uint32_t age) const {
        if (at == nullptr) return true;
        const auto most = static_cast<std::uint32_t>(ranks);
        if (r >= most || low >> 14 > 2 || (low & waiting_word::most_ranks) > most) return false;
        const std::uint64_t now = static_cast<std::uint64_t>(now_ns()) >> 16;
        hear(static_cast<int>(r), waiting_word((now > age ? now - age : 0) << 16 | low));
        return true;
    }
};

// The words of a chain of waiting ranks, on their way to another host. say(rank, lower 16 bits, age) sends one; false:
// there is no room, and the rest is sent next time.
struct waiting_chain {
    int first = -1, next = -1, left = 0; // next: whose word is owed; -1: none
    void begin(const waiting_words& words, int rank) {
        if (words.at != nullptr) {
            first = next = rank;
            left = words.ranks;
        }
    }
    template <class Say>
    void send(const waiting_words& words, Say&& say) {
        for (const std::int64_t now = next < 0 ? 0 : now_ns(); next >= 0;) {
            const waiting_word w = words.of(next);
            const std::int64_t age = (now - w.said_at_ns()) / waiting_word::unit_ns;
            const bool is_known = w.word != 0 && age < UINT32_MAX;
            if (is_known && !say(static_cast<std::uint32_t>(next), static_cast<std::uint32_t>(w.word & 0xffff),
                                 static_cast<std::uint32_t>(age < 0 ? 0 : age)))
                return;
            next = is_known && --left > 0 && w.peer() != first ? w.peer() : -1;
        }
    }
};

// The end of a chain of waiting ranks: the rank that does not wait, as far as is known; with is_circle, one rank of a
// circle. rank -1: the last rank of the chain waits for no rank in particular.
struct chain_end {
    int rank;
    bool is_circle = false;
    bool is_certain = false; // each waits for one particular rank, not for one of several
};
// Follows the waiting ranks from `first` on, which waits for `next`. A word counts if it is at most fresh_ns older than
// `now`; late_ns is added for each rank on the way.
inline chain_end follow_chain(const waiting_words& words, int first, awaited next, std::int64_t now,
                              std::int64_t fresh_ns, std::int64_t late_ns) {
    int r = next.rank, steps = 0;
    for (; r >= 0 && r != first && steps < words.ranks; ++steps, fresh_ns += late_ns) {
        if (r >= words.ranks || words.of(r).is_end() || now - words.of(r).said_at_ns() > fresh_ns) return {r};
        r = words.of(r).peer();
    }
    if (r < 0) return {-1};
    if (r != first) { // a circle that `first` leads to
        first = r;
        next = awaited(words.of(r).peer(), words.of(r).what());
    }
    bool is_certain = next.what != awaited::why::one_of_several;
    r = next.rank;
    for (steps = 0; r != first; ++steps) { // again: words may change while they are read
        if (r < 0 || r >= words.ranks || steps == words.ranks) return {-1};
        is_certain &= words.of(r).what() != awaited::why::one_of_several;
        r = words.of(r).peer();
    }
    return {first, true, is_certain};
}

COLLX_END_NAMESPACE
