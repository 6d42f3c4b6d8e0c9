// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Derived facts equal the formulas of the literature, and wrong declarations are detected.
#include <cstring>

#include <collx/algo/binomial.hpp>
#include <collx/algo/bruck.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/sched/facts.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

namespace {
int log2_up(int n) {
    int k = 0;
    for (int p = 1; p < n; p *= 2) ++k;
    return k;
}
} // namespace

TEST_CASE("a ring all-reduce") {
    for (int n : {2, 3, 8, 13}) {
        const facts f = facts_of(ring_all_reduce{}, n);
        CHECK(f.ok);
        CHECK(f.steps == 2 * n - 1);
        CHECK(f.messages == 2 * (n - 1));
        CHECK(f.chunks_sent == 2 * (n - 1));
        CHECK(f.total_messages == 2 * n * (n - 1));
        CHECK(f.rounds == 2 * (n - 1));
        CHECK(f.min_depth == 2);
        CHECK(f.max_message_chunks == 1);
        CHECK(f.tmp_chunks == 0);
        CHECK(f.strands == 1);
        CHECK(f.order == reduction_order::rotated);
        CHECK(f.same_on_all_ranks);
        CHECK(f.in_place);
        CHECK(f.window_chunks_read == 0);
    }
}

TEST_CASE("a chain passes K chunks along S ranks in S + K - 2 rounds") {
    for (int ranks : {2, 3, 6, 17})
        for (int chunks : {1, 2, 5, 12}) {
            CHECK(facts_of(chain_broadcast{.chunk_count = chunks}, ranks).rounds == ranks + chunks - 2);
            CHECK(facts_of(chain_broadcast{.root = 1, .chunk_count = chunks}, ranks).rounds == ranks + chunks - 2);
        }
}

TEST_CASE("rounds of trees, stars and exchanges") {
    for (int n : {2, 3, 4, 7, 8, 16, 17}) {
        CHECK(facts_of(binomial_broadcast{}, n).rounds == log2_up(n));
        CHECK(facts_of(binomial_broadcast{}, n).total_messages == n - 1);
        CHECK(facts_of(linear_broadcast{}, n).rounds == n - 1);
        CHECK(facts_of(linear_gather{}, n).rounds == n - 1); // the root can receive one message per round
        CHECK(facts_of(pairwise_all_to_all{}, n).rounds == n - 1);
        CHECK(facts_of(bruck_all_gather{}, n).rounds == log2_up(n));
        CHECK(facts_of(bruck_all_gather{}, n).chunks_sent == n - 1);
        CHECK(facts_of(bruck_all_to_all{}, n).messages == log2_up(n));
    }
    CHECK(facts_of(bruck_all_to_all{}, 8).max_message_chunks == 4);
}

TEST_CASE("windows") {
    const int n = 5;
    const facts one = facts_of(one_shot_all_reduce{}, n);
    CHECK(one.rounds == 1);
    CHECK(one.signals == 1);
    CHECK(one.min_window_depth == 2);
    CHECK(one.window_chunks_written == n);
    CHECK(one.window_chunks_read == n * (n - 1));
    CHECK(one.min_depth == 0);
    const facts two = facts_of(two_shot_all_reduce{}, n);
    CHECK(two.rounds == 2);
    CHECK(two.strands == 3);
    CHECK(two.min_window_depth == 1);
    CHECK(two.window_chunks_written == n * (n - 1) + n);
    CHECK(two.window_chunks_read == 2 * n * (n - 1));
    const facts zero = facts_of(zero_copy_all_reduce{}, n);
    CHECK(zero.window_chunks_written == n * n);
    CHECK(zero.window_chunks_read == n * n);
    CHECK(facts_of(record_all(one_shot_all_reduce{}, n)).min_window_depth ==
          -1); // a schedule alone cannot be recorded with another depth
}

namespace {
// In every order that the verifier tries, it computes the right values with a single stage, although nothing prevents
// a rank from overwriting what a slower one still reads.
struct says_done_early {
    static constexpr collective op = collective::all_reduce;
    [[maybe_unused]] static constexpr const char* name = "says_done_early";
    [[maybe_unused]] static constexpr int min_depth = 0, window_depth = 2, signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int depth = 2;
    template <class Ex>
    constexpr void operator()(Ex& ex, int, int n) const {
        ex.wait_all(1, depth);
        ex.step(copy, in(0), window(0, 0));
        ex.signal(0);
        ex.wait_all(0);
        ex.signal(1); // with two stages the next call's wait for signal 0 comes before the stage is reused
        ex.step(fold | copy, in(0), at_ranks(0, n, window(0, 0)), out(0));
    }
};
} // namespace

TEST_CASE("the least depth of windows is free of races, not only right in the order that was tried") {
    schedule one = record_all(says_done_early{.depth = 1}, 4);
    one.window_depth = 1;
    CHECK(verify(one).ok());
    CHECK(races(one).what == problem::race);
    CHECK(min_window_depth(says_done_early{}, 4) == 2);
    CHECK(facts_of(says_done_early{}, 4).min_window_depth == 2);
}

TEST_CASE("an exchange in place is not promised, but found where it works") {
    CHECK(facts_of(bruck_all_to_all{}, 5).in_place);
    CHECK_FALSE(facts_of(pairwise_all_to_all{}, 5).in_place);
}

namespace {
struct says_one_slot : ring_all_reduce {
    static constexpr int min_depth = 1;
};
struct says_three_slots : ring_all_reduce {
    static constexpr int min_depth = 3;
};
struct says_any_operator : ring_all_reduce {
    static constexpr bool needs_commutative = false;
};
struct says_commutative_only : linear_reduce {
    static constexpr bool needs_commutative = true;
};
struct says_no_scratch : linear_reduce {
    static constexpr int tmp_chunks(int) { return 0; }
};
struct says_one_stage : one_shot_all_reduce {
    static constexpr int window_depth = 1;
};
struct says_two_signals : one_shot_all_reduce {
    static constexpr int signals = 2;
};
bool wrong(const char* what, const char* expected) { return what != nullptr && std::strcmp(what, expected) == 0; }
} // namespace

TEST_CASE("wrong declarations are named") {
    CHECK(misdeclared(ring_all_reduce{}, 5) == nullptr);
    CHECK(wrong(misdeclared(says_one_slot{}, 5), "the schedule itself")); // deadlocks with the declared depth
    CHECK(wrong(misdeclared(says_three_slots{}, 5), "min_depth"));
    CHECK(misdeclared(says_three_slots{}, 3) == nullptr); // few ranks may need less
    CHECK(wrong(misdeclared(says_any_operator{}, 5), "the schedule itself"));
    CHECK(wrong(misdeclared(says_commutative_only{}, 5), "needs_commutative"));
    CHECK(wrong(misdeclared(says_no_scratch{}, 5), "tmp_chunks"));
    CHECK(wrong(misdeclared(says_one_stage{}, 5), "window_depth"));
    CHECK(wrong(misdeclared(says_two_signals{}, 5), "signals"));
}

TEST_CASE("a schedule that is refused has counts and no more") {
    schedule s = record_all(ring_all_reduce{}, 4);
    s.depth = 1;
    const facts f = facts_of(s);
    CHECK_FALSE(f.ok);
    CHECK(f.messages == 6);
    CHECK(f.rounds == 0);
    CHECK(min_depth(s) == 2);
}
