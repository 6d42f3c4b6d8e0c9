// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A recording has exactly the algorithm's steps, strand by strand, and chunk sets name the right chunks.
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/sched/schedule.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;

namespace {

// Uses every verb once.
struct vocabulary {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(send, to(1), in(2));
        ex.step(recv | copy, from(3), out(4));
        ex.step(recv | copy | send, from(5), to(6), out(7));
        ex.step(recv | send, from(5), to(6), passing(7));
        ex.step(recv | reduce | send, from(1), to(2), in(3));
        ex.step(recv | reduce_after | copy, from(1), tmp(2), out(3));
        ex.step(recv | reduce | copy | send, from(1), to(2), in(3), out(4));
        ex.step(copy, in(1), window(1, 2));
        ex.step(get | copy, at(4, window(0, 3)), out(2));
        ex.step(fold | copy, in(r), at_ranks(0, n, window(0, r)), out(r), place::window1);
        ex.step(fold | to_all, at_ranks(0, n, in(r)), out(r));
        ex.signal(2);
        ex.wait(3, 4, 5);
        ex.wait_all(6, 7);
    }
};

constexpr auto spoken() { return record(vocabulary{}, 1, 8).strands[0]; }

struct skips_strands {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        if (r == 0 && ex.strand(0)) ex.signal(0);
        if (ex.strand(1)) ex.signal(1);
        if (r == 0 && ex.strand(2)) ex.signal(2);
    }
};

} // namespace

TEST_CASE("every verb is one step") {
    const auto s = spoken();
    REQUIRE(s.size() == 14);
    CHECK(s[0] == step{.what = send, .peer_to = 1, .src = in(2)});
    CHECK(s[1] == step{.what = recv | copy, .peer_from = 3, .dst = out(4)});
    CHECK(s[2] == step{.what = recv | copy | send, .peer_from = 5, .peer_to = 6, .dst = out(7)});
    CHECK(s[3] == step{.what = recv | send, .peer_from = 5, .peer_to = 6, .dst = passing(7)});
    CHECK(s[4] == step{.what = recv | reduce | send, .peer_from = 1, .peer_to = 2, .src = in(3), .dst = passing(3)});
    CHECK(s[5] == step{.what = recv | reduce_after | copy, .peer_from = 1, .src = tmp(2), .dst = out(3)});
    CHECK(s[6] == step{.what = recv | reduce | copy | send, .peer_from = 1, .peer_to = 2, .src = in(3), .dst = out(4)});
    CHECK(s[7] == step{.what = copy, .src = in(1), .dst = window(1, 2)});
    CHECK(s[8] == step{.what = get | copy, .peer_from = 4, .src = window(0, 3), .dst = out(2)});
    CHECK(s[9] == step{.what = fold | copy,
                       .own = place::in,
                       .also = place::window1,
                       .peer_from = 0,
                       .peer_to = 8,
                       .src = window(0, 1),
                       .dst = out(1)});
    CHECK(s[10] ==
          step{.what = fold | to_all, .own = place::in, .peer_from = 0, .peer_to = 8, .src = in(1), .dst = out(1)});
    CHECK(s[11] == step{.what = sched::signal, .index = 2});
    CHECK(s[12] == step{.what = sched::wait, .index = 3, .lag = 5, .peer_from = 4});
    CHECK(s[13] == step{.what = sched::wait, .index = 6, .lag = 7, .peer_from = all_ranks});
}

TEST_CASE("recording works at compile time") {
    static_assert(spoken().size() == 14);
    static_assert(spoken()[4].peer_to == 2);
    static_assert(record(algo::ring_all_reduce{}, 3, 9).strands[0].size() == 2 * 9 - 1);
    SUCCEED();
}

TEST_CASE("strands are kept apart and numbered as in the text") {
    const program p = record(algo::two_shot_all_reduce{}, 1, 4);
    REQUIRE(p.strands.size() == 3);
    CHECK(p.strands[0].size() == 5);
    CHECK(p.strands[1].size() == 4);
    CHECK(p.strands[2].size() == 7);
    const program silent = record(skips_strands{}, 1, 2);
    REQUIRE(silent.strands.size() == 2);
    CHECK(silent.strands[0].empty());
    CHECK(silent.strands[1].size() == 1);
}

TEST_CASE("a longer neighbour leaves no trace") {
    const program first = record(skips_strands{}, 0, 2);
    REQUIRE(first.strands.size() == 3);
    CHECK(record(skips_strands{}, 1, 2, first).strands == record(skips_strands{}, 1, 2).strands);
}

TEST_CASE("a schedule knows what its programs use") {
    const schedule ring = record_all(algo::ring_all_reduce{}, 4);
    CHECK(ring.ranks == 4);
    CHECK(ring.chunks == 4);
    CHECK(ring.depth == 2);
    CHECK(ring.signals == 0);
    CHECK(ring.iterations() == 1);
    CHECK_FALSE(ring.in_rank_order);
    const schedule two_shot = record_all(algo::two_shot_all_reduce{.depth = 3}, 4);
    CHECK(two_shot.signals == 3);
    CHECK(two_shot.max_lag == 3);
    CHECK(two_shot.window_depth == 3);
    CHECK(two_shot.iterations() == 5);
    CHECK(two_shot.in_rank_order);
}

TEST_CASE("chunk sets name runs of chunks and go round") {
    const auto named = [](chunk_set c, int chunks) {
        std::vector<int> v;
        for (int i = 0; i < c.count; ++i) v.push_back(c.at(i, chunks));
        return v;
    };
    CHECK(named(3, 8) == std::vector<int>{3});
    CHECK(named({6, 4}, 8) == std::vector<int>{6, 7, 0, 1});
    CHECK(named({2, 4, 2, 4}, 8) == std::vector<int>{2, 3, 6, 7});
    CHECK(named({5, 3, 1, 2}, 8) == std::vector<int>{5, 7, 1});
    CHECK(named({0, 0}, 8).empty());
}
