// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which rank stands where on three axes, and how many bytes a placement sends from host to host. Everything follows
// from the hosts of the ranks and from what each axis sends; nothing is measured.
#pragma once

#include <collx/collx.hpp>
#include <collx/comm/window.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace three_axes {

enum axis { tensor, pipeline, data };
inline constexpr const char* name_of[] = {"tensor", "pipeline", "data"};
using by_axis = std::array<int, 3>;

// The number of ranks on each axis. Tensor and pipeline have two where n allows it, data has the rest.
inline by_axis axes_of(int n) {
    const int t = n % 2 == 0 ? 2 : 1, p = n / t % 2 == 0 ? 2 : 1;
    return {t, p, n / t / p};
}

// Returns the host of each rank, named by the first rank there. Ranks of one host share memory. Collective.
inline std::vector<int> hosts_of(collx::communicator& world) {
    // [doc:hosts]
    const collx::window<char> reach(world, 0);
    int mine = 0;
    while (!reach.is_shared(mine)) ++mine; // ends at this rank itself at the latest
    std::vector<int> host(static_cast<std::size_t>(world.size()));
    collx::all_gather(world, collx::value(mine), host);
    // [doc:end]
    return host;
}

// The bytes that a rank sends to its neighbours in a step. On tensor and data it sends to the next rank of a ring. On
// pipeline it sends the same amount to the next stage and to the previous one.
struct traffic {
    std::array<double, 3> to_neighbour{};
    double of_rank(axis a, const by_axis& size, int place) const {
        const int neighbours = a == pipeline ? (place > 0) + (place + 1 < size[a]) : size[a] > 1;
        return to_neighbour[a] * neighbours;
    }
};

// order[0] is the innermost axis: its ranks have consecutive numbers, so they are mostly on one host.
struct placement {
    by_axis size{}, order{tensor, pipeline, data};

    by_axis places_of(int rank) const {
        by_axis at{};
        for (const int a : order) {
            at[static_cast<std::size_t>(a)] = rank % size_of(a);
            rank /= size_of(a);
        }
        return at;
    }
    int rank_of(const by_axis& at) const {
        int rank = 0;
        for (std::size_t i = 3; i-- > 0;) rank = rank * size_of(order[i]) + at[static_cast<std::size_t>(order[i])];
        return rank;
    }
    // Returns the rank at another place of one axis.
    int along(axis a, int rank, int place) const {
        by_axis at = places_of(rank);
        at[a] = place;
        return rank_of(at);
    }
    // Returns the bytes per step that all ranks send to another host. host: by rank.
    double between_hosts(const std::vector<int>& host, const traffic& t) const {
        double bytes = 0;
        for (int r = 0; r < static_cast<int>(host.size()); ++r)
            for (const axis a : {tensor, pipeline, data}) {
                const int at = places_of(r)[a], n = size[a];
                const auto there = [&](int place) {
                    const bool crosses =
                        host[static_cast<std::size_t>(along(a, r, place))] != host[static_cast<std::size_t>(r)];
                    return crosses ? t.to_neighbour[a] : 0;
                };
                if (a != pipeline) bytes += there((at + 1) % n);
                else bytes += (at > 0 ? there(at - 1) : 0) + (at + 1 < n ? there(at + 1) : 0);
            }
        return bytes;
    }
    std::string text() const {
        return std::string(name_of[order[0]]) + ", " + name_of[order[1]] + ", " + name_of[order[2]];
    }

private:
    int size_of(int a) const { return size[static_cast<std::size_t>(a)]; }
};

// All six placements, the best first. Among equals, the axis with more bytes per rank is further inside.
inline std::vector<placement> placements(const by_axis& size, const std::vector<int>& host, const traffic& t) {
    std::vector<placement> all;
    by_axis order{tensor, pipeline, data};
    do all.push_back({size, order});
    while (std::next_permutation(order.begin(), order.end()));
    const auto weight = [&](const placement& p, std::size_t i) {
        return t.of_rank(static_cast<axis>(p.order[i]), size, 0);
    };
    std::stable_sort(all.begin(), all.end(), [&](const placement& a, const placement& b) {
        const double x = a.between_hosts(host, t), y = b.between_hosts(host, t);
        if (x != y) return x < y;
        for (std::size_t i = 0; i < 3; ++i)
            if (weight(a, i) != weight(b, i)) return weight(a, i) > weight(b, i);
        return false;
    });
    return all;
}

} // namespace three_axes
