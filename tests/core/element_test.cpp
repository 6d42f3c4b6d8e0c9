// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: needs=eigen
#include <collx/core/element.hpp>

#include <array>
#include <complex>
#include <memory>
#include <string>
#include <string_view>

#include <Eigen/Core>
#include <catch2/catch.hpp>

namespace {

// A minimal element type of a user.
struct particle {
    float position[3];
    int kind;
};

// Its copy is not trivial, although copying its bytes would suffice.
struct counted {
    int n = 0;
    counted() = default;
    counted(const counted& other) : n(other.n) {}
    counted& operator=(const counted&) = default;
};

struct trusted : counted {};

// Looks like a complex number, but has more than two parts.
struct labelled_complex {
    using value_type = float;
    std::string label;
    float re, im;
    labelled_complex(float r, float i) : re(r), im(i) {}
    float real() const { return re; }
    float imag() const { return im; }
};

} // namespace

template <>
inline constexpr bool collx::enable_wire<trusted> = true;
template <>
inline constexpr bool collx::enable_wire<particle*> = true;
template <>
struct collx::accumulator<std::int8_t> {
    using type = std::int32_t;
};

TEST_CASE("numbers and trivially copyable structs are elements") {
    STATIC_REQUIRE(collx::Element<int>);
    STATIC_REQUIRE(collx::Element<bool>);
    STATIC_REQUIRE(collx::Element<long double>);
    STATIC_REQUIRE(collx::Element<collx::f16>);
    STATIC_REQUIRE(collx::Element<collx::bf16>);
    STATIC_REQUIRE(collx::Element<std::byte>);
    STATIC_REQUIRE(collx::Element<particle>);
    STATIC_REQUIRE(collx::Element<std::array<particle, 3>>);
}

TEST_CASE("what holds resources or addresses is not an element") {
    STATIC_REQUIRE_FALSE(collx::Element<std::string>);
    STATIC_REQUIRE_FALSE(collx::Element<std::unique_ptr<int>>);
    STATIC_REQUIRE_FALSE(collx::Element<int*>);
    STATIC_REQUIRE_FALSE(collx::Element<int particle::*>);
    STATIC_REQUIRE_FALSE(collx::Element<std::nullptr_t>);
    STATIC_REQUIRE_FALSE(collx::Element<int&>);
    STATIC_REQUIRE_FALSE(collx::Element<void>);
    STATIC_REQUIRE_FALSE(collx::Element<int[3]>);
    STATIC_REQUIRE_FALSE(collx::Element<const int>);
    STATIC_REQUIRE_FALSE(collx::Element<counted>);
    STATIC_REQUIRE_FALSE(collx::Element<labelled_complex>);
    STATIC_REQUIRE_FALSE(collx::Element<std::array<std::string, 2>>);
}

TEST_CASE("a type can be opted in") {
    STATIC_REQUIRE(collx::Element<trusted>);
    STATIC_REQUIRE(collx::Element<particle*>);
    STATIC_REQUIRE(collx::Element<std::pair<trusted, int>>);
}

TEST_CASE("pair, tuple and complex are elements when their parts are") {
    STATIC_REQUIRE_FALSE(std::is_trivially_copyable_v<std::pair<int, float>>);
    STATIC_REQUIRE(collx::Element<std::pair<int, float>>);
    STATIC_REQUIRE(collx::Element<std::tuple<int, collx::f16, std::pair<int, int>>>);
    STATIC_REQUIRE(collx::Element<std::tuple<>>);
    STATIC_REQUIRE(collx::Element<std::complex<double>>);
    STATIC_REQUIRE_FALSE(collx::Element<std::pair<int, std::string>>);
    STATIC_REQUIRE_FALSE(collx::Element<std::pair<int, int*>>);
    STATIC_REQUIRE_FALSE(collx::Element<std::tuple<int, int&>>);
}

TEST_CASE("Eigen's fixed-size matrices are elements, its dynamic ones and its views are not") {
    STATIC_REQUIRE_FALSE(std::is_trivially_copyable_v<Eigen::Vector3f>);
    STATIC_REQUIRE(collx::Element<Eigen::Vector3f>);
    STATIC_REQUIRE(collx::Element<Eigen::Array44d>);
    STATIC_REQUIRE(collx::Element<std::pair<int, Eigen::Matrix2d>>);
    STATIC_REQUIRE_FALSE(collx::Element<Eigen::VectorXf>);
    STATIC_REQUIRE_FALSE(collx::Element<Eigen::Map<Eigen::Vector3f>>);
}

TEST_CASE("16-bit types are accumulated in float, others in themselves, unless the user says so") {
    STATIC_REQUIRE(std::is_same_v<collx::accumulator_t<collx::f16>, float>);
    STATIC_REQUIRE(std::is_same_v<collx::accumulator_t<collx::bf16>, float>);
    STATIC_REQUIRE(std::is_same_v<collx::accumulator_t<double>, double>);
    STATIC_REQUIRE(std::is_same_v<collx::accumulator_t<particle>, particle>);
    STATIC_REQUIRE(std::is_same_v<collx::accumulator_t<std::int8_t>, std::int32_t>);
}

