// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pictures of a machine: SVG with rings over it, and DOT for Graphviz. In the SVG every host is a block of rows: CPUs
// over PCIe switches over GPUs and cards over NVSwitches. The network lies below. Each site has its own column in its
// row, so that labels do not overlap.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <collx/core/decimal.hpp>
#include <collx/core/markup.hpp>
#include <collx/topo/explain_rings.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {

struct placed {
    int x = 0, y = 0; // of the centre
};
struct picture {
    std::vector<placed> at;
    int width = 0, height = 0;
};

// Hosts side by side, up to four in a row of blocks; network switches in rows below.
inline picture layout_of(const graph& g) {
    constexpr int column = 84, row = 70, rows = 5;
    const auto row_of = [&](int s) {
        switch (g.at(s).type) {
            case site_type::cpu: return 0;
            case site_type::pcie_switch: {
                for (const int i : g.arcs_of(s)) // below a CPU, or below a switch
                    if (g.at(g.arc_at(i).to).type == site_type::cpu) return 1;
                return 2;
            }
            case site_type::gpu:
            case site_type::nic: return 3;
            case site_type::nvswitch: return 4;
            default: return 5;
        }
    };
    std::map<int, std::map<int, std::vector<int>>> hosts; // sites of each row of each host
    int widest = 1;
    for (int s = 0; s < g.size(); ++s) {
        auto& line = hosts[g.at(s).type == site_type::network_switch ? INT32_MAX : g.at(s).host][row_of(s)];
        line.push_back(s);
        if (g.at(s).type != site_type::network_switch) widest = std::max(widest, static_cast<int>(line.size()));
    }
    picture p;
    p.at.resize(static_cast<std::size_t>(g.size()));
    const int blocks = static_cast<int>(hosts.size()) - (hosts.count(INT32_MAX) != 0 ? 1 : 0),
              across = std::min(blocks, 4);
    p.width = std::max(1, across) * (widest + 1) * column;
    int block = 0;
    for (const auto& [host, lines] : hosts) {
        const bool is_network = host == INT32_MAX;
        const int left = is_network ? 0 : block % 4 * (widest + 1) * column;
        const int top = (is_network ? (blocks + 3) / 4 : block / 4) * rows * row;
        const int room = is_network ? p.width : (widest + 1) * column;
        for (const auto& [line, sites] : lines) {
            const int per_line = std::max(1, room / column), count = static_cast<int>(sites.size());
            for (int k = 0; k < count; ++k) {
                const int in_line = std::min(per_line, count - k / per_line * per_line);
                p.at[static_cast<std::size_t>(sites[static_cast<std::size_t>(k)])] = {
                    left + room * (2 * (k % per_line) + 1) / (2 * in_line),
                    top + row / 2 + (is_network ? k / per_line : line) * row};
                p.height =
                    std::max(p.height, p.at[static_cast<std::size_t>(sites[static_cast<std::size_t>(k)])].y + row / 2);
            }
        }
        ++block;
    }
    p.height += 12 + p.width / std::max(1, across) / 12; // links within the last row bend below it
    return p;
}

// attributes: more of the outermost element.
inline std::string svg_begin(int width, int height, const char* attributes = "") {
    char line[256];
    std::snprintf(line, sizeof line,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\"%s>\n",
                  width, height, attributes);
    return line;
}
// The begin of a link's path, around the sites between its ends. aside: columns to the right.
inline std::string svg_curve(const picture& p, const arc& a, int aside, const char* colour) {
    const auto from = p.at[static_cast<std::size_t>(a.from)], to = p.at[static_cast<std::size_t>(a.to)];
    const int bend = from.y == to.y ? 12 + std::abs(from.x - to.x) / 12 : 0;
    char line[256];
    std::snprintf(line, sizeof line, "<path d=\"M%d %d Q%d %d %d %d\" fill=\"none\" stroke=\"%s\"", from.x + aside,
                  from.y, (from.x + to.x) / 2 + aside, (from.y + to.y) / 2 + 2 * bend, to.x + aside, to.y, colour);
    return line;
}
inline std::string svg_site(const graph& g, const picture& p, int s, const char* colour) {
    const auto [x, y] = p.at[static_cast<std::size_t>(s)];
    char line[256];
    std::snprintf(line, sizeof line,
                  "<rect x=\"%d\" y=\"%d\" width=\"76\" height=\"24\" rx=\"4\" fill=\"%s\" stroke=\"#333\"/>"
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\">",
                  x - 38, y - 12, colour, x, y + 4);
    return line + collx::detail::marked_up(g.name(s)) + "</text>\n";
}

} // namespace detail

// Draws links grey, wider for a higher rate, the rings on top, and members filled.
inline std::string to_svg(const graph& g, const std::vector<ring>& rings) {
    static constexpr const char* colours[] = {"#d9480f", "#1971c2", "#2f9e44", "#9c36b5", "#e8590c", "#0c8599"};
    const detail::picture p = detail::layout_of(g);
    double most = 1;
    for (int i = 0; i < g.arcs(); ++i) most = std::max(most, g.arc_at(i).bytes_per_s);
    std::string svg = detail::svg_begin(p.width, p.height);
    const auto draw = [&](const arc& a, const char* colour, int tenths, int aside) {
        char width[48];
        std::snprintf(width, sizeof width, " stroke-width=\"%d.%d\"/>\n", tenths / 10, tenths % 10);
        svg += detail::svg_curve(p, a, aside, colour) + width;
    };
    for (int i = 0; i < g.arcs(); i += 2)
        draw(g.arc_at(i), "#c8c8c8", 10 + static_cast<int>(50 * g.arc_at(i).bytes_per_s / most), 0);
    for (std::size_t k = 0; k < rings.size(); ++k)
        for (const path& hop : rings[k].hops)
            for (const int i : hop.arcs) draw(g.arc_at(i), colours[k % 6], 20, static_cast<int>(k % 6) * 3 - 7);
    for (int s = 0; s < g.size(); ++s) {
        const auto is_member = [&](const ring& r) {
            return std::find(r.members.begin(), r.members.end(), s) != r.members.end();
        };
        svg += detail::svg_site(g, p, s, std::any_of(rings.begin(), rings.end(), is_member) ? "#ffd8a8" : "#ffffff");
    }
    return svg + "</svg>\n";
}

// Writes DOT for `dot -Tsvg`: hosts as clusters, links with their GB/s.
inline std::string to_dot(const graph& g) {
    const auto quoted = [&](int s) {
        std::string text = "\"";
        for (const char c : g.name(s)) text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
        return text + "\"";
    };
    std::map<int, std::vector<int>> hosts;
    for (int s = 0; s < g.size(); ++s) hosts[g.at(s).host].push_back(s);
    std::string dot = "graph machine {\n  node [shape=box];\n";
    for (const auto& [host, sites] : hosts) {
        dot += host < 0 ? "" : "  subgraph cluster_" + std::to_string(host) + " {\n";
        for (const int s : sites) dot += "    " + quoted(s) + ";\n";
        dot += host < 0 ? "" : "  }\n";
    }
    for (int i = 0; i < g.arcs(); i += 2) {
        const arc& a = g.arc_at(i);
        const std::string rate = collx::detail::decimal(a.bytes_per_s / 1e9, 4);
        dot += "  " + quoted(a.from) + " -- " + quoted(a.to) + " [label=\"" + name_of(a.type) + " " + rate + "\"];\n";
    }
    return dot + "}\n";
}

} // namespace topo
COLLX_END_NAMESPACE
