// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// A communicator that fails as soon as it is made. The ranks that are still in split() get it nevertheless, and their
// first call on it reports the failure. The original still works.
#include "support.hpp"

using namespace collx_test;

namespace {

// Fails on purpose: alternately by calls that do not match and by abort().
void use_up(collx::communicator& w, collx::communicator& child, int round) {
    const bool aborts = round % 2 == 1;
    const int culprit = round / 2 % w.size();
    if (aborts && w.rank() == culprit) child.abort();
    std::vector<int> x(w.rank() == culprit ? 4u : 3u);
    const auto e = thrown<collx::error>(w, [&] {
        for (;;) collx::all_reduce(child, x);
    });
    EXPECT_AT(e.code(), e.code() == (aborts ? collx::errc::aborted : collx::errc::mismatch));
}

void fail_children(const std::vector<int>& host_of, int rounds) {
    const long before = checks.load();
    const auto limit = collx_test::patient(std::chrono::seconds(50));
    collx::run_threads(host_of, [&](collx::communicator& w) {
        w.set_checked(false);
        w.set_timeout(limit);
        for (int round = 0; round < rounds; ++round) {
            at("%d ranks, round %d", w.size(), round);
            auto child = w.split(0);
            use_up(w, child, round);
            collx::barrier(w);
        }
        auto again = w.shrink();
        EXPECT(again.size() == w.size());
    });
    CHECK(checks.load() - before >= static_cast<long>(host_of.size()) * rounds);
}

} // namespace

TEST_CASE("split does not throw the failure of the communicator that it makes, on one host") {
    fail_children({0, 0, 0, 0}, 100);
}
TEST_CASE("split does not throw the failure of the communicator that it makes, across hosts") {
    fail_children({0, 1}, 100);
    fail_children({0, 0, 1, 1}, 100);
    fail_children({0, 1, 2, 3, 4}, 50);
}

// Its ranks have exchanged a table to meet. A rank that the original's failure ends there must not leave it to the
// first call. On a busy machine some of 100 rounds reach this case, on a quiet machine few.
TEST_CASE("a rank that is still in split() when the original fails gets that failure, and no part of a table as data") {
    collx::run_threads({0, 1, 1}, [](collx::communicator& w) {
        for (int round = 0; round < 500; ++round) {
            at("round %d", round);
            collx::communicator one(w.internals().home);
            try {
                collx::barrier(one);
                auto part = one.split(0);
                part.set_checked(round % 2 == 0);
                if (one.rank() != 0) one.abort(); // the first of the two while the other one may be in split()
                std::vector<int> x(3, 1);
                collx::all_reduce(part, x);
                EXPECT(x[2] == 3);
            } catch (const collx::aborted& e) {
                EXPECT(e.peer() > 0);
            }
            collx::barrier(w);
        }
    });
}

// On a busy machine about one of 500 rounds reaches this case, on a quiet machine hardly any.
TEST_CASE("a place of its own that a rank has taken when the communicator fails under split() is given back") {
    collx::run_threads(3, [](collx::communicator& w) {
        const auto home = w.internals().home;
        const auto free_in_peace = [&] {
            collx::barrier(w);
            long sum = 0;
            const auto& h = home->memory->header();
            for (int i = 0; i < h.free_count; ++i) sum += static_cast<long>(h.free[i].bytes);
            collx::barrier(w);
            return sum;
        };
        const long before = free_in_peace();
        for (int round = 0; round < 1000; ++round) {
            collx::communicator one(home);
            try { // each is alone in its part; the first rank to return may fail `one` while others are in split()
                collx::barrier(one);
                auto part = one.split(one.rank());
                if (one.rank() == round % 3) one.abort();
                else collx::barrier(one);
            } catch (const collx::aborted&) {
            }
            collx::barrier(w);
        }
        const long after = free_in_peace();
        EXPECT_AT(before - after, before == after);
    });
}
