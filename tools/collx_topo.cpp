// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_topo: describes a machine (this one, a product, or a topology file of NCCL). Prints its tree, the matrix of
// classes, a path with the reason, its rings, or a picture.
#include <CLI/CLI.hpp>

#include <collx/topo/drawing.hpp>
#include <collx/topo/nccl_graph.hpp>
#include <collx/topo/nccl_topology_writer.hpp>
#include <collx/topo/smi_matrix.hpp>

#include <cstdio>

#include "support/command_line.hpp"
#include "topo/source.hpp"

namespace {

using namespace collx;

struct choices {
    tools::machine_choice machine;
    std::vector<int> ranks;
    std::string from, to, matrix;
    int sm = 0;
    bool once = false;
};

std::string rings_text(const topo::graph& g, const choices& c, bool as_nccl) {
    topo::ring_options o;
    o.once = c.once;
    const std::vector<int> ranks = tools::ranks_of(g, c.ranks);
    const topo::ring_set set = topo::find_rings(g, ranks, o);
    if (!as_nccl) return topo::explain(g, set);
    return topo::write_nccl_graphs({topo::nccl_graph_of(g, set, g.at(ranks.at(0)).host)});
}
std::string svg_text(const topo::graph& g, const choices& c) {
    const std::vector<int> ranks = tools::ranks_of(g, c.ranks);
    return topo::to_svg(g, ranks.size() < 2 ? std::vector<topo::ring>{} : topo::find_rings(g, ranks).rings);
}
std::string text_of_matrix_file(const std::string& file) {
    return tools::with_file([&] { return topo::to_text(topo::read_smi_matrix(tools::text_of_file(file), file)); });
}

} // namespace

int main(int argc, char** argv) {
    tools::open_missing_standard_descriptors();
    CLI::App app{"Looks at a machine: this one, one that is sold (--machine), or a topology file of NCCL (--file)"};
    choices c;
    tools::add_machine_options(app, c.machine);
    app.add_option("--sysfs", c.machine.sysfs, "another root than /sys");
    app.require_subcommand(1);
    app.fallthrough();
    CLI::App* tree = app.add_subcommand("tree", "sites and links");
    CLI::App* matrix = app.add_subcommand("matrix", "classes between GPUs and cards, as nvidia-smi topo -m");
    CLI::Option* read = matrix->add_option("--read", c.matrix, "print what nvidia-smi has printed into this file");
    for (CLI::Option* of_machine : app.get_options([](const CLI::Option* o) { return o->get_name() != "--help"; }))
        read->excludes(of_machine);
    CLI::App* path = app.add_subcommand("path", "the best path between two sites, and why");
    path->add_option("from", c.from)->required();
    path->add_option("to", c.to)->required();
    CLI::App* rings = app.add_subcommand("rings", "the rings through all ranks, or through --ranks 0,2,4,6");
    CLI::App* graph_file = app.add_subcommand("nccl-graph", "the rings as NCCL's graph file (NCCL_GRAPH_FILE)");
    CLI::App* topology_file = app.add_subcommand("nccl-topology", "the machine as NCCL's topology file");
    CLI::App* dot = app.add_subcommand("dot", "for Graphviz");
    CLI::App* svg = app.add_subcommand("svg", "a picture with the rings");
    for (CLI::App* with_rings : {rings, graph_file, svg})
        with_rings->add_option("--ranks", c.ranks, "numbers of GPUs, or of CPUs where there is no GPU")->delimiter(',');
    rings->add_flag("--once", c.once, "no GPU twice in a ring, also not to pass data on");
    topology_file
        ->add_option("--sm", c.sm, "compute capability of the GPUs: 60, 70, 80, 90, 100; else by their NVLinks")
        ->check(CLI::Range(1, 1000));
    if (const auto ended = tools::exit_of_parsing(app, "collx_topo", argc, argv)) return *ended;
    return tools::exit_code_of("collx_topo", [&] {
        std::string text;
        if (!c.matrix.empty()) text = text_of_matrix_file(c.matrix);
        const topo::graph g = c.matrix.empty() ? tools::machine_of(c.machine) : topo::graph();
        if (*tree) text = tools::tree_text(g);
        if (*matrix && c.matrix.empty()) text = topo::to_text(topo::smi_matrix_of(g));
        if (*path) text = topo::why(g, g.require(c.from), g.require(c.to)) + "\n";
        if (*rings || *graph_file) text = rings_text(g, c, graph_file->parsed());
        if (*topology_file) text = topo::write_nccl_topology(g, c.sm);
        if (*dot) text = topo::to_dot(g);
        if (*svg) text = svg_text(g, c);
        std::fputs(text.c_str(), stdout);
    });
}
