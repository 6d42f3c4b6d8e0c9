// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The declarations of algorithms equal what is derived from their steps: the constants that plans are made from, and
// the tables of the documentation.
#include <collx/algo/algorithms.hpp>
#include <collx/sched/facts.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

TEST_CASE("declared is derived for 1 to 17 ranks") {
    for_each_algorithm([&](auto a) {
        for (int n = 1; n <= 17; ++n)
            for (int root : {0, n / 2, n - 1}) {
                if (root != 0 && !collx::sched::has_root<decltype(a)>) continue;
                collx::sched::set_root(a, root);
                const char* wrong = misdeclared(a, n);
                if (wrong == nullptr) continue;
                CAPTURE(decltype(a)::name, name_of(a.op), n, root, wrong);
                CHECK(wrong == nullptr);
            }
        CHECK(declared_equals_derived(decltype(a){}, 6));
    });
}
