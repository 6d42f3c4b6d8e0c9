// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A ring through some places of a machine, along links where there are links: the order of the places, and the relay
// between two that are not linked (as on NVLink machines when a job uses some of the GPUs). The graph is a function of
// two places, so any description of the machine will do.
#pragma once

#include <vector>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// A ring through places that are not all linked with one another.
struct ring_route {
    std::vector<int> order; // indices of the places given, in ring order; ranks where rank i is at places[i]
    std::vector<int> via;   // by position: the place between this one and the next, -1: linked, -2: no way found
    int relayed = 0;        // hops through a relay
    int unlinked = 0;       // hops with neither a link nor a relay
};

namespace detail {

// The cheapest ring through k places, place 0 first. Exact: keeps the cheapest path for each set of places and last
// place (Held and Karp, "A dynamic programming approach to sequencing problems", 1962). k 2^k numbers: for few places.
inline std::vector<int> cheapest_ring(const std::vector<int>& cost, int k) {
    const auto at = [k](unsigned set, int last) {
        return set * static_cast<unsigned>(k) + static_cast<unsigned>(last);
    };
    const auto hop = [&](int a, int b) { return cost[static_cast<unsigned>(a * k + b)]; };
    constexpr int never = 1 << 28;
    const unsigned all = (1u << k) - 1;
    std::vector<int> best(at(all, k), never);
    std::vector<signed char> before(best.size(), -1);
    best[at(1, 0)] = 0;
    for (unsigned set = 1; set <= all; set += 2)
        for (int last = 0; last < k; ++last) {
            if (best[at(set, last)] == never) continue;
            for (int next = 1; next < k; ++next) {
                const unsigned bit = 1u << next;
                const int sum = best[at(set, last)] + hop(last, next);
                if ((set & bit) != 0 || sum >= best[at(set | bit, next)]) continue;
                best[at(set | bit, next)] = sum;
                before[at(set | bit, next)] = static_cast<signed char>(last);
            }
        }
    int last = 0;
    for (int i = 1; i < k; ++i)
        if (last == 0 || best[at(all, i)] + hop(i, 0) < best[at(all, last)] + hop(last, 0)) last = i;
    std::vector<int> order(static_cast<unsigned>(k), 0);
    unsigned set = all;
    for (int i = k; i-- > 1;) {
        order[static_cast<unsigned>(i)] = last;
        const int previous = before[at(set, last)];
        set &= ~(1u << last);
        last = previous;
    }
    return order;
}

// Gives as many hops as possible their own relay (Kuhn's augmenting paths); choices[h] are the places that can be the
// relay of hop h.
class relay_matching {
public:
    relay_matching(const std::vector<std::vector<int>>& choices, int places)
        : choices_(choices), hop_of_(static_cast<unsigned>(places), -1), relay_of_(choices.size(), -1) {
        for (unsigned h = 0; h < choices.size(); ++h) {
            seen_.assign(hop_of_.size(), 0);
            extend(h);
        }
    }
    // -1: none was free.
    int relay_of(unsigned hop) const { return relay_of_[hop]; }

private:
    bool extend(unsigned hop) {
        for (const int v : choices_[hop]) {
            const auto place = static_cast<unsigned>(v);
            if (seen_[place] != 0) continue;
            seen_[place] = 1;
            if (hop_of_[place] >= 0 && !extend(static_cast<unsigned>(hop_of_[place]))) continue;
            hop_of_[place] = static_cast<int>(hop);
            relay_of_[hop] = v;
            return true;
        }
        return false;
    }
    const std::vector<std::vector<int>>& choices_;
    std::vector<int> hop_of_, relay_of_;
    std::vector<char> seen_;
};

} // namespace detail

inline constexpr int ring_places_limit = 16; // more are left in the order given

// linked(a, b): whether places a and b of the `count` places of the machine have a direct link.
// Ensures: as few unlinked hops as possible, then as few relayed ones (up to 16 places). As many of these as possible
// have their own relay; places that are not members of the ring are tried first.
template <class Linked>
ring_route ring_through(const std::vector<int>& places, int count, Linked&& linked) {
    const auto k = static_cast<int>(places.size());
    const auto place = [&](int i) { return places[static_cast<unsigned>(i % k)]; };
    std::vector<char> is_member(static_cast<unsigned>(count), 0);
    for (const int v : places) is_member[static_cast<unsigned>(v)] = 1;
    const auto between = [&](int a, int b) { // members last
        std::vector<int> found;
        for (const char member : {char{0}, char{1}})
            for (int v = 0; v < count; ++v)
                if (is_member[static_cast<unsigned>(v)] == member && v != a && v != b && linked(a, v) && linked(v, b))
                    found.push_back(v);
        return found;
    };
    const auto joined = [&](int a, int b) { return a == b || linked(a, b); };
    ring_route route;
    if (k <= ring_places_limit && k > 2) {
        std::vector<int> cost;
        for (int i = 0; i < k; ++i)
            for (int j = 0; j < k; ++j)
                cost.push_back(joined(place(i), place(j)) ? 0 : !between(place(i), place(j)).empty() ? 1 : k + 1);
        route.order = detail::cheapest_ring(cost, k);
    } else {
        for (int i = 0; i < k; ++i) route.order.push_back(i);
    }
    std::vector<std::vector<int>> choices;
    for (int i = 0; i < k; ++i) {
        const int a = place(route.order[static_cast<unsigned>(i)]),
                  b = place(route.order[static_cast<unsigned>((i + 1) % k)]);
        route.via.push_back(joined(a, b) ? -1 : -2);
        choices.push_back(joined(a, b) ? std::vector<int>{} : between(a, b));
    }
    const detail::relay_matching relays(choices, count);
    for (unsigned i = 0; i < choices.size(); ++i) {
        if (!choices[i].empty())
            route.via[i] = relays.relay_of(i) >= 0 ? relays.relay_of(i) : choices[i].front(); // a shared relay
        route.relayed += route.via[i] >= 0;
        route.unlinked += route.via[i] == -2;
    }
    return route;
}

COLLX_END_NAMESPACE
