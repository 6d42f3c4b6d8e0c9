// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Line charts as SVG text: log-log for sweeps over sizes, linear for curves over time. One file, no script, no network;
// values appear when a mark is hovered (SVG <title>). Colours follow the reader's light or dark mode through the style
// sheet, and marks differ in shape too, so that nothing depends on telling colours apart.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "markup.hpp"
#include "plot_axis.hpp"

namespace collx::tools {

struct point {
    double x;
    double y;
};

struct series {
    std::string name;
    std::vector<point> points = {};
    bool dashed = false; // a model, a baseline: not a measurement of this run
};

struct line_chart {
    std::string title;
    std::string subtitle;
    axis x;
    axis y;
    std::vector<series> lines;
    double width = 760;
    double height = 420;
};

/// A chart of a sweep over message sizes: both axes logarithmic.
inline line_chart size_chart(std::string title, std::string y_label, axis_unit y_unit) {
    line_chart c;
    c.title = std::move(title);
    c.x = {"message size", scale::log2, axis_unit::bytes, {}, {}};
    c.y = {std::move(y_label), scale::log10, y_unit, {}, {}};
    return c;
}

/// A curve over steps or time, for example a loss: both axes linear.
inline line_chart curve_chart(std::string title, std::string x_label, std::string y_label) {
    line_chart c;
    c.title = std::move(title);
    c.x.label = std::move(x_label);
    c.y.label = std::move(y_label);
    return c;
}

namespace detail {

inline constexpr int palette_size = 8;
// Distinguishable for the common kinds of colour blindness; the second palette is for dark backgrounds.
inline constexpr std::array<std::string_view, palette_size> light_palette{"#2a78d6", "#eb6834", "#1baf7a", "#b88700",
                                                                          "#d6518f", "#4a3aa7", "#008300", "#e34948"};
inline constexpr std::array<std::string_view, palette_size> dark_palette{"#5598e7", "#e8743f", "#2fb588", "#d5a021",
                                                                         "#e07ba8", "#9085e9", "#4cae4c", "#ee7573"};

inline constexpr std::size_t most_marks = 64;    // beyond that marks hide the line
inline constexpr std::size_t most_points = 1600; // about two for each pixel

// Maps values to positions; everything on the chart uses it.
struct frame {
    bound_axis x;
    bound_axis y;
    double left, right, top, bottom;

