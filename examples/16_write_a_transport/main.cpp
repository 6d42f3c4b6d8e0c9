// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-example: everywhere
// The program's own transport, in datagrams.hpp. Alone, the program runs the contract suite over it, and all
// collectives between four threads. Under collx_run its ranks are processes: they share memory within a host and send
// datagrams between hosts (collx_run -n 4 --hosts 2). With the argument `apart`, datagrams go between all of them.
#include <collx/collx.hpp>
#include <collx/job/custom_transport.hpp>
#include <collx/net.hpp>
#include <collx/testing/endpoint_contract.hpp>

#include <cstdio>
#include <exception>
#include <vector>

#include "../check.hpp"
#include "datagrams.hpp"

namespace {

// The program's own type, and its addition.
struct force {
    double x = 0, y = 0;
    friend force operator+(force a, force b) { return {a.x + b.x, a.y + b.y}; }
    friend bool operator==(const force&, const force&) = default;
};
force of(int rank) { return {1.0 + rank, 2.0 * rank}; }

void run_all_collectives(collx::communicator& world) {
    const int n = world.size(), me = world.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
    force sum, upto_me;
    for (int r = 0; r < n; ++r) {
        sum = sum + of(r);
        upto_me = r <= me ? sum : upto_me;
    }
    const auto u = static_cast<std::size_t>(n);
    const std::vector<force> same(u, of(me));
    std::vector<force> each(u), all(u);
    for (int r = 0; r < n; ++r) each[static_cast<std::size_t>(r)] = of(r);
    using example::expect;

    std::vector<force> x(5000, of(me)), one{of(me)}, got(1);
    collx::all_reduce(world, x);
    expect(x == std::vector<force>(5000, sum), "all_reduce");
    collx::reduce(world, one, got, {.root = n - 1});
    expect(me != n - 1 || got[0] == sum, "reduce");
    x.assign(5000, of(me));
    collx::broadcast(world, x, {.root = n - 1});
    expect(x == std::vector<force>(5000, of(n - 1)), "broadcast");
    collx::all_gather(world, one, all);
    expect(all == each, "all_gather");
    collx::reduce_scatter(world, same, got);
    expect(got[0] == sum, "reduce_scatter");
    all.assign(u, {});
    collx::gather(world, one, all);
    expect(me != 0 || all == each, "gather");
    collx::scatter(world, each, got);
    expect(got[0] == of(me), "scatter");
    collx::all_to_all(world, same, all);
    expect(all == each, "all_to_all");
    got = one;
    collx::scan(world, got);
    expect(got[0] == upto_me, "scan");
    collx::sendrecv(world, one, next, got, before);
    expect(got[0] == of(before), "sendrecv");
    auto child = world.split(me % 2);
    int ranks = 1;
    collx::all_reduce(child, collx::value(ranks));
    expect(ranks == (n + 1 - me % 2) / 2, "all_reduce of a child");
    collx::barrier(world);
}

int run_or_check(collx::communicator& world) {
    if (world.size() == 1) {
        // [doc:suite]
        const auto report = collx::testing::check_transport<datagrams>();
        if (!report.is_clean()) std::puts(report.text().c_str());
        // [doc:end]
        example::expect(report.is_clean(), "the contract of a transport");
        collx::run_threads(collx::per_peer{datagrams{}}, 4, [](collx::communicator& w) { run_all_collectives(w); });
    } else {
        run_all_collectives(world);
    }
    return example::result();
}

} // namespace

int main(int argc, char** argv) try {
    if (example::has_word(argc, argv, "apart")) { // between all ranks, also those of one host
        collx::communicator world(collx::per_peer{datagrams{}});
        return run_or_check(world);
    }
    // [doc:list]
    collx::basic_communicator<collx::shm, datagrams> world;
    // [doc:end]
    return run_or_check(world);
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
