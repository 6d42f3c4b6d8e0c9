// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised
//
// The proofs continue at run time: every algorithm for every rank count up to 64, larger ones where that is fast. No
// channel may be one message shallower than declared. mutants_test.cpp tests what verify() refuses.
#include <algorithm>
#include <ctime>
#include <string>

#include <collx/algo/algorithms.hpp>
#include <collx/sched/verify.hpp>

#include <catch2/catch.hpp>

#include "support/sanitizers.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

namespace {

template <class Algorithm>
Algorithm rooted(Algorithm a, int root) {
    collx::sched::set_root(a, root);
    return a;
}

// With many ranks, a few roots represent all: the first, the last, one between.
template <class Algorithm, class F>
void for_roots(Algorithm a, int n, F&& f) {
    if (!is_rooted(Algorithm::op)) return f(a);
    if (n <= 9) {
        for (int root = 0; root < n; ++root) f(rooted(a, root));
    } else {
        for (int root : {0, n / 3, n - 1}) f(rooted(a, root));
    }
}

template <class Algorithm>
std::string title(const Algorithm& a, int n) {
    return std::string(Algorithm::name) + " " + name_of(Algorithm::op) + ", n = " + std::to_string(n) + ", root " +
           std::to_string(root_of(a));
}

double seconds(std::clock_t ticks) { return static_cast<double>(ticks) / CLOCKS_PER_SEC; }

template <class Algorithm>
void right_at(const Algorithm& a, int n) {
    for_roots(a, n, [&](const Algorithm& b) {
        const verdict v = verify(b, n);
        if (v.ok()) return;
        CAPTURE(title(b, n), static_cast<int>(v.what), v.rank, v.strand, v.step, v.peer, v.chunk);
        CHECK(v.ok());
    });
}

} // namespace

TEST_CASE("every algorithm is right for 1 to 64 ranks") {
    int count = 0;
    for_each_algorithm([&](auto a) {
        ++count;
        for (int n = 1; n <= 64; ++n) right_at(a, n);
        CHECK(verify(a, 64).ok());
    });
    CHECK(count >= 49);
}

TEST_CASE("one message less than declared is not enough") {
    int deep = 0, shallow = 0;
    for_each_algorithm([&](auto a) {
        if (min_depth_v<decltype(a)> < 1) return; // no channels
        for (int n = 3; n <= 17; ++n) {
            schedule s = record_all(a, n);
            s.depth = min_depth_v<decltype(a)> - 1;
            if (s.depth > 0) CHECK(verify(s).what == problem::deadlock);
            else CHECK(!verify(s).ok()); // channels without any slot
        }
        ++(min_depth_v<decltype(a)> > 1 ? deep : shallow);
    });
    CHECK(deep >= 3); // the rings
    CHECK(shallow >= 20);
}

TEST_CASE("what is declared is enough, and so is more") {
    int tried = 0;
    for_each_algorithm([&](auto a) {
        if (min_depth_v<decltype(a)> < 1) return;
        for (int n : {2, 3, 4, 7, 8, 13, 17})
            for (int more : {0, 1, 2, 5}) {
                schedule s = record_all(a, n);
                s.depth = min_depth_v<decltype(a)> + more;
                CHECK(verify(s).ok());
                ++tried;
            }
    });
    CHECK(tried >= 600);
}

TEST_CASE("parameters other than the root") {
    for (int n : {1, 2, 3, 5, 8})
        for (int k : {1, 2, 3, 7, 16}) {
            right_at(chain_broadcast{.chunk_count = k}, n);
            right_at(chain_reduce{.chunk_count = k}, n);
        }
    for (int n : {1, 2, 3, 5})
        for (int depth : {1, 2, 3, 5}) CHECK(verify(two_shot_all_reduce{.depth = depth}, n).ok());
    CHECK(verify(chain_broadcast{.root = 4, .chunk_count = 9}, 100).ok());
}

// verify() omits the in-place run if it would repeat the other one.
TEST_CASE("the verdict is that of a run in place and one that is not") {
    int repeated = 0, left_out = 0;
    const auto same = [&](auto a, int n) {
        const schedule s = record_all(a, n);
        const verdict v = verify(s), outside = verify_once(s, false), inside = verify_once(s, true);
        CHECK(v.ok() == (outside.ok() && inside.ok()));
        value_reader reads(s, false);
        network<value_reader> run(s, reads);
        (void)run.run();
        ++(reads.depends_on_place() ? repeated : left_out);
        if (reads.depends_on_place()) return;
        CHECK(inside.ok());
        CHECK((inside.order == outside.order && inside.same_bits == outside.same_bits));
    };
    const auto all_of = [&]<collective C>(std::integral_constant<collective, C>) {
        if (may_be_in_place(C))
            algorithms<C>::for_each([&](auto a) {
                for (int n = 1; n <= 20; ++n) same(a, n);
            });
    };
    all_of(std::integral_constant<collective, collective::all_reduce>{});
    all_of(std::integral_constant<collective, collective::reduce>{});
    all_of(std::integral_constant<collective, collective::broadcast>{});
    all_of(std::integral_constant<collective, collective::all_gather>{});
    all_of(std::integral_constant<collective, collective::reduce_scatter>{});
    all_of(std::integral_constant<collective, collective::scan>{});
    WARN(left_out << " schedules read alike in place, " << repeated << " do not");
    CHECK(left_out > 100);
}

TEST_CASE("large rings and trees") {
    for (int n : {100, 256}) {
        CHECK(verify(ring_all_reduce{}, n).ok());
        CHECK(verify(ring_all_gather{}, n).ok());
        CHECK(verify(ring_reduce_scatter{}, n).ok());
        CHECK(verify(bruck_all_to_all{}, n).ok());
        CHECK(verify(halving_doubling_all_reduce{}, n).ok());
    }
    for (int n : {100, 256, 1000, 1024}) {
        right_at(binomial_broadcast{}, n);
        right_at(binomial_reduce{}, n);
        right_at(double_tree_broadcast{}, n);
        CHECK(verify(double_tree_all_reduce{}, n).ok());
        CHECK(verify(recursive_doubling_all_reduce{}, n).ok());
        CHECK(verify(dissemination_barrier{}, n).ok());
    }
}

// Both are measured in one process, so that the machine's speed plays no part. A proof that takes more than a few looks
// at each step would take hundreds of times as long as the recording.
TEST_CASE("the proof of 1024 ranks in a ring, in place and not, takes a few times as long as its recording") {
    constexpr double most = 8; // 1.6 to 2.1 on an idle core
    double least = 1e9;
    for (int i = 0; i < 10 && least >= most; ++i) {
        const std::clock_t start = std::clock(); // processor time: tests share their cores
        const schedule s = record_all(ring_all_reduce{}, 1024);
        const std::clock_t recorded = std::clock();
        const verdict v = verify(s);
        const std::clock_t verified = std::clock();
        REQUIRE(v.ok());
        CHECK(v.order == reduction_order::rotated);
        WARN("2.1 million steps: recorded in " << seconds(recorded - start) << " s, verified in "
                                               << seconds(verified - recorded) << " s");
        least = std::min(least, seconds(verified - recorded) / seconds(recorded - start));
    }
#if defined(__OPTIMIZE__) && !COLLX_TEST_ASAN && !COLLX_TEST_TSAN
    CHECK(least < most);
#endif
}
