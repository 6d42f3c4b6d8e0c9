// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs in which random ranks fail. From one seed all ranks derive the same steps: calls of all kinds on the
// world and on communicators split from it, with calls, persistent calls, groups and windows left open meanwhile. A
// rank is killed, leaves, throws, or aborts at a random step. Every other rank gets an error that names a rank that
// failed, shrinks, destroys what it had in random order, and goes on with correct results. A message of a failure
// begins with its seed; RANDOM_PROGRAM_SEED=N runs that one alone.
// collx-test: serial timeout=600
#include "faults/rank_program.hpp"

using namespace collx_test;

namespace {

void run_processes(const setting& s) {
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
    each_seed(15, false, run_processes);
}
TEST_CASE("threads that fail in random programs are named, and the others go on") {
    each_seed(30, true, [](const setting& s) {
        leaving_no_files([&] {
            run_as_threads(s, [](const setting& of, confessions& said, collx::communicator& world) {
                return std::make_unique<rank_program>(of, said, world);
            });
        });
    });
}
