// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chains: the ranks form a line, along which the message travels in chunks. Every link carries each byte once. For long
// messages all links work at once, and the length of the line only adds a delay.
//
//   broadcast, K = 3 chunks, rounds of 4 ranks:     rank 0   0 1 2
//                                                   rank 1     0 1 2
//                                                   rank 2       0 1 2
//
// Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience",
// CCPE 19(13), 2007.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: chunk_count = K chunks, along root, root + 1, …
// Cost: n + K - 2 rounds, K messages of one chunk per rank; no scratch, slots >= 1.
struct chain_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "chain";
    COLLX_HD constexpr int chunks(int) const { return chunk_count; }
    int root = 0;
    int chunk_count = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int position = (r + n - root) % n, next = (r + 1) % n, prev = (r + n - 1) % n;
        for (int c = 0; c < chunk_count; ++c) {
            if (position == 0 && n > 1) ex.step(send, to(next), in(c));
            else if (position > 0 && position < n - 1) ex.step(recv | copy | send, from(prev), to(next), out(c));
            else if (position > 0) ex.step(recv | copy, from(prev), out(c));
        }
        if (position == 0) ex.step(copy, in({0, chunk_count}), out({0, chunk_count}));
    }
};

// Two chains that meet at the root, one from rank 0 upwards and one from rank n - 1 downwards.
// Shape: chunk_count = K chunks.
// Cost: n + K - 2 rounds and no scratch if the root is an end of the line; a root in the middle is nearer to the ends
// but receives K chunks from either side and keeps K in scratch. K messages of one chunk per rank; slots >= 1.
// Order: rank order for every root; any associative operator.
struct chain_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "chain";
    static constexpr bool needs_commutative = false;
    COLLX_HD constexpr int chunks(int) const { return chunk_count; }
    constexpr int tmp_chunks(int n) const { return root > 0 && root < n - 1 ? chunk_count : 0; }
    int root = 0;
    int chunk_count = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in({0, chunk_count}), out({0, chunk_count}));
        for (int c = 0; c < chunk_count; ++c) {
            if (r < root) {
                if (r == 0) ex.step(send, to(r + 1), in(c));
                else ex.step(recv | reduce | send, from(r - 1), to(r + 1), in(c));
            } else if (r > root) {
                if (r == n - 1) ex.step(send, to(r - 1), in(c));
                else ex.step(recv | reduce_after | send, from(r + 1), to(r - 1), in(c));
            } else {
                const bool both = r > 0 && r < n - 1;
                if (r > 0) ex.step(recv | reduce | copy, from(r - 1), in(c), both ? tmp(c) : out(c));
                if (r < n - 1) ex.step(recv | reduce_after | copy, from(r + 1), both ? tmp(c) : in(c), out(c));
            }
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
