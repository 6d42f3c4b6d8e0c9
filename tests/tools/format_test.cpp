// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../tools/support/format.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx::tools;

namespace {
template <class F>
std::string message_of(F&& f) {
    try {
        f();
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
    return "no error";
}
} // namespace

TEST_CASE("sizes are read with binary units and without rounding") {
    CHECK(parse_size("8") == 8);
    CHECK(parse_size("0") == 0);
    CHECK(parse_size("8B") == 8);
    CHECK(parse_size("4K") == 4096);
    CHECK(parse_size("4k") == 4096);
    CHECK(parse_size("64KiB") == 65536);
    CHECK(parse_size("64 KiB") == 65536);
    CHECK(parse_size("1M") == 1u << 20);
    CHECK(parse_size("1.5M") == 1572864);
    CHECK(parse_size("2Gi") == 2147483648u);
    CHECK(parse_size("1T") == 1099511627776u);
    CHECK(parse_size("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("what is no size is refused with a sentence that says why") {
    CHECK(message_of([] { parse_size(""); }) == "'' is not a size: it is empty.");
    CHECK(message_of([] { parse_size("-8"); }) == "'-8' is not a size: it must not be negative.");
    CHECK(message_of([] { parse_size("K"); }) == "'K' is not a size: it must begin with a digit.");
    CHECK(message_of([] { parse_size("1.K"); }) == "'1.K' is not a size: digits must follow the point.");
    CHECK(message_of([] { parse_size("0.3K"); }) == "'0.3K' is not a size: it is not a whole number of bytes.");
    CHECK(message_of([] { parse_size("16777216T"); }) == "'16777216T' is not a size: the number is too large.");
    CHECK(message_of([] { parse_size("99999999999999999999"); }) ==
          "'99999999999999999999' is not a size: the number is too large.");
    CHECK(message_of([] { parse_size("4KB"); }) ==
          "'4KB' is not a size: decimal units are not accepted; K or KiB is 1024 bytes.");
    CHECK(message_of([] { parse_size("4X"); }) ==
          "'4X' is not a size: the unit must be B, K, M, G, T or KiB, MiB, GiB, TiB.");
    CHECK(message_of([] { parse_size("4K8"); }) != "no error");
}

TEST_CASE("sizes are printed as people say them, and options come back as the same number") {
    CHECK(size_text(0) == "0 B");
    CHECK(size_text(1023) == "1023 B");
    CHECK(size_text(65536) == "64 KiB");
    CHECK(size_text(1572864) == "1.5 MiB");
    CHECK(size_text(1000000) == "977 KiB");
    CHECK(size_text(1099511627776.0) == "1 TiB");
    for (const std::uint64_t bytes :
         {0ull, 8ull, 1000ull, 1024ull, 65536ull, 1ull << 20, 3ull << 30, 1ull << 50, (1ull << 20) + 4})
        CHECK(parse_size(size_option(bytes)) == bytes);
    CHECK(size_option(65536) == "64K");
    CHECK(size_option(1000) == "1000");
}

TEST_CASE("durations are read and printed") {
    CHECK(parse_duration_ns("500ns") == 500);
    CHECK(parse_duration_ns("10us") == 10'000);
    CHECK(parse_duration_ns("1.5 ms") == 1'500'000);
    CHECK(parse_duration_ns("2s") == 2'000'000'000);
    CHECK(parse_duration_ns("2min") == 120'000'000'000);
    CHECK(parse_duration_ns("0.5", 1'000'000'000) == 500'000'000);
    CHECK(message_of([] { parse_duration_ns("5"); }) ==
          "'5' is not a duration: the unit must be ns, us, ms, s, min or h.");
    CHECK(message_of([] { parse_duration_ns("0.1ns"); }) ==
          "'0.1ns' is not a duration: it is not a whole number of nanoseconds.");
    CHECK(duration_text(0) == "0 ns");
    CHECK(duration_text(350) == "350 ns");
    CHECK(duration_text(10'000) == "10 us");
    CHECK(duration_text(999'900) == "1 ms");
    CHECK(duration_text(1'250'000) == "1.25 ms");
    CHECK(duration_text(2.5e9) == "2.5 s");
    CHECK(duration_text(59.97e9) == "1 min");
    CHECK(duration_text(200e9) == "3 min 20 s");
    CHECK(duration_text(3599.9e9) == "1 h");
    CHECK(duration_text(3900e9) == "1 h 5 min");
    CHECK(duration_text(std::nan("")) == "nan");
}

TEST_CASE("numbers keep the digits that matter") {
    CHECK(number_text(0.25) == "0.25");
    CHECK(number_text(-0.0) == "0");
    CHECK(number_text(12.345) == "12.3");
    CHECK(number_text(1234567) == "1.23e+06");
    CHECK(number_text(12345) == "12345");
    CHECK(number_text(0.001234) == "0.00123");
    CHECK(number_text(-2.5) == "-2.5");
    CHECK(number_text(9.999) == "10");
    CHECK(fixed_text(1.0 / 3, 2) == "0.33");
    CHECK(fixed_text(2, 3) == "2.000");
}

TEST_CASE("lists of words and of ranks") {
    CHECK(split_list("8,4K, 1M") == std::vector<std::string>{"8", "4K", "1M"});
    CHECK(split_list(" , ").empty());
    const std::vector<int> ranks{0, 1, 2, 5, 7, 8};
    CHECK(rank_list_text(ranks) == "0-2, 5, 7, 8");
    CHECK(rank_list_text({}).empty());
}
