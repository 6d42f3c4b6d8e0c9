// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Machines that are sold, as graphs, from published counts and rates. GPUs and cards have their makers' numbers.
// Several hosts are joined by on_rails() of topo/machine_parts.hpp, which also takes the rate of the cards.
#pragma once

#include <collx/topo/machine_parts.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {
// Two CPUs, each with `switches` PCIe switches of `gpus` GPUs and one card.
inline graph two_sockets(const link_rates& r, int switches, int gpus) {
    graph g;
    add_cpus(g, r, 2);
    for (int s = 0; s < 2 * switches; ++s) {
        const int below = add_switch(g, r, s / switches);
        for (int k = 0; k < gpus; ++k) add_device(g, r, site_type::gpu, below);
        add_device(g, r, site_type::nic, below);
    }
    return g;
}
} // namespace detail

// 8 P100 with 4 NVLink 1 each: every pair of a quad (0-3, 4-7) and every i, i+4 has one link. 4 cards of 100 Gbit/s.
// Source: NVIDIA DGX-1 white paper; link rate 20 GB/s, NCCL counts 18.
inline graph dgx_1p(rate_basis basis = rate_basis::published) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 20.0 : 18.0, raw ? 15.75 : 12.0, 6, 12.5};
    graph g = detail::two_sockets(r, 2, 2);
    for (const int q : {0, 4}) // each quad
        detail::add_mesh(g, r, 1, {{q, q + 1}, {q, q + 2}, {q, q + 3}, {q + 1, q + 2}, {q + 1, q + 3}, {q + 2, q + 3}});
    detail::add_mesh(g, r, 1, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
    return g;
}

// 8 V100 with 6 NVLink 2 each, the hybrid cube mesh. The GPUs 01 23 45 67 share a PCIe switch with a card of 100
// Gbit/s. Source: NVIDIA/nccl issue 671 (topology dump), readme of PyTorch's DDP benchmark; 25 GB/s a link, NCCL counts
// 20.
inline graph dgx_1v(rate_basis basis = rate_basis::published) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 25.0 : 20.0, raw ? 15.75 : 12.0, 6, 12.5};
    graph g = detail::two_sockets(r, 2, 2);
    detail::add_mesh(g, r, 2, {{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}});
    detail::add_mesh(g, r, 1, {{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}});
    return g;
}

// 16 V100, 12 NVSwitch: 6 links from each GPU to its board, and as many in the trunks between the boards (8 links for
// each of 6 pairs of switches: 48 for 8 GPUs of 6). 8 cards of 100 Gbit/s, one for each pair of GPUs.
// Source: NVIDIA/nccl-tests issue 78 (matrix); trunks: NVIDIA's NVSwitch technical overview.
inline graph dgx_2(rate_basis basis = rate_basis::published) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 25.0 : 20.0, raw ? 15.75 : 12.0, 10, 12.5};
    graph g;
    detail::add_cpus(g, r, 2);
    for (int upper = 0; upper < 4; ++upper) {
        const int above = detail::add_switch(g, r, upper / 2);
        for (int lower = 0; lower < 2; ++lower) {
            const int below = detail::add_switch(g, r, above);
            for (int k = 0; k < 2; ++k) detail::add_device(g, r, site_type::gpu, below);
            detail::add_device(g, r, site_type::nic, below);
        }
    }
    detail::add_nvswitch(g, r, 12, 6, false);
    return g;
}

// 8 A100, 6 NVSwitch, 12 NVLink 3 each. Two GPUs and two cards of 200 Gbit/s are behind one PCIe switch, each GPU
// behind a further one (PXB). The pairs are at the NUMA nodes 3, 1, 7, 5 of 8.
// Source: NVIDIA/nccl issue 1505 (matrix); 25 GB/s a link, NCCL counts 20; AMD processors: 16 GB/s between nodes.
inline graph dgx_a100(rate_basis basis = rate_basis::published) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 25.0 : 20.0, raw ? 31.5 : 24.0, 16, 25};
    graph g;
    detail::add_cpus(g, r, 8);
    for (const int numa : {3, 1, 7, 5}) {
        const int above = detail::add_switch(g, r, numa);
        for (int k = 0; k < 2; ++k) {
            detail::add_device(g, r, site_type::gpu, detail::add_switch(g, r, above));
            detail::add_device(g, r, site_type::nic, above);
        }
    }
    detail::add_nvswitch(g, r, 6, 12, false);
    return g;
}

