// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bruck's algorithms: ceil(log2 n) messages per rank for any n, but some bytes are sent more than once. For short
// messages and many ranks.
//
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", IEEE TPDS 8(11), 1997.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Each rank holds the chunks r, r + 1, … and doubles their number by receiving those of rank r + have. Chunk sets wrap
// around, so that every chunk is received in its place and the paper's final rotation is not needed.
// Shape: n chunks; rank r contributes chunk r.
// Cost: ceil(log2 n) messages, n - 1 chunks per rank; no scratch, slots >= 1.
struct bruck_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "bruck";
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(copy, in(r), out(r));
        for (int have = 1; have < n; have *= 2) {
            const int more = have < n - have ? have : n - have;
            const int source = (r + have) % n;
            ex.step(send, to((r + n - have) % n), out({r, more}));
            ex.step(recv | copy, from(source), out({source, more}));
        }
    }
};

// A block for the rank j below travels along the bits of j: in the round of bit b each rank sends all blocks whose
// distance has this bit to rank r - b. Blocks that arrive in the last round go to the output.
// Shape: n chunks; chunk d of the input goes to rank d. May be in place: the input is read before the output is
// written.
// Cost: ceil(log2 n) messages, about n/2 chunks each; scratch n chunks; slots >= 1.
struct bruck_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "bruck";
    COLLX_HD static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int n) { return n > 1 ? n : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        for (int j = 1; j < n; ++j) ex.step(copy, in((r + n - j) % n), tmp(j));
        ex.step(copy, in(r), out(r));
        for (int b = 1; b < n; b *= 2) {
            const int source = (r + b) % n, target = (r + n - b) % n;
            const int rest = n % (2 * b);
            const chunk_set moving{b, n / (2 * b) * b + (rest > b ? rest - b : 0), b, 2 * b}; // all j < n with bit b
            ex.step(send, to(target), tmp(moving));
            if (2 * b < n) {
                ex.step(recv | copy, from(source), tmp(moving));
            } else {
                ex.step(recv | copy, from(source), out({source, n - b}));
                if (b > 1) ex.step(copy, tmp({1, b - 1}), out({(r + 1) % n, b - 1}));
            }
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
