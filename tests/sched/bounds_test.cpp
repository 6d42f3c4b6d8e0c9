// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an algorithm declares is compared with what there is, on hosts and devices alike.
#include <collx/sched/bounds.hpp>

#include <string>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

struct windows {
    static constexpr const char* name = "windows";
    [[maybe_unused]] static constexpr collective op = collective::all_gather;
    [[maybe_unused]] static constexpr int signals = 2, window_depth = 3;
    static constexpr int chunks(int n) { return 12 / n; }
    constexpr bool fits(int n) const { return n == ranks; }
    int depth = 3, ranks = 3;
};

std::string refusal(const sched::declaration& d, const sched::bounds& b) {
    try {
        sched::require_bounds(d, b, 1);
    } catch (const error& e) {
        CHECK(e.code() == errc::invalid_argument);
        return e.what();
    }
    return "";
}

} // namespace

TEST_CASE("what an algorithm declares is compared with what there is") {
    using Catch::Contains;
    const sched::bounds here{.signals = 2, .window_depth = 4, .depth = 1};
    const sched::declaration good{.name = "a",
                                  .op = collective::all_gather,
                                  .ranks = 3,
                                  .chunks = 3,
                                  .signals = 2,
                                  .window_depth = 4,
                                  .least_window_depth = 4};
    CHECK(refusal(good, here) == "");
    const auto with = [&](auto change) {
        sched::declaration d = good;
        change(d);
        return refusal(d, here);
    };
    CHECK_THAT(with([](auto& d) { d.fits = false; }), Contains("rank 1: algorithm a does not fit 3 ranks"));
    CHECK_THAT(with([](auto& d) { d.chunks = 4; }), Contains("cuts the buffer of 3 ranks into 4 chunks"));
    CHECK_THAT(with([](auto& d) {
                   d.op = collective::all_reduce;
                   d.chunks = 0;
               }),
               Contains("into 0 chunks"));
    CHECK_THAT(with([](auto& d) { d.scratch = -1; }), Contains("scratch of -1 chunks"));
    CHECK_THAT(with([](auto& d) { d.signals = 3; }), Contains("has 3 signals, and here are 2"));
    CHECK_THAT(with([](auto& d) { d.window_depth = 3; }), Contains("windows 3 deep, and it works with 4 to 4"));
    CHECK_THAT(with([](auto& d) { d.window_depth = 5; }), Contains("leave .depth out"));
    CHECK_THAT(with([](auto& d) { d.window_depth = d.least_window_depth = 5; }), Contains("choose another algorithm"));
    CHECK_THAT(with([](auto& d) { d.depth = 2; }), Contains("hold 2 messages (min_depth), and these hold 1"));
    CHECK(with([](auto& d) {
              d.op = collective::barrier;
              d.chunks = 0;
          }) == ""); // it has no buffers
}

TEST_CASE("an algorithm that does not fit the ranks is asked nothing more") {
    constexpr windows w;
    static_assert(sched::declaration_of(w, 3).chunks == 4 && sched::declaration_of(w, 3).least_window_depth == 3);
    CHECK_FALSE(sched::declaration_of(w, 0).fits); // its chunks would divide by zero
}
