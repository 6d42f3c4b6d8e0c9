// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The paths among which a search chooses: from one stop of a ring to the next over links of at most some class, through
// switches and CPUs, by NVLink through other GPUs, and to a card through a GPU beside it (PXN).
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <collx/topo/path.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// The paths that a search may use.
struct way_limits {
    path_class intra = path_class::sys; // worst class between two ranks of a host
    path_class inter = path_class::sys; // worst class between a rank and a card
    int relays = 3;                     // how many GPUs in a row may pass NVLink data on; 0: none
    bool operator==(const way_limits&) const = default;
};

namespace detail {

// Searches the paths of a pair on first use.
class routes {
public:
    routes(const graph& g, const way_limits& limits) : g_(g), limits_(limits) {}

    // Paths of better classes first, then those of fewer links.
    const std::vector<path>& between(int from, int to) {
        const auto [it, is_new] = known_.try_emplace({from, to});
        if (is_new) it->second = find(from, to);
        return it->second;
    }

private:
    static constexpr std::size_t most_ways = 48;
    static constexpr int most_steps = 1 << 13;

    std::vector<path> find(int from, int to) {
        const bool with_card = g_.at(from).type == site_type::nic || g_.at(to).type == site_type::nic;
        most_ = with_card ? limits_.inter : limits_.intra;
        ways_.clear();
        walk(from, to, 0);
        if (!with_card && most_ >= path_class::nvb)
            for (int relays = 1; relays <= limits_.relays && ways_.size() < most_ways / 2; ++relays)
                walk(from, to, relays);
        if (g_.at(to).type == site_type::nic && g_.at(from).type == site_type::gpu && most_ >= path_class::pxn)
            each_pxn(g_, from, to, [&](path p) { ways_.push_back(std::move(p)); });
        std::stable_sort(ways_.begin(), ways_.end(), [](const path& a, const path& b) {
            return a.type != b.type ? a.type < b.type : a.arcs.size() < b.arcs.size();
        });
        return std::move(ways_);
    }
    void walk(int from, int to, int relays) {
        to_ = to;
        relays_ = relays;
        steps_ = 0;
        sites_.assign(1, from);
        arcs_.clear();
        extend(0);
    }
    // Depth first. With relays: exactly that many GPUs, by NVLink only. Without: no GPU, at most one link between CPUs.
    void extend(int gpus) {
        const int here = sites_.back();
        if (here == to_) {
            path p = measured(g_, {arcs_});
            if (gpus > 0) p.type = path_class::nvb;
            if (gpus == relays_ && p.type <= most_) ways_.push_back(std::move(p));
            return;
        }
        const site_type type = g_.at(here).type;
        const bool is_inside = sites_.size() > 1;
        if (is_inside && (type == site_type::nic || (type == site_type::gpu && ++gpus > relays_))) return;
        for (const int i : g_.arcs_of(here)) {
            const arc& a = g_.arc_at(i);
            if (a.type == link_type::network || (relays_ > 0 && a.type != link_type::nvlink)) continue;
            if (class_of(g_, a) > (most_ >= path_class::p2c ? std::max(most_, path_class::phb) : most_)) continue;
            if (std::find(sites_.begin(), sites_.end(), a.to) != sites_.end() || crosses_again(a)) continue;
            if (ways_.size() >= most_ways || ++steps_ > most_steps) return;
            sites_.push_back(a.to);
            arcs_.push_back(i);
            extend(gpus);
            sites_.pop_back();
            arcs_.pop_back();
        }
    }
    bool crosses_again(const arc& a) const {
        return a.type == link_type::socket &&
               std::any_of(arcs_.begin(), arcs_.end(), [&](int i) { return g_.arc_at(i).type == link_type::socket; });
    }
    const graph& g_;
    const way_limits limits_;
    std::map<std::pair<int, int>, std::vector<path>> known_;
    std::vector<path> ways_;
    std::vector<int> sites_, arcs_;
    path_class most_ = path_class::sys;
    int to_ = 0, relays_ = 0, steps_ = 0;
};

} // namespace detail
} // namespace topo
COLLX_END_NAMESPACE
