// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A value that may be absent: constructed and destroyed once, with or without a copy.
#include <collx/core/maybe.hpp>
#include <collx/core/result.hpp>

#include <stdexcept>
#include <utility>

#include <catch2/catch.hpp>

using collx::detail::maybe;

namespace {

int alive = 0;
struct counted {
    int n;
    explicit counted(int k) : n(k) {
        if (k < 0) throw std::invalid_argument("negative");
        ++alive;
    }
    counted(const counted& o) : n(o.n) { ++alive; }
    ~counted() { --alive; }
};
struct only_moved {
    int n = 0;
    explicit only_moved(int k) : n(k) {}
    only_moved(only_moved&& o) noexcept : n(std::exchange(o.n, -1)) {}
};

} // namespace

TEST_CASE("what may be absent is there between emplace and reset") {
    {
        maybe<counted> a;
        CHECK_FALSE(a.has_value());
        CHECK(a.emplace(3).n == 3);
        CHECK(a->n == 3);
        CHECK(alive == 1);
        a.emplace(4);
        CHECK(alive == 1);
        maybe<counted> b = a, none, c = none;
        CHECK((*b).n == 4);
        CHECK_FALSE(c);
        CHECK(alive == 2);
        c = b;
        CHECK(alive == 3);
        c = none;
        CHECK(alive == 2);
        b = *&b;
        CHECK(b->n == 4);
        CHECK_THROWS_AS(b.emplace(-1), std::invalid_argument);
        CHECK_FALSE(b); // the old value was destroyed
        CHECK(alive == 1);
        a.reset();
        CHECK(alive == 0);
        c = maybe<counted>(counted(5));
        CHECK(alive == 1);
    }
    CHECK(alive == 0);
    maybe<only_moved> m(only_moved(7));
    const maybe<only_moved> o = std::move(m);
    CHECK((*o).n == 7);
}

TEST_CASE("a result is a value or the error that prevented it, also of a type that only moves") {
    collx::result<only_moved> r(only_moved(2));
    REQUIRE(r.has_value());
    CHECK(r->n == 2);
    CHECK(std::move(r).value().n == 2);
    const collx::error why(collx::errc::timeout, 1, 2, "wait longer", "no rank came");
    collx::result<only_moved> none(why);
    CHECK_FALSE(none);
    CHECK_THROWS_AS(none.value(), collx::error);
    CHECK(none.error().code() == collx::errc::timeout);
}
