// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs in which random ranks fail. From one seed all ranks derive the same steps: calls of all kinds on the
// world and on communicators split from it, with calls, persistent calls, groups and windows left open meanwhile. A
// rank is killed, leaves, throws, or aborts at a random step. Every other rank gets an error that names a rank that
// failed, shrinks, destroys what it had in random order, and goes on with correct results. A message of a failure
// begins with its seed; RANDOM_PROGRAM_SEED=N runs that one alone.
// collx-test: serial timeout=600 needs=any
#include "../../examples/16_write_a_transport/datagrams.hpp"
#include "faults/rank_program.hpp"

#include <collx/job/custom_transport.hpp>

using namespace collx_test;

namespace {

// Some settings are over a transport of the program's own, between all ranks or between hosts. (Processes of one host
// have no sockets, by which survivors would find each other.)
setting with_transport(setting s) {
    const bool has_one_host = s.hosts.ranks_per_host >= s.hosts.n;
    if (!s.is_custom || (has_one_host && !s.are_threads)) return s;
    if (has_one_host) s.hosts.over = collx::per_peer{datagrams{}};
    else s.hosts.over = collx::per_peer{collx::shm{}, datagrams{}};
    return s;
}

void run_processes(const setting& of) {
    setting s = with_transport(of);
    s.hosts.timeout_ms = static_cast<int>(patient(30'000 * ms) / ms);
    shared_page<confessions> said;
    store_directory dir;
    processes all;
    for (int me = 0; me < s.hosts.n; ++me)
        all.start(me, [&, me] {
            const int before = open_files();
            {
                auto world = world_of(s.hosts, dir, me);
                try {
                    rank_program(s, *said, world).run();
                } catch (const leaving&) {
                }
            }
            wait_for_the_windows_of_others(*said, me, s.hosts.n);
            clear_memory_of_windows();
            expect_in_program(open_files() == before, "files are left open");
            return 0;
        });
    all.wait(60'000);
    for (int me = 0; me < s.hosts.n; ++me) {
        INFO(name_of(s) << ": rank " << me << " ended with " << all[me].exit_code << ": " << all[me].what);
        const bool has_died = all[me].exit_code == 128 + SIGKILL || all[me].says("ends");
        CHECK((all[me].is_ok() || (said->dies[me] && has_died)));
    }
}

} // namespace

TEST_CASE("processes that fail in random programs are named, and the others go on") {
    each_seed(12, false, run_processes);
}
TEST_CASE("threads that fail in random programs are named, and the others go on") {
    each_seed(24, true, [](const setting& s) {
        leaving_no_files([&] {
            run_as_threads(with_transport(s), [](const setting& of, confessions& said, collx::communicator& world) {
                return std::make_unique<rank_program>(of, said, world);
            });
        });
    });
}
