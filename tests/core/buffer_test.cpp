// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: needs=eigen,ranges
// collx::buffer: which view each type gets, by which precedence, and that its elements are right.
#include <collx/core/buffer.hpp>

#include <array>
#include <deque>
#include <initializer_list>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <valarray>
#include <vector>

#include <Eigen/Core>
#include <catch2/catch.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/reverse.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/transform.hpp>
#include <range/v3/view/zip.hpp>

using collx::Buffer, collx::buffer_t, collx::contiguous_view, collx::strided_view;

// --- archetypes: what users write ---------------------------------------------------------------------------------
namespace theirs {

// A foreign image class, described by buffer_traits.
struct image {
    float pixels[12];
};

// A class with its own member functions.
struct with_member {
    float data[4];
    collx::contiguous_view<float> collx_buffer() { return {data, 4}; }
    collx::contiguous_view<const float> collx_buffer() const { return {data, 4}; }
};

// A function next to the type. The type is also a range, which it overrides: only two elements are sent.
struct with_function : std::vector<float> {
    using std::vector<float>::vector;
};
auto collx_buffer(with_function& x) { return collx::view(x.data(), 2); }

// Has all of these, to test the precedence.
struct everything : std::vector<float> {
    using std::vector<float>::vector;
    auto collx_buffer() { return collx::view(data(), 2); }
};
auto collx_buffer(everything& x) { return collx::view(x.data(), 3); }

struct opaque {
    std::string name;
};

// A range with free begin and end functions; its size is their distance.
struct free_range {
    int values[3] = {1, 2, 3};
};
int* begin(free_range& r) { return r.values; }

struct distance_range {
    std::array<int, 3> values = {1, 2, 3};
    auto begin() { return std::make_reverse_iterator(values.end()); }
    auto end() { return std::make_reverse_iterator(values.begin()); }
};

} // namespace theirs

template <>
struct collx::buffer_traits<theirs::image> {
    static auto view(theirs::image& x) { return collx::strided2d(x.pixels, 3, 2, 4); }
    static auto view(const theirs::image& x) { return collx::strided2d(x.pixels, 3, 2, 4); }
};
template <>
struct collx::buffer_traits<theirs::everything> {
    static auto view(theirs::everything& x) { return collx::view(x.data(), 1); }
};

namespace {

template <class V>
auto elements(const V& v) {
    std::vector<typename V::value_type> all;
    for (std::size_t i = 0; i < v.size(); ++i) all.push_back(v[i]);
    return all;
}

} // namespace

TEMPLATE_TEST_CASE("contiguous ranges are views of their own memory", "", std::vector<int>, (std::array<int, 3>),
                   std::valarray<int>, std::span<int>, (std::span<int, 3>)) {
    STATIC_REQUIRE(std::is_same_v<buffer_t<TestType&>, contiguous_view<int>>);
    int storage[] = {1, 2, 3};
    const auto make = [&] {
        if constexpr (std::is_constructible_v<TestType, std::span<int, 3>>) return TestType(std::span<int, 3>(storage));
        else return TestType{1, 2, 3};
    };
    TestType x = make();
    const auto view = collx::buffer(x);
    CHECK(view.size() == 3);
    CHECK(view.data() == &x[0]);
    view[1] = 20;
    CHECK(x[1] == 20);
}

TEST_CASE("a const buffer is an input only; a const span still spans what it spans") {
    STATIC_REQUIRE(std::is_same_v<buffer_t<const std::vector<int>&>, contiguous_view<const int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<const std::array<int, 2>&>, contiguous_view<const int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<const int(&)[2]>, contiguous_view<const int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<const std::valarray<int>&>, contiguous_view<const int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<std::span<const int>>, contiguous_view<const int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<const std::span<int>&>, contiguous_view<int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<std::initializer_list<int>>, contiguous_view<const int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<std::string&>, contiguous_view<char>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<const Eigen::VectorXf&>, contiguous_view<const float>>);
    STATIC_REQUIRE_FALSE(buffer_t<const theirs::image&>::is_output);
    STATIC_REQUIRE_FALSE(buffer_t<const theirs::with_member&>::is_output);
}

