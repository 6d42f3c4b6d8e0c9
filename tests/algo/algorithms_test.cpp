// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/algorithms.hpp>

#include <set>

#include "checks.hpp"

using namespace checks;

TEST_CASE("every list holds algorithms of its collective, under different names") {
    std::set<std::string> names;
    int count = 0;
    for_each_algorithm([&](auto a) {
        names.insert(std::string(name_of(a.op)) + " " + a.name);
        ++count;
        INFO(name_of(a.op) << " " << a.name);
        CHECK(a.chunks(1) >= 0);
        CHECK(verify(a, 6).ok());
        CHECK(verify(a, 1).ok());
    });
    CHECK(static_cast<int>(names.size()) == count);
    CHECK(count >= 49);
    CHECK(algorithms<collective::send_recv>::size == 0);
    algorithms<collective::all_gather>::for_each([](auto a) { CHECK(a.op == collective::all_gather); });
}
