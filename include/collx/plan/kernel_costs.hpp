// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls on device memory cost besides the bytes on the links; for predictions, for machines that need not exist.
#pragma once

#include <algorithm>
#include <cstddef>

#include <collx/exec/device/control.hpp>
#include <collx/plan/choices.hpp>
#include <collx/sim/cost_model.hpp>

COLLX_BEGIN_NAMESPACE

// Costs of kernels of one protocol, among devices that are joined by links of `link_bytes_per_s` each way. Measured
// (one H200 that all ranks share, bench/gpu/results): an empty cooperative launch takes 3.9 us; a step by counters,
// with a barrier of the block, 2.0 us (two_shot among 2 to 8 ranks); by a channel's slots 1.2 us more (a ring); by LL
// words 0.2 us, and these are read at 150 GB/s of data. Assumed: 1 us from device to device by NVLink, 2 us by PCIe, 5
// us by a network. Links reach the rate that the machine names, and where a switch sums 0.85 of it (0.74 of NVLink 5),
// as NCCL counts.
constexpr sim::cost_model kernel_costs(choices::protocol p, double link_bytes_per_s) {
    constexpr double launch_ns = 3900, counters_ns = 2000, slots_ns = 1200, words_ns = 200, words_bytes_per_s = 150e9;
    const bool is_words = p == choices::protocol::packets;
    sim::cost_model m;
    m.call_ns = launch_ns;
    m.step_ns = is_words ? words_ns : counters_ns;
    m.overhead_ns = is_words ? 0 : slots_ns;
    m.hop = {1000, 2000, 5000};
    m.with_link_latency = false;
    if (p == choices::protocol::multicast) m.wire_bytes_per_byte = link_bytes_per_s > 600e9 ? 1 / 0.74 : 1 / 0.85;
    if (is_words) m.wire_bytes_per_byte = std::max(2.0, link_bytes_per_s / words_bytes_per_s);
    return m;
}

// The number of pieces into which a kernel cuts a buffer of `chunks` chunks: each lane (block) passes on as much at
// once as its stage, slot or cells hold. uses_windows: the algorithm's messages go by windows.
constexpr int kernel_pieces(choices::protocol p, bool uses_windows, std::size_t bytes, int chunks, int ranks,
                            int lanes) {
    device::exchange_shape shape;
    shape.set_ranks(ranks);
    const std::size_t at_once = p == choices::protocol::packets ? shape.packet_bytes / 2
                                : uses_windows ? shape.stage_bytes / static_cast<unsigned>(std::max(1, chunks))
                                               : shape.slot_bytes;
    const std::size_t chunk = bytes / static_cast<unsigned>(std::max(1, chunks)),
                      row = at_once * static_cast<unsigned>(lanes);
    constexpr std::size_t most = 64; // more do not change the time but lengthen simulations
    return static_cast<int>(std::clamp((chunk + row - 1) / row, std::size_t{1}, most));
}

COLLX_END_NAMESPACE
