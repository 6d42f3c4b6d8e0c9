// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of the lesson and what is learned: pairs of words, of which some are far more frequent than others, and for
// each pair the product that their rows should have. What a batch reads and what it changes are the rows of its words
// only. Also the serial program, and how long steps take where a rank may be s steps ahead. Knows no communicator.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace lesson {

constexpr std::size_t width = 8, words = 512;
constexpr int pairs = 24; // of a batch
constexpr double rate = 0.05;
using row = std::array<double, width>;
using table = std::vector<row>;

struct add_rows {
    row operator()(const row& a, const row& b) const {
        row sum;
        for (std::size_t i = 0; i < width; ++i) sum[i] = a[i] + b[i];
        return sum;
    }
};
inline void add_to(row& sum, const row& x) { sum = add_rows{}(sum, x); }
inline double dot(const row& a, const row& b) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += a[i] * b[i];
    return sum;
}
// Between -1 and 1, the same on all ranks.
inline double random(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb + 1;
    for (int k = 0; k < 3; ++k) x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9, x ^= x >> 27;
    return static_cast<double>(x >> 11) / (1ull << 52) - 1;
}

// [doc:grid]
// The nearest multiple of 2^-30. Sums of such numbers have no rounding (below 2^22, in double), so changes that come in
// any order make the same bits.
inline double on_grid(double x) { return std::ldexp(std::nearbyint(std::ldexp(x, 30)), -30); }
// [doc:end]

inline row numbers(std::uint64_t seed, std::size_t word) {
    row r;
    for (std::size_t i = 0; i < width; ++i) r[i] = on_grid(random(seed, word, i));
    return r;
}
inline row begin_row(std::size_t word) { return numbers(1, word); }

// [doc:layout]
// Row r lives on rank r % ranks, so that the frequent ones, which come first, are spread.
struct layout {
    std::uint32_t ranks, me;
    int owner(std::uint32_t word) const { return static_cast<int>(word % ranks); }
    std::size_t place(std::uint32_t word) const { return word / ranks; }
    std::size_t mine() const { return (words - me + ranks - 1) / ranks; }
    std::uint32_t word(std::size_t place) const { return static_cast<std::uint32_t>(place) * ranks + me; }
};
// [doc:end]
inline bool is_same(const layout& at, const row* shard, const table& all) {
    bool same = true;
    for (std::size_t i = 0; i < at.mine(); ++i) same = same && shard[i] == all[at.word(i)];
    return same;
}

// As in texts: word w is asked 1 / (w + 1) as often as word 0 (Zipf).
inline double share_of(std::size_t w) {
    static const double all = [] {
        double sum = 0;
        for (std::size_t k = 0; k < words; ++k) sum += 1 / static_cast<double>(k + 1);
        return sum;
    }();
    return 1 / (all * static_cast<double>(w + 1));
}
inline std::size_t word_at(double x) { // x between 0 and 1
    std::size_t w = 0;
    while (w + 1 < words && (x -= share_of(w)) > 0) ++w;
    return w;
}
// How many different words a batch has, on average.
inline double expected_rows() {
    double sum = 0;
    for (std::size_t w = 0; w < words; ++w) sum += 1 - std::pow(1 - share_of(w), 2 * pairs);
    return sum;
}

// The share of requests that the busiest of the ranks gets: rows in turn (r % ranks), or in blocks.
inline double busiest_share(std::size_t ranks, bool in_turn) {
    std::vector<double> of(ranks);
    for (std::size_t w = 0; w < words; ++w) of[in_turn ? w % ranks : w * ranks / words] += share_of(w);
    return *std::max_element(of.begin(), of.end());
}

struct batch {
    std::vector<std::uint32_t> rows;                       // the different words, in rising order
    std::vector<std::pair<std::size_t, std::size_t>> pair; // places in `rows`

    batch(int rank, int step) {
        std::vector<std::uint32_t> all;
        for (int i = 0; i < 2 * pairs; ++i) {
            const double x = random(2, static_cast<std::uint64_t>(rank * 10'007 + step), static_cast<std::uint64_t>(i));
            all.push_back(static_cast<std::uint32_t>(word_at((x + 1) / 2)));
        }
        rows = all;
        std::sort(rows.begin(), rows.end());
        rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
        const auto place = [&](std::size_t i) {
            return static_cast<std::size_t>(std::lower_bound(rows.begin(), rows.end(), all[i]) - rows.begin());
        };
        for (std::size_t i = 0; i < all.size(); i += 2) pair.push_back({place(i), place(i + 1)});
    }
    std::vector<std::size_t> by_owner(const layout& at) const {
        std::vector<std::size_t> order(rows.size());
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](auto x, auto y) { return at.owner(rows[x]) < at.owner(rows[y]); });
        return order;
    }
    // By how much each of the rows changes, given what they are. Adds the squared errors to `loss`.
    [[gnu::noinline]] table changes(const table& now, double& loss) const {
        table c(rows.size(), row{});
        for (const auto& [a, b] : pair) {
            const double wrong = dot(now[a], now[b]) - dot(numbers(3, rows[a]), numbers(3, rows[b]));
            loss += wrong * wrong / pairs;
            for (std::size_t i = 0; i < width; ++i)
                c[a][i] -= rate * wrong * now[b][i], c[b][i] -= rate * wrong * now[a][i];
        }
        for (row& r : c)
            for (double& x : r) x = on_grid(x);
        return c;
    }
};

// All ranks' batches of a step read the table as it was before the step.
inline table serial(int ranks, int steps) {
    table t, now;
    for (std::size_t w = 0; w < words; ++w) t.push_back(begin_row(w));
    double loss = 0;
    for (int s = 0; s < steps; ++s) {
        table next = t;
        for (int r = 0; r < ranks; ++r) {
            const batch b(r, s);
            now.clear();
            for (const auto w : b.rows) now.push_back(t[w]);
            const table c = b.changes(now, loss);
            for (std::size_t k = 0; k < c.size(); ++k) add_to(next[b.rows[k]], c[k]);
        }
        t = next;
    }
    return t;
}

// [doc:recurrence]
// When the last rank is through, if rank r takes ms[r][t] for step t and may begin it when all have made t - s steps.
inline double through_ms(const std::vector<std::vector<double>>& ms, int s) {
    const std::size_t ranks = ms.size(), steps = ms[0].size(), ahead = static_cast<std::size_t>(s);
    std::vector<double> end(ranks), all_made(steps + 1); // all_made[t]: when all have made t steps
    for (std::size_t t = 0; t < steps; ++t) {
        for (std::size_t r = 0; r < ranks; ++r)
            end[r] = std::max(end[r], t > ahead ? all_made[t - ahead] : 0) + ms[r][t];
        all_made[t + 1] = *std::max_element(end.begin(), end.end());
    }
    return all_made[steps];
}
// [doc:end]

} // namespace lesson
