// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Charts are checked as text: what they must contain, what they must not contain, and where the ticks are.
#include "../../tools/support/plot.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "../../tools/support/html_report.hpp"

using namespace collx::tools;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
    return n;
}

// Whether every element is closed in the right order; detects what a browser would silently repair.
bool is_balanced(const std::string& text) {
    std::vector<std::string> open;
    for (auto at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
        const auto end = text.find('>', at);
        if (end == std::string::npos) return false;
        const auto tag = text.substr(at + 1, end - at - 1);
        const auto name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
        if (tag[0] == '!' || tag.back() == '/' || name == "meta") continue;
        if (tag[0] != '/') open.push_back(name);
        else if (open.empty() || open.back() != tag.substr(1)) return false;
        else open.pop_back();
    }
    return open.empty();
}

bool has_bad_number(const std::string& svg) {
    for (const char* bad : {"nan", "NaN", "inf", "-0\"", "e+", "e-"})
        for (const auto* attribute : {"x=\"", "y=\"", "d=\"", "cx=\"", "cy=\"", "x1=\"", "y1=\"", "points=\""})
            for (auto at = svg.find(attribute); at != std::string::npos; at = svg.find(attribute, at + 1)) {
                const auto begin = at + std::string(attribute).size();
                const auto value = svg.substr(begin, svg.find('"', begin) + 1 - begin);
                if (value.find(bad) != std::string::npos) return true;
            }
    return false;
}

line_chart sweep() {
    auto c = size_chart("all_reduce <float> & \"sum\"", "time", axis_unit::microseconds);
    for (const char* name : {"ring", "tree<2>", "one_shot", "model"}) {
        series s{name};
        for (double bytes = 8; bytes <= 1 << 20; bytes *= 8) s.points.push_back({bytes, 2 + bytes * 1e-3});
        c.lines.push_back(s);
    }
    c.lines.back().dashed = true;
    return c;
}

void check_ticks(const bound_axis& axis, int wanted) {
    const auto ticks = axis.ticks(wanted);
    REQUIRE(ticks.size() >= 2);
    for (std::size_t i = 0; i < ticks.size(); ++i) {
        CHECK(!ticks[i].label.empty());
        CHECK(axis.position(ticks[i].value) >= -1e-6);
        CHECK(axis.position(ticks[i].value) <= 1 + 1e-6);
        if (i > 0) CHECK(axis.position(ticks[i].value) > axis.position(ticks[i - 1].value));
    }
}

std::vector<std::string> labels(const bound_axis& axis, int wanted) {
    std::vector<std::string> out;
    for (const auto& t : axis.ticks(wanted)) out.push_back(t.label);
    return out;
}

} // namespace

TEST_CASE("a chart has every series with its line, its marks and its name in the legend") {
    const auto svg = to_svg(sweep());
    CHECK(is_balanced(svg));
    CHECK_FALSE(has_bad_number(svg));
    for (const char* name : {"ring", "tree&lt;2&gt;", "one_shot", "model"}) {
        CHECK(count(svg, std::string("data-series=\"") + name + "\"") == 1);
        CHECK(count(svg, std::string(">") + name + "</text>") == 1);
        CHECK(count(svg, std::string("<title>") + name + "\n") == 6);
    }
    CHECK(count(svg, "class=\"cx-line\"") == 3 * 2);
    CHECK(count(svg, "class=\"cx-line cx-dashed\"") == 1 * 2);
    CHECK(count(svg, "<title>ring\nmessage size: 4 KiB\ntime: 6.1 us</title>") == 1);
    CHECK(count(svg, ">8 KiB</text>") == 1);
    CHECK(count(svg, ">10 us</text>") == 1);
    CHECK(count(svg, "prefers-color-scheme:dark") == 1);
}

TEST_CASE("text is escaped everywhere and nothing is loaded from elsewhere") {
    auto c = sweep();
    c.title = c.subtitle = c.x.label = c.y.label = c.lines[0].name = "<script>alert('1')</script>\x01";
    html_report r("<script>", "<script>");
    r.section("<script>");
    r.section("<script>");
    r.paragraph("<script>");
    r.add(c, "<script>");
    table t{{{"<script>"}}, {}};
    t.add({"<script>"});
    r.add(t);
    r.facts({{"<script>", "<script>"}});
    r.footer("<script>");
    const auto html = r.str();
    CHECK(count(html, "<script") == 0);
    CHECK(count(html, "&lt;script&gt;") > 12);
    CHECK(count(html, "\x01") == 0);
    CHECK(count(html, "src=") == 0);
    CHECK(count(html, "url(") == 0);
    CHECK(count(html, "@import") == 0);
    CHECK(count(html, "http") == count(html, "http://www.w3.org/2000/svg"));
}

TEST_CASE("no, one, equal, extreme and impossible values give a chart with finite coordinates") {
    const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
    const std::vector<std::vector<point>> cases{{},
                                                {{64, 3}},
                                                {{64, 3}, {64, 3}, {64, 3}},
                                                {{8, 5}, {64, 5}},
                                                {{0, 0}},
                                                {{-1, -1}, {0, 0}},
                                                {{nan, 1}, {1, nan}, {inf, 1}, {1, inf}},
                                                {{1e-300, 1e-300}, {1e300, 1e300}},
                                                {{1, 1e15}, {2, 1e15 + 1}},
                                                {{1, -5}, {2, -3}},
                                                {{8, 1}, {16, 0}, {32, 2}}};
    for (const auto& points : cases)
        for (const bool logarithmic : {true, false}) {
            auto c = logarithmic ? size_chart("t", "time", axis_unit::microseconds) : curve_chart("t", "x", "y");
            c.lines = {{"only", points}};
            const auto svg = to_svg(c);
            CAPTURE(svg);
            CHECK(is_balanced(svg));
            CHECK_FALSE(has_bad_number(svg));
        }
    CHECK(count(to_svg(size_chart("t", "y", axis_unit::plain)), ">no data</text>") == 1);
}

