// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Discovery from /sys: from a recorded tree of two sockets with four NUMA nodes, from trees with gaps and invalid
// content, and from this machine. Also a route through a discovered machine.
#include <collx/topo/discovery.hpp>
#include <collx/topo/machine_parts.hpp>
#include <collx/topo/pci_discovery.hpp>
#include <collx/topo/rings.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include <catch2/catch.hpp>

using namespace collx::topo;

namespace {

// A tree of files; the destructor deletes it.
class recorded_tree {
public:
    recorded_tree() {
        char name[] = "/tmp/collx-sys-XXXXXX";
        if (::mkdtemp(name) == nullptr) std::abort();
        path_ = name;
    }
    recorded_tree(const recorded_tree&) = delete;
    ~recorded_tree() { (void)!std::system(("rm -r " + path_).c_str()); }
    const std::string& path() const { return path_; }
    void file(const std::string& name, const std::string& content) {
        folder(name.substr(0, name.rfind('/')));
        std::FILE* f = std::fopen((path_ + "/" + name).c_str(), "we");
        if (f == nullptr || std::fputs((content + "\n").c_str(), f) < 0) std::abort();
        std::fclose(f);
    }
    void folder(const std::string& name) {
        for (std::size_t end = 0; end != name.npos;) {
            end = name.find('/', end + 1);
            (void)::mkdir((path_ + "/" + name.substr(0, end)).c_str(), 0700);
        }
    }

private:
    std::string path_;
};

// Two sockets with two nodes each: near inside a socket, far between. Eight cores; an L2 per two, an L3 per node.
void record_two_sockets(recorded_tree& t) {
    const char* distances[] = {"10 12 32 32", "12 10 32 32", "32 32 10 12", "32 32 12 10"};
    for (int n = 0; n < 4; ++n) {
        const std::string at = "devices/system/node/node" + std::to_string(n), first = std::to_string(2 * n);
        t.file(at + "/cpulist", first + "-" + std::to_string(2 * n + 1));
        t.file(at + "/distance", distances[n]);
        t.file(at + "/meminfo", "Node " + std::to_string(n) + " MemTotal:       65536 kB");
        for (int c = 2 * n; c < 2 * n + 2; ++c) {
            const std::string core = "devices/system/cpu/cpu" + std::to_string(c) + "/cache/index";
            const auto cache = [&](int index, const char* level, const char* type, const char* size,
                                   const char* cores) {
                const std::string in = core + std::to_string(index) + "/";
                t.file(in + "level", level);
                t.file(in + "type", type);
                t.file(in + "size", size);
                t.file(in + "shared_cpu_list", cores);
            };
            const std::string both = first + "-" + std::to_string(2 * n + 1);
            cache(0, "1", "Data", "48K", std::to_string(c).c_str());
            cache(2, "2", "Unified", "2048K", std::to_string(c).c_str());
            cache(3, "3", "Unified", "16M", both.c_str());
        }
    }
    t.file("devices/system/cpu/cpufreq/policy0", "no core");
    t.file("devices/system/node/possible", "0-3");
    const auto card = [&](const char* name, const char* node, const char* speed, const char* state) {
        const std::string at = std::string("class/net/") + name;
        t.file(at + "/device/numa_node", node);
        t.file(at + "/speed", speed);
        t.file(at + "/operstate", state);
    };
    card("eth0", "0", "100000", "up");
    card("eth1", "3", "100000", "up");
    card("eth2", "1", "-1", "down");
    t.file("class/net/lo/operstate", "unknown");
}

} // namespace

