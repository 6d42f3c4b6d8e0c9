// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The traits of operators: collx's own, the standard library's and the user's. Also hooks and wrappers.
#include <collx/core/op.hpp>

#include <complex>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include <catch2/catch.hpp>

// --- archetypes: what users write ---------------------------------------------------------------------------------
namespace {

// A minimal operator: no identity, nothing declared.
struct plain_op {
    int operator()(int a, int b) const { return a * 10 + b; }
};

// Declares everything by members.
struct talkative_op {
    static constexpr bool is_commutative = true;
    static constexpr bool is_associative = false;
    static constexpr bool is_exact = true;
    static constexpr int identity() { return 42; }
    int operator()(int a, int b) const { return a + b - 42; }
};

// A foreign operator, described by op_traits.
struct foreign_op {
    double operator()(double a, double b) const { return a + b; }
};

// Its traits depend on the element type.
struct typed_op {
    template <class T>
    static constexpr bool is_commutative_for = std::is_same_v<T, int>;
    template <class T>
    static constexpr T identity() {
        return T(3);
    }
    template <class T>
    T operator()(T a, T b) const {
        return a + b - T(3);
    }
};

// Works on short vectors and declares it; and one that declares it wrongly.
struct vector_op {
    static constexpr bool is_vectorisable = true;
    template <class T>
    T operator()(const T& a, const T& b) const {
        return a + b;
    }
};
struct boasting_op {
    static constexpr bool is_vectorisable = true;
    float operator()(float a, float b) const { return a + b; }
};

// Compares only a part of itself.
struct by_key {
    int key, rank;
    [[maybe_unused]] friend bool operator<(by_key a, by_key b) { return a.key < b.key; }
};

struct not_const_op {
    int operator()(int a, int b) { return a + b; }
};

[[maybe_unused]] int free_function(int a, int b) { return a + b; }

// Take two elements or arrays, where compilers cannot look into the class or find no operator() in it.
struct both_op : plain_op {
    using plain_op::operator();
    void operator()(const int*, int*, std::size_t) const {}
};
struct final_op final : both_op {};
struct converts_op {
    using function = int (*)(int, int);
    operator function() const { return free_function; }
};

struct hooked_op : collx::plus {
    float pre(float x) const { return x * 2; }
    float post(float x, collx::hook_context context) const { return x + static_cast<float>(context.index); }
};

struct matrix2 {
    float m[4];
    [[maybe_unused]] friend matrix2 operator*(const matrix2& a, const matrix2&) { return a; }
};

} // namespace

template <>
struct collx::op_traits<foreign_op> {
    static constexpr bool is_commutative = true;
    template <class T>
    static constexpr T identity() {
        return T(0);
    }
};

using collx::is_commutative_v, collx::is_associative_v, collx::is_exact_v, collx::is_vectorisable_v,
    collx::has_identity_v, collx::ReduceOp;

TEST_CASE("of an unknown callable only associativity is assumed") {
    const auto lambda = [](int a, int b) { return a + b; };
    STATIC_REQUIRE_FALSE(is_commutative_v<decltype(lambda), int>);
    STATIC_REQUIRE_FALSE(is_commutative_v<plain_op, int>);
    STATIC_REQUIRE_FALSE(is_commutative_v<int (*)(int, int), int>);
    STATIC_REQUIRE(is_associative_v<plain_op, int>);
    STATIC_REQUIRE_FALSE(is_exact_v<plain_op, int>);
    STATIC_REQUIRE_FALSE(has_identity_v<plain_op, int>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<plain_op, int>);
    STATIC_REQUIRE_FALSE(collx::has_pre_v<plain_op, int>);
    STATIC_REQUIRE_FALSE(collx::has_post_v<plain_op, int>);
}

TEST_CASE("an operator answers by members, plain or by type, and op_traits answers for foreign ones") {
    STATIC_REQUIRE(is_commutative_v<talkative_op, int>);
    STATIC_REQUIRE_FALSE(is_associative_v<talkative_op, int>);
    STATIC_REQUIRE(is_exact_v<talkative_op, int>);
    STATIC_REQUIRE(collx::identity<talkative_op, int>() == 42);
    STATIC_REQUIRE(is_commutative_v<typed_op, int>);
    STATIC_REQUIRE_FALSE(is_commutative_v<typed_op, float>);
    STATIC_REQUIRE(collx::identity<typed_op, float>() == 3.0f);
    STATIC_REQUIRE(is_commutative_v<foreign_op, double>);
    STATIC_REQUIRE(is_commutative_v<const foreign_op&, double>);
    STATIC_REQUIRE(collx::identity<foreign_op, double>() == 0.0);
}

