// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machine graphs: what is refused, the counts of known machines, path classes as in published matrices, and the
// chosen path compared with trying all paths.
#include <collx/topo/clusters.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/path.hpp>

#include <algorithm>
#include <random>
#include <tuple>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::topo;
using Catch::Contains;

namespace {

graph dgx(const std::string& name) {
    if (name == "1p") return dgx_1p();
    if (name == "1v") return dgx_1v();
    if (name == "2") return dgx_2();
    if (name == "a100") return dgx_a100();
    if (name == "h100") return dgx_h100();
    return hgx_b200();
}
std::string class_between(const graph& g, const char* a, const char* b) {
    return name_of(find_path(g, g.require(a), g.require(b)).type);
}

// Finds the best path by trying all: class, rate, links. Interior GPUs only between the two NVLinks of a path of two.
void try_all(const graph& g, int to, std::vector<int>& sites, path way, path& best) {
    const int here = sites.back();
    if (here == to) {
        path p = detail::measured(g, way);
        bool through_gpu = false, only_nvlink = true;
        for (std::size_t i = 0; i < p.arcs.size(); ++i) {
            const arc& a = g.arc_at(p.arcs[i]);
            through_gpu |= i + 1 < p.arcs.size() && g.at(a.to).type == site_type::gpu;
            only_nvlink &= a.type == link_type::nvlink;
        }
        const bool are_gpus = g.at(sites[0]).type == site_type::gpu && g.at(to).type == site_type::gpu;
        if (through_gpu && (!only_nvlink || p.arcs.size() != 2 || !are_gpus)) return;
        if (through_gpu) p.type = path_class::nvb;
        const auto rank = [](const path& q) { return std::tuple(q.type, -q.bytes_per_s, q.arcs.size()); };
        if (best.arcs.empty() || rank(p) < rank(best)) best = p;
        return;
    }
    for (const int i : g.arcs_of(here)) {
        const int next = g.arc_at(i).to;
        if (std::find(sites.begin(), sites.end(), next) != sites.end()) continue;
        if (sites.size() > 1 && g.at(here).type == site_type::nic) continue; // these graphs have no network
        sites.push_back(next);
        way.arcs.push_back(i);
        try_all(g, to, sites, way, best);
        way.arcs.pop_back();
        sites.pop_back();
    }
}

} // namespace

TEST_CASE("what is no machine is refused with the place and the remedy") {
    graph g;
    const int a = g.add({"a"}), b = g.add({"b"}), lonely = g.add({"c"});
    const auto refused = [&](double rate, double back = 0, double latency = 0, int lanes = 1) {
        return [=, &g] { g.link(a, b, link_type::pcie, {rate, latency, lanes, back}); };
    };
    CHECK_THROWS_WITH(refused(0)(), Contains("'a' - 'b'") && Contains("positive rate"));
    CHECK_THROWS_AS(refused(-1)(), invalid_argument);
    CHECK_THROWS_AS(refused(1, -1)(), invalid_argument);
    CHECK_THROWS_AS(refused(INFINITY)(), invalid_argument);
    CHECK_THROWS_AS(refused(NAN)(), invalid_argument);
    CHECK_THROWS_WITH(refused(1, 0, -5)(), Contains("latency of -5"));
    CHECK_THROWS_WITH(refused(1, 0, 0, 0)(), Contains("0 lanes"));
    CHECK_THROWS_WITH(refused(1, 0, 0, 1 << 30)(), Contains("1073741824 lanes"));
    CHECK_THROWS_WITH(g.link(a, 7, link_type::pcie, {1}), Contains("site 7") && Contains("add both"));
    CHECK_THROWS_WITH(g.link(a, a, link_type::pcie, {1}), Contains("linked to itself"));
    CHECK_THROWS_WITH(g.add({"a"}), Contains("two sites") && Contains("'a'"));
    CHECK_THROWS_WITH(g.require("GPU9"), Contains("no site 'GPU9'"));
    CHECK(g.arcs() == 0);
    g.link(a, b, link_type::pcie, {1});
    CHECK_THROWS_WITH(best_path(g, a, lonely), Contains("no path from 'a' to 'c'") && Contains("link them"));
    CHECK(find_path(g, a, lonely).type == path_class::dis);
    CHECK_THROWS_AS(fat_tree(0, 1, 1), invalid_argument);
    CHECK_THROWS_AS(torus({2, 0}), invalid_argument);
    CHECK_THROWS_AS(on_rails(dgx_1v(), 0, 12.5), invalid_argument);
    CHECK_THROWS_AS(workstation(2, 1, 7), invalid_argument);
    graph wide; // what two links together would be is looked at, too
    wide.add({"a"});
    wide.add({"b"});
    wide.link(0, 1, link_type::nvlink, {1e308, 0, 1 << 29});
    CHECK_THROWS_WITH(wide.link(0, 1, link_type::nvlink, {1e308}), Contains("'a' - 'b' has a rate of inf"));
    CHECK_THROWS_WITH(wide.link(0, 1, link_type::nvlink, {1}), Contains("536870913 lanes"));
    CHECK((wide.arc_at(0).bytes_per_s == 1e308 && wide.arc_at(0).lanes == 1 << 29));
}

