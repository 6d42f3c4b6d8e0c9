// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls that differ in any field are distinguished, even if they share a place of the table. The random sequences of
// tests/comm also test this.
#include <collx/plan/recent_calls.hpp>

#include <catch2/catch.hpp>

using collx::detail::prepared_call;
using collx::detail::recent_calls;

TEST_CASE("a call is found as long as none with its place came after it") {
    recent_calls recent;
    const int somewhere[64] = {};
    const recent_calls::key one{.choose = &somewhere[16], .count = 8, .kind = 3, .elem_bytes = 4, .root = 1, .how = 5};
    CHECK(recent.find(one) == nullptr);
    recent.keep(one, {.piece_elems = 8, .fingerprint = 77});
    REQUIRE(recent.find(one) != nullptr);
    CHECK(recent.find(one)->fingerprint == 77);

    auto other = one;
    int found = 0;
    for (other.count = 9; other.count < 9 + 64; ++other.count) {
        CHECK(recent.find(other) == nullptr);
        recent.keep(other, {.fingerprint = other.count});
        CHECK(recent.find(other)->fingerprint == other.count);
        found += recent.find(one) != nullptr && recent.find(one)->fingerprint == 77;
    }
    CHECK(found > 0);
    CHECK(found < 64); // there is space for few
}

TEST_CASE("each field of a call tells it from others") {
    const int somewhere[64] = {};
    const recent_calls::key k{.choose = &somewhere[16], .count = 8, .kind = 3, .elem_bytes = 4, .root = 1, .how = 5};
    recent_calls recent;
    recent.keep(k, {.fingerprint = 1});
    const auto is_new = [&](auto change) {
        auto other = k;
        change(other);
        return recent.find(other) == nullptr;
    };
    CHECK(is_new([&](auto& o) { o.choose = &somewhere[32]; }));
    CHECK(is_new([](auto& o) { o.count += 4; })); // shares a place of the table
    CHECK(is_new([](auto& o) { o.kind = 4; }));
    CHECK(is_new([](auto& o) { o.elem_bytes = 8; }));
    CHECK(is_new([](auto& o) { o.root += 4; }));
    CHECK(is_new([](auto& o) { o.how = 4; }));
    CHECK_FALSE(is_new([](auto&) {}));
}
