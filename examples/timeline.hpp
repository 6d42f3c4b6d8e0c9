// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each rank did and when, drawn as text: a line per rank, time from left to right. Knows nothing of lessons.
#pragma once

#include <collx/collx.hpp>
#include <collx/core/clock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace example {

struct event {
    int what = ' ', number = -1; // a letter; -1: it has no number
    double begin = 0, end = 0;   // in ms, or in units of work
};
using events = std::vector<event>;

// One rank's record. Ranks of one machine share its clock, so their lines fit together.
class stopwatch {
public:
    // All ranks begin together.
    explicit stopwatch(collx::communicator& world) {
        collx::barrier(world);
        begin_ns_ = collx::now_ns();
    }
    double now_ms() const { return static_cast<double>(collx::now_ns() - begin_ns_) / 1e6; }
    template <class F>
    void during(char what, int number, F&& f) {
        const double begin = now_ms();
        std::forward<F>(f)();
        seen.push_back({what, number, begin, now_ms()});
    }
    events seen;

private:
    std::int64_t begin_ns_ = 0;
};

// Work that takes as long as it is said to, arithmetic included, and leaves the core to other ranks: f, then a wait.
template <class F>
void work_for(double ms, F&& f) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
    std::forward<F>(f)();
    std::this_thread::sleep_until(end);
}

// The records of all ranks, on all ranks. Collective.
inline std::vector<events> all_of(collx::communicator& world, const events& mine) {
    std::size_t most = mine.size();
    collx::all_reduce(world, collx::value(most), collx::max{});
    events padded = mine, all(most * static_cast<std::size_t>(world.size()));
    padded.resize(most);
    collx::all_gather(world, padded, all);
    std::vector<events> by_rank;
    for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(most)) {
        by_rank.emplace_back(at, at + static_cast<std::ptrdiff_t>(most));
        std::erase_if(by_rank.back(), [](const event& e) { return e.what == ' '; });
    }
    return by_rank;
}

inline double end_of(const std::vector<events>& all) {
    double end = 0;
    for (const events& of : all)
        for (const event& e : of) end = std::max(end, e.end);
    return end;
}

// The share of the time in which ranks did none of what is recorded.
inline double idle_share(const std::vector<events>& all) {
    double busy = 0;
    for (const events& of : all)
        for (const event& e : of) busy += e.end - e.begin;
    return 1 - busy / (end_of(all) * static_cast<double>(all.size()));
}

// A line of so many columns: "F3---" where something was done, dots where nothing was.
inline std::string line_of(const events& of, double end, int columns) {
    std::string line(static_cast<std::size_t>(columns), '.');
    const auto column = [&](double t) {
        return std::min(static_cast<std::size_t>(t / end * columns + 0.5), line.size());
    };
    for (const event& e : of) {
        const std::size_t from = column(e.begin), width = column(e.end) - from;
        std::string label(1, static_cast<char>(e.what));
        if (e.number >= 0) label += std::to_string(e.number);
        label.resize(width, e.number >= 0 ? '-' : static_cast<char>(e.what));
        line.replace(from, width, label);
    }
    return line;
}

inline void draw(const std::vector<events>& all, int columns = 99) {
    for (std::size_t r = 0; r < all.size(); ++r)
        std::printf("rank %zu |%s|\n", r, line_of(all[r], end_of(all), columns).c_str());
}

} // namespace example
