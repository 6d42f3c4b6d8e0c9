// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The order in which a stage takes its micro-batches, and what follows from the order alone: how many activations live
// at once, and how long everything takes if messages take no time. Independent of communicators.
//
// Sources: Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019, and "Efficient large-scale language model
// training on GPU clusters using Megatron-LM", 2021 (interleaved).
#pragma once

#include <collx/core/error.hpp>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "../timeline.hpp"

namespace pipelined {

struct operation {
    char what;     // F: forward pass of a micro-batch through the chunk, B: backward pass
    int micro;     // micro-batch
    int chunk = 0; // of this rank's layers: 0 unless interleaved
};
using order = std::vector<operation>;

inline constexpr double forward_time = 1, backward_time = 2; // a backward pass computes two products, a forward one

// All forward passes, then all backward passes.
inline order gpipe(int m) {
    order o;
    for (int k = 0; k < m; ++k) o.push_back({'F', k});
    for (int k = 0; k < m; ++k) o.push_back({'B', k});
    return o;
}

// [doc:1f1b]
// Forward passes until the first gradient can arrive, then one backward pass for each forward pass.
inline order one_forward_one_backward(int rank, int p, int m) {
    const int ahead = std::min(p - 1 - rank, m);
    order o;
    for (int k = 0; k < ahead; ++k) o.push_back({'F', k});
    for (int k = ahead; k < m; ++k) {
        o.push_back({'F', k});
        o.push_back({'B', k - ahead});
    }
    for (int k = m - ahead; k < m; ++k) o.push_back({'B', k});
    return o;
}
// [doc:end]

// Exercise 4: each rank has v chunks, v p in all; chunk c of rank r is number c p + r. Micro-batches go through a
// chunk p at a time. Requires: m is a multiple of p.
inline order interleaved(int rank, int p, int m, int v) {
    const auto at = [&](char what, int i) {
        const int turn = i / p % v;
        return operation{what, i / (p * v) * p + i % p, what == 'F' ? turn : v - 1 - turn};
    };
    const int all = m * v, ahead = std::min(2 * (p - 1 - rank) + (v - 1) * p, all);
    order o;
    for (int i = 0; i < ahead; ++i) o.push_back(at('F', i));
    for (int i = ahead; i < all; ++i) {
        o.push_back(at('F', i));
        o.push_back(at('B', i - ahead));
    }
    for (int i = all - ahead; i < all; ++i) o.push_back(at('B', i));
    return o;
}

// The most activations that are alive at once.
inline int most_alive(const order& o) {
    int now = 0, most = 0;
    for (const operation& op : o) most = std::max(most, now += op.what == 'F' ? 1 : -1);
    return most;
}

// Computes when each operation runs if each rank keeps its order and starts as soon as its inputs are ready. Errors:
// invalid_argument if ranks wait for each other in a cycle.
inline std::vector<example::events> replay(const std::vector<order>& of, int v = 1) {
    const int p = static_cast<int>(of.size());
    std::map<std::tuple<char, int, int>, double> done; // (what, micro-batch, chunk of all) -> when
    std::vector<example::events> all(of.size());
    for (bool moves = true; moves;) {
        moves = false;
        for (int r = 0; r < p; ++r) {
            const auto i = static_cast<std::size_t>(r);
            while (all[i].size() < of[i].size()) {
                const operation op = of[i][all[i].size()];
                const int place = op.chunk * p + r, needed = op.what == 'F' ? place - 1 : place + 1;
                double ready = all[i].empty() ? 0 : all[i].back().end;
                if (op.what == 'B' && !done.contains({'F', op.micro, place})) break;
                if (needed >= 0 && needed < v * p) {
                    const auto found = done.find({op.what, op.micro, needed});
                    if (found == done.end()) break;
                    ready = std::max(ready, found->second);
                }
                const double end = ready + (op.what == 'F' ? forward_time : backward_time);
                done[{op.what, op.micro, place}] = end;
                all[i].push_back({ready, end, op.what, op.micro});
                moves = true;
            }
        }
    }
    for (std::size_t r = 0; r < of.size(); ++r)
        if (all[r].size() < of[r].size())
            collx::fail(collx::errc::invalid_argument, static_cast<int>(r), -1, "change the order of its operations",
                        "stage %zu waits for ever at its operation %zu", r, all[r].size());
    return all;
}

// Returns the samples of a micro-batch. Errors: invalid_argument, with values of m that would work.
inline int samples_of_micro_batch(int rank, int batch, int m) {
    if (m > 0 && batch % m == 0) return batch / m;
    std::string good;
    for (int k = 1; k <= batch; ++k)
        if (batch % k == 0) good += (good.empty() ? "" : ", ") + std::to_string(k);
    collx::fail(collx::errc::invalid_argument, rank, -1, ("take " + good).c_str(),
                "a batch of %d samples does not divide into %d micro-batches", batch, m);
}

} // namespace pipelined
