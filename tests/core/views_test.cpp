// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The views: numbering, writing through them, and the contract of runs, which the loops rely on.
#include <collx/core/buffer.hpp>

#include <array>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

namespace {

// A mapping without strides, as a user could write it: the elements of a triangle, row by row, stored with padding.
struct triangle_mapping {
    std::size_t n;
    std::size_t size() const { return n * (n + 1) / 2; }
    std::size_t run() const { return 1; }
    std::ptrdiff_t offset(std::size_t i) const {
        std::size_t row = 0;
        while (i > row) i -= ++row;
        return static_cast<std::ptrdiff_t>(row * n + i);
    }
};

// The contract of runs: a run never passes the end, and its elements are adjacent.
template <class V>
unsigned broken_runs(const V& v) {
    unsigned wrong = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
        const std::size_t run = v.contiguous_run(i);
        wrong += run == 0 || run > v.size() - i;
        for (std::size_t k = 0; k < run && i + k < v.size(); ++k) wrong += v.pointer(i) + k != &v[i + k];
    }
    return wrong;
}

template <class V>
std::vector<typename V::value_type> elements(const V& v) {
    std::vector<typename V::value_type> all;
    for (std::size_t i = 0; i < v.size(); ++i) all.push_back(v[i]);
    return all;
}

std::vector<int> numbers(int n) {
    std::vector<int> v(static_cast<std::size_t>(n));
    std::iota(v.begin(), v.end(), 0);
    return v;
}

// A minimal view of a user.
struct minimal_view {
    using value_type = float;
    static constexpr bool is_contiguous = false, is_output = false, is_window = false;
    std::size_t size() const { return 3; }
    float operator[](std::size_t i) const { return static_cast<float>(i); }
};
struct view_without_data : minimal_view {
    static constexpr bool is_contiguous = true;
};
struct view_of_strings : minimal_view {
    using value_type = std::string;
    std::string operator[](std::size_t) const { return {}; }
};

} // namespace

using collx::BufferView, collx::RunView;

TEST_CASE("the views model their concepts") {
    STATIC_REQUIRE(BufferView<collx::contiguous_view<float>>);
    STATIC_REQUIRE(BufferView<collx::window_view<float>>);
    STATIC_REQUIRE(BufferView<collx::device_view<float>>);
    STATIC_REQUIRE(RunView<collx::contiguous_view<const int>>);
    STATIC_REQUIRE(RunView<collx::strided_view<float>>);
    STATIC_REQUIRE(RunView<collx::mapped_view<float, collx::strided_mapping>>);
    STATIC_REQUIRE(RunView<collx::mapped_view<const float, triangle_mapping>>);
    STATIC_REQUIRE(BufferView<collx::input_view<std::reverse_iterator<int*>>>);
    STATIC_REQUIRE_FALSE(RunView<collx::input_view<std::reverse_iterator<int*>>>);
    STATIC_REQUIRE(BufferView<minimal_view>);
    STATIC_REQUIRE_FALSE(BufferView<view_without_data>);
    STATIC_REQUIRE_FALSE(BufferView<view_of_strings>);
    STATIC_REQUIRE_FALSE(BufferView<std::vector<int>>);
    STATIC_REQUIRE_FALSE(BufferView<int>);
}

TEST_CASE("what a view says of itself") {
    STATIC_REQUIRE(collx::contiguous_view<float>::is_output);
    STATIC_REQUIRE_FALSE(collx::contiguous_view<const float>::is_output);
    STATIC_REQUIRE_FALSE(collx::strided_view<const float>::is_output);
    STATIC_REQUIRE_FALSE(collx::input_view<float*>::is_output);
    STATIC_REQUIRE(collx::window_view<float>::is_window);
    STATIC_REQUIRE_FALSE(collx::contiguous_view<float>::is_window);
    STATIC_REQUIRE(collx::memory_kind_v<collx::device_view<float>> == collx::memory_kind::device);
    STATIC_REQUIRE(collx::memory_kind_v<collx::strided_view<float>> == collx::memory_kind::host);
    STATIC_REQUIRE(std::is_trivially_copyable_v<collx::contiguous_view<float>>);
    STATIC_REQUIRE(std::is_trivially_copyable_v<collx::strided_view<float>>);
}

