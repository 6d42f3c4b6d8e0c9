// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVLinks of a recorded machine: its tree of /sys, and a table of functions in place of NVML that answers like a
// DGX-1V's driver, also with failures.
#include <collx/topo/nvml.hpp>
#include <collx/topo/rings.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::topo;
using Catch::Contains;

namespace {

// The answers of the functions: each GPU's links by the other end's number; -1: a switch, -2: down.
struct driver {
    int init = 0, count = 0, missing = -1, shutdowns = 0;
    std::vector<std::vector<int>> links;
    int major = 7;
} now;

int number_of(void* device) { return static_cast<int>(reinterpret_cast<std::intptr_t>(device)) - 1; }
void name(int gpu, nvml_pci_info* info) {
    std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0xa0 + gpu);
}
int end_of(void* device, unsigned link, int& end) {
    const auto& all = now.links[static_cast<std::size_t>(number_of(device))];
    if (link >= all.size()) return 2; // invalid argument
    end = all[link];
    return 0;
}
const nvml_functions functions{.init = [] { return now.init; },
                               .shutdown =
                                   [] {
                                       ++now.shutdowns;
                                       return 0;
                                   },
                               .count =
                                   [](unsigned* n) {
                                       *n = static_cast<unsigned>(now.links.size());
                                       return now.count;
                                   },
                               .by_index =
                                   [](unsigned i, void** d) {
                                       *d = reinterpret_cast<void*>(std::intptr_t{1} + i);
                                       return 0;
                                   },
                               .pci_info =
                                   [](void* d, nvml_pci_info* i) {
                                       name(number_of(d), i);
                                       return number_of(d) == now.missing ? 15 : 0;
                                   },
                               .capability =
                                   [](void*, int* major, int* minor) {
                                       *major = now.major;
                                       *minor = 0;
                                       return 0;
                                   },
                               .link_state =
                                   [](void* d, unsigned k, unsigned* up) {
                                       int end = 0;
                                       const int code = end_of(d, k, end);
                                       *up = end != -2;
                                       return code;
                                   },
                               .remote_pci =
                                   [](void* d, unsigned k, nvml_pci_info* i) {
                                       int end = 0;
                                       if (end_of(d, k, end) != 0) return 2;
                                       name(end, i);
                                       return 0;
                                   },
                               .remote_type =
                                   [](void* d, unsigned k, unsigned* type) {
                                       int end = 0;
                                       const int code = end_of(d, k, end);
                                       *type = end == -1 ? 2 : 0;
                                       return code;
                                   }};

// Eight GPUs, each at its own root port, as in /sys.
struct tree {
    std::filesystem::path root = std::filesystem::temp_directory_path() / ("collx-nvml-" + std::to_string(::getpid()));
    tree() {
        for (int k = 0; k < 8; ++k) {
            char at[80];
            std::snprintf(at, sizeof at, "devices/pci0000:00/0000:00:%02x.0/0000:%02x:00.0", k, 0xa0 + k);
            const std::filesystem::path device = root / at;
            std::filesystem::create_directories(device);
            std::ofstream(device / "class") << "0x030200\n";
            std::ofstream(device.parent_path() / "class") << "0x060400\n";
        }
    }
    ~tree() { std::filesystem::remove_all(root); }
};

void take_dgx_1v() {
    now = {};
    now.links.resize(8);
    const auto link = [](int a, int b, int lanes) {
        for (int k = 0; k < lanes; ++k) {
            now.links[static_cast<std::size_t>(a)].push_back(b);
            now.links[static_cast<std::size_t>(b)].push_back(a);
        }
    };
    for (const auto& [a, b] :
         std::vector<std::pair<int, int>>{{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}})
        link(a, b, 2);
    for (const auto& [a, b] :
         std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}})
        link(a, b, 1);
}
double nvlinks(const graph& g, const char* a, const char* b) {
    for (const int i : g.arcs_of(g.require(a)))
        if (g.arc_at(i).to == g.require(b) && g.arc_at(i).type == link_type::nvlink)
            return g.arc_at(i).bytes_per_s / 1e9;
    return 0;
}

} // namespace