TEST_CASE("a value that cannot be drawn breaks the line and is confessed") {
    auto c = size_chart("t", "time", axis_unit::microseconds);
    c.lines = {{"a", {{8, 1}, {16, 0}, {32, 2}, {64, 3}}}};
    const auto svg = to_svg(c);
    const auto at = svg.find("class=\"cx-line\" d=\"") + 19;
    const auto path = svg.substr(at, svg.find('"', at) - at);
    CHECK(count(path, "M") == 2);
    CHECK(count(path, "L") == 1);
    CHECK(count(svg, ">1 value that cannot be drawn left out</text>") == 1);
}

TEST_CASE("sizes tick at powers of two, times at powers of ten or 1-2-5, linear axes at round steps") {
    const axis bytes{"", scale::log2, axis_unit::bytes, {}, {}},
        time{"", scale::log10, axis_unit::microseconds, {}, {}}, plain{};
    CHECK(labels(bound_axis(bytes, {8, 64}, false), 10) == std::vector<std::string>{"8 B", "16 B", "32 B", "64 B"});
    CHECK(labels(bound_axis(bytes, {8, 65536}, false), 4) ==
          std::vector<std::string>{"8 B", "128 B", "2 KiB", "32 KiB"});
    CHECK(labels(bound_axis(time, {1, 1e6}, true), 7) ==
          std::vector<std::string>{"1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"});
    CHECK(labels(bound_axis(time, {1, 10}, false), 7) == std::vector<std::string>{"1 us", "2 us", "5 us", "10 us"});
    CHECK(labels(bound_axis(plain, {0.03, 0.97}, true), 6) ==
          std::vector<std::string>{"0", "0.2", "0.4", "0.6", "0.8", "1"});
    for (const auto& values :
         std::vector<std::vector<double>>{{8, 1e9}, {3, 3.0001}, {7}, {1, 1000}, {0.2, 0.9}, {5e-9, 4}, {}})
        for (const auto& a : {bytes, time, plain})
            for (const bool nice : {true, false})
                for (const int wanted : {2, 5, 10}) {
                    CAPTURE(values, nice, wanted, static_cast<int>(a.scale));
                    check_ticks(bound_axis(a, values, nice), wanted);
                }
}

TEST_CASE("a long curve is thinned but keeps its highest and lowest point") {
    auto c = curve_chart("loss", "step", "loss");
    series s{"loss"};
    for (int i = 0; i < 100'000; ++i) s.points.push_back({static_cast<double>(i), 1.0 + 0.1 * (i % 7)});
    s.points[51'234].y = 9;
    s.points[71'234].y = -9;
    c.lines = {s};
    const auto svg = to_svg(c);
    CHECK(svg.size() < 60'000);
    const auto thin = detail::thinned(s.points);
    CHECK(thin.size() <= detail::most_points);
    double low = 0, high = 0;
    for (std::size_t i = 0; i < thin.size(); ++i) {
        low = std::min(low, thin[i].y);
        high = std::max(high, thin[i].y);
        if (i > 0) CHECK(thin[i].x > thin[i - 1].x);
    }
    CHECK(low == -9);
    CHECK(high == 9);
}

TEST_CASE("many series share eight colours, and the legend wraps inside the picture") {
    auto c = sweep();
    for (int i = 0; i < 20; ++i)
        c.lines.push_back({"a rather long series name " + std::to_string(i), {{8, 1}, {64, 2}}});
    const auto items = detail::place_legend(c, 40);
    REQUIRE(items.size() == c.lines.size());
    CHECK(items.back().y > items.front().y);
    for (const auto& item : items) CHECK(item.x < c.width - 100);
    CHECK(is_balanced(to_svg(c)));
}

TEST_CASE("a report holds its parts in order and is one well-formed page") {
    html_report r("Title", "lead");
    r.section("One");
    table t{{{"size"}, {"what", align::left}}, {}};
    t.add({"8 B", "ring"});
    r.add(t);
    r.section("Two");
    r.add(sweep(), "caption");
    r.footer("end");
    const auto html = r.str();
    CHECK(is_balanced(html));
    std::size_t at = 0;
    for (const char* part :
         {"<title>Title</title>", "<h1>Title</h1>", "lead", "href=\"#s1\"", "href=\"#s2\"", "id=\"s1\">One",
          "<td class=\"num\">8 B</td><td>ring</td>", "id=\"s2\">Two", "<svg", "caption", "<footer>end"}) {
        CAPTURE(part);
        const auto found = html.find(part, at);
        REQUIRE(found != std::string::npos);
        at = found;
    }
    CHECK(count(html, "<style>") == 1);
}

TEST_CASE("a table takes one cell for each column") {
    table t{{{"size"}, {"what"}}, {}};
    CHECK_THROWS_WITH(t.add({"1"}), "A row of 1 cells was added to a table of 2 columns.");
}

TEST_CASE("a file that cannot be written is named") {
    try {
        write_text_file("/no/such/folder/report.html", "x");
        FAIL("no error");
    } catch (const std::system_error& e) {
        CHECK(std::string(e.what()) == "cannot write '/no/such/folder/report.html': No such file or directory");
    }
}