TEST_CASE("contiguous and empty views") {
    auto v = numbers(5);
    const collx::contiguous_view<int> view(v.data(), v.size());
    view[2] = 20;
    CHECK(v[2] == 20);
    CHECK(view.data() == v.data());
    CHECK(broken_runs(view) == 0);
    CHECK(collx::contiguous_view<int>().size() == 0);
    CHECK(collx::strided_view<int>().size() == 0);
    CHECK(collx::window_view<int>(v.data(), 5).size() == 5);
}

TEST_CASE("a stride skips, and may go backwards") {
    auto v = numbers(10);
    const auto odd = collx::strided(v.data() + 1, 5, 2);
    CHECK(elements(odd) == std::vector{1, 3, 5, 7, 9});
    CHECK(odd.contiguous_run(0) == 1);
    CHECK(elements(collx::strided(v.data() + 9, 3, -4)) == std::vector{9, 5, 1});
    odd[4] = 90;
    CHECK(v[9] == 90);
    CHECK(collx::strided(v.data(), 10, 1).contiguous_run(3) == 7);
    CHECK(elements(collx::strided(v.data() + 3, 3, 0)) == std::vector{3, 3, 3});
}

TEST_CASE("every matrix shape and stride is numbered row by row, and its runs are right") {
    auto v = numbers(400);
    for (std::size_t rows = 0; rows <= 4; ++rows)
        for (std::size_t cols = 0; cols <= 4; ++cols)
            for (std::ptrdiff_t row_stride = -5; row_stride <= 9; ++row_stride)
                for (std::ptrdiff_t col_stride = -2; col_stride <= 5; ++col_stride) {
                    const auto view = collx::strided2d(v.data() + 200, rows, cols, row_stride, col_stride);
                    std::vector<int> wanted;
                    for (std::size_t r = 0; r < rows; ++r)
                        for (std::size_t c = 0; c < cols; ++c)
                            wanted.push_back(200 + static_cast<int>(static_cast<std::ptrdiff_t>(r) * row_stride +
                                                                    static_cast<std::ptrdiff_t>(c) * col_stride));
                    CAPTURE(rows, cols, row_stride, col_stride);
                    if (elements(view) != wanted || broken_runs(view) != 0) FAIL("wrong");
                }
    // Rows without gaps form one run; with gaps each row is a run.
    CHECK(collx::strided2d(v.data(), 3, 4, 4).contiguous_run(0) == 12);
    CHECK(collx::strided2d(v.data(), 3, 4, 7).contiguous_run(5) == 3);
    CHECK(collx::strided2d(v.data(), 3, 1, 1).contiguous_run(0) == 3);
}

TEST_CASE("a strided mapping of any rank numbers the last index fastest and merges what is dense") {
    auto v = numbers(4 * 5 * 6 * 2);
    struct dimension {
        std::size_t extent;
        std::ptrdiff_t stride;
    };
    const std::vector<std::vector<dimension>> shapes = {
        {},                                  // a scalar
        {{6, 1}},                            //
        {{4, 30}, {5, 6}, {6, 1}},           // dense
        {{6, 1}, {5, 6}, {4, 30}},           // transposed
        {{4, 60}, {5, 12}, {6, 2}},          // dense except for a factor
        {{4, 30}, {3, 6}, {6, 1}},           // some rows left out
        {{4, 30}, {5, 6}, {4, 1}},           // some columns left out
        {{4, 30}, {1, 999}, {5, 6}, {6, 1}}, // an extent of one may have any stride
        {{2, 1}, {2, 2}, {2, 4}, {2, 8}, {2, 16}, {2, 32}},
        {{3, 0}, {4, 1}},          // broadcast
        {{4, 30}, {0, 6}, {6, 1}}, // empty
    };
    for (std::size_t s = 0; s < shapes.size(); ++s) {
        collx::strided_mapping mapping;
        std::vector<int> wanted = {0};
        for (const dimension& d : shapes[s]) {
            REQUIRE(mapping.add(d.extent, d.stride));
            std::vector<int> next;
            for (int base : wanted)
                for (std::size_t i = 0; i < d.extent; ++i)
                    next.push_back(base + static_cast<int>(static_cast<std::ptrdiff_t>(i) * d.stride));
            wanted = next;
        }
        const collx::mapped_view<int, collx::strided_mapping> view(v.data(), mapping);
        CAPTURE(s);
        CHECK(elements(view) == wanted);
        CHECK(broken_runs(view) == 0);
        if (s == 2 || s == 7) CHECK(view.contiguous_run(0) == view.size());
        if (s == 5) CHECK(view.contiguous_run(0) == 18);
    }
}

