// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the start of a job on many hosts costs: simulated for numbers of ranks that no test machine has
// (startup_model.hpp), with the costs of the store and of connections as measured here. Markdown: one line per number of
// ranks. startup [RANKS_PER_HOST] [LATENCY_US].
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

double seconds_since(std::int64_t begun) { return static_cast<double>(collx::now_ns() - begun) / 1e9; }

// Microseconds of the server for a request, with clients enough to keep it busy; and for a connection.
void measure_store(collx::bench::startup_costs& c) {
    collx::tcp_server server;
    constexpr int clients = 8, requests = 5000, connections = 500;
    const auto soon = [] { return collx::deadline::in_ns(20'000'000'000); };
    std::int64_t begun = collx::now_ns();
    std::vector<std::thread> threads;
    for (int t = 0; t < clients; ++t)
        threads.emplace_back([&, t] {
            collx::tcp_store s("127.0.0.1", server.port(), soon());
            for (int i = 0; i < requests; ++i) s.set("key/" + std::to_string(t) + "/" + std::to_string(i), "value");
        });
    for (auto& t : threads) t.join();
    c.request = seconds_since(begun) * 1e6 / (clients * requests);
    begun = collx::now_ns();
    std::vector<collx::tcp_store> all;
    for (int i = 0; i < connections; ++i) all.emplace_back("127.0.0.1", server.port(), soon());
    c.accept = seconds_since(begun) * 1e6 / connections;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const int per_host = argc > 1 ? std::atoi(argv[1]) : 8;
        if (per_host < 1) return 2;
        collx::bench::startup_costs c;
        if (argc > 2) c.latency = std::atof(argv[2]);
        measure_store(c);
        std::printf("%d ranks a host, %.0f us from host to host; measured here: %.1f us a request, %.1f us a connection "
                    "of the store, both ends on one machine.\n\n",
                    per_host, c.latency, c.request, c.accept);
        std::puts("| ranks | requests | of rank 0 | messages | rounds | store, s | addresses, s | memory, s | world, s |");
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
