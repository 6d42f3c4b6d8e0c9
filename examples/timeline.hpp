// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Draws what each rank did and when, as text: a line per rank, time from left to right. Independent of the lessons.
#pragma once

#include <collx/collx.hpp>
#include <collx/core/clock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace example {

struct event {
    double begin, end; // in ms, or in any other unit
    char mark;
    int number = -1; // -1: none
};
using events = std::vector<event>;

// One rank's clock and record. Ranks of one machine share its clock, so their lines can be compared.
class stopwatch {
public:
    stopwatch() = default;
    explicit stopwatch(collx::communicator& world) { // all ranks begin together
        collx::barrier(world);
        begin_ns_ = collx::now_ns();
    }
    double ms() const { return static_cast<double>(collx::now_ns() - begin_ns_) / 1e6; }
    template <class F>
    void during(char mark, int number, F&& f) {
        const double begin = ms();
        std::forward<F>(f)();
        seen.push_back({begin, ms(), mark, number});
    }
    events seen;

private:
    std::int64_t begin_ns_ = collx::now_ns();
};

// Work that takes the given time, arithmetic included: runs f, then sleeps, which leaves the core to other ranks.
template <class F>
void work_for(double ms, F&& f) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
    std::forward<F>(f)();
    std::this_thread::sleep_until(end);
}

// Returns the records of all ranks, on all ranks. Collective.
inline std::vector<events> all_of(collx::communicator& world, const events& mine) {
    std::vector<int> counts(static_cast<std::size_t>(world.size()));
    const int count = static_cast<int>(mine.size());
    collx::all_gather(world, collx::value(count), counts);
    events all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0)));
    collx::all_gather_v(world, mine, all, counts);
    std::vector<events> by_rank;
    auto at = all.begin();
    for (const int c : counts) {
        by_rank.emplace_back(at, at + c);
        at += c;
    }
    return by_rank;
}

inline double end_of(const std::vector<events>& all) {
    double end = 1e-9; // not 0: lines divide by it
    for (const events& of : all)
        for (const event& e : of) end = std::max(end, e.end);
    return end;
}

// The share of the time in which ranks did nothing that is recorded.
inline double idle_share(const std::vector<events>& all) {
    double busy = 0;
    for (const events& of : all)
        for (const event& e : of) busy += e.end - e.begin;
    return 1 - busy / (end_of(all) * static_cast<double>(all.size()));
}

// A line of `columns` characters: "F3---" or "TTT" where something was done. Later events are drawn over earlier ones.
inline std::string line_of(const events& of, double end, int columns = 99, char nothing = '.') {
    std::string line(static_cast<std::size_t>(columns), nothing);
    const auto column = [&](double t) {
        return std::min(static_cast<std::size_t>(t / end * columns + 0.5), line.size());
    };
    for (const event& e : of) {
        const std::size_t from = column(e.begin), width = column(e.end) - from;
        std::string label(1, e.mark);
        if (e.number >= 0) label += std::to_string(e.number);
        label.resize(width, e.number >= 0 ? '-' : e.mark);
        line.replace(from, width, label);
    }
    return line;
}

inline void draw(const std::vector<events>& all, int columns = 99, char nothing = '.') {
    for (std::size_t r = 0; r < all.size(); ++r)
        std::printf("rank %zu |%s|\n", r, line_of(all[r], end_of(all), columns, nothing).c_str());
}

// Rank 0 draws all records, where dots stand for waits, and below them the total time. Collective.
inline void draw_with_waits(collx::communicator& world, const events& mine) {
    constexpr int columns = 72;
    const std::vector<events> all = all_of(world, mine);
    if (world.rank() != 0) return;
    draw(all, columns, ' ');
    std::printf("       0%*.1f ms\n", columns - 1, end_of(all));
}

} // namespace example
