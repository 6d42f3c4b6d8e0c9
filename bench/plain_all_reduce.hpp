// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two sums over 2 processes as one would write them by hand for one machine, to hold the library's against: what is
// left when there is no schedule, no choice, no check and no deadline. Both give each process one half to add up.
// They use nothing of collx.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "forked.hpp"

namespace collx::bench {

[[gnu::noinline]] inline void add_into(float* __restrict to, const float* __restrict a, const float* __restrict b,
                                       std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}

// Word 0 counts the calls entered, word 1 the calls whose half is ready.
struct shared_all_reduce {
    float *in[2], *out[2]; // memory that both processes see
    std::size_t n;
    shared_words& words;
    int me;
    bool own_core;
    std::uint32_t calls = 0;

    void operator()() {
        ++calls;
        words.at[me][0].v.store(calls, std::memory_order_release);
        words.wait(0, 2, calls, own_core); // both inputs are there
        const std::size_t from = me == 0 ? 0 : n / 2, to = me == 0 ? n / 2 : n;
        const float *a = in[0], *b = in[1];
        float* __restrict x = out[0], * __restrict y = out[1];
        for (std::size_t i = from; i < to; ++i) {
            const float sum = a[i] + b[i];
            x[i] = sum;
            y[i] = sum;
        }
        words.at[me][1].v.store(calls, std::memory_order_release);
        words.wait(1, 2, calls, own_core); // both halves are there, and no input is read any more
    }
};

// Private buffers: what the other needs goes through shared memory in pieces. Each process has a ring of pieces to be
// added and one of finished pieces; the rings are larger than a second-level cache, so that a slot has left the
// reader's cache when its turn comes again. Word 0 counts pieces put, word 1 sums put, word 2 pieces finished with.
struct staged_all_reduce {
    static constexpr std::size_t ring_bytes = std::size_t{2} << 20, piece_bytes = std::size_t{32} << 10;
    static constexpr std::size_t piece = piece_bytes / sizeof(float), slots = ring_bytes / piece_bytes;
    static constexpr std::size_t shared_bytes = 4 * ring_bytes;

    const float* in; // private
    float* out;      // private
    std::size_t n;
    float* rings; // shared_bytes that both see
    shared_words& words;
    int me;
    bool own_core;
    std::uint32_t done = 0; // pieces of all calls so far

    [[nodiscard]] float* slot(int owner, int kind, std::uint32_t k) const {
        return rings + (static_cast<std::size_t>(2 * owner + kind) * slots + k % slots) * piece;
    }
    void publish(int which, std::uint32_t count) { words.at[me][which].v.store(count, std::memory_order_release); }
    void await(int which, std::uint32_t count) const {
        while (static_cast<std::int32_t>(words.at[1 - me][which].v.load(std::memory_order_acquire) - count) < 0)
            shared_words::rest(own_core);
    }

    void operator()() {
        const int other = 1 - me;
        const std::size_t half[2] = {n / 2, n - n / 2}, begin[2] = {0, n / 2};
        const std::size_t longest = std::max(half[0], half[1]);
        const auto pieces = static_cast<std::uint32_t>((longest + piece - 1) / piece);
        const auto length = [&](int side, std::uint32_t k) {
            const std::size_t at = k * piece;
            return at >= half[side] ? 0 : std::min(piece, half[side] - at);
        };
        // In turn for each piece: put mine, add up the one before, take the sum before that.
        for (std::uint32_t k = 0; k < pieces + 2; ++k) {
            if (k < pieces) {
                const std::uint32_t id = done + k;
                if (id >= slots) await(2, id + 1 - static_cast<std::uint32_t>(slots)); // the slot is free again
                std::memcpy(slot(me, 0, id), in + begin[other] + k * piece, length(other, k) * sizeof(float));
                publish(0, id + 1);
            }
            if (k >= 1 && k <= pieces) {
                const std::uint32_t p = k - 1, id = done + p;
                await(0, id + 1);
                float* sum = out + begin[me] + p * piece;
                add_into(sum, in + begin[me] + p * piece, slot(other, 0, id), length(me, p));
                std::memcpy(slot(me, 1, id), sum, length(me, p) * sizeof(float));
                publish(1, id + 1);
            }
            if (k >= 2) {
                const std::uint32_t p = k - 2, id = done + p;
                await(1, id + 1);
                std::memcpy(out + begin[other] + p * piece, slot(other, 1, id), length(other, p) * sizeof(float));
                publish(2, id + 1);
            }
        }
        done += pieces;
    }
};

} // namespace collx::bench
