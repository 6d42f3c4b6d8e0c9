// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the start of a job on many hosts costs: simulated for numbers of ranks that no test machine has
// (startup_model.hpp), with the costs of the store and of connections as measured here. Markdown: one line per number
// of ranks. startup [RANKS_PER_HOST] [LATENCY_US].
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "startup_model.hpp"

namespace {

// Microseconds of `times` calls of f(client, i) by each of some clients, enough to keep the server busy; per call.
template <class F>
double busy_us(int times, F&& f) {
    constexpr int clients = 8;
    const std::int64_t begun = collx::now_ns();
    std::vector<std::thread> threads;
    for (int t = 0; t < clients; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < times; ++i) f(t, i);
        });
    for (auto& t : threads) t.join();
    return static_cast<double>(collx::now_ns() - begun) / 1e3 / (clients * times);
}

void measure_store(collx::bench::startup_costs& c) {
    collx::tcp_server server;
    std::vector<std::vector<collx::tcp_store>> stores(8);
    c.accept = busy_us(60, [&](int t, int) {
        stores[static_cast<std::size_t>(t)].emplace_back("127.0.0.1", server.port(),
                                                         collx::deadline::in_ns(20'000'000'000));
    });
    for (auto& s : stores) s.erase(s.begin() + 1, s.end());
    c.request = busy_us(5000, [&](int t, int i) {
        stores[static_cast<std::size_t>(t)][0].set("key/" + std::to_string(t) + "/" + std::to_string(i), "value");
    });
}

} // namespace

int main(int argc, char** argv) {
    try {
        const int per_host = argc > 1 ? std::atoi(argv[1]) : 8;
        if (per_host < 1) return 2;
        collx::bench::startup_costs c;
        if (argc > 2) c.latency = std::atof(argv[2]);
        measure_store(c);
        std::printf(
            "%d ranks a host, %.0f us from host to host; measured here: %.1f us a request, %.1f us a connection "
            "of the store, both ends on one machine.\n\n",
            per_host, c.latency, c.request, c.accept);
        std::puts(
            "| ranks | requests | of rank 0 | messages | rounds | store, s | addresses, s | memory, s | world, s |");
        std::puts("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
        for (const int n : {8, 64, 512, 4096, 16384}) {
            const auto r = collx::bench::startup_model(n, per_host, c).run();
            std::printf("| %d | %ld | %d | %ld | %d | %.3f | %.3f | %.3f | %.3f |\n", n, r.requests, r.root_waits,
                        r.messages, r.rounds, r.store_us / 1e6, r.addresses_us / 1e6, r.memory_us / 1e6,
                        r.world_us / 1e6);
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "startup: %s\n", e.what());
        return 1;
    }
}
