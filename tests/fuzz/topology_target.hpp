// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Descriptions of machines as text. The first byte says which one follows: NCCL's topology file, its graph file, the
// matrix of nvidia-smi, collx's file of costs, or hwloc's XML.
#pragma once

#include <collx/sim/machine_file.hpp>
#include <collx/topo/hwloc_topology.hpp>
#include <collx/topo/nccl_graph.hpp>
#include <collx/topo/nccl_topology.hpp>
#include <collx/topo/smi_matrix.hpp>

#include "fuzz/input.hpp"

namespace collx_fuzz {

inline void topology(input in) {
    const unsigned form = in.take() % 5;
    const std::string text = in.rest();
    try {
        if (form == 0) {
            const std::string written = topo::to_xml(topo::read_xml(text));
            require(topo::to_xml(topo::read_xml(written)) == written, "what was read and written is read otherwise");
            const topo::graph g = topo::read_nccl_topology(text);
            require(g.size() > 0, "a machine of nothing");
            for (int i = 0; i < g.arcs(); ++i) require(g.arc_at(i).bytes_per_s > 0, "a link without a rate");
        } else if (form == 1) {
            const std::string written = topo::write_nccl_graphs(topo::read_nccl_graphs(text));
            require(topo::write_nccl_graphs(topo::read_nccl_graphs(written)) == written, "graphs are read otherwise");
        } else if (form == 3) {
            const std::string written = to_text(sim::read_machine_costs(text));
            try {
                require(to_text(sim::read_machine_costs(written)) == written, "costs are read otherwise");
            } catch (const error&) {
                require(false, "written costs are refused");
            }
        } else if (form == 4) {
            const topo::graph g = topo::read_hwloc_topology(text);
            require(!g.all(topo::site_type::cpu).empty(), "a machine without a NUMA node");
            for (int i = 0; i < g.arcs(); ++i) require(g.arc_at(i).bytes_per_s > 0, "a link without a rate");
        } else {
            const topo::smi_matrix m = topo::read_smi_matrix(text);
            require(topo::read_smi_matrix(topo::to_text(m)).cells == m.cells, "a matrix is read otherwise");
        }
    } catch (const error& e) {
        require(e.code() == errc::invalid_argument, "not the error of a wrong file");
    }
}

} // namespace collx_fuzz
