// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training at each rank's own pace through windows, at most s steps ahead of the slowest rank.
#pragma once

#include <collx/collx.hpp>
#include <collx/comm/progress.hpp>
#include <collx/comm/window.hpp>

#include <chrono>
#include <thread>

#include "../check.hpp"
#include "../timeline.hpp"
#include "model.hpp"

namespace lesson {

inline layout layout_of(const collx::communicator& world) {
    return {static_cast<std::uint32_t>(world.size()), static_cast<std::uint32_t>(world.rank())};
}

struct worker {
    collx::communicator& world;
    const corpus& text;
    int s;
    layout at = layout_of(world);
    int n = world.size(), me = world.rank();
    collx::window<row> rows{world, at.mine()};
    collx::window<int> read{world, 1}, made{world, 1}; // made: the number of steps of each rank
    table mine{words, row{}};                          // the changes made by this rank
    example::events seen{};
    example::stopwatch watch{};
    double ms = 0, loss = 0;
    int ahead = 0; // the most steps ahead of the slowest

    template <class W>
    void tell(W& window) const {
        for (int k = 0; k < n; ++k)
            if (k != me) window.signal(k);
    }
    template <class W>
    void wait_for_all(W& window) const {
        for (int k = 0; k < n; ++k)
            if (k != me) window.wait(k);
    }
    void step(int t, double device_ms) {
        const double from_ms = watch.ms();
        // [doc:pace]
        if (t > s) wait_for_all(rows); // one more signal from each rank: all have made t - s steps
        const double begin_ms = watch.ms();
        for (int k = 0; k < n; ++k) ahead = std::max(ahead, t - made.fetch_add(k, 0, 0));
        const batch b(text, me, t);
        table now; // whole rows: a get() could read a half-made change
        for (const auto w : b.rows) now.push_back(rows.fetch(at.owner(w), at.place(w), row{}, add_rows{}));
        const table changes = b.changes(now, n, loss);
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(device_ms));
        const double end_ms = watch.ms();
        if (s == 0) { // in step: no row changes before all ranks have read
            tell(read);
            wait_for_all(read);
        }
        for (std::size_t i = 0; i < changes.size(); ++i)
            rows.accumulate(at.owner(b.rows[i]), at.place(b.rows[i]), changes[i], add_rows{});
        rows.flush(); // a signal to one rank says nothing about changes at another
        made.fetch_add(me, 0, 1);
        tell(rows);
        // [doc:end]
        for (std::size_t i = 0; i < changes.size(); ++i) add_to(mine[b.rows[i]], changes[i]);
        seen.insert(seen.end(), {{from_ms, begin_ms, '.'}, {begin_ms, end_ms, '#'}, {end_ms, watch.ms(), '.'}});
    }
    void train(const std::vector<double>& device_ms) {
        // serve while the device computes
        rows.with(collx::progress::thread{});
        made.with(collx::progress::thread{});
        for (std::size_t i = 0; i < at.mine(); ++i) rows.local()[i] = begin_row(at.word(i));
        rows.fence();
        watch = {};
        rows.fence();
        for (const double each : device_ms) step(static_cast<int>(seen.size() / 3), each);
        ms = watch.ms();
        rows.fence();
        read.fence();
        made.fence();
        collx::all_reduce(world, std::span(mine.front().data(), words * width));
        for (std::size_t w = 0; w < words; ++w) add_to(mine[w], begin_row(w));
        example::expect(is_same(at, rows.local().data(), mine), "the table has every change, once");
        if (s == 0)
            example::expect(mine == serial(text, n, static_cast<int>(device_ms.size())),
                            "s = 0: the serial program's table");
        example::expect(ahead <= s, "no rank is further ahead than it may be");
        collx::all_reduce(world, collx::value(ms), collx::max{});
        collx::all_reduce(world, collx::value(ahead), collx::max{});
        collx::all_reduce(world, collx::value(loss));
        loss /= static_cast<double>(device_ms.size()) * n;
    }
};

} // namespace lesson
