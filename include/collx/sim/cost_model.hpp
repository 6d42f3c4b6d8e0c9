// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The costs of a message besides the bytes on its links, as parameters of a simulation. alpha is call + hop + overhead
// (+ the latencies of the links themselves), beta is the rate of the links, gamma is the reduction. The constants of
// NCCL are taken from its source; none was fitted or measured by collx.
#pragma once

#include <cmath>

#include <collx/core/error.hpp>
#include <collx/topo/graph.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// NCCL's protocols.
enum class protocol : unsigned char { simple, ll128, ll };

// The name of a protocol.
constexpr const char* name_of(protocol p) {
    constexpr const char* names[] = {"simple", "ll128", "ll"};
    return names[static_cast<int>(p)];
}

// Nanoseconds that a message takes besides its bytes, by the worst link of its path: NVLink and C2C, PCIe and socket
// links, network.
struct hop_times {
    double nvlink_ns = 0;
    double pcie_ns = 0;
    double network_ns = 0;
    constexpr double of(topo::link_type t) const {
        switch (t) {
            case topo::link_type::network: return network_ns;
            case topo::link_type::pcie:
            case topo::link_type::socket: return pcie_ns;
            default: return nvlink_ns;
        }
    }
};

// The parameters of a simulation. By default only the rates and latencies of the graph count.
struct cost_model {
    double call_ns = 0;             // once: launch, and whatever else does not depend on the schedule
    hop_times hop{};                // of each message; passes while the next one is sent
    bool with_link_latency = true;  // also the latencies of the path's links
    bool pushes = false;            // writers store into windows, so that reading one is no hop
    double step_ns = 0;             // of each step that moves data, at the rank that runs it
    double overhead_ns = 0;         // of each message at its sender, one after another
    double wire_bytes_per_byte = 1; // flags that travel with the data
    double most_bytes_per_s = 0;    // payload rate of one message; 0: that of the links
    double reduce_ns_per_byte = 0;  // gamma: of each byte that is reduced

    // Of a message or signal along a path. Path: sim::route.
    template <class Path>
    constexpr double latency_ns(const Path& along) const {
        return hop.of(along.worst) + (with_link_latency ? along.latency_ns : 0);
    }
};

// NCCL's algorithms that have a row of costs.
enum class nccl_family : unsigned char { ring, tree };

// The costs of NCCL's table (src/graph/tuning.cc, 2.30.7): base latency, and latency of a hop by NVLink, PCIe and
// network. Its hops contain the links' own latencies. LL sends a flag with each 4 bytes, so half is data; LL128 has
// 120 data bytes of 128, which NCCL counts as 0.92. A tree reaches 0.92 of its links. Trees by LL count as 1 / 3.8.
constexpr cost_model nccl_costs(nccl_family family, protocol p) {
    struct row {
        double base_us, nvlink_us, pcie_us, network_us, efficiency;
    };
    constexpr row rows[2][3] = {
        {{8.4, 3.4, 5.7, 14, 1}, {14, 1.9, 2.5, 4, 0.92}, {6.6, 0.6, 1, 2.7, 0.5}},
        {{8.4, 4, 4, 14, 0.92}, {14, 1.25, 1.9, 8.5, 0.92 * 7 / 9}, {6.8, 0.6, 1, 5, 0.92 / 3.8}}};
    const row& r = rows[static_cast<int>(family)][static_cast<int>(p)];
    cost_model m;
    m.call_ns = r.base_us * 1e3;
    m.hop = {r.nvlink_us * 1e3, r.pcie_us * 1e3, r.network_us * 1e3};
    m.with_link_latency = false;
    m.wire_bytes_per_byte = 1 / r.efficiency;
    return m;
}

// The costs of NCCL's sums by a switch (src/graph/tuning.cc, 2.30.7): 25 us in all. NCCL counts on a share of the
// links' rate, 0.85 among H100 and 0.74 among B200. For options::by_switch.
constexpr cost_model nccl_nvls_costs(int sm) {
    cost_model m;
    m.call_ns = 25e3;
    m.with_link_latency = false;
    m.wire_bytes_per_byte = 1 / (sm >= 100 ? 0.74 : 0.85);
    return m;
}

// Errors: invalid_argument for a number that is negative or not finite.
inline void check(const cost_model& m) {
    for (const double v : {m.call_ns, m.hop.nvlink_ns, m.hop.pcie_ns, m.hop.network_ns, m.step_ns, m.overhead_ns,
                           m.most_bytes_per_s, m.reduce_ns_per_byte})
        if (!(v >= 0) || !std::isfinite(v))
            fail(errc::invalid_argument, -1, -1, "give 0 or more", "a cost of the model is %g", v);
    if (!(m.wire_bytes_per_byte >= 1) || !std::isfinite(m.wire_bytes_per_byte))
        fail(errc::invalid_argument, -1, -1, "give 1 or more", "a byte takes %g bytes on the wire",
             m.wire_bytes_per_byte);
}

} // namespace sim
COLLX_END_NAMESPACE
