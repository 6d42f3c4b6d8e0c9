// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The input of a simulation besides schedule, machine and costs, and its result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <collx/sched/schedule.hpp>
#include <collx/sim/fabric.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// Facts of a run that the schedule and the machine do not contain.
struct options {
    double bytes = 0; // of the whole buffer: all chunks together
    int pieces = 1;   // the engines run the program once for each piece of the buffer
    int depth = 8;    // messages that a channel holds, at least as many as the schedule declares
    // Several rings (channels) at once, each with its share of the bytes: in ring k, rank r of the schedule is rank
    // orders[k][r] of the machine. Empty: one ring, in the order of ranks.
    std::vector<std::vector<int>> orders;
    // The path of each ring: ways[k][r] are the links from the r-th rank of order k to the next one, the last one's to
    // the first. Empty, or none for a rank: the best path. Messages to other ranks take the best path.
    std::vector<std::vector<std::vector<int>>> ways;
    // The switch that all ranks are linked to makes sums over all ranks, and stores their results to all (NVLS). For
    // algorithms of the device's multicast_protocol.
    bool by_switch = false;
    // These two are ranks of the machine, the same ones in all orders.
    int slow_rank = -1; // sends, reduces and starts messages `slowdown` times slower
    double slowdown = 1;
    int dead_rank = -1; // does nothing from dead_at_ns on
    double dead_at_ns = 0;
    bool with_transfers = false;

    double slowness_of(int rank) const { return rank == slow_rank ? slowdown : 1; }
};

// One message as it travelled.
struct transfer {
    int from = 0, to = 0;            // ranks of the machine
    double bytes = 0;                // of payload
    double begin_ns = 0, end_ns = 0; // from the first byte's departure to the last byte's arrival
};

// The time of a run, and the bytes that each link carried.
struct result {
    double time_ns = 0;
    std::int64_t messages = 0;
    std::vector<double> link_bytes;  // on the wire, by number of the link
    std::vector<transfer> transfers; // in order of arrival, where asked for
};

// The least bytes that a rank must send / all bytes: nccl-tests' factor from bytes/s to bus bandwidth.
constexpr double bus_factor(collective c, int n) {
    switch (c) {
        case collective::all_reduce: return 2.0 * (n - 1) / n;
        case collective::all_gather:
        case collective::reduce_scatter:
        case collective::all_to_all:
        case collective::gather:
        case collective::scatter: return 1.0 * (n - 1) / n;
        default: return 1;
    }
}
// The bus bandwidth in bytes/s. S: a schedule or a recording.
template <class S>
double bus_bandwidth(const S& s, double bytes, const result& r) {
    return r.time_ns > 0 ? bytes / (r.time_ns / 1e9) * bus_factor(s.op, s.ranks) : 0;
}

// The time of the fullest link, ns: no schedule that moves these bytes over these links is faster.
inline double link_bound_ns(const fabric& f, const std::vector<double>& link_bytes) {
    double most = 0;
    for (std::size_t i = 0; i < link_bytes.size(); ++i)
        most = std::max(most, link_bytes[i] / f.links()[i].bytes_per_s * 1e9);
    return most;
}

} // namespace sim
COLLX_END_NAMESPACE