TEST_CASE("a strided mapping refuses what does not fit") {
    collx::strided_mapping mapping;
    for (int d = 0; d < collx::strided_mapping::max_rank; ++d) CHECK(mapping.add(2, 1 + 100 * d * d));
    CHECK_FALSE(mapping.add(2, 7));
    CHECK(mapping.size() == 256); // nothing was added
    CHECK(mapping.add(1, 7));     // an extent of one needs no entry
}

TEST_CASE("a user's mapping without strides") {
    auto v = numbers(16);
    const collx::mapped_view<int, triangle_mapping> view(v.data(), {4});
    CHECK(elements(view) == std::vector{0, 4, 5, 8, 9, 10, 12, 13, 14, 15});
    CHECK(broken_runs(view) == 0);
    view[2] = -1;
    CHECK(v[5] == -1);
}

TEST_CASE("a user's mapping may begin anywhere, and be empty") {
    struct listed {
        const std::vector<int>* places;
        std::size_t size() const { return places->size(); }
        std::size_t run() const { return size() == 6 ? 3 : 1; }
        std::ptrdiff_t offset(std::size_t i) const { return places->at(i); }
    };
    auto v = numbers(16);
    for (const std::vector<int>& places : {std::vector{7, 2, 15, 0}, {9, 10, 11, 4, 5, 6}, {}}) {
        const collx::mapped_view<int, listed> view(v.data(), {&places});
        CHECK(elements(view) == places);
        CHECK(broken_runs(view) == 0);
    }
}

TEST_CASE("a computed input evaluates when it is read, and only then") {
    struct counting_iterator {
        int* calls;
        int at;
        int operator*() const {
            ++*calls;
            return at * at;
        }
        counting_iterator operator+(std::ptrdiff_t d) const { return {calls, at + static_cast<int>(d)}; }
        std::ptrdiff_t operator-(const counting_iterator& other) const { return at - other.at; }
    };
    int calls = 0;
    const auto view = collx::input(counting_iterator{&calls, 0}, 10);
    CHECK(view.size() == 10);
    CHECK(calls == 0);
    CHECK(view[3] == 9);
    CHECK(calls == 1);
    auto v = numbers(3);
    STATIC_REQUIRE(std::is_same_v<decltype(collx::input(v.data(), 3)), collx::contiguous_view<const int>>);
}

TEST_CASE("a walk over a strided view is its numbering, from wherever it begins") {
    auto v = numbers(60);
    for (const auto& view : {collx::strided(v.data() + 1, 9, 3), collx::strided(v.data() + 50, 9, -4),
                             collx::strided2d(v.data(), 4, 5, 12), collx::strided2d(v.data() + 59, 3, 4, -10, -2),
                             collx::strided2d(v.data(), 7, 1, 5), collx::strided2d(v.data() + 1, 3, 4, 8, 2)})
        for (std::size_t first = 0; first < view.size(); ++first) {
            auto walker = view.walk(first);
            for (std::size_t i = first; i < view.size(); ++i) REQUIRE(&walker.next() == view.pointer(i));
        }
}

TEST_CASE("view and value") {
    auto v = numbers(3);
    STATIC_REQUIRE(std::is_same_v<decltype(collx::view(v.data(), 3)), collx::contiguous_view<int>>);
    double x = 1;
    const auto one = collx::value(x);
    one[0] = 2;
    CHECK(x == 2);
    const double y = 3;
    STATIC_REQUIRE(std::is_same_v<decltype(collx::value(y)), collx::contiguous_view<const double>>);
}

TEST_CASE("in_place marks a buffer and stays the same buffer") {
    auto v = numbers(3);
    const auto marked = collx::in_place(v);
    STATIC_REQUIRE(collx::is_in_place_v<std::remove_cv_t<decltype(marked)>>);
    STATIC_REQUIRE_FALSE(collx::is_in_place_v<std::vector<int>>);
    CHECK(marked.view.data() == v.data());
    CHECK(collx::buffer(marked).data() == v.data());
    CHECK(collx::in_place(collx::strided(v.data(), 2, 2)).view.size() == 2);
}