TEST_CASE("shipped operators are known") {
    STATIC_REQUIRE(is_commutative_v<collx::plus, float>);
    STATIC_REQUIRE(is_commutative_v<collx::average, float>);
    STATIC_REQUIRE(is_commutative_v<collx::premultiplied_sum<float>, float>);
    STATIC_REQUIRE(is_commutative_v<collx::multiplies, std::complex<double>>);
    STATIC_REQUIRE_FALSE(is_commutative_v<collx::multiplies, matrix2>);
    // Classes may compare a part of themselves: the left operand wins where neither is smaller.
    STATIC_REQUIRE_FALSE(is_commutative_v<collx::min, by_key>);
    STATIC_REQUIRE_FALSE(is_commutative_v<collx::max, std::pair<int, by_key>>);
    STATIC_REQUIRE_FALSE(is_commutative_v<collx::min, std::pair<float, int>>); // 0 and -0
    STATIC_REQUIRE_FALSE(is_commutative_v<collx::max, std::tuple<long, collx::f16>>);
    STATIC_REQUIRE(is_commutative_v<collx::min, std::pair<int, char>>);
    STATIC_REQUIRE(is_commutative_v<collx::max, std::tuple<int, std::pair<long, bool>>>);
    STATIC_REQUIRE(is_commutative_v<collx::max, double>);
    STATIC_REQUIRE(is_commutative_v<collx::min, collx::e4m3>);
    STATIC_REQUIRE(is_commutative_v<collx::min, __int128>);
    STATIC_REQUIRE(is_commutative_v<collx::max, collx::bf16>);
    STATIC_REQUIRE(is_commutative_v<decltype(collx::commutative(collx::min{})), by_key>);
    STATIC_REQUIRE(is_exact_v<collx::plus, int>);
    STATIC_REQUIRE_FALSE(is_exact_v<collx::plus, float>);
    STATIC_REQUIRE_FALSE(is_exact_v<collx::multiplies, collx::bf16>);
    STATIC_REQUIRE(is_exact_v<collx::max, collx::bf16>);
    STATIC_REQUIRE(is_exact_v<collx::bit_xor, int>);
    STATIC_REQUIRE(is_exact_v<collx::logical_xor, double>);
    STATIC_REQUIRE(is_commutative_v<collx::logical_xor, int>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::logical_xor, int>);
}

TEST_CASE("the standard's operators are known, with and without their type") {
    STATIC_REQUIRE(is_commutative_v<std::plus<>, float>);
    STATIC_REQUIRE(is_commutative_v<std::plus<float>, float>);
    STATIC_REQUIRE(is_commutative_v<std::multiplies<>, int>);
    STATIC_REQUIRE_FALSE(is_commutative_v<std::multiplies<>, matrix2>);
    STATIC_REQUIRE(is_commutative_v<std::bit_and<>, int>);
    STATIC_REQUIRE(is_commutative_v<std::bit_or<>, int>);
    STATIC_REQUIRE(is_commutative_v<std::bit_xor<unsigned>, unsigned>);
    STATIC_REQUIRE(is_commutative_v<std::logical_and<>, bool>);
    STATIC_REQUIRE(is_commutative_v<std::logical_or<>, bool>);
    STATIC_REQUIRE_FALSE(is_commutative_v<std::minus<>, float>);
    STATIC_REQUIRE_FALSE(is_commutative_v<std::divides<>, float>);
    STATIC_REQUIRE_FALSE(is_commutative_v<std::plus<plain_op>*, int>);
    STATIC_REQUIRE(collx::identity<std::multiplies<int>, int>() == 1);
    STATIC_REQUIRE(collx::identity<std::bit_and<>, int>() == -1);
    STATIC_REQUIRE(collx::identity<std::logical_and<>, bool>());
    STATIC_REQUIRE_FALSE(has_identity_v<std::minus<>, int>);
}

TEST_CASE("an operator is vectorisable if it says so and really takes short vectors of the type") {
    STATIC_REQUIRE(is_vectorisable_v<collx::plus, float>);
    STATIC_REQUIRE(is_vectorisable_v<collx::min, std::int8_t>);
    STATIC_REQUIRE(is_vectorisable_v<collx::average, double>);
    STATIC_REQUIRE(is_vectorisable_v<collx::bit_or, std::uint64_t>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::bit_or, float>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::max, bool>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::plus, long double>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::plus, collx::bf16>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::plus, std::complex<float>>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<collx::logical_or, int>);
    STATIC_REQUIRE(is_vectorisable_v<std::plus<>, float>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<std::plus<float>, float>);
    STATIC_REQUIRE(is_vectorisable_v<vector_op, float>);
    STATIC_REQUIRE_FALSE(is_vectorisable_v<boasting_op, float>);
}

