// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares three algorithms over a range of sizes, on any team.
#pragma once

#include <cstddef>
#include <cstdio>

#include <collx/algo/one_shot.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/core/clock.hpp>
#include <collx/gpu/fused_team.hpp>

namespace lesson {

constexpr int ranks = 4;

enum class way { one_shot, two_shot, ring };
constexpr way ways[] = {way::one_shot, way::two_shot, way::ring};

// Puts the call into the team's stream. in[r] is rank r's; all views have n elements.
template <class Team, class In, class Out>
void sum_by(way w, Team& team, In& in, Out& out, std::size_t n) {
    using namespace collx;
    const auto cut = [n](int chunks) { return chunk_layout::even(n, chunks, 16); };
    switch (w) {
        // One exchange, but every rank reads the whole buffer of every rank: n times the bytes.
        case way::one_shot:
            return team.template run<device::packet_protocol>(algo::one_shot_all_reduce{}, in, out, plus{}, {}, cut,
                                                              cut);
        // Two exchanges: each rank reduces one part, then collects the others.
        case way::two_shot:
            return team.template run<device::simple_protocol>(algo::two_shot_all_reduce{}, in, out, plus{}, {}, cut,
                                                              cut);
        // 2(n - 1) exchanges of one n-th each, with one neighbour: no link carries more than it must.
        case way::ring:
            return team.template run<device::simple_protocol>(algo::ring_all_reduce{}, in, out, plus{}, {}, cut, cut);
    }
}

// Returns the best of three runs, in microseconds per call.
template <class Team, class In, class Out>
double time_of(way w, Team& team, In& in, Out& out, std::size_t n, int repeats) {
    double best = 1e30;
    for (int k = 0; k < 3; ++k) {
        const auto began = collx::now_ns();
        for (int i = 0; i < repeats; ++i) sum_by(w, team, in, out, n);
        team.synchronize();
        const double us = static_cast<double>(collx::now_ns() - began) / 1e3 / repeats;
        best = us < best ? us : best;
    }
    return best;
}

// Prints a table, and from which size on each algorithm is the fastest. Sizes ascend. views(n) returns views of the
// buffers' first n elements; check(n) checks that out holds the sums.
template <class Team, class Views, class Check>
void compare(Team& team, std::size_t most, int repeats, Views&& views, Check&& check) {
    std::printf("%12s %12s %12s %12s   us per call\n", "bytes", "one-shot", "two-shot", "ring");
    way fastest = way::one_shot;
    for (std::size_t n = 256; n <= most; n *= 4) {
        double us[3];
        for (const way w : ways) {
            auto [in, out] = views(n);
            us[static_cast<int>(w)] = time_of(w, team, in, out, n, repeats);
            check(n);
        }
        std::printf("%12zu %12.1f %12.1f %12.1f", n * sizeof(float), us[0], us[1], us[2]);
        way now = way::one_shot;
        for (const way w : ways)
            if (us[static_cast<int>(w)] < us[static_cast<int>(now)]) now = w;
        constexpr const char* names[] = {"one-shot", "two-shot", "ring"};
        std::printf("%s%s\n", now != fastest ? "   from here on " : "",
                    now != fastest ? names[static_cast<int>(now)] : "");
        fastest = now;
    }
}

// The same on host threads. Defined in twin.cpp, because a file that nvcc compiles may not contain host-only code.
void compare_on_twin(std::size_t most);

} // namespace lesson
