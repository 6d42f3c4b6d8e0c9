// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=240 sanitize=nightly
//
// What ranks agree on and how: tables of counts (count_table), the description of a call (signature), and the
// exchange of a few bytes, over memory and along a tree of connections (tree_exchange).
#include <array>

#include <collx/job/tree_exchange.hpp>

#include "comm/support.hpp"

using namespace collx_test;
using collx::errc;
using collx::signature;
using collx::detail::count_table;

namespace {

template <class F>
collx::error refusal(F&& f) {
    try {
        f();
    } catch (const collx::error& e) {
        return e;
    }
    FAIL("no error");
    throw 0;
}

} // namespace

TEST_CASE("a table of counts: parts one after the other, or where offsets say") {
    count_table t;
    t.assign(0, 3, std::array{5, 0, 2}, "send");
    CHECK(t.ranks() == 3);
    CHECK(t.total() == 7);
    CHECK(t.end() == 7);
    CHECK(t.offsets()[2] == 5);
    CHECK(t.layout().size(0) == 5);
    CHECK(t.layout().offset(2) == 5);
    CHECK(t.layout().largest() == 5);
    const auto packed = t.hash();
    t.assign(0, 3, std::array{5, 0, 2}, std::array{10, 0, 4}, "send");
    CHECK(t.end() == 15);
    CHECK(t.total() == 7);
    CHECK(t.layout().offset(2) == 4);
    CHECK(t.hash() == packed); // all ranks have the same counts, but each has its own offsets
    t.assign(0, 3, std::array{5, 2, 0}, std::vector<int>(), "send");
    CHECK(t.offsets()[2] == 7);
    CHECK(t.hash() != packed);
    t.assign(0, 1, std::array<unsigned char, 1>{9}, "send"); // smaller than before, and another type
    CHECK(t.ranks() == 1);
    CHECK(t.end() == 9);
}

TEST_CASE("tables that make no sense are refused by name") {
    count_table t;
    auto e = refusal([&] { t.assign(1, 3, std::array{1, 2}, "send"); });
    CHECK((e.code() == errc::invalid_argument && says(e, "send counts: 2 numbers for 3 ranks")));
    e = refusal([&] { t.assign(1, 2, std::array{1, -2}, "receive"); });
    CHECK((e.peer() == 1 && says(e, "receive count of rank 1 is negative")));
    e = refusal([&] { t.assign(1, 2, std::array{1, 2}, std::array{0, 1, 2}, "receive"); });
    CHECK(says(e, "3 numbers for 2 ranks"));
    e = refusal([&] { t.assign(1, 2, std::array{1, 2}, std::array{-1, 1}, "receive"); });
    CHECK(says(e, "offset of rank 0 is negative"));
    e = refusal([&] { t.assign(1, 2, std::array{SIZE_MAX / 2, SIZE_MAX / 2}, "send"); });
    CHECK(says(e, "overflow at rank 1"));
    e = refusal([&] { t.assign(1, 1, std::array{std::size_t{1}}, std::array{SIZE_MAX}, "send"); });
    CHECK(says(e, "overflow at rank 0"));
    e = refusal([&] {
        t.assign(1, 3, std::array{SIZE_MAX / 4, SIZE_MAX / 4, SIZE_MAX / 4}, std::array{0, 0, 0}, "send");
    });
    CHECK((e.peer() == 2 && says(e, "the sum of the send counts overflows at rank 2")));
}

TEST_CASE("parts that a call writes may lie in any order, but not overlap") {
    count_table t;
    const auto disjoint = [&](auto counts, auto offsets) {
        t.assign(0, static_cast<int>(counts.size()), counts, offsets, "receive");
        t.require_disjoint(0, "receive");
        return true;
    };
    CHECK(disjoint(std::array{3, 2, 4}, std::vector<int>()));
    CHECK(disjoint(std::array{3, 2, 4}, std::array{6, 4, 0}));
    CHECK(disjoint(std::array{3, 0, 4}, std::array{4, 5, 0})); // an empty part overlaps nothing
    auto e = refusal([&] { disjoint(std::array{3, 2, 4}, std::array{0, 2, 5}); });
    CHECK((e.code() == errc::invalid_argument && e.peer() == 1 &&
           says(e, "receive parts overlap: rank 0's ends before element 3, and rank 1's begins with element 2")));
    e = refusal([&] { disjoint(std::array{3, 2, 4}, std::array{6, 4, 1}); });
    CHECK((e.peer() == 1 && says(e, "rank 2's ends before element 5, and rank 1's begins with element 4")));
    std::vector<std::size_t> counts(100, 2), offsets;
    for (std::size_t i = 0; i < 100; ++i) offsets.push_back(2 * (i * 37 % 100));
    CHECK(disjoint(counts, offsets));
    ++offsets[50];
    CHECK_THROWS_AS(disjoint(counts, offsets), collx::error);
}

