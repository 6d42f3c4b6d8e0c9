// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows: no two lines or segments overlap, and all ranks see a published segment as a whole.
#include <collx/transport/memory.hpp>
#include <collx/transport/shm.hpp>
#include <collx/transport/window.hpp>

#include <map>
#include <set>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/channel_contract.hpp"

using namespace collx;
using namespace collx_test;

namespace {
constexpr std::size_t small = std::size_t{64} << 20;
}

TEST_CASE("lines and segments of all ranks and stages lie apart and inside") {
    for (const window_shape shape : {window_shape{.signals = 1, .segments = 0, .depth = 2, .stage_bytes = 0},
                                     window_shape{.signals = 1, .segments = 1, .depth = 2, .stage_bytes = 4096},
                                     window_shape{.signals = 65, .segments = 3, .depth = 3, .stage_bytes = 192},
                                     window_shape{.signals = 4, .segments = 7, .depth = 1, .stage_bytes = 64},
                                     window_shape{.segments = 2, .depth = 4, .stage_bytes = 8192, .chunks = 7},
                                     window_shape{.segments = 1, .depth = 2, .stage_bytes = 4096, .chunks = 64}}) {
        constexpr int ranks = 3;
        auto memory = make_memory_arena(ranks, small);
        const std::size_t bytes = shape.bytes_per_rank() * ranks;
        std::byte* base = memory->at(memory->take(bytes));
        const window_memory w(base, shape);
        std::map<std::size_t, std::size_t> used; // offset -> end
        const auto use = [&](const void* p, std::size_t n) {
            const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(p) - base);
            REQUIRE(at + n <= bytes);
            REQUIRE(used.emplace(at, at + n).second);
        };
        for (int r = 0; r < ranks; ++r)
            for (int i = 0; i < shape.depth; ++i) {
                for (int s = 0; s < shape.signals; ++s) {
                    auto& line = w.line(r, s, static_cast<std::uint64_t>(i));
                    REQUIRE(reinterpret_cast<std::uintptr_t>(&line) % cache_line_bytes == 0);
                    use(&line, sizeof line);
                    // Stages are reused after `depth` iterations.
                    REQUIRE(&w.line(r, s, static_cast<std::uint64_t>(i + 5 * shape.depth)) == &line);
                }
                for (int s = 0; s < shape.segments; ++s)
                    for (int c = 0; c < shape.chunks; ++c)
                        use(w.at(r, s, c, static_cast<std::size_t>(i) * shape.piece_bytes()), shape.piece_bytes());
            }
        std::size_t last = 0;
        for (const auto& [at, end] : used) {
            REQUIRE(at >= last);
            last = end;
        }
    }
}

TEST_CASE("a rank that reads one chunk of each of its peers meets the pages of that chunk only") {
    for (const int ranks : {2, 7, 32, 64}) {
        const window_shape shape{.segments = 2, .depth = 4, .stage_bytes = std::size_t{1} << 18, .chunks = ranks};
        auto memory = make_memory_arena(2, small);
        std::byte* base = memory->at(memory->take(shape.bytes_per_rank() * 2));
        const window_memory w(base, shape);
        std::set<std::size_t> pages;
        for (std::size_t at = 0; at + 64 <= shape.chunk_ring_bytes(); at += 64) // pieces, wherever they are
            pages.insert(static_cast<std::size_t>(w.at(1, 0, ranks - 1, at) - base) / page_bytes);
        INFO(ranks << " ranks: " << pages.size() << " pages");
        CHECK(pages.size() <= shape.ring_bytes() / static_cast<std::size_t>(ranks) / page_bytes + 2);
        CHECK(shape.chunk_ring_bytes() >= 5 * shape.piece_bytes());
    }
}

TEST_CASE("a signal's word holds a number and a tag, and fits the call that it is of, or an earlier one") {
    constexpr std::uint64_t one = signal_word::tag(0x123ull << 48), other = signal_word::tag(0x124ull << 48);
    STATIC_REQUIRE((one != 0 && one != other));
    STATIC_REQUIRE(signal_word::number(77 | one) == 77);
    STATIC_REQUIRE((signal_word::tag(~std::uint64_t{0}) | signal_word::number(~std::uint64_t{0})) == ~std::uint64_t{0});
    CHECK(signal_word::fits(77 | one, 77, one));
    CHECK_FALSE(signal_word::fits(77 | other, 77, one)); // the tag of another call
    CHECK(signal_word::fits(78 | other, 77, one));       // a later call: this one is over
}