TEST_CASE("a type's name is what the compiler calls it") {
    CHECK(collx::type_name<int>() == "int");
    CHECK(collx::type_name<std::pair<int, char>>() == "std::pair<int, char>");
    CHECK(std::string(collx::type_name<particle>()).find("particle") != std::string::npos);
    STATIC_REQUIRE(collx::type_name<double>() == "double");
}

TEST_CASE("a name is searched, cut and turned into a standard string") {
    using collx::name_view;
    constexpr name_view name = "std::__1::plus<int>";
    STATIC_REQUIRE(name.find("::") == 3);
    STATIC_REQUIRE(name.substr(5).find("::") == 3);
    STATIC_REQUIRE(name.find("minus") == name_view::npos);
    STATIC_REQUIRE(name.find(name) == 0);
    STATIC_REQUIRE(name.find("::", 4) == 8);
    STATIC_REQUIRE(name.find("t>", 17) == 17);
    STATIC_REQUIRE(name.find('>', 19) == name_view::npos);
    STATIC_REQUIRE(name.rfind(':') == 9);
    STATIC_REQUIRE(name.rfind(':', 8) == 8);
    STATIC_REQUIRE(name.rfind(':', 2) == name_view::npos);
    STATIC_REQUIRE(name.find_first_of("<:") == 3);
    STATIC_REQUIRE(name.find_first_of("<:", 10) == 14);
    STATIC_REQUIRE(name.find_first_not_of("dst") == 3);
    STATIC_REQUIRE(name_view("ab") < name_view("abc"));
    STATIC_REQUIRE(name_view("ab") < name_view("b"));
    STATIC_REQUIRE_FALSE(name_view("b") < name_view("ab"));
    STATIC_REQUIRE(name.rfind('!') == name_view::npos);
    STATIC_REQUIRE(name.starts_with("std"));
    STATIC_REQUIRE_FALSE(name_view("st").starts_with("std"));
    STATIC_REQUIRE(name.substr(10, 4) == "plus");
    STATIC_REQUIRE(name.substr(15, 100) == "int>");
    STATIC_REQUIRE(name.substr(name.size()).empty());
    STATIC_REQUIRE_FALSE(name == "std::__1::plus<int> ");
    const std::string text = name;
    CHECK(text == "std::__1::plus<int>");
    CHECK(name_view(text) == name);
    CHECK(std::string_view(name) == text);
}

TEST_CASE("hashes tell types apart, and not the spellings of one number") {
    STATIC_REQUIRE(collx::type_hash<int>() != collx::type_hash<unsigned>());
    STATIC_REQUIRE(collx::type_hash<float>() != collx::type_hash<int>());
    STATIC_REQUIRE(collx::type_hash<float>() != collx::type_hash<double>());
    STATIC_REQUIRE(collx::type_hash<collx::f16>() != collx::type_hash<collx::bf16>());
    STATIC_REQUIRE(collx::type_hash<bool>() != collx::type_hash<unsigned char>());
    STATIC_REQUIRE(collx::type_hash<std::pair<int, float>>() != collx::type_hash<std::pair<float, int>>());
    STATIC_REQUIRE(collx::type_hash<particle>() != collx::type_hash<counted>());
    STATIC_REQUIRE(sizeof(long) != sizeof(long long) || collx::type_hash<long>() == collx::type_hash<long long>());
}

TEST_CASE("names that compilers spell differently have one hash") {
    using collx::detail::spelling_hash;
    STATIC_REQUIRE(spelling_hash("collx::v0::wire<collx::v0::f16> >") == spelling_hash("collx::wire<collx::f16>>"));
    STATIC_REQUIRE(spelling_hash("pair<long unsigned int, short int>") == spelling_hash("pair<unsigned long,short>"));
    STATIC_REQUIRE(spelling_hash("long long unsigned int") == spelling_hash("unsigned long long"));
    STATIC_REQUIRE(spelling_hash("unsigned int") == spelling_hash("unsigned"));
    STATIC_REQUIRE(spelling_hash("std::plus<void>") == spelling_hash("std::plus<>"));
    STATIC_REQUIRE(spelling_hash("long long") != spelling_hash("long"));
    STATIC_REQUIRE(spelling_hash("unsigned") != spelling_hash("int"));
    STATIC_REQUIRE(spelling_hash("unsigned short") != spelling_hash("short"));
    STATIC_REQUIRE(spelling_hash("unsigned char") != spelling_hash("char"));
    STATIC_REQUIRE(spelling_hash("long double") != spelling_hash("double"));
    STATIC_REQUIRE(spelling_hash("mine::point") != spelling_hash("mine::po"));
    STATIC_REQUIRE(spelling_hash("v01::x") != spelling_hash("x"));
    // g++ leaves out the namespace of a type where the asking function has the same.
    STATIC_REQUIRE(collx::type_name<collx::detail::name_frame>().find("detail::") != collx::name_view::npos);
}

TEST_CASE("the hash is FNV-1a") {
    // Test vectors of the algorithm's authors.
    STATIC_REQUIRE(collx::fnv1a("") == 0xcbf29ce484222325u);
    STATIC_REQUIRE(collx::fnv1a("a") == 0xaf63dc4c8601ec8cu);
    STATIC_REQUIRE(collx::fnv1a("foobar") == 0x85944171f73967e8u);
}