TEST_CASE("the first field in which calls differ, with both values and all odd ranks, on every rank") {
    for (const spread& hosts : {spread{}, spread{2}})
        on_hosts(4, hosts, [](collx::communicator& w) {
            const signature one{.count = 8, .type_hash = 1, .root = 2, .what = collx::detail::verb::reduce};
            const auto compare = [&](const signature& mine) {
                collx::detail::compare_signatures(w.internals(), mine, 0);
            };
            const auto differs = [&](auto member, auto value, const char* expected) {
                at("%s", expected);
                signature mine = one;
                if (w.rank() == 1 || w.rank() == 3) mine.*member = value;
                const auto e = thrown<collx::mismatch>(w, [&] { compare(mine); });
                EXPECT(says(e, "ranks 1, 3 differ from rank 0: ") && says(e, expected) && e.peer() == 1);
            };
            compare(one);
            differs(&signature::what, collx::detail::verb::scan, "collective is reduce on rank 0 and scan on rank 1");
            differs(&signature::root, 3, "root is 2 on rank 0 and 3 on rank 1");
            differs(&signature::count, 9u, "count is 8 on rank 0 and 9");
            differs(&signature::counts_hash, 10'007u, "in the table of counts");
            differs(&signature::type_hash, 2u, "element type is one type on rank 0 and another type on rank 1");
            differs(&signature::op_hash, 2u, "operator is none on rank 0 and another operator on rank 1");
            differs(&signature::zero_copy, std::uint8_t{1}, "kind of memory");
            differs(&signature::policy_hash, 5u, "in the policy of with()");
            signature both = one; // the error names the field that explains the others
            if (w.rank() == 2) {
                both.root = 3;
                both.count = 9;
            }
            const auto e = thrown<collx::mismatch>(w, [&] { compare(both); });
            EXPECT(says(e, "root is 2") && e.peer() == 2);
            signature of_most = one; // most ranks are right: here rank 0 is the odd one
            if (w.rank() != 0) of_most.count = 9;
            const auto odd = thrown<collx::mismatch>(w, [&] { compare(of_most); });
            EXPECT(says(odd, "rank 0 differs from the others: count is 8 on rank 0 and 9 on rank 1") &&
                   odd.peer() == 0);
            of_most.root = w.rank(); // no two alike
            EXPECT(thrown<collx::mismatch>(w, [&] { compare(of_most); }).peer() == 1);
            compare(one); // the communicator still works
        });
}

TEST_CASE("every rank sees what every other shows, in rank order, on one host and along a tree") {
    for (const spread& hosts : {spread{}, spread{1}, spread{2}, spread{3, true}})
        for (const int n : {1, 2, 5, 8})
            on_hosts(n, hosts, [n](collx::communicator& w) {
                w.set_checked(false);
                for (int round = 0; round < 5; ++round) {
                    const std::array mine{w.rank() * 7 + round, -w.rank()};
                    int seen = 0;
                    w.internals().exchange(&mine, sizeof mine, [&](int r, const std::byte* line) {
                        std::array<int, 2> other;
                        std::memcpy(&other, line, sizeof other);
                        EXPECT(r == seen++ && other[0] == r * 7 + round && other[1] == -r);
                    });
                    EXPECT(seen == n);
                }
            });
}

TEST_CASE("tables longer than a slot, and up and down a tree in 2 (n - 1) messages") {
    on_hosts(5, spread{1}, [](collx::communicator& w) {
        auto& c = w.internals();
        const std::vector<int> small = samples(w.rank(), 10), large = samples(w.rank(), 70'000);
        const auto exchange = [&](const std::vector<int>& mine) {
            const auto before = w.sent().messages;
            collx::detail::exchange_over_tree(
                c, mine.data(), mine.size() * sizeof(int),
                [&](int r, const std::byte* line) {
                    const auto expected = samples(r, mine.size());
                    EXPECT_AT(r, std::memcmp(line, expected.data(), mine.size() * sizeof(int)) == 0);
                },
                0);
            return w.sent().messages - before;
        };
        auto messages = exchange(small);
        exchange(large); // the table has 1.4 MB
        collx::all_reduce(w, collx::value(messages));
        EXPECT_AT(messages, messages == 2 * 4);
    });
}

TEST_CASE("an exchange is not taken for a collective of another rank") {
    on_hosts(2, spread{1}, [](collx::communicator& w) {
        w.set_checked(false);
        std::array<int, 3> x{1, 2, 3};
        const auto e = thrown<collx::mismatch>(w, [&] {
            if (w.rank() == 0) w.internals().exchange(&x, sizeof x, [](int, const std::byte*) {});
            else collx::all_reduce(w, x);
            collx::barrier(w);
        });
        at("%s", e.what());
        EXPECT(names_odd_part(e));
    });
}
