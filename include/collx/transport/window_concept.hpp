// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The concept of a window: memory of each rank that all ranks of a host load and store, with a line per signal that
// says how far its rank is. It is an optional ability of a transport: algorithms over channels need none. Model:
// window_memory.
//
// Publish: a rank fills its part, then stores the number of the iteration + 1 to its line's word (release). A rank that
//          sees at least that number there (acquire) sees what was filled before.
// Writers: each line and each byte is written by its own rank only.
// Reuse:   line(r, s, i) and line(r, s, i + depth) are the same. The schedule determines when it may be filled again
//          (sched/races.hpp proves it).
// Apart:   at(r, segment, chunk, p) of different ranks, segments, or chunks are different bytes for all p below
//          chunk_ring_bytes().
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/atomic.hpp>

COLLX_BEGIN_NAMESPACE

// word: the number of published iterations. payload: a short contribution that travels with the word.
template <class Line>
concept SignalLine = requires(Line& line) {
    { line.word } -> std::same_as<atomic<std::uint64_t>&>;
    { line.payload[0] } -> std::same_as<std::byte&>;
    { std::remove_reference_t<Line>::inline_bytes } -> std::convertible_to<std::size_t>;
};

// Memory that all ranks of a host load and store, with the rules above.
template <class W>
concept Window = std::copyable<W> &&
    requires(const W& w, int rank, int signal, int segment, int chunk, std::uint64_t iteration, std::size_t bytes) {
    { w.line(rank, signal, iteration) } -> SignalLine;
    { w.at(rank, segment, chunk, bytes) } -> std::same_as<std::byte*>;
    { w.chunk_ring_bytes() } -> std::same_as<std::size_t>;
    { w.step_bytes(bytes) } -> std::same_as<std::size_t>;
};

COLLX_END_NAMESPACE
