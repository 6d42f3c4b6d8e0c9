// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Clusters of CPU hosts with one card each: fat tree, dragonfly, torus. Host k has the sites "h<k>.CPU" and "h<k>.NIC".
// Rates in GB/s per direction. Errors: invalid_argument for counts below 1, and for more than 2^20 hosts, or links of a
// kind. Source of the shapes: Leiserson 1985 (fat tree); Kim et al. 2008 (dragonfly).
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include <collx/topo/machine_parts.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {
// Adds a CPU and its card, and links the card to a network switch.
inline void add_host(graph& g, int number, int network_switch, double nic, double pcie) {
    const std::string name = "h" + std::to_string(number) + ".";
    const int cpu = g.add({name + "CPU", site_type::cpu, number}), card = g.add({name + "NIC", site_type::nic, number});
    g.link(cpu, card, link_type::pcie, {pcie * 1e9, link_latencies::pcie});
    g.link(card, network_switch, link_type::network, {nic * 1e9, link_latencies::network});
}
inline int add_network_switch(graph& g, const std::string& name) {
    return g.add({name, site_type::network_switch, -1});
}
inline void positive(const char* what, std::initializer_list<int> counts) {
    for (const int n : counts)
        if (n < 1) fail(errc::invalid_argument, -1, -1, "all counts are 1 or more", "%s with a count of %d", what, n);
}
} // namespace detail

// Leaves of `per_leaf` hosts, each leaf linked to all `spines`. The uplinks of a leaf together have the rate of its
// hosts' cards divided by `oversubscription` (1: full, 2: 2:1).
inline graph fat_tree(int leaves, int per_leaf, int spines, double nic = 12.5, double oversubscription = 1) {
    detail::positive("a fat tree", {leaves, per_leaf, spines});
    detail::require_few("hosts of a fat tree", {leaves, per_leaf});
    detail::require_few("links between leaves and spines", {leaves, spines});
    graph g;
    for (int s = 0; s < spines; ++s) detail::add_network_switch(g, "spine" + std::to_string(s));
    for (int l = 0; l < leaves; ++l) {
        const int leaf = detail::add_network_switch(g, "leaf" + std::to_string(l));
        const double up = per_leaf * nic / oversubscription / spines;
        for (int s = 0; s < spines; ++s) g.link(leaf, s, link_type::network, {up * 1e9, link_latencies::network});
        for (int h = 0; h < per_leaf; ++h) detail::add_host(g, l * per_leaf + h, leaf, nic, 2 * nic);
    }
    return g;
}

// `groups` of `routers` of `per_router` hosts. All routers of a group are linked with one another. Any two groups have
// one link; the links of a group end at its routers in turn.
inline graph dragonfly(int groups, int routers, int per_router, double nic = 12.5, double global = 12.5) {
    detail::positive("a dragonfly", {groups, routers, per_router});
    detail::require_few("hosts of a dragonfly", {groups, routers, per_router});
    detail::require_few("links inside the groups", {groups, routers, routers});
    detail::require_few("links between the groups", {groups, groups});
    graph g;
    const auto router = [&](int group, int r) { return group * routers + r; };
    for (int a = 0; a < groups; ++a)
        for (int r = 0; r < routers; ++r)
            detail::add_network_switch(g, "g" + std::to_string(a) + ".r" + std::to_string(r));
    for (int a = 0; a < groups; ++a) {
        for (int r = 0; r < routers; ++r)
            for (int q = r + 1; q < routers; ++q)
                g.link(router(a, r), router(a, q), link_type::network, {nic * 1e9, link_latencies::network});
        for (int b = a + 1; b < groups; ++b)
            g.link(router(a, (b - 1) % routers), router(b, a % routers), link_type::network,
                   {global * 1e9, link_latencies::network});
    }
    for (int h = 0; h < groups * routers * per_router; ++h) detail::add_host(g, h, h / per_router, nic, 2 * nic);
    return g;
}

// A torus of the given lengths with one router and host at each place; the last coordinate varies fastest. A length of
// 2 has one link between its two places, a length of 1 none.
inline graph torus(const std::vector<int>& lengths, double nic = 12.5, double link = 12.5) {
    int places = 1;
    for (const int n : lengths) {
        detail::positive("a torus", {n});
        detail::require_few("places of a torus", {places, n});
        places *= n;
    }
    graph g;
    for (int p = 0; p < places; ++p) detail::add_network_switch(g, "r" + std::to_string(p));
    int stride = places;
    for (const int n : lengths) {
        stride /= n;
        for (int p = 0; p < places; ++p)
            if (const int at = p / stride % n; n > 2 || (n == 2 && at == 0))
                g.link(p, p + ((at + 1) % n - at) * stride, link_type::network, {link * 1e9, link_latencies::network});
    }
    for (int p = 0; p < places; ++p) detail::add_host(g, p, p, nic, 2 * nic);
    return g;
}

} // namespace topo
COLLX_END_NAMESPACE
