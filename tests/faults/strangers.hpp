// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A job with a key starts while strangers hold silent connections: to the store before any rank connects, and to
// every rank's listener before the first call. Ranks and strangers have few descriptors, or many.
#pragma once

#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/interop/sodium.hpp>
#include <collx/transport/socket_connector.hpp>

#include <sys/resource.h>

#include "faults/support.hpp"

namespace collx_test {

struct strangers_page {
    std::atomic<int> store_port, ports[16], store_is_full, listeners_are_full, done;
};

inline int rank_among_strangers(strangers_page& page, int r, int ranks, std::size_t files) {
    const auto wait_for = [](std::atomic<int>& word) {
        for (const auto until = collx::deadline::in_ns(patient(60'000 * ms)); word == 0;) {
            if (until.passed()) throw std::runtime_error("the strangers did not come");
            ::usleep(500);
        }
    };
    const rlimit low{files, files};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return 8;
    ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r)).c_str(), 1);
    ::setenv("COLLX_KEY", std::string(64, 'k').c_str(), 1);
    const collx::job_key key = collx::detail::process_protection().key;
    if (!key) return 9;
    collx::sole_ptr<collx::tcp_server> server;
    if (r == 0) {
        server = collx::make_sole<collx::tcp_server>("127.0.0.1", 0, key);
        page.store_port = server->port();
    }
    wait_for(page.store_is_full);
    collx::tcp_store store("127.0.0.1", page.store_port, collx::deadline::in_ns(patient(40'000 * ms)), r, key);
    auto job = collx::detail::join_by_store(r, ranks, store, patient(40'000 * ms), {});
    page.ports[r] = static_cast<collx::socket_connector&>(*job->connector).hub()->port();
    wait_for(page.listeners_are_full);
    collx::communicator world(job);
    world.set_timeout(patient(std::chrono::seconds(30)));
    std::vector<int> x(static_cast<std::size_t>(ranks), r), y(x.size());
    collx::all_to_all(world, x, y); // connects each pair
    for (int k = 0; k < ranks; ++k)
        if (y[static_cast<std::size_t>(k)] != k) return 3;
    auto other = world.dup();
    collx::all_to_all(other, x, y);
    collx::barrier(world);
    if (r != 0) store.wait_for_end(collx::deadline::in_ns(patient(20'000 * ms)));
    return 0;
}

inline void start_among_strangers(int ranks, std::size_t files, int strangers) {
    rlimit usual{}, high{};
    ::getrlimit(RLIMIT_NOFILE, &usual);
    const auto needed = static_cast<rlim_t>(strangers * (ranks + 1) + 100);
    high = {needed > usual.rlim_cur ? needed : usual.rlim_cur, usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &high) == 0);
    shared_page<strangers_page> page;
    processes all;
    for (int r = 0; r < ranks; ++r) all.start(r, [&, r] { return rank_among_strangers(*page, r, ranks, files); });
    {
        std::vector<collx::descriptor> held;
        const auto hold = [&](int port) {
            auto a = collx::detail::numeric_address("127.0.0.1", port);
            for (int i = 0; i < strangers; ++i) {
                held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
                (void)::connect(held.back().get(), a.get(), a.bytes);
            }
        };
        const auto port_in = [&](const std::atomic<int>& word) {
            for (const auto until = collx::deadline::in_ns(patient(60'000 * ms)); word == 0 && !until.passed();)
                ::usleep(500);
            return word.load();
        };
        hold(port_in(page->store_port));
        page->store_is_full = 1;
        for (int r = 0; r < ranks; ++r)
            if (const int port = port_in(page->ports[r]); port != 0) hold(port);
        page->listeners_are_full = 1;
        all.wait(patient(60'000));
    }
    ::setrlimit(RLIMIT_NOFILE, &usual);
    for (int r = 0; r < ranks; ++r) {
        INFO(strangers << " strangers, " << files << " files, rank " << r << ": " << all[r].exit_code << " "
                       << all[r].what);
        CHECK(all[r].is_ok());
    }
}

} // namespace collx_test
