// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The elements of the schedule language: places of operands, sets of chunks, and one fused action. Everything is a
// plain value. Peers and chunks are run-time numbers; the kind of an action is a set of flags in the type of the value.
// Independent of algorithms, transports and bytes.
#pragma once

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// Kinds of action as flags, as recorded steps hold them. A step does all its actions fused, always in the order
// receive, reduce, copy, send.
using action = unsigned;

// A kind of action as a value whose type says which: step(recv | reduce | send, ...) is compiled for that kind alone.
template <action What>
struct kind {
    COLLX_HD constexpr operator action() const { return What; }
};
// The union of two kinds: recv | reduce | send.
template <action A, action B>
COLLX_HD constexpr kind<A | B> operator|(kind<A>, kind<B>) {
    return {};
}

inline constexpr kind<1u << 0> recv{};         // take the next message of the channel from a peer
inline constexpr kind<1u << 1> reduce{};       // received (op) local: the received operand stands on the left
inline constexpr kind<1u << 2> reduce_after{}; // local (op) received: for operators that do not commute
inline constexpr kind<1u << 3> copy{};         // store the value in a local buffer
inline constexpr kind<1u << 4> send{};         // append the value to the channel to a peer
inline constexpr kind<1u << 5> get{};          // read a peer's window instead of a channel
inline constexpr kind<1u << 6> fold{};         // reduce the windows of a range of ranks, in rank order
inline constexpr kind<1u << 7> to_all{};       // store the value in every rank's buffer
inline constexpr kind<1u << 8> signal{};       // publish: everything this strand wrote so far may be read
inline constexpr kind<1u << 9> wait{};         // block until a peer has signalled

// Where a local operand lives. A window segment is memory of this rank that other ranks may read once the signal of the
// same number is given. Other ranks access `in` and `out` only in zero-copy schedules.
enum class place : unsigned char { none, in, out, tmp, window0, window1 };

// A list of chunks that travel as one message: `count` chunks in runs of `run` consecutive ones, one run every `period`
// chunks, all modulo the number of chunks. {c} is one chunk, {c, m} are m consecutive ones, {c, m, b, 2 * b} is every
// second block of b. Algorithms made of smaller ones (sub_executor.hpp) use more members. With `size`, only the `size`
// chunks from `base` on are counted, as if they were all; in scratch, which may have more chunks than the buffers, they
// may lie behind these. `order` is a permutation of all chunks: position p is chunk order[p]. It must live as long as
// the steps do (a plan keeps its own copy).
struct chunk_set {
    int first = 0;
    int count = 1;
    int run = 1;
    int period = 1;
    int base = 0;
    int size = 0;               // 0: all chunks
    const int* order = nullptr; // null: position p is chunk p
    constexpr chunk_set() = default;
    COLLX_HD constexpr chunk_set(int one) : first(one) {}
    COLLX_HD constexpr chunk_set(int first_, int count_)
        : first(first_), count(count_), run(count_ > 0 ? count_ : 1), period(run) {}
    COLLX_HD constexpr chunk_set(int first_, int count_, int run_, int period_)
        : first(first_), count(count_), run(run_), period(period_) {}
    COLLX_HD constexpr int at(int i, int chunks) const {
        const int p = base + (first + i / run * period + i % run) % (size == 0 ? chunks : size);
        return order == nullptr ? p : order[p];
    }
    COLLX_HD constexpr chunk_set in_order(const int* table) const {
        chunk_set c = *this;
        c.order = table;
        return c;
    }
    constexpr bool operator==(const chunk_set&) const = default;
};

// An operand: a place and the chunks in it.
struct ref {
    place where = place::none;
    chunk_set chunks{};
    constexpr bool operator==(const ref&) const = default;
};

// Chunks of the input, of the output, of scratch, of a segment of this rank's window.
COLLX_HD constexpr ref in(chunk_set c) { return {place::in, c}; }
COLLX_HD constexpr ref out(chunk_set c) { return {place::out, c}; }
COLLX_HD constexpr ref tmp(chunk_set c) { return {place::tmp, c}; }
COLLX_HD constexpr ref window(int segment, chunk_set c) { // there are segments 0 and 1
    return {segment == 0 ? place::window0 : segment == 1 ? place::window1 : place::none, c};
}
COLLX_HD constexpr ref passing(chunk_set c) { return {place::none, c}; } // forwarded only, not stored

// Whether a place is a window, and which segment it is.
COLLX_HD constexpr bool is_window(place p) { return p == place::window0 || p == place::window1; }
COLLX_HD constexpr int segment_of(place p) { return p == place::window1 ? 1 : 0; }

// The peer that a message comes from, and below the one that it goes to.
struct from {
    int rank;
    COLLX_HD constexpr explicit from(int r) : rank(r) {}
};
struct to {
    int rank;
    COLLX_HD constexpr explicit to(int r) : rank(r) {}
};
// An operand at another rank, as at() makes it: at(k, window(0, c)).
struct remote {
    int rank;
    ref what;
};
// An operand at one other rank.
COLLX_HD constexpr remote at(int rank, ref what) { return {rank, what}; }
// The same operand at every rank of [first, last). This rank's own may be taken from another place: step::own.
struct remote_range {
    int first, last;
    ref what;
};
// An operand at the ranks of [first, last).
COLLX_HD constexpr remote_range at_ranks(int first, int last, ref what) { return {first, last, what}; }

// As the peer of a wait: all ranks.
inline constexpr int all_ranks = -1;

// As the index of a recorded signal or wait: a number that a step cannot hold. No rank gives it.
inline constexpr unsigned char no_signal = 255;

// One recorded action. The meaning of the peer fields depends on the kind:
//   channel actions   peer_from, peer_to: the two channels
//   get               peer_from: whose memory `src` is
//   fold              [peer_from, peer_to): the ranks whose `src` is reduced; this rank's own is `own` if that is set
//   signal, wait      index: which signal; wait: peer_from (or all_ranks), lag iterations ago
struct step {
    action what = 0;
    unsigned char index = 0;
    place own = place::none;  // fold: where this rank's own operand lives
    place also = place::none; // second destination, same chunks as dst
    unsigned char lag = 0;
    int peer_from = -1;
    int peer_to = -1;
    ref src{};
    ref dst{};
    constexpr bool operator==(const step&) const = default;
};

// Calls f(first), ..., f(end - 1). An algorithm may also use a plain loop, but nvcc unrolls that four times in a
// kernel, without any gain.
COLLX_EXEC_CHECK_DISABLE
template <class F>
COLLX_HD constexpr void in_turn(int first, int end, const F& f) {
    COLLX_ROLLED
    for (int i = first; i < end; ++i) f(i);
}

} // namespace sched

// The names that algorithms in collx::algo use. A program's own namespace may say `using namespace collx::sched`.
namespace algo {
using sched::action;
using sched::all_ranks;
using sched::at;
using sched::at_ranks;
using sched::chunk_set;
using sched::copy;
using sched::fold;
using sched::from;
using sched::get;
using sched::in;
using sched::in_turn;
using sched::out;
using sched::passing;
using sched::place;
using sched::recv;
using sched::reduce;
using sched::reduce_after;
using sched::ref;
using sched::remote;
using sched::remote_range;
using sched::send;
using sched::tmp;
using sched::to;
using sched::to_all;
using sched::window;
} // namespace algo

COLLX_END_NAMESPACE
