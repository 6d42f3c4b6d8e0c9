// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Proofs among some of the ranks: what the others pass on must be what the members sent, and members are ranks.
#include <collx/algo/on_route.hpp>
#include <collx/algo/ring.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/verify_members.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;

namespace {

// Ranks 0 and 2 exchange two chunks, each in a message of its own, which rank 1 passes on. It takes them for the
// chunks first and second.
struct exchange {
    static constexpr collective op = collective::all_reduce;
    static constexpr int min_depth = 2;
    static constexpr bool needs_commutative = true;
    static constexpr int chunks(int) { return 2; }
    int first = 0, second = 1;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        if (r == 1) {
            for (const int k : {0, 2})
                if (ex.strand(k / 2)) {
                    ex.step(recv | send, from(k), to(2 - k), passing(k == 0 ? first : 0));
                    ex.step(recv | send, from(k), to(2 - k), passing(k == 0 ? second : 1));
                }
            return;
        }
        for (const int c : {0, 1}) ex.step(send, to(1), in(c));
        for (const int c : {0, 1})
            if (r == 0) ex.step(recv | reduce_after | copy, from(1), in(c), out(c));
            else ex.step(recv | reduce | copy, from(1), in(c), out(c));
    }
};

verdict among(const exchange& a, std::initializer_list<int> ranks) {
    detail::growing_array<int> members;
    for (const int r : ranks) members.push_back(r);
    return verify_members(record_all(a, 3), members);
}

} // namespace

TEST_CASE("a relay passes on the chunks that were sent") {
    CHECK(among({}, {0, 2}).ok());
    const verdict v = among({.first = 1, .second = 0}, {0, 2});
    CHECK(v.what == problem::wrong_chunk);
    CHECK((v.rank == 1 && v.strand == 0 && v.step == 0 && v.peer == 0));
    CHECK(among({.first = 1, .second = 1}, {0, 2}).what == problem::wrong_chunk);
    CHECK(among({.first = 0, .second = 2}, {0, 2}).what == problem::bad_chunk);
}

TEST_CASE("members are ranks, each named once") {
    CHECK(among({}, {0, 7}).what == problem::bad_member);
    CHECK(among({}, {-1, 0}).what == problem::bad_member);
    CHECK(among({}, {0, 3}).what == problem::bad_member);
    CHECK(among({}, {0, 2, 0}).what == problem::bad_member);
    CHECK(explain(record_all(exchange{}, 3), among({}, {0, 7})) ==
          "rank 7: the members are ranks, each named once: see member(i)");
}

TEST_CASE("routes through other ranks are proved, with every number of members") {
    for (int k = 1; k <= 6; ++k) {
        std::vector<int> stops, members;
        for (int i = 0; i < 2 * k; ++i) stops.push_back(i);
        for (int i = 0; i < k; ++i) members.push_back(2 * i);
        const relay_route route(2 * k, stops, members);
        const algo::on_route<algo::ring_all_reduce> a{route};
        detail::growing_array<int> positions;
        for (int i = 0; i < k; ++i) positions.push_back(a.member(i));
        CHECK(verify_members(record_all(a, 2 * k), positions).ok());
    }
}
