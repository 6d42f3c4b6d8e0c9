// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=no
//
// Random programs of processes, which share no memory but what the library maps: on one host, also with single copies,
// and as several hosts. A seed that fails is run again with RANDOM_PROGRAM_SEED.
#include <cstdlib>

#include <collx/net.hpp>

#include "comm/random_program.hpp"
#include "faults/hosts.hpp"
#include "support/night.hpp"

using namespace collx_test;

namespace {

void run_program(std::uint64_t seed, int steps) {
    dice d{mixed(seed, 321)};
    cell c{.n = 2 + static_cast<int>(d.below(4))};
    c.ranks_per_host = 1 + static_cast<int>(d.below(static_cast<std::size_t>(c.n)));
    if (d.one_in(2)) c.ranks_per_host = c.n;
    c.is_unix = d.one_in(4);
    c.is_shared = d.one_in(3);
    c.lanes = d.one_in(4) ? 3 : 1;
    c.single_copy = static_cast<collx::single_copy_mode>(d.below(3));
    const bool is_checked = d.one_in(2);
    INFO("RANDOM_PROGRAM_SEED=" << seed << ", " << c.n << " ranks, " << c.ranks_per_host << " per host, unix "
                                << c.is_unix << ", shared " << c.is_shared << ", checked " << is_checked);
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            auto world = world_of(c, dir, r);
            world.set_timeout(patient(std::chrono::seconds(50)));
            world.set_checked(is_checked);
            random_program(world, seed).run(steps);
            collx::barrier(world);
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

} // namespace

TEST_CASE("random programs of processes: many calls of many communicators under way give right numbers") {
    if (const char* const seed = std::getenv("RANDOM_PROGRAM_SEED"))
        return run_program(std::strtoull(seed, nullptr, 0), is_night() ? 400 : 150);
    for (std::uint64_t seed = 1; seed <= (is_night() ? 200 : 15); ++seed) run_program(seed, is_night() ? 400 : 150);
}
