// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The array of the library's own types. Every element is constructed and destroyed once and moves when the array
// grows. Arguments may be parts of the array itself, and constructors may throw.
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using collx::detail::growing_array;

namespace {

int alive = 0, copies_left = -1; // number of copies before one fails; -1: none fails
struct counted {
    std::string text; // too long for the string's inline buffer, so that AddressSanitizer detects misuse
    explicit counted(int i = 0) : text("a text of more than fifteen letters " + std::to_string(i)) {
        if (i < 0) throw std::invalid_argument("negative");
        ++alive;
    }
    counted(counted&& o) noexcept : text(std::move(o.text)) { ++alive; }
    counted(const counted& o) : text(o.text) {
        if (copies_left == 0) throw std::invalid_argument("no more copies");
        --copies_left;
        ++alive;
    }
    counted& operator=(counted&&) noexcept = default;
    ~counted() { --alive; }
    int number() const { return std::stoi(text.substr(36)); }
};

std::string numbers(const growing_array<counted>& all) {
    std::string s;
    for (const counted& c : all) s += std::to_string(c.number()) + ' ';
    return s;
}

} // namespace

TEST_CASE("a growing array keeps what is put in, in order") {
    {
        growing_array<counted> a;
        CHECK(a.empty());
        for (int i = 0; i < 10; ++i) CHECK(a.emplace_back(i).number() == i);
        a.push_back(counted(10));
        CHECK(alive == 11);
        a.erase_at(3);
        a.erase(a.end() - 1);
        CHECK(numbers(a) == "0 1 2 4 5 6 7 8 9 ");
        CHECK(a.front().number() == 0);
        CHECK(a.back().number() == 9);
        erase_if(a, [](const counted& c) { return c.number() % 2 == 1; });
        CHECK(numbers(a) == "0 2 4 6 8 ");
        erase_if(a, [](const counted&) { return false; });
        CHECK(alive == 5);
        a.resize(7);
        CHECK(numbers(a) == "0 2 4 6 8 0 0 ");
        a.resize(2);
        CHECK(numbers(a) == "0 2 ");
        CHECK(alive == 2);
    }
    CHECK(alive == 0);
}

TEST_CASE("a growing array is copied, moved and swapped as a value") {
    {
        growing_array<counted> a{counted(1), counted(2)};
        growing_array<counted> b = a, c(3);
        b.push_back(counted(5));
        CHECK(numbers(a) == "1 2 ");
        CHECK(numbers(b) == "1 2 5 ");
        c = std::move(b);
        CHECK(numbers(c) == "1 2 5 ");
        a = c;
        CHECK(numbers(a) == "1 2 5 ");
        auto& same = a;
        a = std::move(same);
        growing_array<counted> d = std::move(a);
        CHECK(a.empty()); // NOLINT: that is what a moved-from one is
        c.emplace_back(9);
        d.swap(c);
        CHECK(numbers(d) == "1 2 5 9 ");
        CHECK(numbers(c) == "1 2 5 ");
        const std::vector<counted> all(c.begin(), c.end());
        d = all;
        CHECK(numbers(d) == "1 2 5 ");
    }
    CHECK(alive == 0);
}

TEST_CASE("what is put into a growing array may be a part of it, or fail") {
    {
        growing_array<counted> a;
        a.emplace_back(7);
        for (int i = 0; i < 20; ++i) a.push_back(a.front()); // each growth frees the source of the copy
        for (int i = 0; i < 20; ++i) a.emplace_back(a.back());
        CHECK(a.size() == 41);
        for (const counted& c : a) CHECK(c.number() == 7);
        CHECK_THROWS_AS(a.emplace_back(-1), std::invalid_argument);
        CHECK(a.size() == 41);
        CHECK(alive == 41);
    }
    CHECK(alive == 0);
}

TEST_CASE("a copy of a growing array that fails half-way leaves nothing behind") {
    {
        const growing_array<counted> a{counted(1), counted(2), counted(3)};
        copies_left = 2;
        CHECK_THROWS_AS(growing_array<counted>(a), std::invalid_argument);
        copies_left = -1;
        CHECK(alive == 3);
    }
    CHECK(alive == 0);
}

TEST_CASE("a growing array of numbers and bytes is set, cut and filled") {
    growing_array<int> a(3, 7);
    CHECK(a == growing_array<int>{7, 7, 7});
    a.insert(a.begin() + 1, 8);
    a.insert(a.end(), 9);
    CHECK(a == growing_array<int>{7, 8, 7, 7, 9});
    a.assign(2, 5);
    CHECK(a == growing_array<int>{5, 5});
    a.resize(4);
    CHECK(a == growing_array<int>{5, 5, 0, 0});
    CHECK_FALSE(a == growing_array<int>{5, 5, 0});
    growing_array<char> bytes(2, 'x');
    bytes.resize(300); // zeros, also in reused memory
    CHECK(bytes[1] == 'x');
    CHECK(bytes[2] == 0);
    bytes.resize(1);
    bytes.resize(3);
    CHECK(bytes == growing_array<char>{'x', 0, 0});
    const growing_array<char> part(bytes.begin(), bytes.begin() + 1);
    CHECK(part == growing_array<char>{'x'});
}

TEST_CASE("a growing array is made of a list of what becomes its elements") {
    const std::vector<std::string> names = {"a", "b"};
    const growing_array<collx::kept_text> texts = names;
    REQUIRE(texts.size() == 2);
    CHECK(texts[1] == "b");
    const growing_array<growing_array<int>> rows = std::vector<std::vector<int>>{{1}, {2, 3}};
    CHECK(rows[1] == growing_array<int>{2, 3});
    STATIC_REQUIRE_FALSE(std::is_constructible_v<growing_array<int>, std::vector<double>>);
}

namespace {
constexpr int sum_while_compiling(int n) {
    growing_array<growing_array<int>> rows;
    for (int i = 0; i < n; ++i) {
        rows.emplace_back();
        for (int k = 0; k <= i; ++k) rows.back().push_back(k);
    }
    growing_array<growing_array<int>> copy = rows;
    copy.erase(copy.begin());
    copy[0].resize(1);
    rows = static_cast<growing_array<growing_array<int>>&&>(copy);
    rows.resize(5);
    int sum = 0;
    for (const auto& row : rows)
        for (const int x : row) sum += x;
    return sum;
}
} // namespace

TEST_CASE("what is appended makes room for itself behind what was there, and arrays are equal element by element") {
    const growing_array<char> part(std::size_t{8} << 20,
                                   'x'); // memory just outside an array of this size is not mapped
    growing_array<char> all;
    for (int i = 0; i < 4; ++i) all.append(part.data(), part.size());
    CHECK(all.size() == 4 * part.size());
    CHECK((all.front() == 'x' && all.back() == 'x'));
    const growing_array<int> a{1, 2, 3}, b{1, 2, 4}, c{1, 2}, d{1, 2, 3}, none;
    CHECK(a == d);
    CHECK(none == growing_array<int>());
    CHECK_FALSE(a == b);
    CHECK_FALSE(a == c);
    CHECK_FALSE(c == a);
    CHECK_FALSE(growing_array<int>{0, 2, 3} == a);
}

TEST_CASE("a growing array works where constants are evaluated") {
    STATIC_REQUIRE(sum_while_compiling(5) == 3 + 6 + 10);
    CHECK(sum_while_compiling(5) == 19);
}