TEST_CASE("machines of more sites or links than an int counts are refused") {
    CHECK_THROWS_WITH(torus({65536, 65536}), Contains("places of a torus: 4294967296") && Contains("1048576"));
    CHECK_THROWS_AS(torus({1 << 16, 1 << 15, 1 << 15, 1 << 15}), invalid_argument);
    CHECK_THROWS_WITH(fat_tree(65536, 65536, 1), Contains("hosts of a fat tree: 4294967296"));
    CHECK_THROWS_WITH(fat_tree(65536, 1, 65536), Contains("links between leaves and spines: 4294967296"));
    CHECK_THROWS_WITH(dragonfly(4096, 1024, 1024), Contains("hosts of a dragonfly: 4294967296"));
    CHECK_THROWS_WITH(dragonfly(1, 65536, 1), Contains("links inside the groups: 4294967296"));
    CHECK_THROWS_WITH(dragonfly(65536, 1, 1), Contains("links between the groups: 4294967296"));
    CHECK_THROWS_WITH(on_rails(dgx_1v(), 1 << 28, 12.5), Contains("hosts on rails"));
    CHECK_THROWS_WITH(gb200_nvl72(rate_basis::published, 0), Contains("a rack of 0 trays"));
    CHECK_THROWS_AS(gb200_nvl72(rate_basis::published, 1 << 30), invalid_argument);
    CHECK_THROWS_AS(workstation(1 << 16, 1 << 16), invalid_argument);
    CHECK(torus({8, 4}).all(site_type::cpu).size() == 32);
}

TEST_CASE("a second link of a kind widens the first, and directions may differ") {
    graph g;
    const int a = g.add({"a"}), b = g.add({"b"});
    const int there = g.link(a, b, link_type::nvlink, {10, 5, 1, 4});
    CHECK(g.link(a, b, link_type::nvlink, {10, 5, 1, 4}) == there);
    CHECK(g.arcs() == 2);
    CHECK(g.arc_at(there).bytes_per_s == 20);
    CHECK(g.arc_at(there).lanes == 2);
    CHECK(g.arc_at(g.arc_at(there).back).bytes_per_s == 8);
    CHECK(find_path(g, b, a).bytes_per_s == 8);
    g.link(b, a, link_type::pcie, {1});
    CHECK(g.arcs() == 4);
}

