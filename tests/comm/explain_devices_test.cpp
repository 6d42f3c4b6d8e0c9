// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls among the devices of a machine, explained and predicted. Predictions are compared with measurements on one
// device and with closed formulas, and the table of choices with the best prediction. Also machines that cannot run
// the calls. One thread, no shared memory.
// collx-test: optimised sanitize=nightly
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/explain_devices.hpp>
#include <collx/comm/gather.hpp>
#include <collx/comm/scatter.hpp>
#include <collx/topo/machines.hpp>

#include <algorithm>

#include <catch2/catch.hpp>

using namespace collx;
using Catch::Contains;

namespace {

sim::fabric some_of(const topo::graph& g, int n) {
    std::vector<int> sites = g.all(topo::site_type::gpu);
    sites.resize(static_cast<std::size_t>(n));
    return sim::fabric(g, sites);
}
// The predicted time in us of the candidate with this name.
double us(const explanation& e, const std::string& name) {
    for (const auto& k : e.candidates)
        if (k.name == name) return k.predicted_ns / 1e3;
    FAIL("no candidate is called " << name);
    return 0;
}
double best_us(const explanation& e) {
    double least = e.chosen().predicted_ns;
    for (const auto& k : e.candidates) least = std::min(least, k.predicted_ns);
    return least / 1e3;
}

} // namespace

TEST_CASE("launches and steps take what they took on one H200 (8 KiB, bench/gpu/results)") {
    struct row {
        const char* name;
        double two, four, eight; // us, ranks
    };
    const topo::graph g = topo::dgx_h100();
    for (const row& r : {row{"one_shot by LL words", 5.33, 5.31, 7.50}, row{"one_shot", 7.10, 7.41, 8.61},
                         row{"two_shot", 12.35, 20.16, 36.10}, row{"ring", 14.95, 30.50, 63.23}})
        for (const auto& [n, measured] : {std::pair{2, r.two}, {4, r.four}, {8, r.eight}}) {
            sim::fabric f = some_of(g, n);
            const double predicted = us(explain_on_devices(f, all_reduce, 8192), r.name);
            CAPTURE(r.name, n, measured, predicted);
            // The links add up to 2 us, for a signal and its answer.
            CHECK(predicted > 0.75 * measured);
            CHECK(predicted < 1.25 * measured + 2);
        }
}

TEST_CASE("long sums take the bytes of the algorithm over the link's rate") {
    const topo::graph g = topo::dgx_h100();
    for (const int n : {5, 8}) {
        sim::fabric f = some_of(g, n);
        constexpr double bytes = 1e9;
        const explanation e = explain_on_devices(f, all_reduce, static_cast<std::size_t>(bytes));
        CHECK(e.chosen().name == "multicast_two_shot by the switch");
        CHECK(us(e, "multicast_two_shot by the switch") ==
              Approx(bytes * (1 + 1.0 / n) / (0.85 * 450e3)).epsilon(0.15));
        CHECK(us(e, "two_shot") == Approx(bytes * 2 * (n - 1) / n / 450e3).epsilon(0.25));
        CHECK(us(e, "one_shot") == Approx(bytes * (n - 1) / 450e3).epsilon(0.15));
        // LL words move 150 GB/s.
        CHECK(us(e, "one_shot by LL words") == Approx(bytes * (n - 1) / 150e3).epsilon(0.15));
        CHECK_THAT(to_text(e), Contains("Devices behind a switch") && Contains("as on one H200"));
    }
}

TEST_CASE("gather and scatter go as the exchange that they are on devices") {
    const topo::graph g = topo::dgx_h100();
    for (const int n : {2, 8}) {
        sim::fabric f = some_of(g, n);
        for (const explanation& e : {explain_on_devices(f, gather, 1 << 30), explain_on_devices(f, scatter, 1 << 30)}) {
            CAPTURE(to_text(e));
            CHECK(e.chosen().name == "pairwise");
            const double by_links_ns = double{1 << 30} * (n - 1) / n / 450; // steps of pieces come on top
            CHECK(e.chosen().predicted_ns > by_links_ns);
            CHECK(e.chosen().predicted_ns < 2 * by_links_ns);
            CHECK_THAT(e.because, Contains("each part goes straight to its rank"));
            for (const auto& k : e.candidates) CHECK(k.name != "linear");
        }
    }
}

TEST_CASE("no sum among devices is predicted to take more than 1.3 times the best way") {
    const topo::graph h100 = topo::dgx_h100();
    int points = 0;
    for (const int n : {2, 3, 4, 5, 6, 7, 8}) {
        sim::fabric f = some_of(h100, n);
        for (const bool switch_can : {false, true})
            for (double b = 64; b < 1e9; b *= 1.37, ++points) {
                const auto bytes = static_cast<std::size_t>(b) / 16 * 16;
                const explanation e = explain_on_devices(f, all_reduce, bytes, {.switch_can = switch_can});
                CAPTURE(n, bytes, switch_can, e.chosen().name);
                CHECK(e.chosen().predicted_ns / 1e3 <= 1.3 * best_us(e));
            }
    }
    CHECK(points > 600);
}

TEST_CASE("the switch is for what it can sum, where there is one") {
    const std::size_t bytes = std::size_t{64} << 20;
    const auto chosen = [&](const topo::graph& g, const device_explain_options& o) {
        sim::fabric f = some_of(g, 8);
        const explanation e = explain_on_devices(f, all_reduce, bytes, o);
        const bool has_switch = std::any_of(e.candidates.begin(), e.candidates.end(), [](const auto& k) {
            return k.name.find("by the switch") != std::string::npos;
        });
        CHECK(has_switch == (e.chosen().name == "multicast_two_shot by the switch"));
        return e.chosen().name;
    };
    CHECK(chosen(topo::dgx_h100(), {}) == "multicast_two_shot by the switch");
    CHECK(chosen(topo::dgx_h100(), {.switch_can = false}) == "two_shot");
    CHECK(chosen(topo::dgx_h100(), {.deterministic = true}) == "two_shot");
    CHECK(chosen(topo::dgx_h100(), {.commutes = false}) == "two_shot");
    CHECK(chosen(topo::dgx_a100(), {}) == "two_shot");
}

TEST_CASE("other collectives, and ranks that are no job") {
    const topo::graph g = topo::dgx_a100();
    sim::fabric f = some_of(g, 4);
    const explanation all = explain_on_devices(f, all_gather, 1 << 20);
    CHECK(all.chosen().name == "one_shot");
    // One step to publish, one signal, then a step and an answer for each part.
    CHECK(all.chosen().predicted_ns / 1e3 == Approx(3.9 + 2 + 1 + 3 * (2 + 1) + 0.75 * (1 << 20) / 300e3).epsilon(0.1));
    CHECK(explain_on_devices(f, broadcast, 4096).chosen().name == "one_shot");
    sim::fabric alone = some_of(g, 1);
    CHECK_THROWS_WITH(explain_on_devices(alone, all_reduce, 8),
                      Contains("a call of 1 ranks") && Contains("two devices"));
}
