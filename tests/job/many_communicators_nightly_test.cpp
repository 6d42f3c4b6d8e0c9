// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: label=nightly timeout=600 alone sanitize=no
//
// A thousand live communicators of 16, 64 and 256 ranks, which are threads. The first of them are also used, as many as
// the machine's memory allows.
#include "comm/support.hpp"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace collx_test;

namespace {

double resident_gib() {
    std::ifstream in("/proc/self/status");
    for (std::string word; in >> word;)
        if (double kib = 0; word == "VmRSS:" && in >> kib) return kib / (1 << 20);
    return 0;
}

void hold(int ranks, int used) {
    on_ranks(ranks, [&](collx::communicator& w) {
        constexpr int made = 1000;
        std::vector<collx::communicator> all;
        all.reserve(made);
        collx::barrier(w);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < made; ++i) all.push_back(w.split(0));
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        collx::barrier(w);
        const double idle = w.rank() == 0 ? resident_gib() : 0;
        std::size_t address = 0;
        for (auto& c : all) address += c.internals().net.arena_bytes();
        collx::barrier(w);
        for (int i = 0; i < used; ++i) {
            int x = 1;
            collx::all_reduce(all[static_cast<std::size_t>(i)], collx::value(x));
            EXPECT_AT(x, x == ranks);
        }
        collx::barrier(w);
        if (w.rank() == 0)
            std::printf(
                "%d ranks, %d communicators: %.1f ms to make one, %.1f GiB of the arena; resident %.2f GiB, %.2f when "
                "%d were used\n",
                ranks, made, took.count() / made, static_cast<double>(address) / (1 << 30), idle, resident_gib(), used);
        collx::barrier(w);
    });
}

} // namespace

TEST_CASE("a thousand communicators of 16 ranks") { hold(16, 1000); }
TEST_CASE("a thousand communicators of 64 ranks") { hold(64, 1000); }
TEST_CASE("a thousand communicators of 256 ranks") { hold(256, 100); }
