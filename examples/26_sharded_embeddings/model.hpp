// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of the lesson and what is learned: words that follow each other in a text, some far more frequent than
// others, and for each pair the product that their rows should have. A batch reads and changes only the rows of its
// words. Also the serial program, and the time of steps where a rank may be s steps ahead.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "../text.hpp"

namespace lesson {

constexpr std::size_t width = 8, words = 512;
constexpr int pairs = 24;              // of a batch
constexpr double learning_rate = 0.08; // of the mean over ranks, whose changes are added
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
// A number between -1 and 1, the same on all ranks.
inline double random(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb + 1;
    for (int k = 0; k < 3; ++k) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x ^= x >> 27;
    }
    return static_cast<double>(x >> 11) / (1ull << 52) - 1;
}

// [doc:grid]
// Returns the nearest multiple of 2^-30. Sums of these numbers are exact (below 2^22, in double), so changes give the
// same bits in any order.
inline double on_grid(double x) { return std::ldexp(std::nearbyint(std::ldexp(x, 30)), -30); }
// [doc:end]

inline row numbers(std::uint64_t seed, std::size_t word) {
    row r;
    for (std::size_t i = 0; i < width; ++i) r[i] = on_grid(random(seed, word, i));
    return r;
}
inline row begin_row(std::size_t word) { return numbers(1, word); }

// [doc:layout]
// Row r is on rank r % ranks, so that the frequent rows, which come first, are spread over the ranks.
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

// [doc:target]
// Rows of words that are often side by side should have a large product: the logarithm of how much more often than by
// chance (pointwise mutual information; Levy, Goldberg 2014), limited to ±3.
class corpus {
public:
    explicit corpus(example::text t) : text_(std::move(t)) {
        for (std::size_t i = 0; i + 1 < text_.words.size(); ++i) ++together_[pair_of(word(i), word(i + 1))];
    }
    double target(std::uint32_t a, std::uint32_t b) const {
        const double all = static_cast<double>(text_.words.size()), both = together_.at(pair_of(a, b)) / all;
        return std::clamp(std::log(both / ((a == b ? 1 : 2) * text_.share[a] * text_.share[b])), -3.0, 3.0);
    }
    // [doc:end]
    const example::text& text() const { return text_; }
    std::uint32_t word(std::size_t i) const { return text_.words[i]; }
    // Returns a place whose word has a next one. x is between 0 and 1.
    std::size_t place_at(double x) const {
        return std::min(text_.words.size() - 2,
                        static_cast<std::size_t>(x * static_cast<double>(text_.words.size() - 1)));
    }

private:
    static std::pair<std::uint32_t, std::uint32_t> pair_of(std::uint32_t a, std::uint32_t b) {
        return std::minmax(a, b);
    }
    example::text text_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> together_;
};
// The mean number of different words in a batch, if its words were drawn one by one.
inline double expected_rows(const corpus& c) {
    double sum = 0;
    for (const double share : c.text().share) sum += 1 - std::pow(1 - share, 2 * pairs);
    return sum;
}

// The share of requests that the busiest rank gets, with rows in turn (r % ranks) or in blocks.
inline double busiest_share(const corpus& c, std::size_t ranks, bool in_turn) {
    std::vector<double> of(ranks);
    for (std::size_t w = 0; w < words; ++w) of[in_turn ? w % ranks : w * ranks / words] += c.text().share[w];
    return *std::max_element(of.begin(), of.end());
}

struct batch {
    const corpus& from;
    std::vector<std::uint32_t> rows;                       // the different words, in ascending order
    std::vector<std::pair<std::size_t, std::size_t>> pair; // places in `rows`

    batch(const corpus& c, int rank, int step) : from(c) {
        std::vector<std::uint32_t> all;
        for (int i = 0; i < pairs; ++i) {
            const double x = random(2, static_cast<std::uint64_t>(rank * 10'007 + step), static_cast<std::uint64_t>(i));
            const std::size_t at = c.place_at((x + 1) / 2);
            all.insert(all.end(), {c.word(at), c.word(at + 1)});
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
    // Returns this rank's part of the change of each row, given the current rows. Adds the squared errors to `loss`.
    [[gnu::noinline]] table changes(const table& now, int ranks, double& loss) const {
        const double rate = learning_rate / ranks;
        table c(rows.size(), row{});
        for (const auto& [a, b] : pair) {
            const double wrong = dot(now[a], now[b]) - from.target(rows[a], rows[b]);
            loss += wrong * wrong / pairs;
            for (std::size_t i = 0; i < width; ++i) {
                c[a][i] -= rate * wrong * now[b][i];
                c[b][i] -= rate * wrong * now[a][i];
            }
        }
        for (row& r : c)
            for (double& x : r) x = on_grid(x);
        return c;
    }
};

// The serial program: all batches of a step read the table as it was before the step.
inline table serial(const corpus& c, int ranks, int steps) {
    table t, now;
    for (std::size_t w = 0; w < words; ++w) t.push_back(begin_row(w));
    double loss = 0;
    for (int s = 0; s < steps; ++s) {
        table next = t;
        for (int r = 0; r < ranks; ++r) {
            const batch b(c, r, s);
            now.clear();
            for (const auto w : b.rows) now.push_back(t[w]);
            const table changes = b.changes(now, ranks, loss);
            for (std::size_t k = 0; k < changes.size(); ++k) add_to(next[b.rows[k]], changes[k]);
        }
        t = next;
    }
    return t;
}

// [doc:recurrence]
// When the last rank is done, if rank r takes ms[r][t] for step t and may begin it when all have made t - s steps.
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
