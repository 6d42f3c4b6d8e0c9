// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a machine looks like, and what follows for a ring. First this machine as /sys shows it, and a DGX-1V of which a
// job has only the GPUs 0, 2, 4 and 6. By themselves these four have rings of 50 GB/s in total; through their
// neighbours, 150. Then a job of these four gets the machine as a file, and its calls follow the links without further
// settings. Then explain() shows which algorithm a call takes, by which rule, and how long it and the others would
// take where COLLX_MACHINE says what calls cost here. Then the same for device memory on a DGX H100. Last, predictions
// of a training step there, with tensor ranks and with a pipeline.
#include <collx/collx.hpp>
#include <collx/comm/explain.hpp>
#include <collx/comm/explain_devices.hpp>
#include <collx/sim/training.hpp>
#include <collx/topo/explain_rings.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology_writer.hpp>
#include <collx/topo/pci_discovery.hpp>
#include <collx/topology.hpp>

#include <stdlib.h>
#include <unistd.h>

#include "check.hpp"

using namespace collx::topo;

namespace {

// Does what a user does in a shell: COLLX_TOPOLOGY=dgx-1v.xml CUDA_VISIBLE_DEVICES=0,2,4,6 collx_run -n 4 program
void run_on(const graph& machine) {
    char file[] = "/tmp/collx-machine-XXXXXX";
    if (const int f = ::mkstemp(file); f >= 0) ::close(f);
    std::FILE* const f = std::fopen(file, "we");
    std::fputs(write_nccl_topology(machine, 70).c_str(), f);
    std::fclose(f);
    ::setenv("COLLX_TOPOLOGY", file, 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "0,2,4,6", 1);
    // [doc:job]
    collx::run_threads(4, [](collx::communicator& world) {
        std::vector<float> x(1 << 20, 1.0f);
        collx::all_reduce(world, x); // no algorithm or order is given: both follow the machine
        const std::string order = collx::explain_links(world);
        const link_traffic sent = collx::traffic_of(world);
        const graph& g = *collx::machine_of(world);
        if (world.rank() == 0) std::printf("\n%s%s", order.c_str(), to_text(g, sent).c_str());
        example::expect(sent.over(g, link_type::nvlink) == 2 * 3 * 4.0 * (1 << 20), "what rings send, on NVLinks");
        example::expect(sent.over(g, link_type::pcie) == 0, "nothing on PCIe");
    });
    // [doc:end]
    ::unlink(file);
}

void explain_calls() {
    // [doc:explain]
    collx::run_threads(4, [](collx::communicator& world) {
        if (world.rank() != 0) return; // nothing runs, so one rank may ask alone
        const collx::explanation sum = collx::explain(world, collx::all_reduce, 1 << 20);
        std::printf("\n%s", to_text(sum).c_str());
        const collx::explanation ordered = collx::explain(world, collx::all_reduce, 1 << 20, {.commutes = false});
        example::expect(sum.chosen().name == "two_shot", "long sums in shared memory are split among the ranks");
        example::expect(ordered.chosen().name == "two_shot", "in rank order, so any operator takes the same");
    });
    // [doc:end]
}

// Explains a call on device memory among GPUs that are not here.
void explain_devices() {
    // [doc:devices]
    const graph eight = dgx_h100();
    collx::sim::fabric devices(eight, eight.all(site_type::gpu));
    const collx::explanation sum = collx::explain_on_devices(devices, collx::all_reduce, 8 << 20);
    std::printf("\n%s", to_text(sum).c_str());
    // [doc:end]
    example::expect(sum.chosen().name == "multicast_two_shot by the switch",
                    "the switch makes the long sums of a DGX H100");
}

// Eight ranks as one tensor axis, or as a pipeline of eight stages. Nothing runs; all of it is predicted.
void plan_training() {
    // [doc:training]
    const graph machine = dgx_h100();
    collx::sim::fabric gpus(machine, machine.all(site_type::gpu));
    const collx::sim::accelerator h100{.flops_per_s = 989e12, .efficiency = 0.5, .memory_bytes = 80e9};
    const collx::sim::transformer model{.layers = 32, .hidden = 4096, .sequence = 2048};
    const auto wide = collx::sim::predict_training(model, {.tensor = 8, .batch = 16}, h100, gpus);
    const auto deep = collx::sim::predict_training(model, {.pipeline = 8, .batch = 16}, h100, gpus);
    std::printf("\nA step on a DGX H100: tensor %.0f ms, %.0f of them exposed sums; pipeline %.0f ms, bubble %.1f %%\n",
                wide.step_ns / 1e6, wide.tensor_ns / 1e6, deep.step_ns / 1e6, 100 * deep.bubble);
    // [doc:end]
    example::expect(std::abs(deep.bubble - 7.0 / 23) < 1e-9, "(p - 1) / (m + p - 1)");
    example::expect(wide.memory.activations < deep.memory.activations, "a pipeline keeps as many as it has stages");
    try {
        collx::sim::predict_training(model, {.data = 8, .batch = 16}, h100, gpus);
    } catch (const collx::error& e) {
        std::printf("Eight replicas: %s\n", e.what());
        example::expect(e.code() == collx::errc::resource, "16 bytes for each of 6.4 billion parameters are not there");
    }
}

} // namespace

int main() {
    const graph here = discover_graph();
    std::printf("This machine: %zu NUMA nodes, %zu GPUs, %zu network cards.\n", here.all(site_type::cpu).size(),
                here.all(site_type::gpu).size(), here.all(site_type::nic).size());
    const std::vector<int> nodes = here.all(site_type::cpu);
    if (nodes.size() > 1) std::printf("%s", explain(here, find_rings(here, nodes)).c_str());

    const graph g = dgx_1v();
    const std::vector<int> gpu = g.all(site_type::gpu), even{gpu[0], gpu[2], gpu[4], gpu[6]};
    std::printf("\nA DGX-1V. From GPU0 to GPU5: %s\n", why(g, gpu[0], gpu[5]).c_str());
    std::printf("From GPU2 to NIC0: %s\n", why(g, gpu[2], g.require("NIC0")).c_str());

    ring_options alone;
    alone.limits.relays = 0;
    const ring_set by_themselves = find_rings(g, even, alone), through_others = find_rings(g, even);
    std::printf("\n0, 2, 4 and 6 by themselves: %s", explain(g, by_themselves).c_str());
    std::printf("\nThrough their neighbours: %s", explain(g, through_others).c_str());
    example::expect(by_themselves.total() == 50e9, "two rings of 25 GB/s by themselves");
    example::expect(through_others.total() >= 150e9 * (1 - 1e-9), "six rings of 25 GB/s through neighbours");

    const graph two = on_rails(g, 2, 12.5); // card k of both machines on rail k
    const ring_set rails = find_rings(two, two.all(site_type::gpu));
    std::printf("\nTwo of them on four rails: %s", explain(two, rails).c_str());
    example::expect(rails.total() == 50e9, "a ring on each rail");

    run_on(g);
    ::unsetenv("COLLX_TOPOLOGY");
    explain_calls();
    explain_devices();
    plan_training();
    return example::result();
}
