// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine of the lesson, the schedules, and the load that they put on its links: counted, and in time by the
// simulator. Runs nothing.
#pragma once

#include <collx/algo/aggregated.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/sched/recorder.hpp>
#include <collx/sched/verify.hpp>
#include <collx/sim/simulate.hpp>

#include <string>
#include <vector>

#include "../check.hpp"

namespace lesson {

using collx::sched::schedule;
using collx::topo::link_type, collx::topo::site_type;
constexpr int gpus = 4; // of a host

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Each GPU has a link to its host's NVSwitch and its own card. Card k of each host is on rail k. Only a spine connects
// the switches of the rails. Each link is stored as its arc away from the GPU.
struct machine {
    collx::topo::graph g;
    std::vector<int> nvlink, pcie, cable, uplink; // uplink: one per rail

    machine(int hosts, double spine_bytes_per_s) {
        for (int h = 0; h < hosts; ++h) {
            const std::string host = "h" + std::to_string(h) + ".";
            const int nvswitch = g.add({host + "NVSwitch", site_type::nvswitch, h});
            for (int k = 0; k < gpus; ++k) {
                const int gpu = g.add({host + "GPU" + std::to_string(k), site_type::gpu, h});
                const int nic = g.add({host + "NIC" + std::to_string(k), site_type::nic, h, k});
                nvlink.push_back(g.link(gpu, nvswitch, link_type::nvlink, {450e9, 1000}));
                pcie.push_back(g.link(gpu, nic, link_type::pcie, {63e9, 250}));
            }
        }
        const int spine = g.add({"spine", site_type::network_switch, -1});
        for (int k = 0; k < gpus; ++k) {
            const int rail = g.add({"rail" + std::to_string(k), site_type::network_switch, -1});
            for (std::size_t r = at(k); r < pcie.size(); r += gpus)
                cable.push_back(g.link(g.arc_at(pcie[r]).to, rail, link_type::network, {50e9, 400}));
            uplink.push_back(g.link(rail, spine, link_type::network, {spine_bytes_per_s, 400}));
        }
    }
    int ranks() const { return static_cast<int>(pcie.size()); }
    int cable_of(int rank) const { return cable[at(rank % gpus * (ranks() / gpus) + rank / gpus)]; }
    // [doc:way]
    // A message leaves and arrives through the cards of its two ends.
    std::vector<int> way(int from, int to) const {
        const auto back = [&](int arc) { return g.arc_at(arc).back; };
        if (from / gpus == to / gpus) return {nvlink[at(from)], back(nvlink[at(to)])};
        std::vector<int> arcs{pcie[at(from)], cable_of(from)};
        if (from % gpus != to % gpus) arcs.insert(arcs.end(), {uplink[at(from % gpus)], back(uplink[at(to % gpus)])});
        arcs.insert(arcs.end(), {back(cable_of(to)), back(pcie[at(to)])});
        return arcs;
    }
    // [doc:end]
    bool joins(const std::vector<int>& arcs, int from, int to) const {
        int here = g.arc_at(nvlink[at(from)]).from;
        for (const int i : arcs) {
            if (g.arc_at(i).from != here) return false;
            here = g.arc_at(i).to;
        }
        return here == g.arc_at(nvlink[at(to)]).from;
    }
    collx::sim::fabric fabric() const {
        std::vector<collx::sim::link> links;
        for (int i = 0; i < g.arcs(); ++i) {
            const collx::topo::arc& a = g.arc_at(i);
            links.push_back({g.name(a.from) + " > " + g.name(a.to), a.type, a.bytes_per_s, a.latency_ns});
        }
        return {ranks(), links, [this](int from, int to) { return way(from, to); }};
    }
};

// Calls f(from, to, chunks) for each message that a schedule sends.
template <class F>
void for_each_message(const schedule& s, F&& f) {
    for (int r = 0; r < s.ranks; ++r)
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const auto& step : strand)
                if ((step.what & collx::sched::send) != 0) f(r, step.peer_to, step.src.chunks.count);
}

struct load {
    std::vector<double> messages, bytes; // of each arc
    load(const machine& m, const schedule& s, double chunk_bytes) : messages(at(m.g.arcs())), bytes(messages) {
        for_each_message(s, [&](int from, int to, int chunks) {
            const std::vector<int> arcs = m.way(from, to);
            example::expect(m.joins(arcs, from, to), "links that lead from one GPU to the other");
            for (const int i : arcs) {
                ++messages[at(i)];
                bytes[at(i)] += chunks * chunk_bytes;
            }
        });
    }
};

inline collx::sim::result predict(const machine& m, const schedule& s, double chunk_bytes, double message_ns,
                                  int pieces = 1) {
    auto f = m.fabric();
    collx::sim::cost_model costs; // uses the links' rates and latencies, and
    costs.overhead_ns = message_ns;
    collx::sim::options o;
    o.bytes = chunk_bytes * s.ranks;
    o.with_transfers = true;
    o.pieces = pieces;
    collx::sim::result r = collx::sim::simulate(s, f, costs, o);
    example::expect(r.link_bytes == load(m, s, chunk_bytes).bytes, "the simulator moves the bytes that were counted");
    example::expect(r.time_ns >= collx::sim::link_bound_ns(f, r.link_bytes), "no sooner than the fullest link");
    return r;
}

// [doc:at_once]
// Each message to another rank has its own strand, so all are under way at once. (pairwise_all_to_all sends one after
// the other: fewer are under way, and where ranks are not in step, several go to one card while others idle.)
struct at_once_all_to_all {
    static constexpr collx::collective op = collx::collective::all_to_all;
    static constexpr const char* name = "at_once";
    static constexpr int chunks(int n) { return n; }

    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        using collx::sched::from, collx::sched::to, collx::sched::in, collx::sched::out, collx::sched::copy;
        for (int i = 1; i < n; ++i)
            if (const int peer = (r + i) % n; ex.strand(i - 1)) ex.step(collx::sched::send, to(peer), in(peer));
        if (!ex.strand(n - 1)) return;
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) ex.step(collx::sched::recv | copy, from((r + n - i) % n), out((r + n - i) % n));
    }
};
// [doc:end]
static_assert(collx::sched::verify(at_once_all_to_all{}, 4).ok());

struct schedules {
    collx::node_map hosts;
    schedule directly, at_once, pxn;
    schedules(int ranks, int per_host)
        : hosts(collx::node_map::blocks(ranks, per_host)),
          directly(collx::sched::record_all(collx::algo::pairwise_all_to_all{}, ranks)),
          at_once(collx::sched::record_all(at_once_all_to_all{}, ranks)),
          pxn(collx::sched::record_all(collx::algo::aggregated_all_to_all{hosts}, ranks)) {}
};

} // namespace lesson