TEST_CASE("nested arrays are one block of their innermost elements; a std::array of arrays has arrays as elements") {
    float grid[2][3][4] = {};
    grid[1][2][3] = 7;
    const auto view = collx::buffer(grid);
    STATIC_REQUIRE(std::is_same_v<decltype(view), const contiguous_view<float>>);
    CHECK(view.size() == 24);
    CHECK(view[23] == 7);
    const float constant_grid[2][2] = {{1, 2}, {3, 4}};
    CHECK(elements(collx::buffer(constant_grid)) == std::vector<float>{1, 2, 3, 4});
    STATIC_REQUIRE(
        std::is_same_v<buffer_t<std::array<std::array<float, 3>, 2>&>, contiguous_view<std::array<float, 3>>>);
}

TEST_CASE("empty ranges have no elements") {
    std::vector<int> nothing;
    CHECK(collx::buffer(nothing).size() == 0);
    CHECK(collx::buffer(std::span<int>()).size() == 0);
    Eigen::MatrixXf empty(0, 4);
    CHECK(collx::buffer(empty).size() == 0);
}

TEST_CASE("random-access ranges that are not contiguous are inputs, read as they are") {
    std::vector<int> v = {1, 2, 3, 4};
    CHECK(elements(collx::buffer(v | ranges::views::transform([](int x) { return x + 0.5; }))) ==
          std::vector{1.5, 2.5, 3.5, 4.5});
    CHECK(elements(collx::buffer(v | ranges::views::stride(2))) == std::vector{1, 3});
    CHECK(elements(collx::buffer(ranges::views::zip(v, v | ranges::views::reverse)))[0] == std::pair(1, 4));
    std::deque<int> d(v.begin(), v.end());
    CHECK(elements(collx::buffer(d)) == v);
    theirs::distance_range backwards;
    CHECK(elements(collx::buffer(backwards)) == std::vector{3, 2, 1});
    STATIC_REQUIRE_FALSE(buffer_t<std::deque<int>&>::is_output);
}

// clang 14 cannot compile the views of libstdc++ 12.
#if !defined(__clang__) || __clang_major__ >= 16
TEST_CASE("the standard's views, as far as they have random access and a size") {
    std::vector<int> v = {1, 2, 3, 4};
    CHECK(elements(collx::buffer(v | std::views::transform([](int x) { return x * x; }))) == std::vector{1, 4, 9, 16});
    CHECK(elements(collx::buffer(v | std::views::reverse)) == std::vector{4, 3, 2, 1});
    CHECK(elements(collx::buffer(std::views::iota(3, 6))) == std::vector{3, 4, 5});
    STATIC_REQUIRE_FALSE(buffer_t<decltype(v | std::views::reverse)>::is_output);
    // A pipeline that stays contiguous stays an output.
    STATIC_REQUIRE(std::is_same_v<buffer_t<decltype(v | std::views::take(2))>, contiguous_view<int>>);
    CHECK(collx::buffer(v | std::views::drop(1)).data() == v.data() + 1);
    STATIC_REQUIRE_FALSE(Buffer<decltype(std::views::iota(0))>); // without an end
    STATIC_REQUIRE_FALSE(
        Buffer<decltype(std::declval<std::vector<int>&>() | std::views::filter([](int) { return true; }))>);
}
#endif

