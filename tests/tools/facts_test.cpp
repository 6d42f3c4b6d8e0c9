// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// docs/algorithms.md shows what collx_facts derives from the schedules, to the letter.
#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>
#include <string>

#include "support/facts_table.hpp"

namespace {

constexpr const char* begin_mark = "<!-- collx_facts begin -->\n";
constexpr const char* end_mark = "<!-- collx_facts end -->";

std::string documented() {
    const std::string here = __FILE__;
    std::ifstream page(here.substr(0, here.rfind("tests/tools/")) + "docs/algorithms.md");
    std::stringstream text;
    text << page.rdbuf();
    const std::string all = text.str();
    const auto from = all.find(begin_mark), to = all.find(end_mark);
    if (from == std::string::npos || to == std::string::npos) return {};
    return all.substr(from + std::string(begin_mark).size(), to - from - std::string(begin_mark).size());
}

} // namespace

TEST_CASE("the documented costs are the derived ones") {
    REQUIRE(!documented().empty());
    INFO("run collx_facts and put its output between the two marks of docs/algorithms.md");
    CHECK(documented() == collx::tools::facts_tables());
}

TEST_CASE("rows say what is known of a ring") {
    const auto tables = collx::tools::facts_tables(4);
    CHECK(tables.find("| `ring` | 4 | 7 | 6 | 6 | 3/2 S | – | – | 2 | – | – | rotated |") != std::string::npos);
}

TEST_CASE("shares of a buffer are reduced fractions") {
    using collx::tools::detail::share_of_buffer;
    CHECK(share_of_buffer(0, 8) == "–");
    CHECK(share_of_buffer(8, 8) == "S");
    CHECK(share_of_buffer(24, 8) == "3 S");
    CHECK(share_of_buffer(14, 8) == "7/4 S");
    CHECK(share_of_buffer(5, 0) == "–");
}