TEST_CASE("numbers of signals may start again") {
    constexpr std::uint64_t last = (std::uint64_t{1} << 48) - 1, tag = signal_word::tag(~std::uint64_t{0});
    CHECK(signal_word::has_reached(signal_word::of(5, tag), 5));
    CHECK_FALSE(signal_word::has_reached(signal_word::of(5, tag), 6));
    CHECK_FALSE(signal_word::has_reached(0, 1)); // a line without a signal
    for (const std::uint64_t least : {last, last + 1, last + 2}) {
        CHECK(signal_word::has_reached(signal_word::of(least, tag), least));
        CHECK(signal_word::has_reached(signal_word::of(least + 3, tag), least));
        CHECK_FALSE(signal_word::has_reached(signal_word::of(least - 1, tag), least));
        CHECK(signal_word::fits(signal_word::of(least, tag), least, tag));
        CHECK_FALSE(signal_word::fits(signal_word::of(least, 0), least, tag));
    }
}

TEST_CASE("what goes round a ring keeps a gap wherever it fits with one") {
    for (const std::size_t most : {64u, 1024u, 4096u, 1u << 20})
        for (std::size_t bytes = 1; bytes <= most; bytes += bytes < 5000 ? 1 : 977) {
            const std::size_t takes = spaced_bytes(bytes, most), lines = (bytes + 63) / 64 * 64;
            REQUIRE(takes == (lines + 1024 <= most ? lines + 1024 : lines));
            const std::size_t gap = bytes < 8192 ? 1024 : 4096,
                              step = window_shape{.stage_bytes = most}.step_bytes(bytes);
            REQUIRE(step == (lines + gap <= most ? lines + gap : lines));
        }
}

// All ranks publish a segment and a line in each iteration and read those of all others. A rank refills a stage only
// after it has seen all ranks one iteration later, which proves that they have read the previous content. With two
// stages no other signal is needed.
TEST_CASE("what a line publishes is seen whole by all ranks") {
    for (const bool is_memfd : {false, true}) {
        constexpr int ranks = 3;
        constexpr std::uint64_t iterations = 400;
        const window_shape shape{.signals = 1, .segments = 1, .depth = 2, .stage_bytes = 4096};
        auto memory = is_memfd ? join_shm(nullptr, 0, 1, {}, small) : make_memory_arena(ranks, small);
        const window_memory w(memory->at(memory->take(shape.bytes_per_rank() * ranks)), shape);
        std::vector<int> complaint(ranks, 0);
        const auto run = [&](int me) {
            int& mine = complaint[static_cast<std::size_t>(me)];
            for (std::uint64_t i = 0; i < iterations && mine == 0; ++i) {
                const std::size_t bytes = 1 + i * 11 % 4096;
                fill_message(w.at(me, 0, 0, i % 2 * 4096), i * ranks + static_cast<std::uint64_t>(me), bytes);
                auto& line = w.line(me, 0, i);
                fill_message(line.payload, i + static_cast<std::uint64_t>(me), signal_line::inline_bytes);
                line.word.store(i + 1, memory_order::release);
                for (int r = 0; r < ranks && mine == 0; ++r) {
                    auto& other = w.line(r, 0, i);
                    if (!wait_until([&] { return other.word.load(memory_order::acquire) >= i + 1; })) mine = 1;
                    else if (!is_message(other.payload, i + static_cast<std::uint64_t>(r), signal_line::inline_bytes))
                        mine = 2;
                    else if (!is_message(w.at(r, 0, 0, i % 2 * 4096), i * ranks + static_cast<std::uint64_t>(r), bytes))
                        mine = 3;
                }
            }
        };
        std::vector<std::thread> threads;
        for (int r = 1; r < ranks; ++r) threads.emplace_back(run, r);
        run(0);
        for (auto& t : threads) t.join();
        for (const int c : complaint) CHECK(c == 0);
    }
}
