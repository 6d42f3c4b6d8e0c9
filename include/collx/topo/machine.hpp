// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a machine looks like: sites, and links of some width between them. Processors hold ranks and can pass data on
// for others; cards lead out of a node and can only be passed through. Plain values; nobody is asked here what this
// machine is, and no rank and no algorithm is known.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

enum class site_kind : unsigned char { processor, card };

// Widths are GB/s in each direction (1e9 bytes).
class machine {
public:
    int add(std::string name, site_kind kind = site_kind::processor) {
        sites_.push_back({std::move(name), kind, {}});
        return size() - 1;
    }
    // Both directions. A second link between the same sites widens the first.
    void link(int a, int b, double width) {
        widen(a, b, width);
        widen(b, a, width);
    }
    // All sites and links of another machine; returns the number of its first site here.
    int add(const machine& other) {
        const int first = size();
        for (site p : other.sites_) {
            for (auto& n : p.links) n.first += first;
            sites_.push_back(std::move(p));
        }
        return first;
    }

    int size() const { return static_cast<int>(sites_.size()); }
    const std::string& name(int p) const { return at(p).name; }
    bool is_processor(int p) const { return at(p).kind == site_kind::processor; }
    // Neighbours with the width of the link to each, in the order in which they were linked.
    const std::vector<std::pair<int, double>>& links(int p) const { return at(p).links; }
    double width(int a, int b) const { // 0: no link
        for (const auto& [other, width] : at(a).links)
            if (other == b) return width;
        return 0;
    }

private:
    struct site {
        std::string name;
        site_kind kind;
        std::vector<std::pair<int, double>> links;
    };
    const site& at(int p) const { return sites_[static_cast<unsigned>(p)]; }
    void widen(int a, int b, double width) {
        auto& links = sites_[static_cast<unsigned>(a)].links;
        for (auto& l : links)
            if (l.first == b) return void(l.second += width);
        links.emplace_back(b, width);
    }
    std::vector<site> sites_;
};

// Eight processors of six links each, as in a DGX-1 with V100: two quads, every processor linked to the others of its
// quad and to its mirror in the other one, some of these links double. Four network cards of 100 Gbit/s, each beside
// two processors (sites 8 to 11).
inline machine hybrid_cube_mesh(double link_width = 20, double card_width = 12) {
    static constexpr int double_links[][2] = {{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}};
    static constexpr int single_links[][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}};
    machine m;
    for (int p = 0; p < 8; ++p) m.add(std::to_string(p));
    for (const auto& l : double_links) m.link(l[0], l[1], 2 * link_width);
    for (const auto& l : single_links) m.link(l[0], l[1], link_width);
    for (int c = 0; c < 4; ++c) {
        const int card = m.add("card" + std::to_string(c), site_kind::card);
        m.link(card, 2 * c, card_width);
        m.link(card, 2 * c + 1, card_width);
    }
    return m;
}

// Several machines of one kind; card c of each is linked with card c of all others (a rail). Site p of machine k is
// site k * one.size() + p.
inline machine rails(const machine& one, int count, double width = 12) {
    machine all;
    for (int k = 0; k < count; ++k) all.add(one);
    for (int a = 0; a < count; ++a)
        for (int b = a + 1; b < count; ++b)
            for (int p = 0; p < one.size(); ++p)
                if (!one.is_processor(p)) all.link(a * one.size() + p, b * one.size() + p, width);
    return all;
}

} // namespace topo
COLLX_END_NAMESPACE