TEST_CASE("machines have the published numbers of links and rates") {
    struct row {
        const char* name;
        int gpus, nics, links;
        double nvlink_gb_per_s;
    };
    for (const row& want : {row{"1p", 8, 4, 4, 80}, row{"1v", 8, 4, 6, 150}, row{"2", 16, 8, 6, 150},
                            row{"a100", 8, 8, 12, 300}, row{"h100", 8, 8, 18, 450}, row{"b200", 8, 8, 18, 900}}) {
        CAPTURE(want.name);
        const graph g = dgx(want.name);
        CHECK(static_cast<int>(g.all(site_type::gpu).size()) == want.gpus);
        CHECK(static_cast<int>(g.all(site_type::nic).size()) == want.nics);
        for (const int gpu : g.all(site_type::gpu)) {
            double rate = 0;
            int lanes = 0;
            for (const int i : g.arcs_of(gpu))
                if (const arc& a = g.arc_at(i); a.type == link_type::nvlink) {
                    rate += a.bytes_per_s;
                    lanes += a.lanes;
                }
            CHECK(lanes == want.links);
            CHECK(rate / 1e9 == Approx(want.nvlink_gb_per_s));
        }
    }
    const graph rack = gb200_nvl72();
    CHECK(rack.all(site_type::gpu).size() == 72);
    CHECK(rack.all(site_type::cpu).size() == 36);
    CHECK(name_of(find_path(rack, rack.require("t0.GPU0"), rack.require("t17.GPU3")).type) == std::string("NVL"));
    CHECK(find_path(rack, rack.require("t0.GPU0"), rack.require("t17.GPU3")).bytes_per_s == Approx(900e9));
    CHECK(fat_tree(4, 4, 2).all(site_type::nic).size() == 16);
    CHECK(dragonfly(5, 2, 3).all(site_type::cpu).size() == 30);
    const graph t = torus({4, 2, 3});
    CHECK(t.all(site_type::network_switch).size() == 24);
    CHECK(t.arcs_of(0).size() == 2 + 1 + 2 + 1); // neighbours in each dimension, and the host
}

TEST_CASE("classes are those of published matrices") {
    const graph v = dgx_1v();
    CHECK(class_between(v, "GPU0", "GPU3") == "NVL");
    CHECK(class_between(v, "GPU0", "GPU5") == "NVB");
    CHECK(class_between(v, "GPU0", "NIC0") == "PIX");
    CHECK(class_between(v, "GPU0", "NIC1") == "PHB");
    CHECK(class_between(v, "GPU0", "NIC2") == "SYS");
    CHECK(class_between(v, "GPU0", "GPU0") == "LOC");
    const graph two = dgx_2();
    CHECK(class_between(two, "GPU0", "GPU15") == "NVL");
    CHECK(class_between(two, "GPU1", "NIC0") == "PIX");
    CHECK(class_between(two, "GPU2", "NIC0") == "PXB");
    CHECK(class_between(two, "GPU4", "NIC0") == "PHB");
    CHECK(class_between(two, "GPU8", "NIC0") == "SYS");
    const graph a = dgx_a100();
    CHECK(class_between(a, "GPU0", "NIC0") == "PXB");
    CHECK(class_between(a, "GPU1", "NIC0") == "PXB");
    CHECK(class_between(a, "GPU2", "NIC0") == "SYS");
    const graph h = dgx_h100();
    CHECK(class_between(h, "GPU3", "NIC3") == "PIX");
    CHECK(class_between(h, "GPU3", "NIC2") == "PHB");
    const graph rack = gb200_nvl72();
    CHECK(class_between(rack, "t0.GPU0", "t0.CPU0") == "C2C");
    CHECK(class_between(rack, "t0.GPU0", "t0.NIC0") == "P2C");
    CHECK(class_between(rack, "t0.NIC0", "t0.GPU1") == "P2C");
    CHECK(class_between(rack, "t0.GPU0", "t0.NIC2") == "SYS");
    graph superchip; // a narrow NVLink has priority over a wide C2C link
    const int cpu = superchip.add({"CPU"}), one = superchip.add({"1", site_type::gpu}),
              two_gpu = superchip.add({"2", site_type::gpu});
    for (const int gpu : {one, two_gpu}) superchip.link(cpu, gpu, link_type::c2c, {225e9});
    superchip.link(one, two_gpu, link_type::nvlink, {50e9});
    CHECK(class_between(superchip, "1", "2") == "NVL");
    const graph w = workstation(4, 2);
    CHECK(class_between(w, "GPU0", "GPU1") == "PHB");
    CHECK(class_between(w, "GPU0", "GPU2") == "SYS");
    // [doc:machine]
    const graph rails = on_rails(dgx_h100(), 2, 50); // two hosts, eight rails of 50 GB/s
    const std::string reason = why(rails, rails.require("h0.GPU2"), rails.require("h0.NIC3"));
    // [doc:end]
    CHECK_THAT(reason, Contains("PHB") && Contains("(PXN): h0.GPU2"));
    CHECK(class_between(rails, "h0.GPU2", "h1.GPU2") == "NET");
    CHECK(find_path(rails, rails.require("h0.GPU2"), rails.require("h1.GPU2")).bytes_per_s == 50e9);
}

