// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The result of checking a schedule: no mistake, or the first one and where it is. Plain values, usable in
// static_assert; explain.hpp turns them into sentences.
#pragma once

#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// What the verifier finds wrong with a schedule.
enum class problem : unsigned char {
    none,
    bad_peer,           // a peer that is no rank
    bad_chunk,          // a chunk that does not exist, or a set that names one twice
    bad_fold,           // an empty or impossible range of ranks
    shared_channel,     // two strands of a rank at the same end of a channel
    signal_twice,       // the same signal of a rank given twice in one iteration
    wrong_length,       // a message of another number of chunks than the receiver expects
    wrong_chunk,        // the right place, but another chunk's data
    wrong_iteration,    // the right chunk, but the data of another iteration of a pipeline
    unset_read,         // a cell that was not written before
    overlap,            // a contribution reduced twice
    writes_input,       // stores to `in`
    not_an_output,      // stores to an `out` chunk that this rank does not have
    out_twice,          // stores to an `out` chunk again
    incomplete_out,     // stores a partial reduction to `out`
    wrong_contribution, // the data of other ranks than required
    missing_out,        // an `out` chunk that was never stored
    wrong_order,        // operands not in rank order although the algorithm promises it
    different_bits,     // a result that another rank computed by another expression
    leftover,           // a message that no step receives
    missing_message,    // waits for a message that no step sends
    missing_signal,     // waits for a signal that no step gives
    deadlock,           // strands that wait for each other
    race,               // two accesses to one cell that nothing orders
    undeclared_tmp,     // scratch beyond what the algorithm declares
    undeclared_signal,  // a signal or a window beyond what the algorithm declares
    leaky_barrier,      // returns although some rank has not entered
    no_chunks,          // cuts the buffer into none: its loops over chunks would do nothing, and prove nothing
    bad_place,          // an operand or a result in a place where no engine looks for it
    no_operator,        // a fold in a collective that does not reduce
    bad_to_all,         // to_all of some ranks' operands, or not to `out`
    mixed_memory,       // steps over windows and steps over peers' buffers in one algorithm
    unknown_buffer,     // a peer's buffer before that peer has said where it lies
    bad_member,         // a member that is no rank, or is named twice
};

// In which order the operands of complete reductions stand.
enum class reduction_order : unsigned char {
    rank_order, // 0, 1, …, n - 1: any associative operator
    rotated,    // k, …, n - 1, 0, …, k - 1 for some k that may differ by chunk: needs a commutative operator
    unordered,  // any permutation: needs a commutative operator
};

// The position of a rank that waits for ever, and the peer it waits for.
struct waiting {
    int rank = -1, strand = -1, step = -1, peer = -1;
};

// What is wrong with one step, with the peer and chunk that it concerns.
struct fault {
    problem what = problem::none;
    int peer = -1;
    int chunk = -1;
};

struct verdict {
    problem what = problem::none;
    int rank = -1; // where it was noticed
    int strand = -1;
    int step = -1;
    int iteration = -1;
    int peer = -1;         // the other rank of a pair
    int chunk = -1;        // or the number of a signal
    bool in_place = false; // noticed only when out is in
    reduction_order order = reduction_order::rank_order;
    bool same_bits = true; // all ranks hold results of the same expression tree
    int waiting_count = 0; // deadlock: length of the cycle of waits, of which `waits` has the first 8
    waiting waits[8]{};

    constexpr bool ok() const { return what == problem::none; }
    constexpr explicit operator bool() const { return ok(); }
    constexpr void note(waiting w) {
        if (waiting_count < 8) waits[waiting_count] = w;
        ++waiting_count;
    }
};

} // namespace sched
COLLX_END_NAMESPACE
