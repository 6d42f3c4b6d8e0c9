// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pictures of a machine and a ring through it: one line of text, or an SVG with the processors on a circle.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <collx/topo/ring.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {
inline bool contains(const std::vector<int>& v, int x) {
    for (const int y : v)
        if (y == x) return true;
    return false;
}

// Names are the caller's or the kernel's, and may hold anything.
inline std::string escaped(const std::string& text) {
    std::string s;
    for (const char c : text) s += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    return s;
}

// Processors on a circle, cards outside, in front of those they are linked to.
inline std::vector<std::pair<double, double>> layout_of(const machine& m) {
    std::vector<std::pair<double, double>> at(static_cast<unsigned>(m.size()), {0, 0});
    int processors = 0, next = 0;
    for (int p = 0; p < m.size(); ++p) processors += m.is_processor(p);
    for (int p = 0; p < m.size(); ++p) {
        if (!m.is_processor(p)) continue;
        const double angle = 6.283185307 * next++ / processors;
        at[static_cast<unsigned>(p)] = {120 * std::sin(angle), -120 * std::cos(angle)};
    }
    for (int p = 0; p < m.size(); ++p) {
        if (m.is_processor(p)) continue;
        double x = 0, y = 0;
        for (const auto& [other, width] : m.links(p))
            if (m.is_processor(other))
                x += at[static_cast<unsigned>(other)].first, y += at[static_cast<unsigned>(other)].second;
        const double length = std::hypot(x, y) + 1e-9;
        at[static_cast<unsigned>(p)] = {180 * x / length, 180 * y / length};
    }
    return at;
}
} // namespace detail

// "0 -40- (3) -40- 2 -40- ... 0": those who only pass data on stand in brackets, widths between.
inline std::string to_text(const machine& m, const ring& r, const std::vector<int>& members) {
    std::string text;
    for (std::size_t i = 0; i < r.sites.size(); ++i) {
        const int p = r.sites[i], next = r.sites[(i + 1) % r.sites.size()];
        char width[40];
        std::snprintf(width, sizeof width, " -%g- ", m.width(p, next));
        text += detail::contains(members, p) ? m.name(p) : "(" + m.name(p) + ")";
        text += width;
    }
    return r.sites.empty() ? "no ring" : text + m.name(r.sites[0]);
}

// Links grey and as wide as they are, the ring on top; members filled.
inline std::string to_svg(const machine& m, const ring& r, const std::vector<int>& members) {
    const auto at = detail::layout_of(m);
    const auto x = [&](int p) { return 200 + at[static_cast<unsigned>(p)].first; };
    const auto y = [&](int p) { return 200 + at[static_cast<unsigned>(p)].second; };
    char line[240];
    // Not %.1f, whose point is a comma where the program's locale says so.
    const auto tenths = [](double number) { return static_cast<long long>(number * 10 + 0.5); };
    std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 400 400\" font-family=\"sans-serif\">\n";
    const auto draw = [&](int a, int b, const char* colour, double thickness) {
        std::snprintf(line, sizeof line,
                      "<line x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\" stroke=\"%s\" "
                      "stroke-width=\"%lld.%lld\"/>\n",
                      x(a), y(a), x(b), y(b), colour, tenths(thickness) / 10, tenths(thickness) % 10);
        svg += line;
    };
    for (int p = 0; p < m.size(); ++p)
        for (const auto& [other, width] : m.links(p))
            if (p < other) draw(p, other, "#c8c8c8", 1 + width / 5);
    for (std::size_t i = 0; i < r.sites.size(); ++i) draw(r.sites[i], r.sites[(i + 1) % r.sites.size()], "#d9480f", 2);
    for (int p = 0; p < m.size(); ++p) {
        std::snprintf(line, sizeof line,
                      "<circle cx=\"%.0f\" cy=\"%.0f\" r=\"16\" fill=\"%s\" stroke=\"#333\"/>"
                      "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" font-size=\"11\">",
                      x(p), y(p), detail::contains(members, p) ? "#ffd8a8" : "#ffffff", x(p), y(p) + 4);
        svg += line + detail::escaped(m.name(p)) + "</text>\n";
    }
    return svg + "</svg>\n";
}

} // namespace topo
COLLX_END_NAMESPACE