    [[nodiscard]] double px_x(double v) const { return left + (right - left) * x.position(v); }
    [[nodiscard]] double px_y(double v) const { return bottom - (bottom - top) * y.position(v); }
    [[nodiscard]] bool drawable(const point& p) const { return x.drawable(p.x) && y.drawable(p.y); }
};

// Rough width of a proportional font; only used to reserve room.
inline double text_px(std::string_view text, double size) { return 0.56 * size * static_cast<double>(text.size()); }

inline std::vector<double> all_values(const line_chart& c, double point::*member) {
    std::vector<double> out;
    for (const auto& s : c.lines)
        for (const auto& p : s.points) out.push_back(p.*member);
    return out;
}

// Long curves keep the lowest and the highest point of each bucket, so that no spike disappears.
inline std::vector<point> thinned(const std::vector<point>& points) {
    if (points.size() <= most_points) return points;
    std::vector<point> out;
    const std::size_t buckets = most_points / 2;
    const auto lower = [](const point& a, const point& b) { return a.y < b.y; };
    for (std::size_t b = 0; b < buckets; ++b) {
        const auto from = points.begin() + static_cast<std::ptrdiff_t>(points.size() * b / buckets);
        const auto to = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (b + 1) / buckets);
        const auto [low, high] = std::minmax_element(from, to, lower);
        out.push_back(low < high ? *low : *high);
        if (low != high) out.push_back(low < high ? *high : *low);
    }
    return out;
}

// Circle, square, triangle, diamond: the second cue beside colour.
inline std::string mark(std::size_t shape, double x, double y) {
    const auto at = [](double a, double b) { return px(a) + " " + px(b); };
    std::string path;
    switch (shape % 4) {
        case 0: return "<circle class=\"cx-mark\"" + attribute("cx", px(x)) + attribute("cy", px(y)) + " r=\"4\"/>";
        case 1: path = "M" + at(x - 3.6, y - 3.6) + "h7.2v7.2h-7.2z"; break;
        case 2: path = "M" + at(x, y - 4.8) + "L" + at(x + 4.6, y + 3.4) + "H" + px(x - 4.6) + "z"; break;
        default: path = "M" + at(x, y - 5.2) + "L" + at(x + 5.2, y) + "L" + at(x, y + 5.2) + "L" + at(x - 5.2, y) + "z";
    }
    return "<path class=\"cx-mark\"" + attribute("d", path) + "/>";
}

inline std::string grid(const line_chart& c, const frame& f) {
    std::string out;
    const double width = f.right - f.left;
    for (const auto& t : f.y.ticks(7)) {
        const double y = f.px_y(t.value);
        out += svg_line("cx-grid", f.left, y, f.right, y);
        out += svg_text("cx-tick cx-end", f.left - 8, y + 4, t.label);
    }
    for (const auto& t : f.x.ticks(static_cast<int>(width / 72))) {
        const double x = f.px_x(t.value);
        out += svg_line("cx-grid", x, f.top, x, f.bottom);
        out += svg_text("cx-tick cx-middle", x, f.bottom + 18, t.label);
    }
    out += svg_line("cx-axis", f.left, f.bottom, f.right, f.bottom);
    out += svg_text("cx-label cx-middle", (f.left + f.right) / 2, f.bottom + 38, c.x.label);
    // Upright and above the axis: turned text is slow to read.
    out += svg_text("cx-label", 16, f.top - 12, c.y.label);
    return out;
}

inline std::string hover_text(const line_chart& c, const series& s, const point& p) {
    return s.name + "\n" + (c.x.label.empty() ? "" : c.x.label + ": ") + unit_text(p.x, c.x.unit) + "\n" +
           (c.y.label.empty() ? "" : c.y.label + ": ") + unit_text(p.y, c.y.unit);
}

inline std::string draw_series(const line_chart& c, const frame& f, std::size_t index) {
    const series& s = c.lines[index];
    const auto points = thinned(s.points);
    std::string path, marks;
    bool gap = true; // a point that cannot be drawn breaks the line instead of being bridged
    const std::size_t every = points.size() <= most_marks ? 1 : (points.size() + most_marks - 1) / most_marks;
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (!f.drawable(points[i])) {
            gap = true;
            continue;
        }
        const double x = f.px_x(points[i].x), y = f.px_y(points[i].y);
        path += (gap ? "M" : "L") + px(x) + " " + px(y);
        gap = false;
        if (i % every != 0 && i + 1 != points.size()) continue;
        marks += "<g class=\"cx-point\"><title>" + escaped(hover_text(c, s, points[i])) +
                 "</title><circle class=\"cx-hit\"" + attribute("cx", px(x)) + attribute("cy", px(y)) + " r=\"10\"/>" +
                 mark(index, x, y) + "</g>\n";
    }
    const std::string css = "cx-s" + std::to_string(index % palette_size) + (every > 1 ? " cx-dense" : "");
    std::string out = "<g" + attribute("class", css) + attribute("data-series", s.name) + ">\n";
    if (!path.empty())
        out += std::string("<path class=\"cx-line") + (s.dashed ? " cx-dashed" : "") + "\"" + attribute("d", path) +
               "/>\n";
    return out + marks + "</g>\n";
}

struct legend_item {
    std::size_t index;
    double x, y;
};

// Places the names from the left, in as many rows as the width needs.
inline std::vector<legend_item> place_legend(const line_chart& c, double top) {
    std::vector<legend_item> out;
    if (c.lines.size() < 2) return out; // the title names a single line
    double x = 16, y = top;
    for (std::size_t i = 0; i < c.lines.size(); ++i) {
        const double need = 34 + text_px(c.lines[i].name, 12) + 14;
        if (x > 16 && x + need > c.width - 16) {
            x = 16;
            y += 20;
        }
        out.push_back({i, x, y});
        x += need;
    }
    return out;
}

inline std::string draw_legend(const line_chart& c, const std::vector<legend_item>& items) {
    std::string out;
    for (const auto& item : items) {
        const auto& s = c.lines[item.index];
        out += "<g class=\"cx-s" + std::to_string(item.index % palette_size) + "\"><path class=\"cx-line" +
               (s.dashed ? " cx-dashed" : "") + "\"" + attribute("d", "M" + px(item.x) + " " + px(item.y - 4) + "h26") +
               "/>" + mark(item.index, item.x + 13, item.y - 4) + "</g>\n" +
               svg_text("cx-legend", item.x + 33, item.y, s.name);
    }
    return out;
}

// Says in the picture what it does not show.
inline std::string note(const line_chart& c, const frame& f) {
    std::size_t all = 0, left_out = 0;
    for (const auto& s : c.lines)
        for (const auto& p : s.points) {
            ++all;
            if (!f.drawable(p)) ++left_out;
        }
    if (all == left_out)
        return svg_text("cx-empty cx-middle", (f.left + f.right) / 2, (f.top + f.bottom) / 2, "no data");
    if (left_out == 0) return {};
    return svg_text("cx-tick cx-end", f.right, f.top - 12,
                    std::to_string(left_out) + (left_out == 1 ? " value" : " values") +
                        " that cannot be drawn left out");
}

