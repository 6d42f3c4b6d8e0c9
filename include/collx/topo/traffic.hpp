// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Adds up the bytes that pairs of ranks send, on the links of the paths that messages take. A message inside a host
// takes the best path on which no other GPU passes data on. Between hosts it leaves by the sender's card and arrives by
// the receiver's. If their rails differ, it leaves by a card of the sender's host on the receiver's rail.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <collx/topo/path.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// The path of a message. own: by site, its card or -1 (own_cards()). Type DIS: there is none.
inline path way_of_message(const graph& g, const std::vector<int>& own, int from, int to) {
    if (g.at(from).host == g.at(to).host) return find_path(g, from, to, false);
    int out = own[static_cast<std::size_t>(from)];
    const int in = own[static_cast<std::size_t>(to)];
    if (out < 0 || in < 0) return {};
    for (const int c : g.all(site_type::nic, g.at(from).host))
        if (g.at(out).rail != g.at(in).rail && g.at(c).rail == g.at(in).rail) out = c;
    path whole;
    for (const auto& [a, b] : {std::pair{from, out}, std::pair{out, in}, std::pair{in, to}}) {
        const path part = find_path(g, a, b);
        if (part.type == path_class::dis) return {};
        whole.arcs.insert(whole.arcs.end(), part.arcs.begin(), part.arcs.end());
    }
    return detail::measured(g, std::move(whole));
}

// The bytes that crossed each arc.
struct link_traffic {
    std::vector<double> bytes;
    double lost = 0; // of pairs without a path

    void add(const graph& g, const path& way, double n) {
        bytes.resize(static_cast<std::size_t>(g.arcs()), 0);
        if (way.type == path_class::dis) lost += n;
        for (const int i : way.arcs) bytes[static_cast<std::size_t>(i)] += n;
    }
    double over(const graph& g, link_type type) const {
        double sum = 0;
        for (std::size_t i = 0; i < bytes.size(); ++i)
            if (g.arc_at(static_cast<int>(i)).type == type) sum += bytes[i];
        return sum;
    }
};

// Writes a line for each arc that carried bytes: their number, and the time that they take at the arc's rate.
inline std::string to_text(const graph& g, const link_traffic& t) {
    std::string text;
    for (std::size_t i = 0; i < t.bytes.size(); ++i) {
        if (t.bytes[i] == 0) continue;
        const arc& a = g.arc_at(static_cast<int>(i));
        char numbers[96];
        std::snprintf(numbers, sizeof numbers, "%14.0f bytes, %9.1f us at %g GB/s", t.bytes[i],
                      t.bytes[i] / a.bytes_per_s * 1e6, a.bytes_per_s / 1e9);
        text += std::string(name_of(a.type)) + " " + g.name(a.from) + " -> " + g.name(a.to) + numbers + "\n";
    }
    return text;
}

} // namespace topo
COLLX_END_NAMESPACE
