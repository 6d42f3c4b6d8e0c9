// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The routes that a schedule's messages take on a machine: each order of ranks puts rank r of the schedule at a place
// of its own, and the options may prescribe the way from each place to the next.
#pragma once

#include <vector>

#include <collx/sim/fabric.hpp>
#include <collx/sim/result.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim::detail {

class placed_routes {
public:
    placed_routes(int ranks, fabric& f, const options& o) : ranks_(ranks), fabric_(f), orders_(o.orders) {
        if (orders_.empty()) orders_.emplace_back();
        if (orders_[0].empty())
            for (int r = 0; r < ranks; ++r) orders_[0].push_back(r);
        for (const auto& ways : o.ways) {
            next_.emplace_back();
            for (const auto& way : ways) next_.back().push_back(f.measured(way));
        }
        if (o.by_switch) join_switch();
    }

    int orders() const { return static_cast<int>(orders_.size()); }
    int place(int order, int rank) const { return orders_[sized(order)][sized(rank)]; }
    const route& between(int order, int from, int to) {
        if (!next_.empty() && to == (from + 1) % ranks_)
            if (const route& r = next_[sized(order)][sized(from)]; !r.links.empty()) return r;
        const auto& places = orders_[sized(order)];
        return fabric_.between(places[sized(from)], places[sized(to)]);
    }
    // A sum of the switch leaves every rank once and arrives at `rank`; a store leaves `rank` and arrives at every
    // rank.
    const route& sum_to(int order, int rank) const { return sums_[number(order, rank)]; }
    const route& store_of(int order, int rank) const { return stores_[number(order, rank)]; }

private:
    static std::size_t sized(int i) { return static_cast<std::size_t>(i); }
    std::size_t number(int order, int rank) const { return sized(order) * sized(ranks_) + sized(rank); }

    // All links of a route by the switch carry it at once, at the rate of the slowest.
    void join_switch() {
        const switch_ports& p = fabric_.switch_of_all();
        for (const auto& order : orders_)
            for (const int r : order) {
                route sum{{p.from[sized(r)]}}, store{{p.to[sized(r)]}};
                for (const int k : order) {
                    sum.links.push_back(p.to[sized(k)]);
                    store.links.push_back(p.from[sized(k)]);
                }
                const double latency = fabric_.measured({p.to[sized(r)], p.from[sized(r)]}).latency_ns;
                sum = fabric_.measured(sum.links);
                store = fabric_.measured(store.links);
                sum.latency_ns = store.latency_ns = latency;
                sums_.push_back(std::move(sum));
                stores_.push_back(std::move(store));
            }
    }

    const int ranks_;
    fabric& fabric_;
    std::vector<std::vector<int>> orders_;
    std::vector<std::vector<route>> next_; // of each order, from each place to the next
    std::vector<route> sums_, stores_;     // by the switch, of each rank of each order
};

} // namespace sim::detail
COLLX_END_NAMESPACE
