// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../tools/support/stats.hpp"

#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx::tools;

namespace {
std::vector<double> one_to(int n) {
    std::vector<double> v;
    for (int i = n; i >= 1; --i) v.push_back(i); // descending, because the caller need not sort
    return v;
}
} // namespace

TEST_CASE("the median is the middle, or the mean of the two middle ones") {
    CHECK(median({3, 1, 2}) == 2);
    CHECK(median({4, 1, 3, 2}) == 2.5);
    CHECK(median({7}) == 7);
    CHECK_THROWS_AS(median({}), std::invalid_argument);
}

TEST_CASE("percentiles and the quartile follow the comparison harness's index rules") {
    // index ceil(0.95 n) - 1 and n / 4, counted by hand
    const struct {
        int n;
        double p95, lower_quartile;
    } cases[] = {{1, 1, 1},   {2, 2, 1},   {4, 4, 2},    {7, 7, 2},    {19, 19, 5},
                 {20, 19, 6}, {21, 20, 6}, {40, 38, 11}, {100, 95, 26}};
    for (const auto& c : cases) {
        const auto s = summarize(one_to(c.n));
        CHECK(s.p95 == c.p95);
        CHECK(s.lower_quartile == c.lower_quartile);
        CHECK(s.min == 1);
        CHECK(s.max == c.n);
        CHECK(s.count == static_cast<std::size_t>(c.n));
    }
    const std::vector<double> sorted{1, 2, 3};
    CHECK(percentile_of_sorted(sorted, 0) == 1);
    CHECK(percentile_of_sorted(sorted, 1) == 3);
    CHECK_THROWS_AS(percentile_of_sorted(sorted, 1.5), std::invalid_argument);
    CHECK_THROWS_AS(percentile_of_sorted({}, 0.5), std::invalid_argument);
}

TEST_CASE("the noise is the standard deviation over the mean") {
    const auto s = summarize({2, 4, 4, 4, 5, 5, 7, 9});
    CHECK(s.mean == Approx(5));
    CHECK(s.cv == Approx(2.138 / 5).epsilon(1e-3));
    CHECK(summarize({3}).cv == 0);
    CHECK_THROWS_AS(summarize({}), std::invalid_argument);
}
