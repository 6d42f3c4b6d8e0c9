// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine that collx_topo looks at: this one, a product, or a file. Also its tree as text, its ranks, and the exit
// codes of tools.
#pragma once

#include <CLI/CLI.hpp>

#include <collx/topo/clusters.hpp>
#include <collx/topo/hwloc_topology.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology.hpp>
#include <collx/topo/nvml.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "../support/standard_output.hpp"

namespace collx::tools {

using machine_table = std::map<std::string, std::function<topo::graph(topo::rate_basis)>>;

/// The names that --machine takes.
inline const machine_table& known_machines() {
    using namespace topo;
    static const machine_table table = {
        {"dgx-1p", [](rate_basis b) { return dgx_1p(b); }},
        {"dgx-1v", [](rate_basis b) { return dgx_1v(b); }},
        {"dgx-2", [](rate_basis b) { return dgx_2(b); }},
        {"dgx-a100", [](rate_basis b) { return dgx_a100(b); }},
        {"dgx-h100", [](rate_basis b) { return dgx_h100(b); }},
        {"hgx-b200", [](rate_basis b) { return hgx_b200(b); }},
        {"gb200-nvl72", [](rate_basis b) { return gb200_nvl72(b); }},
        {"workstation", [](rate_basis b) { return workstation(4, 2, 4, b); }},
        {"fat-tree", [](rate_basis) { return fat_tree(4, 4, 2); }},
        {"dragonfly", [](rate_basis) { return dragonfly(5, 2, 2); }},
        {"torus",
         [](rate_basis) {
             return torus({4, 4});
         }},
    };
    return table;
}

/// A file is wrong, or cannot be read or written. Everything else that is invalid is on the command line.
struct wrong_file {
    std::string text;
};
/// Runs f, which reads or writes a file. Its errors become wrong_file.
template <class F>
auto with_file(F&& f) {
    try {
        return f();
    } catch (const error& e) {
        throw wrong_file{e.what()};
    }
}
inline std::string text_of_file(const std::string& name) {
    std::ifstream f(name, std::ios::binary);
    std::error_code none;
    if (!f) fail(errc::invalid_argument, -1, -1, "name a file that can be read", "no file '%.200s'", name.c_str());
    std::ostringstream text;
    text << f.rdbuf();
    if (f.bad() || std::filesystem::is_directory(name, none))
        fail(errc::invalid_argument, -1, -1, "name a file that can be read", "'%.200s' cannot be read", name.c_str());
    return text.str();
}
/// Runs `work`. Returns the tool's exit code: 0, 1 for a wrong file, what a simulation finds or no memory, 2 for wrong
/// use.
template <class Work>
int exit_code_of(const char* tool, Work&& work) {
    try {
        work();
        return ended(tool, 0);
    } catch (const wrong_file& e) {
        std::fprintf(stderr, "%s: %s\n", tool, e.text.c_str());
        return 1;
    } catch (const error& e) {
        std::fprintf(stderr, "%s: %s\n", tool, e.what());
        return e.code() == errc::invalid_argument || e.code() == errc::unsupported ? 2 : 1;
    } catch (const std::exception& e) {
        const bool is_memory =
            dynamic_cast<const std::bad_alloc*>(&e) != nullptr || dynamic_cast<const std::length_error*>(&e) != nullptr;
        std::fprintf(stderr, "%s: %s\n", tool,
                     is_memory ? "no memory is left (take a smaller machine, batch or fewer pieces)" : e.what());
        return 1;
    }
}

/// For a machine whose links have the rates that its system reports, which --nccl-rates would not change.
inline void require_published(topo::rate_basis basis) {
    if (basis != topo::rate_basis::published)
        fail(errc::invalid_argument, -1, -1, "name a machine by --machine or NCCL's file, or leave --nccl-rates",
             "the links of this machine have the rates that its system reports");
}

/// Reads a machine from a file of NCCL or of hwloc. The name of the outermost element tells which of them it is.
inline topo::graph machine_of_file(const std::string& name, topo::rate_basis basis) {
    const std::string text = with_file([&] { return text_of_file(name); });
    const bool is_hwloc =
        with_file([&] { return topo::read_xml(text, name, topo::xml_form::with_text).name == "topology"; });
    if (is_hwloc) require_published(basis);
    return with_file(
        [&] { return is_hwloc ? topo::read_hwloc_topology(text, name) : topo::read_nccl_topology(text, name, basis); });
}

/// The machine that the options name: a known one, a topology file, or the tree under sysfs; `hosts` of it on rails.
struct machine_choice {
    std::string machine, file, sysfs = "/sys";
    bool nccl_rates = false;
    int hosts = 1;
    double nic = 0; // GB/s; 0: the rate of the cards' ports, else 12.5
};
inline void add_machine_options(CLI::App& app, machine_choice& c) {
    app.add_option("-m,--machine", c.machine, "dgx-1v, dgx-h100, fat-tree, ...; else this machine");
    app.add_option("-f,--file", c.file,
                   "a topology file of NCCL (NCCL_TOPO_DUMP_FILE), or hwloc's XML (lstopo --of xml)");
    app.add_option("--hosts", c.hosts, "so many of them on rails")->check(CLI::Range(1, 1024));
    app.add_option("--nic", c.nic, "GB/s of a card on its rail, if not that of its port")->check(CLI::PositiveNumber);
    app.add_flag("--nccl-rates", c.nccl_rates, "the rates that NCCL counts on instead of the published ones");
}
/// Refuses options that would otherwise be ignored.
inline void require_one_machine(const machine_choice& c) {
    if (!c.machine.empty() + !c.file.empty() + (c.sysfs != "/sys") > 1)
        fail(errc::invalid_argument, -1, -1, "give one of --machine, --file and --sysfs", "more than one machine");
    if (!std::isfinite(c.nic) || c.nic < 0)
        fail(errc::invalid_argument, -1, -1, "a card's rate is a number of GB/s", "a rate of %g GB/s", c.nic);
    if (c.nic > 0 && c.hosts == 1)
        fail(errc::invalid_argument, -1, -1, "add --hosts, or leave --nic",
             "--nic is the rate of each card between hosts, and there is one host");
}
inline topo::graph machine_of(const machine_choice& c) {
    require_one_machine(c);
    const auto basis = c.nccl_rates ? topo::rate_basis::nccl : topo::rate_basis::published;
    topo::graph g;
    if (c.file.empty() && c.machine.empty()) require_published(basis);
    if (!c.file.empty()) g = machine_of_file(c.file, basis);
    else if (!c.machine.empty()) {
        const auto it = known_machines().find(c.machine);
        std::string names;
        for (const auto& [name, make] : known_machines()) names += " " + name;
        if (it == known_machines().end())
            fail(errc::invalid_argument, -1, -1, ("there are" + names).c_str(), "no machine is called '%.100s'",
                 c.machine.c_str());
        g = it->second(basis);
    } else if (c.sysfs != "/sys") { // recorded elsewhere
        std::error_code why;
        if (!std::filesystem::is_directory(c.sysfs, why))
            with_file([&] {
                fail(errc::invalid_argument, -1, -1, "name a copy of /sys", "no directory '%.200s'%s%s",
                     c.sysfs.c_str(), why ? ": " : "", why ? why.message().c_str() : "");
            });
        g = topo::discover_graph(c.sysfs);
    } else {
        std::string problem;
        g = topo::discover_graph(c.sysfs, topo::load_nvml(), &problem);
        if (!problem.empty()) std::fprintf(stderr, "NVLinks are not shown: %s\n", problem.c_str());
    }
    if (c.hosts == 1) return g;
    double nic = c.nic;
    for (const int s : g.all(topo::site_type::nic))
        if (nic <= 0) nic = g.at(s).port_bytes_per_s / 1e9;
    return topo::on_rails(g, c.hosts, nic > 0 ? nic : 12.5);
}

/// Prints each host: its CPUs, below each CPU what is attached to it, and other links beside their site.
inline std::string tree_text(const topo::graph& g) {
    std::string text;
    std::vector<char> is_shown(static_cast<std::size_t>(g.size()), 0);
    const auto rate = [](const topo::arc& a) {
        char t[48];
        std::snprintf(t, sizeof t, "%s %.4g GB/s", topo::name_of(a.type), a.bytes_per_s / 1e9);
        return std::string(t);
    };
    const std::function<void(int, int, int)> show = [&](int s, int by, int depth) {
        is_shown[static_cast<std::size_t>(s)] = 1;
        text += std::string(static_cast<std::size_t>(2 * depth), ' ') + g.name(s);
        if (g.name(s).find(topo::name_of(g.at(s).type)) == std::string::npos)
            text += " (" + std::string(topo::name_of(g.at(s).type)) + ")";
        if (by >= 0) text += ", " + rate(g.arc_at(by));
        std::string others;
        for (const int i : g.arcs_of(s)) {
            const topo::arc& a = g.arc_at(i);
            const bool is_above = by >= 0 && a.to == g.arc_at(by).from;
            if (a.type != topo::link_type::pcie && !is_above)
                others += (others.empty() ? " " : ", ") + g.name(a.to) + " " + rate(a);
        }
        text += (others.empty() ? "" : "; to" + others) + "\n";
        for (const int i : g.arcs_of(s))
            if (const topo::arc& a = g.arc_at(i);
                !is_shown[static_cast<std::size_t>(a.to)] &&
                (a.type == topo::link_type::pcie ||
                 (a.type == topo::link_type::c2c && g.at(s).type == topo::site_type::cpu)))
                show(a.to, i, depth + 1);
    };
    for (const int s : g.all(topo::site_type::cpu)) show(s, -1, 0);
    for (int s = 0; s < g.size(); ++s)
        if (!is_shown[static_cast<std::size_t>(s)] && g.at(s).type != topo::site_type::network_switch &&
            g.at(s).type != topo::site_type::nvswitch)
            show(s, -1, 0);
    for (int s = 0; s < g.size(); ++s)
        if (!is_shown[static_cast<std::size_t>(s)]) {
            text += g.name(s) + ", " + std::to_string(g.arcs_of(s).size()) + " links";
            if (g.at(s).units > 1) text += ", " + std::to_string(g.at(s).units) + " chips";
            text += g.at(s).has_multicast ? ", reduces and multicasts\n" : "\n";
        }
    return text;
}

/// Returns the GPUs of these numbers, or the CPUs where there are no GPUs. Without numbers: all of them.
inline std::vector<int> ranks_of(const topo::graph& g, const std::vector<int>& numbers) {
    std::vector<int> all = g.all(topo::site_type::gpu), some;
    if (all.empty()) all = g.all(topo::site_type::cpu);
    if (numbers.empty()) return all;
    std::set<int> seen;
    for (const int n : numbers) {
        if (n < 0 || n >= static_cast<int>(all.size()))
            fail(errc::invalid_argument, -1, -1, "count from 0 in the order of `collx_topo tree`",
                 "rank %d of a machine for %zu ranks", n, all.size());
        if (!seen.insert(n).second) fail(errc::invalid_argument, -1, -1, "name each once", "rank %d is named twice", n);
        some.push_back(all[static_cast<std::size_t>(n)]);
    }
    return some;
}

} // namespace collx::tools
