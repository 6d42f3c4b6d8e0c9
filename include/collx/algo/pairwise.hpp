// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pairwise exchange: each rank sends directly to each other rank, in an order in which no rank receives from two at
// once. Sending and receiving are two strands, so a slow receiver still sends. direct.hpp is the same idea with
// windows.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
// 19(1), 2005.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: n chunks; chunk d of the input goes to rank d. Not in place: out(k) may be written before in(k) has left.
// Cost: n - 1 messages of one chunk per rank, the fewest bytes possible; no scratch, slots >= 1.
struct pairwise_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "pairwise";
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0))
            for (int i = 1; i < n; ++i) ex.step(send, to((r + i) % n), in((r + i) % n));
        if (ex.strand(1)) {
            ex.step(copy, in(r), out(r));
            for (int i = 1; i < n; ++i) ex.step(recv | copy, from((r + n - i) % n), out((r + n - i) % n));
        }
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: n - 1 messages of one chunk per rank, one hop each; no scratch, slots >= 1.
struct pairwise_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "pairwise";
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0))
            for (int i = 1; i < n; ++i) ex.step(send, to((r + i) % n), in(r));
        if (ex.strand(1)) {
            ex.step(copy, in(r), out(r));
            for (int i = 1; i < n; ++i) ex.step(recv | copy, from((r + n - i) % n), out((r + n - i) % n));
        }
    }
};

// Rank r reduces the operands of its chunk from the nearest rank to the farthest: r - 1, r + 1, r - 2, r + 2, ….
// Shape: n chunks; rank r keeps chunk r.
// Cost: n - 1 messages of one chunk per rank; scratch n chunks if n > 2, of which one is used (chunk r lives in
// tmp(r)); slots >= 1.
// Order: rank order, because a partial result always covers an interval of ranks; any associative operator. The
// grouping depends on the chunk.
struct pairwise_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "pairwise";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? n : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        if (ex.strand(0)) {
            for (int i = 1; i < n; ++i) {
                if (r + i < n) ex.step(send, to(r + i), in(r + i));
                if (r - i >= 0) ex.step(send, to(r - i), in(r - i));
            }
        }
        if (ex.strand(1)) {
            int left = n - 1; // operands still to come
            const auto partial = [&] { return left == n - 1 ? in(r) : tmp(r); };
            const auto next = [&] { return left == 1 ? out(r) : tmp(r); };
            for (int i = 1; i < n; ++i) {
                if (r - i >= 0) {
                    ex.step(recv | reduce | copy, from(r - i), partial(), next());
                    --left;
                }
                if (r + i < n) {
                    ex.step(recv | reduce_after | copy, from(r + i), partial(), next());
                    --left;
                }
            }
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
