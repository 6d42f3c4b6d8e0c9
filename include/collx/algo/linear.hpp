// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The root exchanges directly with each rank. Nothing beats it for very few ranks, nothing is easier to check, and its
// reduction is the loop one would write by hand: the reference for results that must not depend on the algorithm.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: 1 chunk.
// Cost: n - 1 messages, all from the root; no scratch, slots >= 1.
struct linear_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "linear";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) return ex.template step<recv | copy>(from(root), out(0));
        for (int i = 1; i < n; ++i) ex.template step<send>(to((root + i) % n), in(0));
        ex.template step<copy>(in(0), out(0));
    }
};

// The root takes the operands one by one, its own through a channel to itself where that stands in the middle.
// Shape: 1 chunk.
// Cost: n - 1 messages to the root and one more to itself if root > 1; scratch 1 chunk if n > 2; slots >= 1.
// Order: ((x0 op x1) op x2) op … as a sequential loop would, whatever the root: the same bits for every root.
struct linear_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "linear";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.template step<copy>(in(0), out(0));
        if (r != root || root > 1) ex.template step<send>(to(root), in(0));
        if (r != root) return;
        const auto next = [&](int k) { return k == n - 1 ? out(0) : tmp(0); };
        if (root == 0) ex.template step<recv | reduce_after | copy>(from(1), in(0), next(1));
        if (root == 1) ex.template step<recv | reduce | copy>(from(0), in(0), next(1));
        if (root > 1) {
            ex.template step<recv | copy>(from(0), tmp(0));
            ex.template step<recv | reduce_after | copy>(from(1), tmp(0), next(1));
        }
        for (int k = 2; k < n; ++k) ex.template step<recv | reduce_after | copy>(from(k), tmp(0), next(k));
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: n - 1 messages of one chunk to the root; no scratch, slots >= 1.
struct linear_gather {
    static constexpr collective op = collective::gather;
    static constexpr const char* name = "linear";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) return ex.template step<send>(to(root), in(r));
        ex.template step<copy>(in(r), out(r));
        for (int i = 1; i < n; ++i) ex.template step<recv | copy>(from((root + i) % n), out((root + i) % n));
    }
};

// Shape: n chunks; chunk k of the root's input goes to rank k.
// Cost: n - 1 messages of one chunk from the root; no scratch, slots >= 1.
struct linear_scatter {
    static constexpr collective op = collective::scatter;
    static constexpr const char* name = "linear";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) return ex.template step<recv | copy>(from(root), out(r));
        for (int i = 1; i < n; ++i) ex.template step<send>(to((root + i) % n), in((root + i) % n));
        ex.template step<copy>(in(r), out(r));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
