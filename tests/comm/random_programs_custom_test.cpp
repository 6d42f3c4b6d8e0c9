// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Random programs of threads over a transport of the program's own, the lossy one of example 16: alone, and between
// hosts whose ranks share memory. A seed that fails is run again with RANDOM_PROGRAM_SEED.
#include <cstdlib>

#include <collx/job/custom_transport.hpp>

#include "../../examples/16_write_a_transport/datagrams.hpp"
#include "comm/random_program.hpp"
#include "support/night.hpp"

using namespace collx_test;

namespace {

void run_program(std::uint64_t seed, int steps) {
    dice d{mixed(seed, 55)};
    const std::vector<int> hosts = any_hosts(d);
    const bool is_checked = d.one_in(2), has_memory = d.one_in(2);
    INFO("RANDOM_PROGRAM_SEED=" << seed << ", " << hosts.size() << " ranks, checked " << is_checked << ", memory "
                                << has_memory);
    const auto body = [&](collx::communicator& world) {
        run_checked(world, [&](collx::communicator& w) {
            w.set_checked(is_checked);
            random_program(w, seed).run(steps);
        });
    };
    if (has_memory) {
        collx::detail::growing_array<int> host_of;
        for (const int h : hosts) host_of.push_back(h);
        const collx::transports over = collx::per_peer{collx::shm{}, datagrams{}};
        collx::detail::run_thread_jobs(collx::detail::thread_jobs(host_of, over), body);
    } else {
        collx::run_threads(collx::per_peer{datagrams{}}, static_cast<int>(hosts.size()), body);
    }
}

} // namespace

TEST_CASE("random programs over a transport of the program's own give right numbers") {
    if (const char* const seed = std::getenv("RANDOM_PROGRAM_SEED"))
        return run_program(std::strtoull(seed, nullptr, 0), is_night() ? 400 : 150);
    for (std::uint64_t seed = 1; seed <= (is_night() ? 200 : 15); ++seed) run_program(seed, is_night() ? 400 : 150);
}
