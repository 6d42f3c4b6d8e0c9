// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=nightly
//
// Machines given as a file (COLLX_TOPOLOGY): the traffic of default calls on each link, and files that are refused.
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology_writer.hpp>
#include <collx/topology.hpp>

#include <cstdlib>
#include <map>
#include <string>

#include "support.hpp"
#include "support/written_file.hpp"

using namespace collx_test;
using namespace collx::topo;

namespace {

// An environment variable that is set while the object lives, for ranks that are threads of this process.
class variable_set {
public:
    variable_set(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
    variable_set(const variable_set&) = delete;
    ~variable_set() { ::unsetenv(name_); }

private:
    const char* name_;
};

constexpr std::size_t elems = 1 << 18; // 1 MiB of float
constexpr double bytes = elems * sizeof(float);

// The traffic that one call of f by all ranks puts on the links.
template <class F>
link_traffic traffic_of_call(collx::communicator& w, F&& f) {
    f();                                                                            // opens connections
    const link_traffic before = collx::traffic_of(w), asked = collx::traffic_of(w); // the first asking sends, too
    f();
    link_traffic t = collx::traffic_of(w);
    t.bytes.resize(static_cast<std::size_t>(collx::machine_of(w)->arcs()));
    for (std::size_t i = 0; i < t.bytes.size(); ++i) {
        const double b = i < before.bytes.size() ? before.bytes[i] : 0, a = i < asked.bytes.size() ? asked.bytes[i] : 0;
        t.bytes[i] -= a + (a - b);
    }
    return t;
}
void sum(collx::communicator& w) {
    std::vector<float> x(elems, static_cast<float>(w.rank() + 1));
    collx::all_reduce(w, x);
    EXPECT(x.front() == static_cast<float>(w.size() * (w.size() + 1) / 2) && x.back() == x.front());
}
double on(const graph& g, const link_traffic& t, const std::string& a, const std::string& b) {
    for (const int i : g.arcs_of(g.require(a)))
        if (g.arc_at(i).to == g.require(b)) return t.bytes[static_cast<std::size_t>(i)];
    return -1;
}

// GPUs 0, 2, 4 and 6 only: each link of the two rings found carries its part, no other link carries anything.
void expect_seed_rings(collx::communicator& w) {
    const graph& g = *collx::machine_of(w);
    static const ring_set found = [&] { // once for all ranks
        ring_options alone;
        alone.limits.relays = 0;
        return find_rings(g, collx::sites_of(w), alone);
    }();
    EXPECT(found.rings.size() == 2 && found.bytes_per_s == 25e9);
    std::vector<double> want(static_cast<std::size_t>(g.arcs()), 0);
    for (const ring& r : found.rings)
        for (const path& hop : r.hops)
            for (const int i : hop.arcs) want[static_cast<std::size_t>(i)] += 2 * 3 / 4. * bytes / 2;
    const link_traffic t = traffic_of_call(w, [&] { sum(w); });
    EXPECT(t.bytes == want);
    EXPECT(t.over(g, link_type::nvlink) == 2 * 3 * bytes);
    EXPECT(t.over(g, link_type::pcie) == 0 && t.over(g, link_type::socket) == 0 && t.lost == 0);
    const link_traffic gathered = traffic_of_call(w, [&] {
        std::vector<float> x(elems / 4, 1.f), all(elems);
        collx::all_gather(w, x, all);
        std::vector<float> part(elems / 4);
        collx::reduce_scatter(w, all, part);
        EXPECT(part[7] == 4.f);
    });
    EXPECT(gathered.over(g, link_type::nvlink) == 2 * 3 * bytes);
    EXPECT(gathered.over(g, link_type::pcie) == 0 && gathered.over(g, link_type::socket) == 0);
    const link_traffic rooted = traffic_of_call(w, [&] {
        std::vector<float> x(elems, static_cast<float>(w.rank()));
        collx::broadcast(w, x, {.root = 3});
        EXPECT(x.front() == 3.f && x.back() == 3.f);
        std::vector<float> all(elems);
        collx::reduce(w, x, all, collx::plus{}, {.root = 1});
        EXPECT(w.rank() != 1 || (all.front() == 12.f && all.back() == 12.f));
    });
    EXPECT(rooted.over(g, link_type::nvlink) == 2 * 3 * bytes);
    EXPECT(rooted.over(g, link_type::pcie) == 0 && rooted.over(g, link_type::socket) == 0);
}

} // namespace

TEST_CASE("ranks at GPUs 0, 2, 4 and 6 of a DGX-1V reduce along its NVLinks, unasked") {
    const written_file file(write_nccl_topology(dgx_1v(), 70));
    const variable_set topology("COLLX_TOPOLOGY", file.name());
    {
        const variable_set visible("CUDA_VISIBLE_DEVICES", "0,2,4,6");
        on_ranks(4, [](collx::communicator& w) {
            w.set_checked(false);
            expect_seed_rings(w);
            EXPECT(collx::explain_links(w).find("2 rings") != std::string::npos);
        });
    }
    on_ranks(8, [](collx::communicator& w) {
        w.set_checked(false);
        // All eight ranks: two rings of double links.
        const graph& g = *collx::machine_of(w);
        const link_traffic t = traffic_of_call(w, [&] { sum(w); });
        EXPECT(t.over(g, link_type::nvlink) == 2 * 7 * bytes);
        EXPECT(t.over(g, link_type::pcie) == 0 && t.over(g, link_type::socket) == 0);
        for (int i = 0; i < g.arcs(); ++i)
            EXPECT_AT(i, t.bytes[static_cast<std::size_t>(i)] == 0 || g.arc_at(i).bytes_per_s == 50e9);
        // The even ranks, in another order.
        auto even = w.split(w.rank() % 2, w.rank() == 2 ? 9 : 0);
        if (w.rank() % 2 == 0) expect_seed_rings(even);
        // Short calls, and operators that keep the order, do not use the rings.
        const link_traffic none = traffic_of_call(w, [&] {
            std::vector<int> x(100, 1);
            collx::all_reduce(w, x);
            EXPECT(x[99] == 8);
        });
        EXPECT(none.over(g, link_type::nvlink) == 0);
    });
}

TEST_CASE("communicators of all kinds have an order, and first calls wait for no other rank's") {
    const written_file file(write_nccl_topology(dgx_1v(), 70));
    const variable_set topology("COLLX_TOPOLOGY", file.name());
    const variable_set visible("CUDA_VISIBLE_DEVICES", "0,2,4,6");
    on_ranks(4, [](collx::communicator& w) {
        w.set_checked(false);
        auto a = w.dup(), b = w.dup();
        std::vector<float> x(elems, 1.f), y(elems, 1.f);
        auto& first = w.rank() % 2 == 0 ? a : b;
        auto& second = w.rank() % 2 == 0 ? b : a;
        auto one = collx::async::all_reduce(first, x);
        auto two = collx::async::all_reduce(second, y);
        collx::wait_all(one, two);
        EXPECT(x[3] == 4.f && y[elems - 1] == 4.f);
        collx::barrier(w); // a rank may still be in the call
        a.abort();
        auto rest = a.shrink();
        const std::vector<int> ring{0, 1, 3, 2};
        EXPECT(collx::order_of(rest) == ring && collx::order_of(b) == ring && collx::order_of(w) == ring);
        const link_traffic t = traffic_of_call(rest, [&] { sum(rest); });
        EXPECT(t.over(*collx::machine_of(rest), link_type::nvlink) == 2 * 3 * bytes);
        EXPECT(t.over(*collx::machine_of(rest), link_type::pcie) == 0);
    });
}

TEST_CASE("where one switch joins all GPUs, shared windows stay") {
    const written_file file(write_nccl_topology(dgx_h100(), 90));
    const variable_set topology("COLLX_TOPOLOGY", file.name());
    on_ranks(4, [](collx::communicator& w) {
        w.set_checked(false);
        const link_traffic t = traffic_of_call(w, [&] { sum(w); });
        EXPECT(t.over(*collx::machine_of(w), link_type::nvlink) == 0);
        EXPECT(collx::explain_links(w).find("shared windows") != std::string::npos);
    });
}

TEST_CASE("between hosts each GPU's traffic leaves by its own card") {
    const written_file file(write_nccl_topology(dgx_1v(), 70));
    const variable_set topology("COLLX_TOPOLOGY", file.name());
    const variable_set visible("CUDA_VISIBLE_DEVICES", "0,2,4,6");
    on_hosts(8, {4}, [](collx::communicator& world) {
        world.set_checked(false);
        // The second host in reverse order: in rank order, GPU 0 would be connected to GPU 6.
        auto w = world.split(0, world.rank() < 4 ? world.rank() : 20 - world.rank());
        const graph& g = *collx::machine_of(w);
        const auto on_rails = [&](const link_traffic& t, double each) {
            EXPECT(t.lost == 0);
            for (int k = 0; k < 4; ++k)
                for (const char* host : {"h0.", "h1."}) {
                    const std::string card = host + ("NIC" + std::to_string(k));
                    EXPECT_AT(k, on(g, t, card, "rail" + std::to_string(k)) == each);
                    EXPECT_AT(k, on(g, t, "rail" + std::to_string(k), card) == each);
                }
        };
        // A quarter on each rail; NVLink inside the hosts.
        const link_traffic t = traffic_of_call(w, [&] { sum(w); });
        on_rails(t, bytes / 4);
        EXPECT(t.over(g, link_type::nvlink) == 2 * 2 * 3 * bytes);
        EXPECT(t.over(g, link_type::socket) == 0);
        // GPU 2's data for GPU 0 of the other host goes through its neighbour GPU 0 and NIC 0.
        const link_traffic all = traffic_of_call(w, [&] {
            std::vector<float> x(elems, static_cast<float>(w.rank())), y(elems);
            collx::all_to_all(w, x, y);
            for (std::size_t r = 0; r < 8; ++r) EXPECT_AT(r, y[r * elems / 8 + 5] == static_cast<float>(r));
        });
        on_rails(all, bytes / 2);
        // Inside a host, GPUs 0 and 6, and 2 and 4, have no link: only their four messages cross between the sockets.
        EXPECT(all.over(g, link_type::socket) == 2 * 4 * 2 * bytes / 8);
    });
}

namespace {

// Runs f on ranks of which each reads the file of its own environment, even on a shared host.
template <class F>
void with_files(const std::vector<int>& host_of, const std::vector<std::vector<std::string>>& variables, F&& f) {
    collx::detail::growing_array<int> hosts;
    for (const int h : host_of) hosts.push_back(h);
    collx::run_threads(hosts, [&](collx::communicator& w) {
        run_checked(w, [&](collx::communicator&) {
            const auto& own = variables[static_cast<std::size_t>(w.rank()) % variables.size()];
            std::vector<const char*> entries;
            for (const std::string& v : own) entries.push_back(v.c_str());
            entries.push_back(nullptr);
            const collx::environment env(entries.data());
            f(w, [&] { collx::detail::machine_of_job(w.internals(), env).merge(); });
        });
    });
}

} // namespace

TEST_CASE("one rank's file that cannot be taken is an error on all ranks, with its place") {
    std::string text = write_nccl_topology(dgx_1v(), 70);
    const written_file good(text), small(write_nccl_topology(dgx_1v(), 60));
    text.replace(text.find("<nvlink"), 7, "<nvlonk");
    const written_file bad(text);
    const std::string name = "COLLX_TOPOLOGY=", right = name + good.name(), wrong = name + bad.name();
    const auto refused = [&](const std::vector<std::string>& odd, const char* what, collx::errc code,
                             const char* to_others) {
        for (const auto& hosts : {std::vector<int>{0, 0, 0}, std::vector<int>{0, 0, 1}})
            with_files(hosts, {{right}, {right}, odd}, [&](collx::communicator& w, auto&& merge) {
                const auto e = thrown<collx::error>(w, merge);
                at("%s", e.what());
                EXPECT(e.code() == code);
                EXPECT(says(e, w.rank() == 2 ? what : to_others));
                EXPECT(w.rank() == 2 || e.peer() == 2);
                int x = 1; // the ranks still work together
                collx::all_reduce(w, collx::value(x));
                EXPECT(x == 3);
            });
    };
    using collx::errc;
    refused({wrong}, "not known in <gpu>", errc::invalid_argument, (bad.name() + ":").c_str());
    refused({name + "/no/such/file"}, "No such file", errc::environment, "rank 2 cannot take its COLLX_TOPOLOGY");
    refused({right, "COLLX_GPU=8"}, "has 8 GPUs", errc::invalid_argument, "has 8 GPUs");
    refused({right, "CUDA_VISIBLE_DEVICES=GPU-1b2c"}, "names no numbers", errc::invalid_argument, "rank 2 cannot");
    // Two ranks of one host have different files.
    with_files({0, 0, 1}, {{right}, {name + small.name()}, {right}}, [&](collx::communicator& w, auto&& merge) {
        EXPECT(says(thrown<collx::mismatch>(w, merge), "ranks 0 and 1 are on one host"));
    });
}

TEST_CASE("hosts of different machines are shown to all ranks") {
    const written_file mesh(write_nccl_topology(dgx_1v(), 70)), switched(write_nccl_topology(dgx_a100(), 80));
    const std::string name = "COLLX_TOPOLOGY=";
    const std::vector<std::string> a{name + mesh.name()}, b{name + switched.name(), "COLLX_GPU=3"};
    with_files({0, 0, 0, 1}, {a, a, a, b}, [&](collx::communicator& w, auto&& merge) {
        merge();
        const graph& g = *collx::machine_of(w);
        EXPECT(g.all(site_type::gpu, 0).size() == 8 && g.all(site_type::nvswitch, 1).size() == 1);
        EXPECT(g.name(collx::sites_of(w)[3]) == "h1.GPU3");
        // GPUs 0, 1 and 2 are linked pairwise, so any order is right; the other host has only one rank.
        auto order = collx::order_of(w);
        EXPECT(order.back() == 3 && order.size() == 4);
        int x = 1;
        collx::all_reduce(w, collx::value(x));
        EXPECT(x == 4);
    });
}