TEST_CASE("a reduction operator combines two elements or two accumulators") {
    STATIC_REQUIRE(ReduceOp<collx::plus, int>);
    STATIC_REQUIRE(ReduceOp<plain_op, int>);
    STATIC_REQUIRE(ReduceOp<int (*)(int, int), int>);
    STATIC_REQUIRE(ReduceOp<decltype(free_function)&, int>);
    STATIC_REQUIRE(ReduceOp<std::plus<>, collx::f16>);
    STATIC_REQUIRE(ReduceOp<float (*)(float, float), collx::bf16>);
    STATIC_REQUIRE(ReduceOp<void (*)(const int*, int*, std::size_t), int>);
    STATIC_REQUIRE(ReduceOp<void (*)(const float*, float*, std::size_t), collx::f16>);
    STATIC_REQUIRE_FALSE(ReduceOp<void (*)(int*, int*, std::size_t), int>);
    STATIC_REQUIRE_FALSE(collx::ArrayOp<collx::plus, int>);
    // What can be called like an array operator, but returns something, combines elements.
    const auto with_a_default = [](auto a, auto b, long = 0) { return a < b ? a : b; };
    const auto bound =
        std::bind([](auto a, auto b) { return a < b ? a : b; }, std::placeholders::_1, std::placeholders::_2);
    STATIC_REQUIRE_FALSE(collx::ArrayOp<decltype(with_a_default), int>);
    STATIC_REQUIRE(ReduceOp<decltype(with_a_default), int>);
    STATIC_REQUIRE_FALSE(collx::ArrayOp<decltype(bound), int>);
    STATIC_REQUIRE(ReduceOp<decltype(bound), int>);
    // So does what takes any number of them: its body need not compile for pointers.
    const auto sum = [](auto... v) { return (v + ...); };
    const auto forwards = [](auto&&... v) { return plain_op{}(std::forward<decltype(v)>(v)...); };
    STATIC_REQUIRE_FALSE(collx::ArrayOp<decltype(sum), int>);
    STATIC_REQUIRE(ReduceOp<decltype(sum), int>);
    STATIC_REQUIRE(ReduceOp<decltype(sum)&, collx::f16>);
    STATIC_REQUIRE_FALSE(collx::ArrayOp<decltype(forwards), int>);
    STATIC_REQUIRE(ReduceOp<decltype(forwards), int>);
    STATIC_REQUIRE(ReduceOp<decltype(std::ref(forwards)), int>);
    STATIC_REQUIRE(collx::ArrayOp<both_op, int>); // an operator of either, is one of arrays
    STATIC_REQUIRE(collx::ArrayOp<final_op, int>);
    STATIC_REQUIRE(ReduceOp<converts_op, int>);
    STATIC_REQUIRE(std::is_same_v<collx::combined_t<collx::plus, collx::f16>, float>);
    STATIC_REQUIRE(std::is_same_v<collx::combined_t<void (*)(const collx::f16*, collx::f16*, std::size_t), collx::f16>,
                                  collx::f16>);
    STATIC_REQUIRE_FALSE(ReduceOp<int, int>);
    STATIC_REQUIRE_FALSE(ReduceOp<std::negate<>, int>);
    STATIC_REQUIRE_FALSE(ReduceOp<plain_op, matrix2>);
    STATIC_REQUIRE_FALSE(ReduceOp<not_const_op, int>);
    STATIC_REQUIRE_FALSE(ReduceOp<collx::top_k<3>, collx::top_k_state<float, 4>>);
}

TEST_CASE("commutative() declares, keeps state and everything else") {
    int calls = 0;
    const auto counting = collx::commutative([&calls](int a, int b) {
        ++calls;
        return a + b;
    });
    STATIC_REQUIRE(is_commutative_v<decltype(counting), int>);
    STATIC_REQUIRE(ReduceOp<decltype(counting), int>);
    CHECK(counting(2, 3) == 5);
    CHECK(calls == 1);

    using wrapped = decltype(collx::commutative(talkative_op{}));
    STATIC_REQUIRE_FALSE(is_associative_v<wrapped, int>);
    STATIC_REQUIRE(is_exact_v<wrapped, int>);
    STATIC_REQUIRE(collx::identity<wrapped, int>() == 42);
    using times = decltype(collx::commutative(collx::multiplies{}));
    STATIC_REQUIRE(is_commutative_v<times, matrix2>);
    STATIC_REQUIRE_FALSE(has_identity_v<times, matrix2>);
    STATIC_REQUIRE(is_vectorisable_v<times, float>);
    STATIC_REQUIRE(collx::identity<decltype(collx::commutative(std::plus<>{})), int>() == 0);
    STATIC_REQUIRE(std::is_trivially_copyable_v<times>);

    const auto hooked = collx::commutative(hooked_op{});
    CHECK(collx::apply_pre(hooked, 3.0f, {1, 0}) == 6.0f);
    CHECK(collx::apply_post(hooked, 3.0f, {1, 7}) == 10.0f);
}