TEST_CASE("Eigen: plain matrices are dense, pieces keep their strides, expressions are inputs") {
    Eigen::MatrixXf m(4, 3);
    std::iota(m.data(), m.data() + m.size(), 0.0f); // column-major
    STATIC_REQUIRE(std::is_same_v<buffer_t<Eigen::MatrixXf&>, contiguous_view<float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<Eigen::Matrix3d&>, contiguous_view<double>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<Eigen::ArrayXXi&>, contiguous_view<int>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<Eigen::Map<Eigen::VectorXf>&>, contiguous_view<float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<Eigen::Ref<Eigen::VectorXf>&>, contiguous_view<float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<Eigen::Map<const Eigen::VectorXf>&>, contiguous_view<const float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<decltype(m.col(0))>, contiguous_view<float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<decltype(m.row(0))>, strided_view<float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<decltype(m.block(0, 0, 2, 2))>, strided_view<float>>);

    CHECK(elements(collx::buffer(m.col(1))) == std::vector<float>{4, 5, 6, 7});
    CHECK(elements(collx::buffer(m.row(1))) == std::vector<float>{1, 5, 9});
    CHECK(elements(collx::buffer(m.block(1, 1, 2, 2))) == std::vector<float>{5, 6, 9, 10});
    CHECK(collx::buffer(m.block(1, 1, 2, 2)).contiguous_run(0) == 2);
    collx::buffer(m.block(1, 1, 2, 2))[3] = -1;
    CHECK(m(2, 2) == -1);
    m(2, 2) = 10;

    using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    row_major r = m;
    CHECK(elements(collx::buffer(r)) == std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
    CHECK(elements(collx::buffer(r.block(1, 1, 2, 2))) == std::vector<float>{5, 9, 6, 10});
    // A map of a whole dense matrix is one run, although its type does not say so.
    Eigen::Map<Eigen::MatrixXf> map(m.data(), 4, 3);
    CHECK(collx::buffer(map).contiguous_run(0) == 12);
    Eigen::Map<Eigen::MatrixXf, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> every_other(m.data(), 2, 3, {4, 2});
    CHECK(elements(collx::buffer(every_other)) == std::vector<float>{0, 2, 4, 6, 8, 10});

    Eigen::VectorXf x = m.col(0);
    CHECK(elements(collx::buffer(x + x)) == std::vector<float>{0, 2, 4, 6});
    STATIC_REQUIRE_FALSE(buffer_t<decltype(x + x)>::is_output);
    std::vector<Eigen::Vector3f> points(2);
    STATIC_REQUIRE(std::is_same_v<decltype(collx::buffer(points)), contiguous_view<Eigen::Vector3f>>);
}

TEST_CASE(
    "users' types: traits come before members, members before functions, functions before what the type looks like") {
    theirs::image image{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
    CHECK(elements(collx::buffer(image)) == std::vector<float>{0, 1, 4, 5, 8, 9});
    collx::buffer(image)[5] = 90;
    CHECK(image.pixels[9] == 90);
    theirs::with_member member{};
    CHECK(collx::buffer(member).size() == 4);
    theirs::with_function function(5);
    CHECK(collx::buffer(function).size() == 2);
    theirs::everything everything(5);
    CHECK(collx::buffer(everything).size() == 1);
    theirs::free_range free;
    STATIC_REQUIRE_FALSE(Buffer<theirs::free_range&>); // it has a begin, but neither size nor end
    static_cast<void>(free);
}

TEST_CASE("a view is its own buffer") {
    std::vector<int> v(6);
    const auto strided = collx::strided(v.data(), 3, 2);
    STATIC_REQUIRE(std::is_same_v<decltype(collx::buffer(strided)), strided_view<int>>);
    CHECK(collx::buffer(strided).pointer(1) == v.data() + 2);
    STATIC_REQUIRE(std::is_same_v<buffer_t<collx::window_view<int>>, collx::window_view<int>>);
    CHECK(collx::buffer(collx::view(v.data(), 2)).size() == 2);
}

TEST_CASE("what is no buffer is none, without an error") {
    STATIC_REQUIRE(Buffer<std::vector<int>&>);
    STATIC_REQUIRE(Buffer<std::vector<int>>);
    STATIC_REQUIRE_FALSE(Buffer<std::vector<bool>&>);
    STATIC_REQUIRE_FALSE(Buffer<const std::vector<bool>&>);
    STATIC_REQUIRE_FALSE(Buffer<std::list<int>&>);
    STATIC_REQUIRE_FALSE((Buffer<std::map<int, int>&>));
    STATIC_REQUIRE_FALSE(Buffer<std::set<int>>);
    STATIC_REQUIRE_FALSE(Buffer<int*>);
    STATIC_REQUIRE_FALSE(Buffer<int&>);
    STATIC_REQUIRE_FALSE(Buffer<std::vector<std::string>&>);
    STATIC_REQUIRE_FALSE(Buffer<std::vector<int*>&>);
    STATIC_REQUIRE_FALSE(Buffer<theirs::opaque&>);
    STATIC_REQUIRE_FALSE(Buffer<std::optional<int>&>);
}

TEST_CASE("buffers can be made at compile time") {
    static constexpr std::array<int, 3> a = {1, 2, 3};
    STATIC_REQUIRE(collx::buffer(a)[2] == 3);
    STATIC_REQUIRE(collx::strided(a.data(), 2, 2)[1] == 3);
}