TEST_CASE("a path says why: its links, what gives the class, what gives the rate") {
    const graph v = dgx_1v();
    CHECK_THAT(why(v, v.require("GPU0"), v.require("GPU5")),
               Contains("NVB, 25 GB/s") && Contains("GPU0 -NVLink 50- GPU4 -NVLink 25- GPU5") &&
                   Contains("no NVLink joins them") && Contains("its rate comes from GPU4 - GPU5"));
    CHECK_THAT(why(v, v.require("GPU2"), v.require("NIC0")),
               Contains("PHB") && Contains("(PXN): GPU2") && Contains("its class comes from PCI1 - CPU0"));
    CHECK_THAT(why(v, 0, 0), Contains("LOC"));
}

TEST_CASE("a GPU sends through the neighbour beside the card where that helps") {
    const graph v = dgx_1v();
    const path p = find_pxn(v, v.require("GPU2"), v.require("NIC0"));
    REQUIRE(p.type == path_class::pxn);
    CHECK(v.name(v.arc_at(p.arcs[0]).to) == "GPU0");
    CHECK(p.bytes_per_s == 15.75e9);
    CHECK(find_pxn(v, v.require("GPU0"), v.require("NIC0")).arcs.empty()); // the card is already local
    const graph rack = gb200_nvl72();
    CHECK(find_pxn(rack, rack.require("t0.GPU0"), rack.require("t0.NIC3")).type == path_class::pxn);
    CHECK(find_pxn(rack, rack.require("t0.GPU0"), rack.require("t1.NIC0")).arcs.empty()); // on another host
    const graph w = workstation(4, 2);
    CHECK(find_pxn(w, w.require("GPU3"), w.require("NIC0")).arcs.empty()); // no NVLink
}

TEST_CASE("no way is better than the one that is found") {
    std::mt19937 random(7);
    int found = 0;
    for (int round = 0; round < 200; ++round) {
        graph g;
        const auto rate = [&] { return static_cast<double>(1 + random() % 4); };
        for (int s = 0; s < 7; ++s) g.add({std::to_string(s), static_cast<site_type>(random() % 5)});
        for (int k = 0; k < 11; ++k) {
            const int a = static_cast<int>(random() % 7), b = static_cast<int>(random() % 7);
            static constexpr link_type types[] = {link_type::nvlink, link_type::pcie, link_type::socket};
            if (a != b) g.link(a, b, types[random() % 3], {rate(), 1, 1, rate()});
        }
        for (int to = 1; to < 7; ++to) {
            std::vector<int> sites{0};
            path best;
            try_all(g, to, sites, {}, best);
            const path p = find_path(g, 0, to);
            CAPTURE(round, to, to_text(g, p), to_text(g, best));
            REQUIRE(p.arcs.size() == best.arcs.size());
            if (best.arcs.empty()) continue;
            REQUIRE(p.type == best.type);
            REQUIRE(p.bytes_per_s == best.bytes_per_s);
            ++found;
        }
    }
    CHECK(found > 300);
}
