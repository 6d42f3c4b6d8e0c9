// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Random programs of threads, also as several hosts. A seed that fails is run again with RANDOM_PROGRAM_SEED.
#include <cstdlib>

#include "comm/random_program.hpp"
#include "support/night.hpp"
#include "transport/verbs_fabric.hpp"

using namespace collx_test;

namespace {

void run_program(std::uint64_t seed, int steps) {
    static const with_toy_macs toy;
    dice d{mixed(seed, 123)};
    const std::vector<int> hosts = any_hosts(d);
    const auto ranks = hosts.size();
    const bool is_checked = d.one_in(2), has_key = d.one_in(4), has_devices = d.one_in(3), bad_day = d.one_in(4),
               is_unix = d.one_in(4), is_shared = d.one_in(2);
    INFO("RANDOM_PROGRAM_SEED=" << seed << ", " << ranks << " ranks, checked " << is_checked << ", key " << has_key
                                << ", devices " << has_devices << ", bad day " << bad_day << ", unix " << is_unix);
    const std::vector keys(ranks, has_key ? toy_protection('k') : collx::job_protection());
    fabric net({.seed = seed,
                .devices = has_devices ? static_cast<int>(ranks) : 0,
                .most_delay_polls = static_cast<int>(ranks)});
    const fabric_installed here(net);
    auto jobs = collx::detail::thread_jobs(hosts, bad_day ? bad_day_calls : collx::system_socket_calls, keys.data(),
                                           is_unix ? "unix" : "127.0.0.1", d.one_in(4) ? 3 : 1);
    const std::size_t most_own = d.below(5); // connections that communicators do not share
    for (auto& job : jobs)
        if (is_shared && job->connector != nullptr) job->connector->of_sockets()->hub()->set_most_own(most_own);
    collx::detail::run_thread_jobs(std::move(jobs), [&](collx::communicator& world) {
        run_checked(world, [&](collx::communicator& w) {
            w.set_checked(is_checked);
            random_program(w, seed).run(steps);
        });
    });
    CHECK(net.misuses() == 0);
}

} // namespace

TEST_CASE("random programs: many calls of many communicators under way give right numbers") {
    if (const char* const seed = std::getenv("RANDOM_PROGRAM_SEED"))
        return run_program(std::strtoull(seed, nullptr, 0), is_night() ? 400 : 150);
    for (std::uint64_t seed = 1; seed <= (is_night() ? 400 : 40); ++seed) run_program(seed, is_night() ? 400 : 150);
}
