// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The documentation equals the generated text exactly: docs/algorithms.md what collx_facts derives from the schedules
// and the table of choices, docs/verbs.md the table of verbs, docs/design/hierarchy.md the drawings of the renderer.
#include <catch2/catch.hpp>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <collx/sched/render.hpp>

#include "support/choices_table.hpp"
#include "support/facts_table.hpp"
#include "support/pictures.hpp"
#include "support/verbs_table.hpp"

#include "program.hpp"

namespace {

std::string page(const char* name) {
    std::ifstream file(std::string(COLLX_SOURCE_DIR "/docs/") + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string documented(const char* name, const std::string& printed_by = "collx_facts") {
    const std::string all = page(name), begin_mark = "<!-- " + printed_by + " begin -->\n",
                      end_mark = "<!-- " + printed_by + " end -->";
    const auto from = all.find(begin_mark), to = all.find(end_mark);
    if (from == std::string::npos || to == std::string::npos) return {};
    return all.substr(from + begin_mark.size(), to - from - begin_mark.size());
}

} // namespace

TEST_CASE("the documented costs are the derived ones") {
    REQUIRE(!documented("algorithms.md").empty());
    INFO("run collx_facts and put its output between the two marks of docs/algorithms.md");
    CHECK(documented("algorithms.md") == collx::tools::facts_tables());
}

TEST_CASE("the documented choices are the rows of their table") {
    INFO("run collx_facts --choices and put its output between its two marks of docs/algorithms.md");
    CHECK(documented("algorithms.md", "collx_facts --choices") == collx::tools::choices_tables());
}

TEST_CASE("the documented verbs are the rows of their table") {
    INFO("run collx_facts --verbs and put its output between the two marks of docs/verbs.md");
    CHECK(documented("verbs.md") == collx::tools::verbs_table());
}

TEST_CASE("rows say what is known of a ring") {
    const auto tables = collx::tools::facts_tables(4);
    CHECK(tables.find("| `ring` | 4 | 7 | 6 | 6 | 3/2 S | – | – | 2 | – | – | rotated |") != std::string::npos);
}

TEST_CASE("rows say what crosses between nodes") {
    const auto tables = collx::tools::facts_tables(4);
    CHECK(tables.find("| `pairwise` | 2 + 2 | 4 | 7 | 3 | 3 | 3/4 S | 8 | 2 S | 1 | – | – |") != std::string::npos);
    CHECK(tables.find("| `aggregated` | 2 + 2 | 4 | 8 | 3 | 3 | S | 4 | 2 S | 1 | 1/2 S | – |") != std::string::npos);
    CHECK(tables.find("| `leader` | 2 + 2 |") != std::string::npos);
    CHECK(collx::tools::nodes_tables(3).empty());
}

TEST_CASE("the documented pictures are the rendered ones") {
    const collx::node_map nodes = collx::node_map::blocks(4, 2);
    const std::string design = page("design/hierarchy.md");
    const auto shows = [&](auto algorithm) {
        algorithm.nodes = nodes;
        return design.find(std::string("<!-- table: ") + name_of(algorithm.op) + " -->\n```\n" +
                           to_table(collx::sched::record_all(algorithm, 4)) + "```\n") != std::string::npos;
    };
    CHECK(shows(collx::algo::hierarchical_all_reduce<>{}));
    CHECK(shows(collx::algo::hierarchical_all_gather<>{}));
    CHECK(shows(collx::algo::aggregated_all_to_all{}));
    const auto led = to_table(collx::sched::record_all(collx::algo::leader_all_to_all{nodes}, 4));
    CHECK(design.find("<!-- table: all_to_all through leaders -->\n```\n" + led + "```\n") != std::string::npos);
}

TEST_CASE("every algorithm has a picture with a name of its own") {
    int algorithms = 0;
    collx::algo::for_each_algorithm([&](auto) { ++algorithms; });
    const auto pictures = collx::tools::pictures_of_algorithms();
    CHECK(pictures.size() == static_cast<std::size_t>(algorithms));
    std::set<std::string> files;
    for (const auto& p : pictures) {
        INFO(p.file);
        CHECK(files.insert(p.file).second);
        CHECK(p.svg.find("rank 3") != std::string::npos);
        CHECK(p.svg.find("rank 4") == std::string::npos);
    }
    CHECK(files.count("all_reduce.ring.svg") == 1);
    CHECK(collx::tools::write_pictures("/nowhere/at/all") == "/nowhere/at/all/" + pictures.front().file);
}

TEST_CASE("an empty folder, as of a variable that is not set, is refused and not the root") {
    std::string facts;
    if (!collx_test::find_program("collx_facts", facts)) return;
    const auto f = collx_test::run_program(facts, "--draw ''");
    CHECK(f.status == 2);
    CHECK(f.complains("usage: collx_facts"));
}

TEST_CASE("shares of a buffer are reduced fractions") {
    using collx::tools::detail::share_of_buffer;
    CHECK(share_of_buffer(0, 8) == "–");
    CHECK(share_of_buffer(8, 8) == "S");
    CHECK(share_of_buffer(24, 8) == "3 S");
    CHECK(share_of_buffer(14, 8) == "7/4 S");
    CHECK(share_of_buffer(5, 0) == "–");
}
