// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/version.hpp>

#include <string>
#include <type_traits>

#include <catch2/catch.hpp>

COLLX_BEGIN_NAMESPACE
struct version_probe {};
COLLX_END_NAMESPACE

TEST_CASE("the three numbers, the text and the build system agree on the version") {
    const std::string from_numbers = std::to_string(COLLX_VERSION_MAJOR) + "." + std::to_string(COLLX_VERSION_MINOR) +
                                     "." + std::to_string(COLLX_VERSION_PATCH);
    CHECK(from_numbers == COLLX_VERSION_STRING);
    CHECK(from_numbers == COLLX_CMAKE_VERSION);
    CHECK(COLLX_VERSION == COLLX_VERSION_MAJOR * 10000 + COLLX_VERSION_MINOR * 100 + COLLX_VERSION_PATCH);
}

TEST_CASE("the version namespace is inline, so users never write it") {
    STATIC_REQUIRE(std::is_same_v<collx::version_probe, collx::v0::version_probe>);
}