TEST_CASE("with_pre and with_post add work and keep what the operator says") {
    const auto norm = collx::with_post(collx::with_pre(collx::plus{}, [](float x) { return x * x; }),
                                       [](float x, collx::hook_context context) { return x / context.nranks; });
    STATIC_REQUIRE(collx::has_pre_v<decltype(norm), float>);
    STATIC_REQUIRE(collx::has_post_v<decltype(norm), float>);
    STATIC_REQUIRE(is_commutative_v<decltype(norm), float>);
    STATIC_REQUIRE(is_vectorisable_v<decltype(norm), float>);
    STATIC_REQUIRE(collx::identity<decltype(norm), float>() == 0.0f);
    STATIC_REQUIRE_FALSE(collx::has_pre_v<decltype(norm), std::string>);
    const collx::hook_context two{2, 0};
    CHECK(norm(norm.pre(3.0f), norm.pre(4.0f)) == 25.0f);
    CHECK(norm.post(25.0f, two) == 12.5f);
}

TEST_CASE("hooks nest: the added pre comes first, the added post last") {
    const auto op =
        collx::with_post(collx::with_pre(hooked_op{}, [](float x) { return x + 1; }), [](float x) { return x * 10; });
    CHECK(op.pre(3.0f) == 8.0f);
    CHECK(collx::apply_pre(op, 3.0f, {1, 0}) == 8.0f);   // (3 + 1) * 2
    CHECK(collx::apply_post(op, 3.0f, {1, 4}) == 70.0f); // (3 + 4) * 10
    const auto average = collx::with_post(collx::average{}, [](float x) { return x + 1; });
    CHECK(collx::apply_post(average, 12.0f, {4, 0}) == 4.0f);
    // The post hook of `average` keeps the element type that it gets: an int stays an int.
    CHECK(collx::apply_post(collx::average{}, 7, {2, 0}) == 3);
}

TEST_CASE("a hook may ask for the index, before the reduction too") {
    const float bias[] = {10, 20, 30};
    const auto op =
        collx::with_pre(collx::plus{}, [&bias](float x, collx::hook_context c) { return x + bias[c.index]; });
    STATIC_REQUIRE(collx::has_pre_v<decltype(op), float>);
    CHECK(collx::apply_pre(op, 1.0f, {1, 2}) == 31.0f);
    const auto outer = collx::with_pre(op, [](float x) { return -x; });
    CHECK(collx::apply_pre(outer, 1.0f, {1, 0}) == 9.0f);
    const auto wrapped = collx::commutative(op);
    CHECK(collx::apply_pre(wrapped, 1.0f, {1, 1}) == 21.0f);
}

TEST_CASE("an operator without hooks leaves elements alone") {
    CHECK(collx::apply_pre(collx::plus{}, 5, {3, 1}) == 5);
    CHECK(collx::apply_post(collx::plus{}, 5, {3, 1}) == 5);
}

TEST_CASE("names and hashes of operators") {
    STATIC_REQUIRE(collx::op_name<collx::plus>() == "plus");
    STATIC_REQUIRE(collx::op_name<const collx::plus&>() == "plus");
    STATIC_REQUIRE(collx::op_name<collx::premultiplied_sum<float>>() == "premultiplied_sum<float>");
    STATIC_REQUIRE(collx::op_name<collx::top_k<3>>() == "top_k<3>");
    STATIC_REQUIRE(collx::op_name<std::plus<int>>() == "std::plus<int>");
    STATIC_REQUIRE(collx::op_hash<collx::min>() != collx::op_hash<collx::max>());
    STATIC_REQUIRE(collx::op_hash<collx::top_k<3>>() != collx::op_hash<collx::top_k<4>>());
    STATIC_REQUIRE(collx::op_hash<collx::plus>() == collx::fnv1a("plus"));
}

TEST_CASE("everything needed on the hot path is a constant expression") {
    STATIC_REQUIRE(collx::plus{}(1, 2) == 3);
    STATIC_REQUIRE(collx::min{}(0.0, -0.5) == -0.5);
    STATIC_REQUIRE(collx::apply_post(collx::average{}, 9, {3, 0}) == 3);
    STATIC_REQUIRE(collx::commutative(collx::max{})(1, 2) == 2);
    STATIC_REQUIRE(std::is_empty_v<collx::plus>);
    STATIC_REQUIRE(std::is_empty_v<collx::welford>);
}
