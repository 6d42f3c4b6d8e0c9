// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which schedules short calls may execute directly. The tests of the verbs (tests/comm) check what these calls do.
#include <collx/exec/short_call.hpp>

#include <catch2/catch.hpp>

#include <collx/algo/linear.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/ring.hpp>

namespace {

template <class A>
bool is_exchange(const A& algorithm, int rank, int ranks) {
    return collx::is_short_exchange(collx::sched::record(algorithm, rank, ranks));
}

struct receives_first {
    [[maybe_unused]] static constexpr auto op = collx::collective::all_to_all;
    [[maybe_unused]] static constexpr const char* name = "receives_first";
    static constexpr int chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        using namespace collx::sched;
        ex.step(copy, in(r), out(r));
        ex.step(recv | copy, from(1 - r), out(1 - r));
        ex.step(send, to(1 - r), in(1 - r));
    }
};

struct sends_twice {
    [[maybe_unused]] static constexpr auto op = collx::collective::all_to_all;
    [[maybe_unused]] static constexpr const char* name = "sends_twice";
    static constexpr int chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        using namespace collx::sched;
        for (int c = 0; c < 2; ++c) ex.step(send, to(1 - r), in(c));
        for (int c = 0; c < 2; ++c) ex.step(recv | copy, from(1 - r), out(c));
    }
};

} // namespace

TEST_CASE("what sends parts of the input, one to a peer, and then receives into the output, may be read straight") {
    for (const int n : {1, 2, 3, 8})
        for (int r = 0; r < n; ++r) {
            INFO("rank " << r << " of " << n);
            CHECK(is_exchange(collx::algo::pairwise_all_to_all{}, r, n));
            CHECK(is_exchange(collx::algo::linear_gather{.root = n - 1}, r, n));
            CHECK(is_exchange(collx::algo::linear_scatter{.root = n / 2}, r, n));
        }
}

TEST_CASE("what passes on, adds, receives first or sends a peer more than a message may not be read straight") {
    CHECK_FALSE(is_exchange(collx::algo::ring_all_gather{}, 1, 3));
    CHECK_FALSE(is_exchange(collx::algo::ring_all_reduce{}, 0, 2));
    CHECK_FALSE(is_exchange(collx::algo::pairwise_reduce_scatter{}, 0, 3));
    CHECK_FALSE(is_exchange(receives_first{}, 0, 2)); // each waits for the other
    CHECK_FALSE(is_exchange(sends_twice{}, 0, 2));    // a channel may have only one slot
}
