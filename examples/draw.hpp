// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints what lessons measure: lines by rank 0, and curves. Timelines are in timeline.hpp. Independent of the lessons.
#pragma once

#include <collx/collx.hpp>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

namespace example {

// Prints on rank 0 only.
[[gnu::format(printf, 2, 3)]] inline void say(const collx::communicator& world, const char* format, ...) {
    if (world.rank() != 0) return;
    std::va_list values;
    va_start(values, format);
    std::vprintf(format, values);
    va_end(values);
}

struct curve {
    char mark;
    std::vector<double> y; // one for each label; later curves are drawn over earlier ones
};

// Both axes are logarithmic: the labels stand for values that double, or nearly so.
inline void print_curves(const std::vector<std::string>& labels, const std::vector<curve>& curves, const char* below) {
    constexpr int rows = 12, width = 8;
    double least = 1e300, most = 0;
    for (const curve& c : curves)
        for (const double y : c.y) {
            least = std::min(least, y);
            most = std::max(most, y);
        }
    const double step = std::max(std::log(most / least), 1e-9) / (rows - 1);
    std::vector<std::string> lines(rows, std::string(labels.size() * width, ' '));
    for (const curve& c : curves)
        for (std::size_t i = 0; i < c.y.size(); ++i)
            lines[static_cast<std::size_t>(std::lround(std::log(c.y[i] / least) / step))][i * width + width / 2] =
                c.mark;
    for (int r = rows - 1; r >= 0; --r)
        std::printf("%9.1f |%s\n", least * std::exp(step * r), lines[static_cast<std::size_t>(r)].c_str());
    std::printf("%9s  ", "ms");
    for (const std::string& l : labels) std::printf("%5s   ", l.c_str());
    std::printf(" %s\n", below);
}

} // namespace example
