// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bounds on the data that can cross a machine: the maximum flow from one site to another (Dinic 1970), and the bound
// for rings and trees that follows. They ignore which sites can forward, so a set of rings may stay below.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include <collx/topo/graph.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {

class flow_search {
public:
    explicit flow_search(const graph& g) : g_(g) {}

    // Bytes/s from one site to another, over all links together. The opposite arc takes the residual flow. Bounded: at
    // most as many rounds as there are sites.
    double flow(int from, int to) {
        left_.resize(static_cast<std::size_t>(g_.arcs()));
        for (int i = 0; i < g_.arcs(); ++i) left_[static_cast<std::size_t>(i)] = g_.arc_at(i).bytes_per_s;
        double sum = 0;
        while (find_levels(from, to)) {
            next_.assign(static_cast<std::size_t>(g_.size()), 0);
            for (double more = 1; more != 0; sum += more)
                more = push(from, to, std::numeric_limits<double>::infinity());
        }
        return sum;
    }

private:
    static constexpr double nothing = 1e-3; // bytes/s: rounding errors

    bool find_levels(int from, int to) {
        level_.assign(static_cast<std::size_t>(g_.size()), -1);
        std::vector<int> queue{from};
        level_[static_cast<std::size_t>(from)] = 0;
        for (std::size_t k = 0; k < queue.size(); ++k)
            for (const int i : g_.arcs_of(queue[k])) {
                int& level = level_[static_cast<std::size_t>(g_.arc_at(i).to)];
                if (level >= 0 || left_[static_cast<std::size_t>(i)] <= nothing) continue;
                level = level_[static_cast<std::size_t>(queue[k])] + 1;
                queue.push_back(g_.arc_at(i).to);
            }
        return level_[static_cast<std::size_t>(to)] >= 0;
    }
    double push(int here, int to, double most) {
        if (here == to) return most;
        const auto& out = g_.arcs_of(here);
        for (std::size_t& k = next_[static_cast<std::size_t>(here)]; k < out.size(); ++k) {
            const arc& a = g_.arc_at(out[k]);
            double& left = left_[static_cast<std::size_t>(out[k])];
            if (left <= nothing || level_[static_cast<std::size_t>(a.to)] != level_[static_cast<std::size_t>(here)] + 1)
                continue;
            if (const double sent = push(a.to, to, std::min(most, left)); sent > 0) {
                left -= sent;
                left_[static_cast<std::size_t>(a.back)] += sent;
                return sent;
            }
        }
        return 0;
    }

    const graph& g_;
    std::vector<double> left_;
    std::vector<int> level_;
    std::vector<std::size_t> next_;
};

} // namespace detail

// The maximum bytes/s from one site to another.
inline double max_flow(const graph& g, int from, int to) { return detail::flow_search(g).flow(from, to); }

// The bound on the bytes/s of all rings through the members together. It holds because each ring enters and leaves
// every part of the machine that has some members and not all.
inline double ring_bound(const graph& g, const std::vector<int>& members) {
    detail::flow_search search(g);
    double bound = std::numeric_limits<double>::infinity();
    for (std::size_t k = 1; k < members.size(); ++k) {
        bound = std::min(bound, search.flow(members[0], members[k]));
        bound = std::min(bound, search.flow(members[k], members[0]));
    }
    return members.size() < 2 ? 0 : bound;
}

} // namespace topo
COLLX_END_NAMESPACE
