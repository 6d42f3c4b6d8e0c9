// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=nightly
//
// all_reduce among some ranks along a route through other ranks, on threads, on one host and over sockets.
#include <collx/algo/on_route.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/rings.hpp>

#include <algorithm>

#include "support.hpp"

using namespace collx_test;
using collx::relay_route;
using on_ring = collx::algo::on_route<collx::algo::ring_all_reduce>;

TEST_CASE("ranks 0, 2, 4 and 6 of a cube mesh reduce through their neighbours") {
    namespace topo = collx::topo;
    const topo::graph mesh = topo::dgx_1v();
    const std::vector<int> gpus = mesh.all(topo::site_type::gpu), members{0, 2, 4, 6};
    topo::ring_options widest;
    widest.most_rings = 1;
    widest.once = true;
    const topo::ring_set set = topo::find_rings(mesh, {gpus[0], gpus[2], gpus[4], gpus[6]}, widest);
    REQUIRE(set.bytes_per_s == 50e9);
    std::vector<int> order;
    for (const int s : topo::ranks_along(mesh, set.rings[0]))
        order.push_back(static_cast<int>(std::find(gpus.begin(), gpus.end(), s) - gpus.begin()));
    for (const spread& hosts : {spread{}, spread{4}, spread{3, true}})
        on_hosts(8, hosts, [&](collx::communicator& w) {
            w.set_checked(false);
            const relay_route route(8, order, members);
            const auto bound = w.with(on_ring{route});
            const bool is_member = w.rank() % 2 == 0;
            for (const std::size_t size : {0u, 1u, 3u, 1000u, 300'003u}) {
                at("size %zu", size);
                auto x = samples(w.rank(), size);
                const auto before = x;
                collx::all_reduce(bound, x);
                if (!is_member) EXPECT(x == before); // these ranks only pass messages on
                for (std::size_t i = 0; is_member && i < size; ++i)
                    EXPECT_AT(i, x[i] == sample(0, i) + sample(2, i) + sample(4, i) + sample(6, i));
                std::vector<double> mean(size, 4.0 * w.rank());
                collx::all_reduce(bound, mean, collx::average{});
                EXPECT(mean == std::vector<double>(size, is_member ? 12.0 : 4.0 * w.rank()));
            }
            // Every message used a double link.
            for (int k = 0; k < 8; ++k) {
                const topo::path p =
                    find_path(mesh, gpus[static_cast<std::size_t>(w.rank())], gpus[static_cast<std::size_t>(k)]);
                const bool is_double = p.type == topo::path_class::nvl && p.bytes_per_s == 50e9;
                if (hosts.is_one_host(8)) EXPECT_AT(k, is_double || w.sent_to(k).messages == 0);
            }
            EXPECT(w.sent().messages > 0);
        });
}

TEST_CASE("routed calls under way at once, ranks that take no part, routes of other ranks") {
    on_ranks(5, [](collx::communicator& w) {
        const relay_route route(5, {3, 1, 0, 4}, {3, 0}); // rank 2 is not on the route
        std::vector<std::vector<int>> x;
        for (int k = 0; k < 5; ++k) x.push_back(samples(w.rank() + k, 4000));
        const auto before = x;
        std::vector<collx::work<void>> works;
        for (auto& v : x) works.push_back(collx::async::all_reduce(w.with(on_ring{route}), v));
        for (auto& work : works) work.wait();
        for (int k = 0; k < 5; ++k) {
            const auto u = static_cast<std::size_t>(k);
            if (w.rank() == 3 || w.rank() == 0)
                for (std::size_t i = 0; i < 4000; ++i) EXPECT_AT(i, x[u][i] == sample(k, i) + sample(3 + k, i));
            else EXPECT(x[u] == before[u]);
        }
        const relay_route other(4, {0, 1}, {0});
        const auto e = thrown<collx::error>(w, [&] { collx::all_reduce(w.with(on_ring{other}), x[0]); });
        EXPECT(e.code() == collx::errc::invalid_argument && says(e, "ring"));
    });
}