TEST_CASE("a recorded DGX-1V has its NVLinks, and the rings of the known answer") {
    const tree t;
    take_dgx_1v();
    std::string problem = "none yet";
    const graph g = discover_graph(t.root, functions, &problem);
    CHECK(problem.empty());
    CHECK(now.shutdowns == 1);
    CHECK(nvlinks(g, "GPU0", "GPU3") == 50);
    CHECK(nvlinks(g, "GPU0", "GPU1") == 25);
    CHECK(nvlinks(g, "GPU0", "GPU5") == 0);
    CHECK(find_rings(g, g.all(site_type::gpu)).total() == Approx(150e9));
    CHECK(find_path(g, g.require("GPU0"), g.require("GPU5")).type == path_class::nvb);
    // Without NVML they are PCIe GPUs.
    CHECK(nvlinks(discover_graph(t.root.string()), "GPU0", "GPU3") == 0);
}

TEST_CASE("switches, links that are down, and GPUs of elsewhere") {
    const tree t;
    now = {};
    now.major = 9;
    now.links.assign(8, std::vector<int>(18, -1));
    now.links[3][4] = -2;
    const graph g = discover_graph(t.root, functions);
    CHECK(nvlinks(g, "GPU0", "NVSwitch") == 450);
    CHECK(nvlinks(g, "GPU3", "NVSwitch") == 425);
    CHECK(g.at(g.require("NVSwitch")).has_multicast);
    now.major = 8;
    const graph older = discover_graph(t.root, functions);
    CHECK(!older.at(older.require("NVSwitch")).has_multicast);
    // the ends disagree, and one link leads to an absent GPU
    now = {};
    now.links = {{1, 1, 40}, {0}};
    const graph two = discover_graph(t.root, functions);
    CHECK(nvlinks(two, "GPU0", "GPU1") == 50);
    CHECK(two.arcs() - discover_graph(t.root.string()).arcs() == 2);
    graph once; // a GPU that is listed twice
    const int a = once.add({"GPU0", site_type::gpu}), b = once.add({"GPU1", site_type::gpu});
    const nvml_gpu one{"0000:01:00.0", 80, 6, {{"0000:02:00.0", 2}}};
    add_nvlinks(once, {{"0000:01:00.0", a}, {"0000:02:00.0", b}}, {{one, one}, ""});
    CHECK(nvlinks(once, "GPU0", "NVSwitch") == 150);
    CHECK(nvlinks(once, "GPU0", "GPU1") == 50);
}

TEST_CASE("what NVML cannot be asked is said, and the rest of the machine is there") {
    const tree t;
    std::string problem;
    CHECK(discover_graph(t.root, {}, &problem).all(site_type::gpu).size() == 8);
    CHECK(problem == "NVML is not there");
    take_dgx_1v();
    now.init = 9; // the driver is not loaded
    CHECK(discover_graph(t.root, functions, &problem).all(site_type::gpu).size() == 8);
    CHECK(problem == "nvmlInit_v2 failed with 9");
    CHECK(now.shutdowns == 0);
    take_dgx_1v();
    now.count = 3;
    discover_graph(t.root, functions, &problem);
    CHECK(problem == "nvmlDeviceGetCount_v2 failed with 3");
    take_dgx_1v();
    now.missing = 3; // lost, but its neighbours still name it
    const graph g = discover_graph(t.root, functions, &problem);
    CHECK(problem == "GPU 3 of NVML cannot be asked");
    CHECK(nvlinks(g, "GPU0", "GPU3") == 50);

    CHECK_FALSE(load_nvml("libno-such-library.so.9").is_there());
    CHECK_FALSE(load_nvml("libm.so.6").is_there()); // a library, but the wrong one
}
