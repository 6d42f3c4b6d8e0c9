// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window: memory of each rank that all ranks may read, used as a ring, and per signal and stage one line that says
// "published". A line carries up to 120 bytes of the segment it publishes, so that a short contribution and the signal
// of it travel together, in one cache-line transfer up to 56 bytes.
//
//   writer: fill iteration i's part of segment s → line(s, i).word = i + 1 and the call's tag (release)
//   reader: line(s, i).word has reached i + 1 (acquire), and has the same tag as its own call → read
//
// When a stage may be filled again is the schedule's business (sched/races.hpp proves it for `depth` stages); numbers
// never reset. Data does not sit in fixed stages but goes round a ring of depth + 1 stages, so that memory is reused as
// late as possible: writing to lines that the reader still has in its cache costs three to four times as much as
// writing to lines it has lost (docs/performance.md). Each chunk has a ring of its own, one behind the other: a rank
// that needs one chunk of each of its peers meets the pages of these only, however many ranks there are. Pieces of a
// chunk are laid down one after the other, from the start again where the end is too near. Any depth of them in a row
// lie apart: together with what is wasted at one end they are shorter than the ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/window_concept.hpp>

COLLX_BEGIN_NAMESPACE

// What a line says: how many iterations there have been, and in the uppermost bits a tag of the call that this one
// belongs to, so that ranks whose calls differ notice instead of reading what is not there. Numbers start again after
// 2^48, so only their distance counts.
struct signal_word {
    static constexpr int tag_bits = 16;
    static constexpr std::uint64_t number(std::uint64_t word) { return word << tag_bits >> tag_bits; }
    // The uppermost bits of anything, as a tag.
    static constexpr std::uint64_t tag(std::uint64_t bits) { return bits >> (64 - tag_bits) << (64 - tag_bits); }
    static constexpr std::uint64_t of(std::uint64_t number, std::uint64_t tag) {
        return signal_word::number(number) | tag;
    }
    // Whether a word says `least` or a later number.
    static constexpr bool has_reached(std::uint64_t word, std::uint64_t least) {
        return static_cast<std::int64_t>((word - least) << tag_bits) >= 0;
    }
    // Whether a word may be what a peer says of iteration `number` of a call with this tag: it is, or of a later one.
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

// Between short pieces of a ring; see spaced_bytes().
inline constexpr std::size_t gap_bytes = 1024;

// How much of a ring something of `bytes` takes, of which at most `most` bytes fit. A reader's processor fetches the
// lines behind what it reads, too; it should not take away those that the writer is about to fill. (2 ranks, near:
// all_reduce of 512 bytes 237 ns without the gap, 171 with it; of 2 KiB 435 and 256.)
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
    // Of all chunks of a segment together.
    constexpr std::size_t ring_bytes() const { return static_cast<std::size_t>(depth + 1) * stage_bytes; }
    // Of one chunk: the most bytes of a piece, and its ring. With one chunk they may be of any size.
    constexpr std::size_t piece_bytes() const { return part_of(stage_bytes); }
    constexpr std::size_t chunk_ring_bytes() const { return part_of(ring_bytes()); }
    // From one piece of a chunk to the next.
    constexpr std::size_t step_bytes(std::size_t piece) const { return step_bytes(piece, piece_bytes()); }
    // The same where the most bytes of a piece are known. A page lies between long ones: processors do not fetch ahead
    // across it.
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
    // `position` in the ring of a chunk.
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
    // Of the shape, worked out once: calls divide by nothing.
    std::size_t rank_bytes_ = 0, line_bytes_ = 0, ring_bytes_ = 0, chunk_ring_bytes_ = 0, piece_bytes_ = 0;
};

static_assert(Window<window_memory>);

COLLX_END_NAMESPACE
