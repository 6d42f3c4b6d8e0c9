// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is put into a simulation besides schedule, machine and costs, and what comes out of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <collx/sched/schedule.hpp>
#include <collx/sim/fabric.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// What of a run the schedule and the machine do not say.
struct options {
    double bytes = 0; // of the whole buffer: all chunks together
    int pieces = 1;   // the engines run the program once for each piece of the buffer
    int depth = 8;    // messages that a channel holds, at least as many as the schedule declares
    // Several rings (channels) at once, each with its share of the bytes: rank r of the schedule is rank orders[k][r]
    // of the machine. Empty: one, as they are.
    std::vector<std::vector<int>> orders;
    // Where each of them goes over the machine: ways[k][r] are the links from the r-th rank of order k to the next one,
    // the last one's to the first. Empty, or none for a rank: the best way. Messages to other ranks take the best way.
    std::vector<std::vector<std::vector<int>>> ways;
    // Sums over all ranks are made, and their results stored to all, by the switch that all are linked to (NVLS); for
    // algorithms of the device's multicast_protocol.
    bool by_switch = false;
    int slow_rank = -1; // sends, reduces and starts messages so many times slower:
    double slowdown = 1;
    int dead_rank = -1; // does nothing from this time on:
    double dead_at_ns = 0;
    bool with_transfers = false;
};

// One message as it travelled.
struct transfer {
    int from = 0, to = 0;
    double bytes = 0;                // of payload
    double begin_ns = 0, end_ns = 0; // from the first byte's departure to the last one's arrival
};

// How long it took, and what each link carried.
struct result {
    double time_ns = 0;
    std::int64_t messages = 0;
    std::vector<double> link_bytes;  // on the wire, by number of the link
    std::vector<transfer> transfers; // in order of arrival, where asked for
};

// Bytes that a rank would have to send at least, over all: nccl-tests' factor from bytes/s to bus bandwidth.
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
// Bytes/s. S: a schedule or a recording.
template <class S>
double bus_bandwidth(const S& s, double bytes, const result& r) {
    return r.time_ns > 0 ? bytes / (r.time_ns / 1e9) * bus_factor(s.op, s.ranks) : 0;
}

// No schedule that moves these bytes over these links is faster: the fullest link's time, ns.
inline double link_bound_ns(const fabric& f, const std::vector<double>& link_bytes) {
    double most = 0;
    for (std::size_t i = 0; i < link_bytes.size(); ++i)
        most = std::max(most, link_bytes[i] / f.links()[i].bytes_per_s * 1e9);
    return most;
}

} // namespace sim
COLLX_END_NAMESPACE