inline frame make_frame(const line_chart& c, double top) {
    bound_axis x(c.x, all_values(c, &point::x), false), y(c.y, all_values(c, &point::y), true);
    double widest = 0;
    for (const auto& t : y.ticks(7)) widest = std::max(widest, text_px(t.label, 12));
    const double bottom = std::max(c.height - 52, top + 60);
    return {std::move(x), std::move(y), 24 + widest, c.width - 28, top, bottom};
}

inline std::string palette_css(const std::array<std::string_view, palette_size>& colours) {
    std::string out;
    for (int i = 0; i < palette_size; ++i) {
        const std::string name = ".cx-s" + std::to_string(i), colour(colours[static_cast<std::size_t>(i)]);
        out += name + " .cx-line{stroke:" + colour + "}" + name + " .cx-mark{fill:" + colour + "}\n";
    }
    return out;
}

} // namespace detail

/// The style sheet of all charts; html_report puts it into the page once, to_svg into each standalone file.
inline std::string chart_css() {
    return ".cx-chart{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
           ".cx-back{fill:#fcfcfb}.cx-title{font-size:16px;font-weight:600;fill:#14140f}\n"
           ".cx-subtitle,.cx-label,.cx-legend{font-size:12px;fill:#52514e}\n"
           ".cx-tick{font-size:12px;fill:#6f6e69;font-variant-numeric:tabular-nums}.cx-empty{font-size:14px;fill:#"
           "6f6e69}\n"
           ".cx-middle{text-anchor:middle}.cx-end{text-anchor:end}\n"
           ".cx-grid{stroke:#e7e6e1;stroke-width:1}.cx-axis{stroke:#b5b4ae;stroke-width:1}\n"
           ".cx-line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n"
           ".cx-dashed{stroke-dasharray:6 "
           "5}.cx-mark{stroke:#fcfcfb;stroke-width:1.5}.cx-hit{fill:#000;fill-opacity:0}\n"
           ".cx-dense .cx-mark{opacity:0}.cx-dense .cx-line{stroke-width:1.25}.cx-point:hover "
           ".cx-mark{opacity:1;stroke:#14140f}\n" +
           detail::palette_css(detail::light_palette) +
           "@media (prefers-color-scheme:dark){\n"
           ".cx-back{fill:#1a1a19}.cx-title{fill:#f4f4f2}.cx-subtitle,.cx-label,.cx-legend{fill:#c3c2b7}\n"
           ".cx-tick,.cx-empty{fill:#98978f}.cx-grid{stroke:#30302e}.cx-axis{stroke:#5a5953}\n"
           ".cx-mark{stroke:#1a1a19}.cx-point:hover .cx-mark{stroke:#f4f4f2}\n" +
           detail::palette_css(detail::dark_palette) + "}\n";
}

/// The chart without a style sheet, to be put into a page that has chart_css().
inline std::string to_inline_svg(const line_chart& c) {
    double top = 30;
    std::string head;
    if (!c.title.empty()) head += detail::svg_text("cx-title", 16, top, c.title);
    if (!c.subtitle.empty()) head += detail::svg_text("cx-subtitle", 16, top += 20, c.subtitle);
    const auto legend = detail::place_legend(c, top + 26);
    if (!legend.empty()) top = legend.back().y;
    const auto f = detail::make_frame(c, top + 44);
    const double height = std::max(c.height, f.bottom + 52);
    std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cx-chart\" role=\"img\"" +
                      detail::attribute("viewBox", "0 0 " + detail::px(c.width) + " " + detail::px(height)) +
                      detail::attribute("width", detail::px(c.width)) +
                      detail::attribute("height", detail::px(height)) + detail::attribute("aria-label", c.title) +
                      ">\n<rect class=\"cx-back\" width=\"100%\" height=\"100%\"/>\n";
    out += head + detail::grid(c, f);
    for (std::size_t i = 0; i < c.lines.size(); ++i) out += detail::draw_series(c, f, i);
    return out + detail::draw_legend(c, legend) + detail::note(c, f) + "</svg>\n";
}

/// A complete SVG file.
inline std::string to_svg(const line_chart& c) {
    std::string out = to_inline_svg(c);
    out.insert(out.find(">\n") + 2, "<style>\n" + chart_css() + "</style>\n");
    return out;
}

} // namespace collx::tools
