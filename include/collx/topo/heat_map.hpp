// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Draws a machine as to_svg() lays it out, with each direction of each link in a colour for the share of the time in
// which it is busy, and a legend below.
#pragma once

#include <cmath>

#include <collx/topo/drawing.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {

inline constexpr const char* heat_colours[] = {"#d9d9d9", "#fee391", "#fe9929", "#d9480f", "#7a0403"};
inline constexpr const char* heat_words[] = {"nothing", "to 25 %", "to 50 %", "to 90 %", "above"};

// The colour for a share of the time.
constexpr int heat_of(double use) { return use <= 0 ? 0 : use <= 0.25 ? 1 : use <= 0.5 ? 2 : use <= 0.9 ? 3 : 4; }

inline std::string heat_legend(const picture& p) {
    std::string svg;
    char line[256];
    for (int k = 0; k < 5; ++k) {
        const int x = 12 + 84 * k;
        std::snprintf(line, sizeof line,
                      "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                      "<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#777\">%s</text>\n",
                      x, p.height + 8, heat_colours[k], x + 18, p.height + 19, heat_words[k]);
        svg += line;
    }
    return svg;
}

} // namespace detail

// Draws the machine. use[i]: the share of the time in which arc i is busy, 0 to 1. The two directions of a link lie
// side by side; name, rate and share appear under the pointer.
// Errors: invalid_argument unless there is one finite number of 0 or more for each arc.
inline std::string to_heat_svg(const graph& g, const std::vector<double>& use) {
    bool is_good = use.size() == static_cast<std::size_t>(g.arcs());
    for (const double u : use) is_good = is_good && u >= 0 && std::isfinite(u);
    if (!is_good)
        fail(errc::invalid_argument, -1, -1, "give one for each arc, 0 or more", "%zu shares of a machine of %d arcs",
             use.size(), g.arcs());
    const detail::picture p = detail::layout_of(g);
    const int width = std::max(p.width, 5 * 84 + 12);
    std::string svg = detail::svg_begin(width, p.height + 30, " role=\"img\" aria-label=\"busy links\"");
    for (int heat = 0; heat < 5; ++heat) // the busiest on top
        for (int i = 0; i < g.arcs(); ++i) {
            const arc& a = g.arc_at(i);
            const double share = use[static_cast<std::size_t>(i)];
            if (detail::heat_of(share) != heat) continue;
            char line[400];
            std::snprintf(line, sizeof line, ", %s, %.4g GB/s, %.1f %% busy</title></path>\n", name_of(a.type),
                          a.bytes_per_s / 1e9, 100 * share);
            svg += detail::svg_curve(p, a, i < a.back ? -3 : 3, detail::heat_colours[heat]) + " stroke-width=\"" +
                   (heat == 0 ? "2" : "4") + "\"><title>" +
                   collx::detail::marked_up(g.name(a.from) + " > " + g.name(a.to)) + line;
        }
    for (int s = 0; s < g.size(); ++s) svg += detail::svg_site(g, p, s, "#ffffff");
    return svg + detail::heat_legend(p) + "</svg>\n";
}

} // namespace topo
COLLX_END_NAMESPACE
