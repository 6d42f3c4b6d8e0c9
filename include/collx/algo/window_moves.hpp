// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each verb moves over windows: which ranks put data that others read, what they put, and what each rank takes.
// one_shot.hpp, direct.hpp and zero_copy.hpp add the synchronisation, each as one algorithm for all verbs.
//
//   verb             chunks  who puts         what               who takes        what
//   broadcast        1       root             the buffer         all others       a copy of the root's
//   reduce           1       all but the root the buffer         root             the sum of all
//   all_reduce       1       all              the buffer         all              the sum of all
//   scan             1       all but the last the buffer         all              the sum up to its own
//   exclusive_scan   1       all but the last the buffer         all but rank 0   the sum before its own
//   all_gather       n       all              chunk r            all              chunk k of each rank k
//   gather           n       all but the root chunk r            root             chunk k of each rank k
//   scatter          n       root             all others' chunks all others       chunk r of the root
//   reduce_scatter   n       all              all others' chunks all              the sum of all chunks r
//   all_to_all       n       all              all others' chunks all              chunk r of each rank
//
// A rank's own part never goes through a window. Signal 0 of a rank says that the data it put may be read. Sums are in
// rank order, for any associative operator.
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Where others find chunk c of a rank: in a stage of its window, or in the input itself, which then lies in a window.
struct staged {
    static COLLX_HD constexpr ref chunk(int c) { return window(0, c); }
};
struct unstaged {
    static COLLX_HD constexpr ref chunk(int c) { return in(c); }
};

// Puts the chunks of all other ranks, the next rank's first.
COLLX_EXEC_CHECK_DISABLE
template <class Ex>
COLLX_HD constexpr void put_others(Ex& ex, int r, int n) {
    in_turn(1, n, [&](int i) { ex.step(copy, in((r + i) % n), window(0, (r + i) % n)); });
}

// Takes one chunk of each other rank k, the next rank's first, each as soon as its owner has given the signal: chunk k
// or, in an all-to-all, chunk r.
COLLX_EXEC_CHECK_DISABLE
template <collective C, class Source, class Ex>
COLLX_HD constexpr void take_others(Ex& ex, int r, int n, int signal = 0) {
    in_turn(1, n, [&](int i) {
        const int k = (r + i) % n;
        ex.wait(signal, k);
        ex.step(get | copy, at(k, Source::chunk(C == collective::all_to_all ? r : k)), out(k));
    });
}

struct no_root {}; // the member `root` of an algorithm whose verb has none
// The type of an algorithm's member `root`: int where C has a root.
template <collective C>
using root_member = std::conditional_t<is_rooted(C), int, no_root>;

// The moves of verb C.
template <collective C>
struct window_moves {
    static constexpr bool has_parts = chunks_are_ranks(C);
    static constexpr int chunks(int n) { return has_parts ? n : 1; }

    static constexpr bool has_root = is_rooted(C);
    static constexpr bool from_root = C == collective::broadcast || C == collective::scatter;
    static constexpr bool to_root = C == collective::reduce || C == collective::gather;
    static constexpr bool is_scan = C == collective::scan || C == collective::exclusive_scan;
    static constexpr bool puts_parts =
        C == collective::scatter || C == collective::reduce_scatter || C == collective::all_to_all;

    static COLLX_HD constexpr int own_chunk(int r) { return has_parts ? r : 0; }
    static COLLX_HD constexpr int rank_of(int root) { return root; }
    static COLLX_HD constexpr int rank_of(no_root) { return 0; }
    // The bytes of the algorithm value would do, but clang does not know that a no_root member is no parameter.
    static constexpr std::uint64_t bits_of(int root, int depth) {
        return static_cast<std::uint64_t>(root) << 32 | static_cast<std::uint32_t>(depth);
    }

    // Whether other ranks read data of rank r.
    static COLLX_HD constexpr bool puts(int r, int n, int root) {
        return from_root ? r == root : to_root ? r != root : is_scan ? r < n - 1 : true;
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    static COLLX_HD constexpr void put(Ex& ex, int r, int n) {
        if constexpr (puts_parts) put_others(ex, r, n);
        else ex.step(copy, in(own_chunk(r)), window(0, own_chunk(r)));
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Source, class Ex>
    static COLLX_HD constexpr void take(Ex& ex, int r, int n, int root) {
        const int c = own_chunk(r);
        if constexpr (from_root) {
            if (r == root) {
                ex.step(copy, in(c), out(c));
            } else {
                ex.wait(0, root);
                ex.step(get | copy, at(root, Source::chunk(c)), out(c));
            }
        } else if (to_root && r != root) {
            return;
        } else if constexpr (reduces(C)) {
            ex.wait_all(0);
            if constexpr (C == collective::exclusive_scan) {
                if (r > 0) ex.step(fold | copy, ref{}, at_ranks(0, r, Source::chunk(c)), out(c));
            } else {
                ex.step(fold | copy, in(c), at_ranks(0, is_scan ? r + 1 : n, Source::chunk(c)), out(c));
            }
        } else {
            ex.step(copy, in(r), out(r));
            take_others<C, Source>(ex, r, n);
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