TEST_CASE("nodes, caches and cards of a recorded machine") {
    recorded_tree t;
    record_two_sockets(t);
    const discovered d = discover(t.path());
    REQUIRE(d.nodes.size() == 4);
    CHECK(d.nodes[2].number == 2);
    CHECK(d.nodes[2].cores == std::vector{4, 5});
    CHECK(d.nodes[2].memory_bytes == 64u << 20);
    CHECK(d.nodes[2].distances == std::vector{32, 32, 10, 12});
    REQUIRE(d.caches.size() == 8 + 8 + 4);
    CHECK(d.caches.front().level == 1);
    CHECK(d.caches.front().bytes == 48 << 10);
    CHECK(d.caches.back().bytes == 16 << 20);
    CHECK(d.caches.back().cores == std::vector{6, 7});
    REQUIRE(d.cards.size() == 3);
    CHECK(d.cards[1].name == "eth1");
    CHECK(d.cards[1].node == 3);
    CHECK(d.cards[1].speed_mbit == 100'000);
    CHECK(!d.cards[2].is_up);
}

TEST_CASE("a route through what was found crosses between the sockets as seldom as it can") {
    recorded_tree t;
    record_two_sockets(t);
    const graph g = graph_of(discover(t.path()));
    REQUIRE(g.size() == 6); // four nodes, and two cards that are up
    CHECK(g.name(5) == "eth1");
    CHECK(g.at(5).type == site_type::nic);
    CHECK(find_path(g, 3, 5).bytes_per_s == 12.5e9);
    CHECK(find_path(g, 3, 5).type == path_class::phb);
    CHECK(find_path(g, 0, 5).type == path_class::sys);
    const double far = find_path(g, 0, 2).bytes_per_s;
    CHECK(find_path(g, 0, 1).bytes_per_s > 2 * far);
    ring_options o;
    o.most_rings = 1;
    const ring_set set = find_rings(g, {0, 1, 2, 3}, o);
    REQUIRE(set.rings.size() == 1);
    CHECK(set.bytes_per_s == far); // the ring must cross twice
    int crossings = 0;
    for (std::size_t i = 0; i < 4; ++i)
        crossings += set.rings[0].members[i] / 2 != set.rings[0].members[(i + 1) % 4] / 2;
    CHECK(crossings == 2);
    // Between two of these machines the ring goes through the cards.
    const graph two = on_rails(g, 2, 12.5);
    CHECK(find_rings(two, {0, g.size()}).total() == 25e9);
}

TEST_CASE("cards that are down, and those of unknown speed, are no way") {
    discovered d;
    d.nodes = {{0, {0}, 0, {10}}};
    d.cards = {{"up", 0, 8000, true}, {"down", 0, 8000, false}, {"unknown", 0, -1, true}};
    const graph g = graph_of(d);
    REQUIRE(g.size() == 2);
    CHECK(g.name(1) == "up");
    CHECK(find_path(g, 1, 0).bytes_per_s == 1e9);
}

TEST_CASE("interfaces that are called as other sites are") {
    discovered d;
    d.nodes = {{0, {0}, 0, {10}}};
    d.cards = {{"CPU0", 0, 8000, true}};
    CHECK(graph_of(d).at(1).name == "NIC CPU0");
    d.cards.clear();
    std::vector<pci_device> devices;
    for (const char* name : {"GPU0", "NVSwitch", "PCI 0000:00:03.0", "NIC 0000:00:05.0", "eth0", "eth0", "GPUs"}) {
        pci_device card;
        card.bus_id = "0000:00:0" + std::to_string(devices.size()) + ".0";
        card.type = 0x020000;
        card.numa = 0;
        card.names = {name};
        devices.push_back(card);
    }
    pci_device gpu;
    gpu.bus_id = "0000:00:10.0";
    gpu.type = 0x030200;
    gpu.numa = 0;
    devices.push_back(gpu);
    const graph g = with_devices(graph_of(d), devices);
    CHECK(g.at(g.require("GPU0")).type == site_type::gpu);
    for (const char* name : {"NIC GPU0", "NIC NVSwitch", "NIC PCI 0000:00:03.0", "NIC NIC 0000:00:05.0", "eth0",
                             "NIC 0000:00:05.0", "GPUs"})
        CHECK(g.at(g.require(name)).type == site_type::nic);
}

TEST_CASE("what is missing or makes no sense is left out") {
    CHECK(discover("/no-such-tree").nodes.empty());
    CHECK(graph_of(discover("/no-such-tree")).size() == 0);
    recorded_tree t;
    t.folder("devices/system/node/node0");
    t.folder("devices/system/cpu/cpu0/cache/index0");
    t.file("devices/system/node/node1/cpulist", "0-,x,9999999999-3");
    t.file("devices/system/node/node1/distance", "far away");
    t.file("devices/system/node/node1/meminfo", "MemTotal");
    t.file("devices/system/node/nodes/cpulist", "7");
    t.folder("class/net/eth0/device");
    const discovered d = discover(t.path());
    REQUIRE(d.nodes.size() == 2);
    CHECK(d.nodes[0].cores.empty());
    CHECK(d.nodes[1].memory_bytes == 0);
    CHECK(d.caches.empty());
    REQUIRE(d.cards.size() == 1);
    CHECK((d.cards[0].node == -1 && d.cards[0].speed_mbit == -1 && !d.cards[0].is_up));
    CHECK(graph_of(d).arcs() == 0);
    CHECK(detail::list_in("0-2,8,10-11") == std::vector{0, 1, 2, 8, 10, 11});
    CHECK(detail::list_in("0-999999999").size() == 65536);
    CHECK(detail::list_in("9223372036854775806-9223372036854775807").empty());
    CHECK(detail::list_in("2147483646-9223372036854775807,3") == std::vector{2147483646, 2147483647, 3});
}

TEST_CASE("GPUs, cards and switches of a recorded DGX-1V") {
    recorded_tree t;
    for (int n = 0; n < 2; ++n) {
        const std::string at = "devices/system/node/node" + std::to_string(n);
        t.file(at + "/cpulist", std::to_string(n));
        t.file(at + "/distance", n == 0 ? "10 21" : "21 10");
    }
    // A root port, a switch's upstream port, and three downstream ports: two GPUs and a card.
    const char* const buses[] = {"00", "00", "80", "80"};
    for (int k = 0; k < 4; ++k) {
        const std::string number = std::to_string(k), bus = buses[k];
        const std::string root = "devices/pci0000:" + bus + "/0000:" + bus + ":0" + std::to_string(1 + k) + ".0";
        const std::string first = std::to_string(10 * k + 10), upward = root + "/0000:" + first + ":00.0";
        const auto device = [&](const std::string& at, const char* type, const char* speed, const char* width) {
            t.file(at + "/class", type);
            t.file(at + "/numa_node", k < 2 ? "0" : "1");
            t.file(at + "/max_link_speed", speed);
            t.file(at + "/max_link_width", width);
        };
        device(root, "0x060400", "8.0 GT/s PCIe", "16");
        device(upward, "0x060400", "8.0 GT/s PCIe", "16");
        for (int port = 0; port < 3; ++port) {
            const std::string down =
                upward + "/0000:" + std::to_string(10 * k + 11) + ":0" + std::to_string(port) + ".0";
            const std::string end = down + "/0000:" + std::to_string(10 * k + 12 + port) + ":00.0";
            device(down, "0x060400", "8.0 GT/s PCIe", "16");
            device(end, port < 2 ? "0x030200" : "0x020700", "8.0 GT/s PCIe", port < 2 ? "16" : "8");
            if (port == 2) t.file(end + "/infiniband/mlx5_" + number + "/ports/1/rate", "100 Gb/sec (4X EDR)");
        }
    }
    t.file("devices/pci0000:00/0000:00:1f.0/class", "0x060100"); // irrelevant devices
    t.file("devices/pci0000:00/0000:00:1e.0/class", "0x030000");
    t.file("devices/pci0000:00/0000:00:1e.0/vendor", "0x1a03");
    const graph g = discover_graph(t.path());
    CHECK(g.all(site_type::gpu).size() == 8);
    CHECK(g.all(site_type::pcie_switch).size() == 4);
    CHECK(g.all(site_type::nic).size() == 4);
    const auto between = [&](const char* a, const char* b) { return find_path(g, g.require(a), g.require(b)); };
    CHECK(between("GPU0", "GPU1").type == path_class::pix);
    CHECK(between("GPU0", "GPU1").bytes_per_s == 15.75e9);
    CHECK(between("GPU0", "mlx5_0").type == path_class::pix);
    CHECK(between("GPU0", "mlx5_0").bytes_per_s == 15.75e9 / 2); // eight lanes
    CHECK(between("GPU0", "mlx5_1").type == path_class::phb);
    CHECK(between("GPU7", "mlx5_0").type == path_class::sys);
    CHECK(g.at(g.require("mlx5_3")).port_bytes_per_s == 12.5e9);
    CHECK(g.at(g.require("GPU6")).numa == 1);
    CHECK(discover_graph("/no-such-tree").size() == 1);
}

TEST_CASE("this machine can be asked") {
    CHECK(discover_graph().size() > 0);
    const discovered d = discover();
    const graph g = graph_of(d);
    for (const auto& n : d.nodes) CHECK(n.number >= 0);
    CHECK(g.size() >= static_cast<int>(d.nodes.size()));
}
