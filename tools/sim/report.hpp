// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `collx_sim --report FILE.html`: curves over sizes, the numbers, and how busy each link is, in one file without
// scripts.
#pragma once

#include <collx/sim/simulate.hpp>
#include <collx/topo/heat_map.hpp>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/html_report.hpp"

namespace collx::tools {

struct prediction {
    double bytes = 0;
    double bus_bytes_per_s = 0;
    sim::result result;
};

/// Returns the share of the time in which each link is busy. by_use(): the numbers of the links, the busiest first.
inline std::vector<double> use_of(const sim::fabric& f, const sim::result& r) {
    std::vector<double> use;
    for (std::size_t i = 0; i < r.link_bytes.size(); ++i)
        use.push_back(r.time_ns > 0 ? r.link_bytes[i] / f.links()[i].bytes_per_s * 1e9 / r.time_ns : 0);
    return use;
}
inline std::vector<std::size_t> by_use(const std::vector<double>& use) {
    std::vector<std::size_t> order(use.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return use[a] > use[b]; });
    return order;
}

/// Returns the report. `g`: for the picture of the links, may be null. No picture above 400 sites: it is not readable.
inline std::string sim_report(const std::string& what, const std::vector<std::pair<std::string, std::string>>& facts,
                              const std::vector<prediction>& all, const sim::fabric& f, const topo::graph* g) {
    html_report page(what, "Predicted by collx_sim; nothing was run or measured.");
    page.section("What was asked");
    page.facts(facts);
    page.section("Over sizes");
    line_chart time = size_chart("Time", "time", axis_unit::microseconds);
    line_chart bus = size_chart("Bus bandwidth", "bus bandwidth", axis_unit::gigabytes_per_second);
    series times{what}, rates{what};
    table numbers{{{"size", align::right}, {"time, us", align::right}, {"bus, GB/s", align::right}}, {}};
    char cells[3][48];
    for (const prediction& p : all) {
        times.points.push_back({p.bytes, p.result.time_ns / 1e3});
        rates.points.push_back({p.bytes, p.bus_bytes_per_s / 1e9});
        std::snprintf(cells[0], sizeof cells[0], "%.0f", p.bytes);
        std::snprintf(cells[1], sizeof cells[1], "%.3f", p.result.time_ns / 1e3);
        std::snprintf(cells[2], sizeof cells[2], "%.3f", p.bus_bytes_per_s / 1e9);
        numbers.rows.push_back({cells[0], cells[1], cells[2]});
    }
    time.lines.push_back(std::move(times));
    bus.lines.push_back(std::move(rates));
    page.add(time);
    page.add(bus);
    page.add(numbers);

    page.section("Links");
    const std::vector<double> use = use_of(f, all.back().result);
    std::snprintf(cells[0], sizeof cells[0], "Of the call of %.0f bytes.", all.back().bytes);
    page.paragraph(cells[0]);
    if (g != nullptr && g->size() <= 400)
        page.add_svg(topo::to_heat_svg(*g, use), "Each direction of each link: the share of the time that it is busy.");
    table links{{{"link", align::left}, {"kind", align::left}, {"GB/s", align::right}, {"busy", align::right}}, {}};
    for (const std::size_t i : by_use(use)) {
        if (links.rows.size() == 32 || use[i] <= 0) break;
        const sim::link& l = f.links()[i];
        std::snprintf(cells[0], sizeof cells[0], "%.4g", l.bytes_per_s / 1e9);
        std::snprintf(cells[1], sizeof cells[1], "%.1f %%", 100 * use[i]);
        links.rows.push_back({l.name, topo::name_of(l.type), cells[0], cells[1]});
    }
    page.add(links);
    page.footer("Model and limits: docs/cost_model.md of collx.");
    return page.str();
}

} // namespace collx::tools
