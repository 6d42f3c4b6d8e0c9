// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Persistent and blocking all_reduces by algorithms of messages, and a persistent scan, of private buffers among
// threads: what it brings that the steps of a persistent call are inlined over the channels. CSV: microseconds, the
// least of 30 means of 1,000 calls.  composed [elements = 2] [ranks = 2]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/scan.hpp>
#include <collx/collx.hpp>

namespace {

template <class F>
double least_us(F&& call) {
    double least = 1e9;
    for (int round = 0; round <= 30; ++round) { // the first warms up
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < 1000; ++i) call();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
        if (round > 0 && took.count() / 1000 < least) least = took.count() / 1000;
    }
    return least;
}

} // namespace

int main(int argc, char** argv) {
    const auto elements = static_cast<std::size_t>(argc > 1 ? std::atol(argv[1]) : 2);
    collx::run_threads(argc > 2 ? std::atoi(argv[2]) : 2, [&](collx::communicator& world) {
        std::vector<float> x(elements);
        const auto say = [&](const char* what, double us) {
            if (world.rank() == 0) std::printf("%s,%.3f\n", what, us);
        };
        auto ring = world.with(collx::algo::ring_all_reduce{});
        auto doubling = world.with(collx::algo::recursive_doubling_all_reduce{});
        auto by_ring = collx::persistent::all_reduce(ring, x);
        auto by_doubling = collx::persistent::all_reduce(doubling, x);
        auto scan = collx::persistent::scan(world, x);
        const auto check = [&](auto&& call, int expected) {
            std::fill(x.begin(), x.end(), 1.0F);
            call();
            if (x[0] != static_cast<float>(expected)) throw std::runtime_error("composed: a result is wrong");
            std::fill(x.begin(), x.end(), 0.0F); // many sums of sums must not overflow
        };
        check([&] { by_ring(); }, world.size());
        check([&] { by_doubling(); }, world.size());
        check([&] { scan(); }, world.rank() + 1);
        say("ring persistent", least_us([&] { by_ring(); }));
        say("ring blocking", least_us([&] { collx::all_reduce(ring, x); }));
        say("recursive_doubling persistent", least_us([&] { by_doubling(); }));
        say("recursive_doubling blocking", least_us([&] { collx::all_reduce(doubling, x); }));
        say("scan persistent", least_us([&] { scan(); }));
    });
    return 0;
}
