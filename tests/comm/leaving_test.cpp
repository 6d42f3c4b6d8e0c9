// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes end at different times. Who ends after its last call has done its part and must not disturb those who are
// still busy with others; who ends without sending what a peer waits for is named at once.
// collx-test: serial
#include <catch2/catch.hpp>

#include <csignal>
#include <string>

#include <collx/collx.hpp>

#include "support/processes.hpp"

namespace {

using namespace std::chrono_literals;

std::string new_job() {
    static int count = 0;
    return "leaving-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

// Three processes, each with a communicator that is left when body returns.
template <class F>
void run_three(collx_test::processes& all, F body) {
    const std::string job = new_job();
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            collx::job_settings s;
            s.timeout_ns = 10'000'000'000;
            s.waiting = {.spins = 0};
            auto memory = collx::join_shm(job.c_str(), r, 3, collx::deadline::in_ns(s.timeout_ns));
            collx::communicator world(collx::make_counted<collx::job>(std::move(memory), r, 3, s, false));
            body(world);
            return 0;
        });
    all.wait();
}

} // namespace

TEST_CASE("a rank that has left does not disturb those who wait for others") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        int x = world.rank();
        if (world.rank() == 0) ::usleep(300'000);
        if (world.rank() == 2) collx::send(world, collx::value(x), 1);
        if (world.rank() == 0) collx::send(world, collx::value(x), 1);
        if (world.rank() != 1) return; // rank 2 is gone long before rank 0 begins
        collx::recv(world, collx::value(x), 0);
        if (x != 0) throw collx::error(collx::errc::protocol, 1, 0, "wrong number", "");
        collx::recv(world, collx::value(x), 2);
        if (x != 2) throw collx::error(collx::errc::protocol, 1, 2, "wrong number", "");
    });
    for (int r = 0; r < 3; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("the last collective may end at different times") {
    for (int repeat = 0; repeat < 20; ++repeat) {
        collx_test::processes all;
        run_three(all, [](collx::communicator& world) {
            int x = 1;
            if (world.rank() == 0) ::usleep(10'000);
            collx::all_reduce(world, collx::value(x));
            if (x != 3) throw collx::error(collx::errc::protocol, world.rank(), -1, "wrong sum", "");
        });
        for (int r = 0; r < 3; ++r) {
            INFO(all[r].what);
            REQUIRE(all[r].is_ok());
        }
    }
}

TEST_CASE("a rank that leaves without sending is named") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        int x = 0;
        if (world.rank() == 1) collx::recv(world, collx::value(x), 2);
    });
    CHECK(all[0].is_ok());
    CHECK(all[2].is_ok());
    CHECK(all[1].code == collx::errc::peer_failed);
    CHECK(all[1].peer == 2);
    CHECK(all[1].took_ns < 5'000'000'000);
}

TEST_CASE("a rank that is killed is named by those who wait for it, and by the others") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        int x = 0;
        collx::barrier(world);
        if (world.rank() == 2) ::raise(SIGKILL);
        if (world.rank() == 0) collx::recv(world, collx::value(x), 1); // rank 1 waits for the dead, rank 0 for rank 1
        if (world.rank() == 1) collx::recv(world, collx::value(x), 2);
    });
    for (int r = 0; r < 2; ++r) {
        INFO(all[r].what);
        CHECK(all[r].code == collx::errc::peer_failed);
        CHECK(all[r].peer == 2);
        CHECK(all[r].took_ns < 5'000'000'000);
    }
}
