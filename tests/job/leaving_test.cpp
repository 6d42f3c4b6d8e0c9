// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes end at different times. A rank that ends after its last call must not disturb ranks that are still busy
// with others. A rank that ends without sending what a peer waits for is named at once.
// collx-test: serial
#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include <collx/collx.hpp>
#include <collx/transport/shm.hpp>

#include "support/processes.hpp"

namespace {

using namespace std::chrono_literals;

std::string new_job() {
    static int count = 0;
    return "leaving-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

// Three processes, each with a communicator that it leaves when body returns.
template <class F>
void run_three(collx_test::processes& all, F body) {
    const std::string job = new_job();
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            collx::job_settings s;
            s.timeout_ns = collx_test::patient(40'000'000'000);
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
        if (world.rank() != 1) return; // rank 2 leaves long before rank 0 starts
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
    CHECK(all[1].took_ns < collx_test::patient(25'000'000'000));
}

TEST_CASE("a rank that ends a communicator, and lives, is named by those that wait for it there") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        {
            auto other = world.split(0);
            std::vector<int> x(1000, 1);
            collx::all_reduce(other, x);
            if (world.rank() != 2) {
                const auto begin = collx::now_ns();
                try {
                    collx::all_reduce(other, x);
                    throw collx::error(collx::errc::protocol, world.rank(), -1, "not told", "");
                } catch (const collx::peer_failed& e) {
                    if (e.peer() != 2) throw;
                }
                collx::communicator rest = other.shrink(); // does not wait for it, either
                if (rest.size() != 2 || collx::now_ns() - begin > collx_test::patient(25'000'000'000))
                    throw collx::error(collx::errc::protocol, world.rank(), -1, "waited for who has gone", "");
                x[0] = 1;
                collx::all_reduce(rest, x);
                if (x[0] != 2) throw collx::error(collx::errc::protocol, world.rank(), -1, "wrong sum", "");
            }
        }
        collx::barrier(world);
    });
    for (int r = 0; r < 3; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("ranks that make no more calls may still meet") {
    CHECK_NOTHROW(collx::run_threads(2, [](collx::communicator& world) {
        world.internals().net.say_end();
        if (world.rank() == 1) ::usleep(50'000);
        collx::barrier(world);
    }));
}

TEST_CASE("a program that only asks, and never waits, hears of a death and of time that has run out") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        int x = 0, y = 0;
        const auto told = [&](bool holds) {
            if (!holds) throw collx::error(collx::errc::protocol, world.rank(), -1, "not told", "");
        };
        collx::barrier(world);
        auto second = world.split(world.rank() == 2 ? -1 : 0), third = world.split(0);
        third.set_timeout(200ms);
        if (world.rank() == 0) { // no rank sends
            auto mine = collx::async::recv(third, collx::value(x), 2);
            const auto begin = collx::now_ns();
            try {
                while (!mine.test() && collx::now_ns() - begin < collx_test::patient(25'000'000'000)) ::usleep(1000);
                told(false);
            } catch (const collx::timed_out& e) {
                told(e.peer() == 2 && collx::now_ns() - begin >= 200'000'000);
            }
        }
        collx::barrier(world);
        if (world.rank() != 1) {
            collx::send(world, collx::value(x), 1);
        } else { // dies when no rank is in the barrier any more; otherwise the barrier would report it
            collx::recv(world, collx::value(x), 0);
            collx::recv(world, collx::value(x), 2);
            ::raise(SIGKILL);
        }
        std::optional<collx::work<void>> second_work; // on rank 0
        if (world.rank() == 0) second_work.emplace(collx::async::recv(second, collx::value(y), 1));
        try {
            auto first_work = collx::async::recv(world, collx::value(x), 1);
            for (int i = 0; i < 20'000 && !first_work.test(); ++i) ::usleep(1000);
            told(false);
        } catch (const collx::peer_failed& e) {
            told(e.peer() == 1);
        }
        if (world.rank() == 2) return;
        for (int i = 0; i < 20'000 && second.progress() > 0; ++i) ::usleep(1000);
        told(second.progress() == 0);
        try {
            (void)second_work->test();
            told(false);
        } catch (const collx::peer_failed& e) {
            told(e.peer() == 1);
        }
    });
    for (const int r : {0, 2}) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("survivors go on in a new communicator, and the memory of the old ones comes back") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        const auto free_bytes = [&] {
            std::uint64_t bytes = 0;
            const auto& h = world.membership()->memory->header();
            for (int i = 0; i < h.free_count; ++i) bytes += h.free[i].bytes;
            return bytes;
        };
        const auto expect = [&](bool holds, const char* what) {
            if (!holds) throw collx::error(collx::errc::protocol, world.rank(), -1, what, "");
        };
        int x = 1;
        const auto at_first = free_bytes();
        collx::barrier(world);
        auto part = world.split(0);
        try {
            collx::barrier(part); // a rank may still be in it when another hears of the death in the next one
            if (world.rank() == 1) ::raise(SIGKILL);
            for (;;) collx::barrier(part);
        } catch (const collx::peer_failed& e) {
            expect(e.peer() == 1, "the dead rank's number");
        }
        // The whole job cannot make a communicator any more, and no memory for it is lost.
        auto home = world.internals().home;
        try {
            collx::communicator again(home);
            expect(false, "a communicator with a dead rank");
        } catch (const collx::peer_failed&) {
        }
        part = world.shrink();
        expect(part.size() == 2 && part.rank() == world.rank() / 2, "ranks keep their order");
        for (int i = 0; i < 50; ++i) {
            auto next = part.shrink(); // no rank has died: the same ranks again
            collx::all_reduce(next, collx::value(x = 1));
            expect(x == 2, "two ranks");
            auto both = next.split(0);
            collx::all_reduce(both, collx::value(x = 1));
            expect(x == 2, "two ranks");
        }
        collx::barrier(part);
        collx::communicator last = part.shrink();
        part = std::move(last);
        collx::barrier(part);
        const auto links = part.internals().net.arena_bytes();
        if (part.rank() == 0)
            expect(free_bytes() == at_first - links, "free memory as at first, but for one communicator");
        collx::barrier(part);
    });
    CHECK(all[1].exit_code == 128 + SIGKILL);
    for (const int r : {0, 2}) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("who lives and does not come to shrink is named, and may come later") {
    collx_test::processes all;
    collx_test::shared_page<std::atomic<int>> come, told;
    const auto limit = collx_test::heard_within(3000ms);
    run_three(all, [&](collx::communicator& world) {
        if (world.rank() == 0) world.abort();
        if (world.rank() == 2) collx_test::wait_until(*told, 2);
        else {
            world.set_timeout(limit);
            come->fetch_add(1);
            collx_test::wait_until(*come, 2);
        }
        for (int tries = 0;; ++tries) {
            try {
                auto next = world.shrink();
                next.set_timeout(collx_test::patient(30s));
                collx::barrier(next);
                if (next.size() == 3 && (tries > 0) == (world.rank() != 2)) return;
                throw collx::error(collx::errc::protocol, world.rank(), -1, "too early, or without a rank", "");
            } catch (const collx::timed_out& e) {
                if (e.peer() != 2 || tries > 50) throw;
                if (tries == 0) told->fetch_add(1);
            }
        }
    });
    for (int r = 0; r < 3; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("who gives up shrinking for a moment is not left out") {
    collx_test::processes all;
    run_three(all, [&](collx::communicator& world) {
        collx::communicator now = world.split(0);
        for (int i = 0; i < 30; ++i) {
            if (now.rank() == 0) now.abort();
            now.set_timeout(now.rank() == 2 ? collx_test::patient(30s)
                                            : std::chrono::nanoseconds(
                                                  1ms)); // two try and give up repeatedly until the third comes
            if (now.rank() == 2) ::usleep(3'000);
            collx::communicator next = [&] {
                for (int tries = 0;; ++tries) {
                    try {
                        return now.shrink();
                    } catch (const collx::timed_out&) {
                        if (tries > 20'000) throw;
                    }
                }
            }();
            if (next.size() != 3)
                throw collx::error(collx::errc::protocol, now.rank(), -1, "without one that lives", "");
            next.set_timeout(collx_test::patient(30s));
            try {
                collx::barrier(next);
            } catch (const collx::aborted&) {
            } // rank 0 has left it and started the next round
            now = std::move(next);
        }
    });
    for (int r = 0; r < 3; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("communicators of one process may wait in several threads at once") {
    collx_test::processes all;
    run_three(all, [](collx::communicator& world) {
        auto a = world.split(0), b = world.split(0);
        const auto wait_long = [](collx::communicator& c) {
            int x = 1;
            for (int i = 0; i < 20; ++i) {
                if (c.rank() == i % 3) ::usleep(5'000); // the others check which ranks live
                collx::all_reduce(c, collx::value(x = 1));
                if (x != 3) throw collx::error(collx::errc::protocol, c.rank(), -1, "wrong sum", "");
            }
            if (c.rank() == 1) ::raise(SIGKILL);
            for (;;) collx::barrier(c);
        };
        int told = 0;
        const auto until_dead = [&](collx::communicator& c) {
            try {
                wait_long(c);
            } catch (const collx::peer_failed& e) {
                return e.peer() == 1;
            }
            return false;
        };
        bool other = false;
        std::thread t([&] { other = until_dead(b); });
        told += until_dead(a);
        t.join();
        if (told + other != 2) throw collx::error(collx::errc::protocol, world.rank(), 1, "not both got the error", "");
    });
    for (const int r : {0, 2}) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
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
        CHECK(all[r].took_ns < collx_test::patient(25'000'000'000));
    }
}