// 8 H100 or H200, 4 NVSwitch (5, 5, 4 and 4 links from each GPU: 18 NVLink 4). A PCIe 5 switch for each GPU and its
// card of 400 Gbit/s. Source: NVIDIA/nccl issue 1182, DGX H100 user guide; 25 GB/s a link, NCCL counts 20.6.
inline graph dgx_h100(rate_basis basis = rate_basis::published) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 25.0 : 20.6, raw ? 63.0 : 48.0, 22, 50};
    graph g = detail::two_sockets(r, 4, 1);
    detail::add_nvswitch(g, r, 4, 18, true);
    return g;
}

// 8 B200, 2 NVSwitch, 18 NVLink 5 each (1.8 TB/s both directions together); cards and PCIe as DGX H100.
// Source: NVIDIA HGX B200 data sheet; 50 GB/s a link, NCCL counts 40.1.
inline graph hgx_b200(rate_basis basis = rate_basis::published) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 50.0 : 40.1, raw ? 63.0 : 48.0, 22, 50};
    graph g = detail::two_sockets(r, 4, 1);
    detail::add_nvswitch(g, r, 2, 18, true);
    return g;
}

// Trays of 4 B200 and 2 Grace, 18 in a rack; 18 switch chips, one link from each GPU to each. C2C from a Grace to each
// of its two GPUs: 5 links of 45 GB/s (NCCL's dump: bw 44712, count 5). One card of 400 Gbit/s per GPU at its Grace's
// PCIe. Source: NVIDIA GB200 NVL72 data sheet and a public topology dump. Trays are hosts that share the switches.
inline graph gb200_nvl72(rate_basis basis = rate_basis::published, int trays = 18) {
    const bool raw = basis == rate_basis::published;
    const link_rates r{raw ? 50.0 : 40.1, raw ? 63.0 : 48.0, 6, 50};
    if (trays < 1 || trays > 4096)
        fail(errc::invalid_argument, -1, -1, "a rack has 18, and 4096 is the most", "a rack of %d trays", trays);
    graph tray, g;
    detail::add_cpus(tray, r, 2);
    for (int k = 0; k < 4; ++k) {
        const int gpu = tray.add({detail::numbered("GPU", k), site_type::gpu, 0, -1, 1, k / 2});
        tray.link(k / 2, gpu, link_type::c2c, {(raw ? 225.0 : 223.56) * 1e9, link_latencies::c2c, 5});
        detail::add_device(tray, r, site_type::nic, k / 2);
    }
    for (int t = 0; t < trays; ++t) add_copy(g, tray, t, "t" + std::to_string(t) + ".");
    detail::add_nvswitch(g, r, 18, 18, true);
    return g;
}

// A workstation: GPUs at the PCIe of one or two CPUs, shared evenly, no NVLink, one card of 100 Gbit/s at the first
// CPU. Source: common; x16 PCIe of the given generation (3 to 6: 15.75, 31.5, 63, 121 GB/s; NCCL 12, 24, 48, 96).
inline graph workstation(int gpus, int cpus = 1, int generation = 4, rate_basis basis = rate_basis::published) {
    if (gpus < 0 || gpus > 4096 || cpus < 1 || cpus > 256 || generation < 3 || generation > 6)
        fail(errc::invalid_argument, -1, -1, "PCIe generations 3 to 6, 1 to 256 CPUs, at most 4096 GPUs",
             "a workstation of %d GPUs, %d CPUs and PCIe %d", gpus, cpus, generation);
    static constexpr double raw[] = {15.75, 31.5, 63, 121}, counted[] = {12, 24, 48, 96};
    const link_rates r{0, (basis == rate_basis::published ? raw : counted)[generation - 3], 10, 12.5};
    graph g;
    detail::add_cpus(g, r, cpus);
    for (int k = 0; k < gpus; ++k) detail::add_device(g, r, site_type::gpu, k * cpus / gpus);
    detail::add_device(g, r, site_type::nic, 0);
    return g;
}

} // namespace topo
COLLX_END_NAMESPACE
