// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window: memory of each rank that all ranks may read, used as a ring. Each signal has one line per stage, which says
// "published". A line carries up to 120 bytes of the segment that it publishes, so that a short contribution travels
// with its signal: up to 56 bytes in one cache-line transfer.
//
//   writer: fill iteration i's part of segment s → line(s, i).word = i + 1 and the call's tag (release)
//   reader: line(s, i).word has reached i + 1 (acquire), and has the same tag as its own call → read
//
// The schedule determines when a stage may be filled again (sched/races.hpp proves it for `depth` stages). Numbers
// never reset. Data goes round a ring of depth + 1 stages instead of fixed stages, so that memory is reused as late as
// possible: writing to lines that the reader still has in its cache costs three to four times as much as writing to
// lines that it has lost (docs/performance.md). Each chunk has its own ring, one behind the other. A rank that needs
// one chunk of each of its peers touches only the pages of these, however many ranks there are. Pieces of a chunk lie
// one after the other, and begin again at the start where the end is too near. Any `depth` consecutive pieces do not
// overlap: together with the waste at the end they are shorter than the ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/window_concept.hpp>

COLLX_BEGIN_NAMESPACE

// The word of a line: the number of iterations so far, and in the uppermost bits a tag of the call. By the tag, ranks
// whose calls differ notice it instead of reading data that is not there. Numbers start again after 2^48: only their
// distance counts.
struct signal_word {
    static constexpr int tag_bits = 16;
    static constexpr std::uint64_t number(std::uint64_t word) { return word << tag_bits >> tag_bits; }
    // Makes a tag of the uppermost bits.
    static constexpr std::uint64_t tag(std::uint64_t bits) { return bits >> (64 - tag_bits) << (64 - tag_bits); }
    static constexpr std::uint64_t of(std::uint64_t number, std::uint64_t tag) {
        return signal_word::number(number) | tag;
    }
    // Whether a word says `least` or a later number.
    static constexpr bool has_reached(std::uint64_t word, std::uint64_t least) {
        return static_cast<std::int64_t>((word - least) << tag_bits) >= 0;
    }
    // Whether a peer in a call with this tag may have published this word: of iteration `number`, or of a later one.
    static constexpr bool fits(std::uint64_t word, std::uint64_t number, std::uint64_t tag) {
        return word == of(number, tag) || signal_word::number(word ^ number) != 0;
    }
};

// The word of a signal, and a short contribution that travels with it.
struct signal_line {
    static constexpr std::size_t inline_bytes = 120;
    atomic<std::uint64_t> word; // written by its rank (release); read by all (acquire)
    std::byte payload[inline_bytes];
};
static_assert(sizeof(signal_line) == 2 * cache_line_bytes); // a pair that processors fetch together

// The distance between short pieces of a ring; see spaced_bytes().
inline constexpr std::size_t gap_bytes = 1024;

// How much of a ring a message or piece of `bytes` takes, which has at most `most` bytes. The reader's processor also
// prefetches the lines behind what it reads. It should not take away the lines that the writer is about to fill. (2
// ranks, near: all_reduce of 512 bytes takes 237 ns without the gap, 171 with it; of 2 KiB 435 and 256.)
constexpr std::size_t spaced_bytes(std::size_t bytes, std::size_t most, std::size_t gap = gap_bytes) {
    const std::size_t lines = round_up(bytes, cache_line_bytes);
    return lines + gap <= most ? lines + gap : lines;
}

// How a window is laid out: signals, segments, iterations that it holds, bytes.
struct window_shape {
    int signals = 1;
    int segments = 1;
    int depth = 2;
    std::size_t stage_bytes = 0; // most bytes of one iteration in one segment, all chunks
    int chunks = 1;
    constexpr std::size_t line_bytes() const {
        return round_up(static_cast<std::size_t>(signals * depth) * sizeof(signal_line), page_bytes);
    }
    constexpr std::size_t bytes_per_rank() const {
        return line_bytes() + static_cast<std::size_t>(segments) * ring_bytes();
    }
    // The rings of all chunks of a segment together.
    constexpr std::size_t ring_bytes() const { return static_cast<std::size_t>(depth + 1) * stage_bytes; }
    // For one chunk: the most bytes of a piece, and the bytes of its ring. A single chunk may have any size.
    constexpr std::size_t piece_bytes() const { return part_of(stage_bytes); }
    constexpr std::size_t chunk_ring_bytes() const { return part_of(ring_bytes()); }
    // The distance from one piece of a chunk to the next.
    constexpr std::size_t step_bytes(std::size_t piece) const { return step_bytes(piece, piece_bytes()); }
    // The same for a given largest piece. A page lies between long pieces: processors do not prefetch across it.
    static constexpr std::size_t step_bytes(std::size_t piece, std::size_t most) {
        return spaced_bytes(piece, most, piece < 8 * 1024 ? gap_bytes : page_bytes);
    }
    constexpr bool operator==(const window_shape&) const = default;

private:
    constexpr std::size_t part_of(std::size_t bytes) const {
        return chunks <= 1 ? bytes : bytes / static_cast<std::size_t>(chunks) / cache_line_bytes * cache_line_bytes;
    }
};

// A window in shared memory: the model of Window.
class window_memory {
public:
    window_memory() = default;
    window_memory(std::byte* base, window_shape shape)
        : base_(base), shape_(shape), rank_bytes_(shape.bytes_per_rank()), line_bytes_(shape.line_bytes()),
          ring_bytes_(shape.ring_bytes()), chunk_ring_bytes_(shape.chunk_ring_bytes()),
          piece_bytes_(shape.piece_bytes()) {}

    signal_line& line(int rank, int signal, std::uint64_t iteration) const {
        return line_at(rank, signal, stage(iteration));
    }
    signal_line& line_at(int rank, int signal, int stage) const {
        return reinterpret_cast<signal_line*>(block(rank))[signal * shape_.depth + stage];
    }
    // Depths are powers of two unless the program chose another; a division would take longer than the rest.
    int stage(std::uint64_t iteration) const {
        const auto depth = static_cast<std::uint64_t>(shape_.depth);
        return static_cast<int>((depth & (depth - 1)) == 0 ? iteration & (depth - 1) : iteration % depth);
    }
    // The address of `position` in the ring of a chunk.
    std::byte* at(int rank, int segment, int chunk, std::size_t position) const {
        return block(rank) + line_bytes_ + static_cast<std::size_t>(segment) * ring_bytes_ +
               static_cast<std::size_t>(chunk) * chunk_ring_bytes_ + position;
    }
    const window_shape& shape() const { return shape_; }
    std::size_t chunk_ring_bytes() const { return chunk_ring_bytes_; }
    std::size_t step_bytes(std::size_t piece) const { return window_shape::step_bytes(piece, piece_bytes_); }

private:
    std::byte* block(int rank) const { return base_ + static_cast<std::size_t>(rank) * rank_bytes_; }

    std::byte* base_ = nullptr;
    window_shape shape_{};
    // Computed from the shape once, so that calls need no division.
    std::size_t rank_bytes_ = 0, line_bytes_ = 0, ring_bytes_ = 0, chunk_ring_bytes_ = 0, piece_bytes_ = 0;
};

static_assert(Window<window_memory>);

COLLX_END_NAMESPACE
