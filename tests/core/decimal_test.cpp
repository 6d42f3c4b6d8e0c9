// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers in files have a decimal point in every locale. Where a locale with a decimal comma is installed, one case
// runs in it: strtod() and printf() fail it there.
#include <collx/core/chrome_trace.hpp>
#include <collx/core/decimal.hpp>

#include <clocale>

#include <catch2/catch.hpp>

#include "support/skip.hpp"

using namespace collx::detail;

namespace {

void check_numbers() {
    CHECK(decimal(20.6, 6) == "20.6");
    CHECK(decimal(1e9 / 3, 9) == "333333333");
    CHECK(decimal(0.1, 4) == "0.1");
    CHECK(decimal(1.5e12, 4) == "1.5e+12"); // as printf
    CHECK(decimal_fixed(1.5, 6) == "1.500000");
    CHECK(decimal_fixed(1e300, 1).size() == 303);
    double x = 0;
    CHECK((read_decimal("15.753846", x) && x == 15.753846));
    CHECK((read_decimal("12", x) && x == 12));
    for (const char* wrong : {"", " 1", "+1", "1,5", "1.5 ", "0x10", "1e400", "fast"})
        CHECK_FALSE(read_decimal(wrong, x));
    collx::chrome_trace t;
    t.event(0, 1, "call", 1500, 2500, "");
    t.overlapping(0, 1, 0xab, "call", 250, 1000, "");
    CHECK(t.text().find("\"ts\":1.500000,\"dur\":2.500000,") != std::string::npos);
    CHECK(t.text().find("\"ts\":1.250000,\"cat\":\"async\",\"id\":\"ab\",") != std::string::npos);
}

} // namespace

TEST_CASE("numbers are written and read with a point") { check_numbers(); }

TEST_CASE("numbers are written and read with a point where the locale has a comma") {
    for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8", "es_ES.UTF-8", "es_ES.utf8"})
        if (std::setlocale(LC_NUMERIC, name) != nullptr) break;
    if (std::localeconv()->decimal_point[0] != ',')
        return collx_test::skip("no locale with a decimal comma is installed");
    check_numbers();
    std::setlocale(LC_NUMERIC, "C");
}
