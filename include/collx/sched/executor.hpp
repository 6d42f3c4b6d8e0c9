// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The language in which algorithms are written. An algorithm is a function over an executor `ex`. Each call of `ex` is
// one fused action: the type of its kind says which action, its peers and chunks are run-time values. An executor
// derives from verbs<Self> and supplies one member, `template <action What> void emit(const step&)`, and optionally
// `bool strand(int)`.
//
//   ex.step(send, to(next), in(c));                            in[c] -> channel to next
//   ex.step(recv | copy, from(prev), out(c));                  channel -> out[c]
//   ex.step(recv | copy | send, from(p), to(q), out(c));       channel -> out[c] -> channel
//   ex.step(recv | send, from(p), to(q), passing(c));          channel -> channel
//   ex.step(recv | reduce | send, from(p), to(q), in(c));      received (op) in[c] -> channel
//   ex.step(recv | reduce | copy, from(p), in(c), tmp(c));     received (op) in[c] -> tmp[c]
//   ex.step(recv | reduce | copy | send, from(p), to(q), in(c), out(c));
//   ex.step(copy, in(c), out(c));                              local copy; into window(s, c) it is a put
//   ex.step(get | copy, at(k, window(0, c)), out(c));          rank k's window -> out[c]
//   ex.step(fold | copy, in(c), at_ranks(0, n, window(0, c)), out(c), also);   rank-ordered reduction
//   ex.step(fold | to_all, at_ranks(0, n, in(c)), out(c));     the same, stored to out[c] of all ranks
//   ex.signal(s); ex.wait(s, k, lag); ex.wait_all(s, lag);
//
// Messages, their operands and copies are in, out or tmp of the rank itself; a plain copy may store to a window too.
// Only get and fold read windows, and in and out of other ranks. to_all is of all ranks. ranges.hpp refuses the rest.
//
// Rules that make one run a proof (Kahn, "The semantics of a simple language for parallel programming", 1974): control
// flow depends only on rank, rank count and the algorithm's own parameters; a receive names its peer; nothing is
// polled. A complete reduction is stored to `out` exactly once; partial ones live in `tmp` or travel on. The whole
// program is run again for each piece of a long message (an iteration). Chunks may differ in size, so chunk c lives in
// cell c of every place, including tmp and windows. Only an all-to-all, whose chunks are equal, may move data between
// chunk numbers. In place (out is in), a copy from in(c) to out(c) does nothing.
//
// One rule for nvcc: every algorithm writes
//     COLLX_EXEC_CHECK_DISABLE
//     template <class Ex>
//     COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const
// in this order (the pragma must stand before `template`). An algorithm is host and device code, but an executor is
// usually only one of the two. Without the first line nvcc refuses a kernel's `ex.strand` and warns (20011, 20013 to
// 20015) about a recorder's.
#pragma once

#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// The members that algorithms call, for every executor: each hands its step to Self::emit().
template <class Self>
struct verbs {
    // Strands are separate sequential programs of one rank. An algorithm asks `if (ex.strand(k)) { … }`. An executor
    // that runs strands side by side answers true only for its own, one that records them for each in turn.
    COLLX_HD constexpr bool strand(int) { return true; }

    template <action What>
    COLLX_HD constexpr void step(kind<What>, to t, ref src) {
        static_assert(What == send, "collx: step(kind, to, src) is a plain send");
        put<What>({.what = What, .peer_to = t.rank, .src = src});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, from f, ref dst) {
        static_assert(What == (recv | copy), "collx: step(kind, from, dst) is recv | copy");
        put<What>({.what = What, .peer_from = f.rank, .dst = dst});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, from f, to t, ref local) {
        if constexpr ((What & (reduce | reduce_after)) != 0) {
            static_assert(What == (recv | reduce | send) || What == (recv | reduce_after | send),
                          "collx: step(kind, from, to, src) reduces and sends");
            put<What>({.what = What,
                       .peer_from = f.rank,
                       .peer_to = t.rank,
                       .src = local,
                       .dst = {place::none, local.chunks}});
        } else {
            static_assert(What == (recv | copy | send) || What == (recv | send),
                          "collx: step(kind, from, to, dst) passes a message on");
            put<What>({.what = What, .peer_from = f.rank, .peer_to = t.rank, .dst = local});
        }
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, from f, ref src, ref dst) {
        static_assert(What == (recv | reduce | copy) || What == (recv | reduce_after | copy),
                      "collx: step(kind, from, src, dst) reduces and stores");
        put<What>({.what = What, .peer_from = f.rank, .src = src, .dst = dst});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, from f, to t, ref src, ref dst) {
        static_assert(What == (recv | reduce | copy | send) || What == (recv | reduce_after | copy | send),
                      "collx: step(kind, from, to, src, dst) reduces, stores and sends");
        put<What>({.what = What, .peer_from = f.rank, .peer_to = t.rank, .src = src, .dst = dst});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, ref src, ref dst) {
        static_assert(What == copy, "collx: step(kind, src, dst) is a local copy");
        put<What>({.what = What, .src = src, .dst = dst});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, remote src, ref dst) {
        static_assert(What == (get | copy), "collx: step(kind, at(rank, src), dst) is get | copy");
        put<What>({.what = What, .peer_from = src.rank, .src = src.what, .dst = dst});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, ref own, remote_range src, ref dst, place also = place::none) {
        static_assert(What == (fold | copy), "collx: step(kind, own, at_ranks(…), dst) is fold | copy");
        put<What>({.what = What,
                   .own = own.where,
                   .also = also,
                   .peer_from = src.first,
                   .peer_to = src.last,
                   .src = src.what,
                   .dst = dst});
    }
    template <action What>
    COLLX_HD constexpr void step(kind<What>, remote_range src, ref dst) {
        static_assert(What == (fold | to_all), "collx: step(kind, at_ranks(…), dst) is fold | to_all");
        put<What>({.what = What,
                   .own = src.what.where,
                   .peer_from = src.first,
                   .peer_to = src.last,
                   .src = src.what,
                   .dst = dst});
    }
    COLLX_HD constexpr void signal(int index) {
        put<sched::signal>({.what = sched::signal, .index = static_cast<unsigned char>(index)});
    }
    COLLX_HD constexpr void wait(int index, int rank, int lag = 0) {
        put<sched::wait>({.what = sched::wait,
                          .index = static_cast<unsigned char>(index),
                          .lag = static_cast<unsigned char>(lag),
                          .peer_from = rank});
    }
    COLLX_HD constexpr void wait_all(int index, int lag = 0) { wait(index, all_ranks, lag); }

private:
    COLLX_EXEC_CHECK_DISABLE // the recorder's emit is host code, a kernel's is device code
    template <action What>
    COLLX_HD constexpr void put(const sched::step& s) {
        static_cast<Self&>(*this).template emit<What>(s);
    }
};

} // namespace sched
COLLX_END_NAMESPACE
