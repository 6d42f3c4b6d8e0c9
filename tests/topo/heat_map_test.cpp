// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The picture of busy links: both directions of every link in the colour of their use, and no overlapping labels.
#include <collx/topo/clusters.hpp>
#include <collx/topo/heat_map.hpp>
#include <collx/topo/machines.hpp>

#include <array>
#include <regex>

#include <catch2/catch.hpp>

using namespace collx;
using Catch::Contains;

namespace {

int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
    return n;
}

// The left, top, right and bottom of each label, computed from the number and size of its letters.
std::vector<std::array<double, 4>> labels_of(const std::string& svg) {
    static const std::regex label(
        R"re(<text x="(\d+)" y="(\d+)"( text-anchor="middle")? font-size="(\d+)"[^>]*>([^<]*)<)re");
    std::vector<std::array<double, 4>> boxes;
    for (std::sregex_iterator at(svg.begin(), svg.end(), label), end; at != end; ++at) {
        const std::smatch& m = *at;
        const double size = std::stod(m[4]), wide = 0.5 * size * static_cast<double>(m[5].length());
        const double left = std::stod(m[1]) - (m[3].matched ? wide / 2 : 0), bottom = std::stod(m[2]);
        boxes.push_back({left, bottom - size, left + wide, bottom});
    }
    return boxes;
}

} // namespace

TEST_CASE("each direction of each link is drawn in the colour of its use") {
    const topo::graph g = topo::dgx_1v();
    std::vector<double> use(static_cast<std::size_t>(g.arcs()), 0);
    use[0] = 0.2;
    use[1] = 0.4;
    use[2] = 0.8;
    use[3] = 1;
    const std::string svg = topo::to_heat_svg(g, use);
    CHECK(count(svg, "<path") == g.arcs());
    for (const char* colour : {"#fee391", "#fe9929", "#d9480f", "#7a0403"})
        CHECK(count(svg, colour) == 2); // one is in the legend
    CHECK(count(svg, "#d9d9d9") == g.arcs() - 4 + 1);
    CHECK_THAT(svg, Contains("CPU0 &gt; CPU1, socket link, 6 GB/s, 20.0 % busy"));
    CHECK(svg.find("#7a0403") > svg.find("#fe9929")); // the busiest is drawn on top
    use.pop_back();
    CHECK_THROWS_WITH(topo::to_heat_svg(g, use), Contains("shares of a machine of"));
    use.push_back(-1);
    CHECK_THROWS_WITH(topo::to_heat_svg(g, use), Contains("0 or more"));
}

TEST_CASE("no label lies over another, nor outside of the picture") {
    const topo::graph machines[] = {topo::dgx_1v(), topo::dgx_a100(), topo::on_rails(topo::dgx_h100(), 2, 50),
                                    topo::fat_tree(4, 4, 2), topo::workstation(4)};
    for (const topo::graph& g : machines) {
        const std::string svg = topo::to_heat_svg(g, std::vector<double>(static_cast<std::size_t>(g.arcs()), 0.5));
        const auto boxes = labels_of(svg);
        REQUIRE(boxes.size() == static_cast<std::size_t>(g.size()) + 5);
        int width = 0, height = 0;
        REQUIRE(std::sscanf(svg.c_str() + svg.find("viewBox"), "viewBox=\"0 0 %d %d", &width, &height) == 2);
        for (std::size_t a = 0; a < boxes.size(); ++a) {
            CHECK((boxes[a][0] >= 0 && boxes[a][1] >= 0 && boxes[a][2] <= width && boxes[a][3] <= height));
            for (std::size_t b = 0; b < a; ++b) {
                const bool is_apart = boxes[a][2] <= boxes[b][0] || boxes[b][2] <= boxes[a][0] ||
                                      boxes[a][3] <= boxes[b][1] || boxes[b][3] <= boxes[a][1];
                CHECK(is_apart);
            }
        }
    }
}
