// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a flight recorder keeps of a call, and the layout of a file of these records. Plain values: the recorder
// writes them (flight_recorder.hpp), and tools read them when the process is gone (recorded_calls.hpp).
#pragma once

#include <cstdint>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE

// How a call was made. made: a persistent call was made ready, which is recorded as a separate call.
enum class call_kind : std::uint8_t { blocking, async, persistent, made };
// The state of a call.
enum class call_outcome : std::uint8_t { under_way, done, failed };

// One call of one rank on one communicator.
struct call_record {
    std::uint64_t ordinal = 0;              // among the recorded calls of this rank, from 1 on
    std::uint64_t number = 0;               // of the call, as errors print it; counts messages, too
    std::uint64_t collective = 0;           // number among the collectives, the same on all ranks; 0: a message
    std::uint64_t bytes = 0;                // of the whole buffer, as the choice of an algorithm counts them
    std::int64_t begin_ns = 0, end_ns = 0;  // on the monotonic clock (core/clock.hpp); end 0: under way
    char verb[24] = {}, algorithm[24] = {}; // ended by a zero; longer names are shortened
    // Place of the call, as of the last slow look of a wait; kept when the call fails. peer: the rank that it waits
    // for. step of steps: how far its strand is, in piece of pieces. -1: not known.
    std::int32_t peer = -1, step = -1, steps = -1, piece = -1, pieces = -1;
    call_kind kind = call_kind::blocking;
    call_outcome outcome = call_outcome::under_way;
    errc code{}; // of a failed call
};
static_assert(sizeof(call_record) == 120);

// A function of the program that sees the beginning and the end of each recorded call (end_ns tells them apart). It
// runs in the thread that is in the call. Like an operator, it may make no call of that communicator.
struct call_observer {
    void (*see)(void* context, const call_record&) = nullptr;
    void* context = nullptr;
};

namespace detail {

// The header of a file of records. `capacity` records follow; record number k is at place (k - 1) % capacity.
struct record_file {
    static constexpr char right_magic[8] = {'c', 'o', 'l', 'l', 'x', 'r', 'e', 'c'};
    static constexpr std::uint32_t right_version = 1;
    char magic[8];
    std::uint32_t version, record_bytes;
    std::uint64_t host, communicator;   // numbers of this boot of the machine, and of the communicator in its job
    std::int64_t monotonic_ns, real_ns; // both clocks when the file was made
    std::uint64_t begun;                // calls so far
    std::int32_t rank, size, job_rank, capacity;
    char reserved[128 - 72];
};
static_assert(sizeof(record_file) == 128);

} // namespace detail
COLLX_END_NAMESPACE
