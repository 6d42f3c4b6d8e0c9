// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window: per rank a ring of stages that everybody may read, and per stage and signal one line that says "published". A line carries up to 56 bytes
// of the segment it publishes, so that a short contribution and the news of it are one cache-line transfer.
//
//   writer: fill segment s of stage i % depth → line(s, i).number = i + 1 (release)
//   reader: line(s, i).number >= i + 1 (acquire) → read
// When a stage may be filled again is the schedule's business (sched/races.hpp proves it); numbers never reset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <collx/transport/arena.hpp>

COLLX_BEGIN_NAMESPACE

struct signal_line {
    static constexpr std::size_t inline_bytes = 56;
    std::atomic<std::uint64_t> number;  // written by its rank (release); read by all (acquire)
    std::byte payload[inline_bytes];
};
static_assert(sizeof(signal_line) == cache_line_bytes);

struct window_shape {
    int signals = 1;
    int segments = 1;
    int depth = 2;
    std::size_t segment_bytes = 0;
    constexpr std::size_t line_bytes() const {
        return round_up(static_cast<std::size_t>(signals * depth) * cache_line_bytes, page_bytes);
    }
    constexpr std::size_t bytes_per_rank() const {
        return line_bytes() + static_cast<std::size_t>(segments * depth) * segment_bytes;
    }
    constexpr bool operator==(const window_shape&) const = default;
};

class window_memory {
public:
    window_memory() = default;
    window_memory(std::byte* base, window_shape shape) : base_(base), shape_(shape) {}

    signal_line& line(int rank, int signal, std::uint64_t iteration) const {
        return reinterpret_cast<signal_line*>(block(rank))[signal * shape_.depth + stage(iteration)];
    }
    std::byte* segment(int rank, int segment, std::uint64_t iteration) const {
        return block(rank) + shape_.line_bytes() + static_cast<std::size_t>(segment * shape_.depth + stage(iteration)) * shape_.segment_bytes;
    }
    const window_shape& shape() const { return shape_; }

private:
    std::byte* block(int rank) const { return base_ + static_cast<std::size_t>(rank) * shape_.bytes_per_rank(); }
    int stage(std::uint64_t iteration) const { return static_cast<int>(iteration % static_cast<std::uint64_t>(shape_.depth)); }

    std::byte* base_ = nullptr;
    window_shape shape_{};
};

COLLX_END_NAMESPACE
