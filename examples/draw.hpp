// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What lessons print of what they measure: lines by rank 0, timelines with a line for each rank, curves. Knows no
// lesson.
#pragma once

#include <collx/collx.hpp>
#include <collx/core/clock.hpp>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

namespace example {

// Rank 0 speaks for all.
[[gnu::format(printf, 2, 3)]] inline void say(const collx::communicator& world, const char* format, ...) {
    if (world.rank() != 0) return;
    std::va_list values;
    va_start(values, format);
    std::vprintf(format, values);
    va_end(values);
}

// What a rank did from when to when, since it started its stopwatch.
struct stretch {
    double from_ms, to_ms;
    char mark;
};

// Starts when it is made, after a barrier where ranks shall be compared.
class stopwatch {
public:
    double ms() const { return static_cast<double>(collx::now_ns() - begin_ns_) / 1e6; }

private:
    std::int64_t begin_ns_ = collx::now_ns();
};

// Collective. Rank 0 prints a line for each rank, on which each stretch has the columns of its time, and one at least.
inline void print_timeline(collx::communicator& world, const std::vector<stretch>& mine) {
    constexpr int columns = 72;
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<int> counts(n);
    const int count = static_cast<int>(mine.size());
    collx::all_gather(world, collx::value(count), counts);
    std::size_t total = 0;
    for (const int c : counts) total += static_cast<std::size_t>(c);
    std::vector<stretch> all(total);
    collx::all_gather_v(world, mine, all, counts);
    if (world.rank() != 0) return;
    double end_ms = 1e-9;
    for (const stretch& s : all) end_ms = std::max(end_ms, s.to_ms);
    const auto column = [&](double ms) { return std::min(columns - 1, static_cast<int>(ms / end_ms * columns)); };
    for (std::size_t r = 0, at = 0; r < n; ++r) {
        std::string line(columns, ' ');
        for (int k = 0; k < counts[r]; ++k, ++at)
            for (int c = column(all[at].from_ms), first = c; c == first || c < column(all[at].to_ms); ++c)
                line[static_cast<std::size_t>(c)] = all[at].mark;
        std::printf("  rank %zu |%s|\n", r, line.c_str());
    }
    std::printf("         0%*.1f ms\n", columns - 1, end_ms);
}

struct curve {
    char mark;
    std::vector<double> y; // as many as labels; later curves are drawn over earlier ones
};

// Both axes logarithmic: labels are of values that double, or so.
inline void print_curves(const std::vector<std::string>& labels, const std::vector<curve>& curves, const char* below) {
    constexpr int rows = 12, width = 8;
    double least = 1e300, most = 0;
    for (const curve& c : curves)
        for (const double y : c.y) least = std::min(least, y), most = std::max(most, y);
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
