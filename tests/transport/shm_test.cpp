// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joining a job of processes: it works, every mistake gives the same typed error on all ranks, and nothing stays
// behind. Hostile clients, limits and deaths are in shm_fault_test.cpp.
//
// collx-test: sanitize=address serial timeout=240
#include <collx/transport/shm.hpp>

#include <catch2/catch.hpp>

#include "support/processes.hpp"
#include "transport/shm_support.hpp"

using namespace collx;
using namespace collx_test;

namespace {

// A limit that is waited out, in ms; join_and_leave() takes ten seconds for one that is not.
int reached_limit(int ms) {
    return static_cast<int>(std::min<long>(heard_within(std::chrono::milliseconds(ms)).count(), 9'900));
}

} // namespace

TEST_CASE("ranks that join see one memory") {
    for (const int ranks : {1, 2, 3, 5, 8, 16}) {
        const std::string job = fresh_job();
        processes p;
        for (int r = ranks - 1; r >= 0; --r)
            p.start(r, [&] {
                auto a = join_shm(job.c_str(), r, ranks, deadline::in_ns(collx_test::patient(20'000'000'000)));
                auto& h = a->header();
                if (static_cast<int>(h.arrived.load()) != ranks || h.ranks != ranks || h.pid[r].load() != ::getpid())
                    return 2;
                // Each rank adds to one word; the total shows that all ranks map the same memory.
                auto& sum = *reinterpret_cast<std::atomic<int>*>(a->at(a->bytes() / 2));
                sum.fetch_add(r + 1);
                for (const auto until = deadline::in_ns(collx_test::patient(20'000'000'000));
                     sum.load() != ranks * (ranks + 1) / 2;)
                    if (until.passed()) return 3;
                return 0;
            });
        p.wait();
        for (int r = 0; r < ranks; ++r) {
            INFO("rank " << r << " of " << ranks << ": " << p[r].what);
            CHECK(p[r].is_ok());
        }
    }
}

TEST_CASE("one process may join one job after the other, also of the same name") {
    const std::string job = fresh_job();
    processes p;
    for (int r = 0; r < 3; ++r)
        p.start(r, [&] {
            for (int i = 0; i < 20; ++i) {
                auto a = join_shm(job.c_str(), r, 3, deadline::in_ns(collx_test::patient(10'000'000'000)));
                if (a->header().arrived.load() != 3) return 2;
            }
            return 0;
        });
    p.wait();
    for (int r = 0; r < 3; ++r) {
        INFO(p[r].what);
        CHECK(p[r].is_ok());
    }
}

TEST_CASE("ranks that disagree about the size all hear who says what") {
    const std::string job = fresh_job();
    processes p;
    for (int r = 0; r < 5; ++r)
        p.start(r, [&] {
            if (r == 4) ::usleep(50'000);
            return join_and_leave(job, r, r == 3 ? 4 : 5, 20'000);
        });
    p.wait();
    for (int r = 0; r < 5; ++r) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::mismatch); // also on ranks that connect after others have failed
        CHECK(p[r].says("rank 3 (process "));
        CHECK(p[r].says("says 4 ranks, rank 0 says 5"));
    }
}

TEST_CASE("ranks whose settings differ all hear who says what") {
    const struct {
        const char *odd, *others, *says;
        errc code;
    } table[] = {{"version=1 checked=1 single_copy=0", "version=1 checked=0 single_copy=0",
                  "says checked=1, rank 0 says checked=0", errc::mismatch},
                 {"version=1 protection=none key=none", "version=1 protection=auth_only key=77",
                  "says protection=none, rank 0", errc::security},
                 {"version=1 protection=auth_only key=5", "version=1 protection=auth_only key=77",
                  "says key=5, rank 0 says key=77", errc::security}};
    for (const auto& c : table)
        for (const int n : {2, 5}) {
            const std::string job = fresh_job();
            processes p;
            for (int r = 0; r < n; ++r)
                p.start(r, [&] {
                    const char* mine = r == n - 1 ? c.odd : c.others;
                    (void)join_shm(job.c_str(), r, n, deadline::in_ns(collx_test::patient(10'000'000'000)),
                                   std::size_t{1} << 30, mine);
                    return 0;
                });
            p.wait();
            for (int r = 0; r < n; ++r) {
                INFO(p[r].what);
                CHECK(p[r].code == c.code);
                CHECK(p[r].peer == n - 1);
                CHECK(p[r].says(("rank " + std::to_string(n - 1) + " " + c.says).c_str()));
            }
        }
}

TEST_CASE("a rank number given twice is an error on all ranks, with both processes named") {
    const std::string job = fresh_job();
    processes p;
    for (int r = 0; r < 3; ++r) p.start(r, [&] { return join_and_leave(job, r, 4, 20'000); });
    p.start(3, [&] {
        ::usleep(100'000);
        return join_and_leave(job, 2, 4, 20'000);
    });
    p.wait();
    for (int r = 0; r < 4; ++r) {
        INFO("process " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::mismatch);
        CHECK(p[r].peer == 2);
        CHECK(p[r].says("two processes say they are rank 2"));
        CHECK(p[r].took_ns < collx_test::patient(15'000'000'000)); // well before their deadline
    }
}

TEST_CASE("a second rank 0 hears which process was first, and the job goes on without it") {
    const std::string job = fresh_job();
    shared_page<std::atomic<int>> refused;
    processes p;
    p.start(0, [&] { return join_and_leave(job, 0, 2, 20'000); });
    const pid_t first = p.pid(0);
    p.start(1, [&] {
        if (!wait_for_guests(job, 0)) return 9;
        try {
            return join_and_leave(job, 0, 2, 20'000);
        } catch (const error&) {
            refused->store(1);
            throw;
        }
    });
    p.start(2, [&] { return wait_until(*refused, 1) ? join_and_leave(job, 1, 2, 20'000) : 9; });
    p.wait();
    INFO(p[1].what);
    CHECK(p[0].is_ok());
    CHECK(p[2].is_ok());
    CHECK(p[1].code == errc::mismatch);
    CHECK(p[1].says(("process " + std::to_string(first)).c_str()));
}

TEST_CASE("ranks that do not come are named on all ranks that did, when the time is over and not before") {
    const std::string job = fresh_job();
    const int limit_ms = reached_limit(3000);
    processes p;
    for (const int r : {0, 1, 5}) p.start(r, [&] { return join_and_leave(job, r, 9, limit_ms); }); // not at once
    p.wait();
    for (const int r : {0, 1, 5}) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::timeout);
        CHECK(p[r].peer == 2);
        CHECK(p[r].says("6 of 9 ranks did not come: 2-4, 6-8"));
        CHECK(p[r].took_ns > 300'000'000);
        CHECK(p[r].took_ns < collx_test::patient(15'000'000'000));
    }
}

TEST_CASE("a rank 0 that is not scheduled when the time is over still says who is missing") {
    const std::string job = fresh_job();
    const int limit_ms = 4000;
    const auto over = deadline::in_ns((limit_ms + 700) * 1'000'000LL);
    processes p;
    for (const int r : {0, 1}) p.start(r, [&] { return join_and_leave(job, r, 3, limit_ms); });
    REQUIRE(wait_for_guests(job, 1));
    ::usleep(1'000'000); // give_time_for_words(), but never longer than the limit
    ::kill(p.pid(0), SIGSTOP);
    while (!over.passed()) ::usleep(1000); // its guest has waited 0.7 s in vain
    ::kill(p.pid(0), SIGCONT);
    p.wait();
    for (const int r : {0, 1}) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::timeout);
        CHECK(p[r].peer == 2);
        CHECK(p[r].says("1 of 3 ranks did not come: 2"));
    }
}

TEST_CASE("the most impatient rank ends the waiting of all") {
    const std::string job = fresh_job();
    const int limit_ms = reached_limit(3000);
    processes p;
    for (int r = 0; r < 3; ++r) p.start(r, [&] { return join_and_leave(job, r, 4, r == 1 ? limit_ms : 30'000); });
    p.wait();
    for (int r = 0; r < 3; ++r) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::timeout);
        CHECK(p[r].says("1 of 4 ranks did not come: 3"));
        CHECK(p[r].took_ns < collx_test::patient(15'000'000'000));
    }
}

TEST_CASE("without rank 0 the others say so") {
    processes p;
    const std::string job = fresh_job();
    for (const int r : {1, 2}) p.start(r, [&] { return join_and_leave(job, r, 3, 300); });
    p.wait();
    for (const int r : {1, 2}) {
        INFO(p[r].what);
        CHECK(p[r].code == errc::timeout);
        CHECK(p[r].peer == 0);
        CHECK(p[r].says("rank 0 did not come"));
    }
}

TEST_CASE("jobs of different names do not see each other") {
    const std::string job = fresh_job(), other = fresh_job();
    processes p;
    for (int r = 0; r < 2; ++r) {
        p.start(r, [&] { return join_and_leave(job, r, 2, 20'000); });
        p.start(2 + r, [&] { return join_and_leave(other, r, 2, 20'000); });
    }
    p.start(4, [&] { return join_and_leave(other + "x", 1, 2, 300); });
    p.wait();
    for (int i = 0; i < 4; ++i) {
        INFO(p[i].what);
        CHECK(p[i].is_ok());
    }
    CHECK(p[4].code == errc::timeout);
}

TEST_CASE("what no job can be is refused at once") {
    const auto until = deadline::in_ns(collx_test::patient(10'000'000'000));
    const auto code_of = [&](const char* job, int rank, int ranks) {
        try {
            (void)join_shm(job, rank, ranks, until);
        } catch (const error& e) {
            return e.code();
        }
        return errc::forked;
    };
    CHECK(code_of("j", 0, 0) == errc::invalid_argument);
    CHECK(code_of("j", 0, -1) == errc::invalid_argument);
    CHECK(code_of("j", 2, 2) == errc::invalid_argument);
    CHECK(code_of("j", -1, 2) == errc::invalid_argument);
    CHECK(code_of("j", 0, max_local_ranks + 1) == errc::invalid_argument);
    CHECK(code_of("", 0, 2) == errc::environment);
    CHECK(code_of(nullptr, 1, 2) == errc::environment);
    CHECK_NOTHROW(join_shm(nullptr, 0, 1, until));
    CHECK_FALSE(until.passed());
}

TEST_CASE("a rank that dies while the others wait ends the start at once, by name") {
    const std::string job = fresh_job();
    processes p;
    for (const int r : {0, 1, 2}) p.start(r, [&] { return join_and_leave(job, r, 4, 30'000); });
    REQUIRE(wait_for_guests(job, 2));
    give_time_for_words();
    const pid_t victim = p.pid(2);
    ::kill(victim, SIGKILL);
    p.wait();
    CHECK(p[2].exit_code == 128 + SIGKILL);
    for (const int r : {0, 1}) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::peer_failed);
        CHECK(p[r].peer == 2);
        CHECK(p[r].took_ns < collx_test::patient(15'000'000'000));
    }
}

TEST_CASE("rank 0 dying while the others wait ends their start at once") {
    const std::string job = fresh_job();
    processes p;
    for (const int r : {0, 1, 2}) p.start(r, [&] { return join_and_leave(job, r, 4, 30'000); });
    REQUIRE(wait_for_guests(job, 2));
    give_time_for_words();
    ::kill(p.pid(0), SIGKILL);
    p.wait();
    for (const int r : {1, 2}) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].code == errc::peer_failed);
        CHECK(p[r].peer == 0);
        CHECK(p[r].took_ns < collx_test::patient(15'000'000'000));
    }
}

TEST_CASE("the memory's size is sealed") {
    auto a = join_shm(nullptr, 0, 1, {}, std::size_t{64} << 20);
    REQUIRE(a->bytes() == std::size_t{64} << 20);
    CHECK(::ftruncate(a->fd(), 4096) == -1);
    CHECK(errno == EPERM);
    CHECK(::ftruncate(a->fd(), std::int64_t{128} << 20) == -1);
    CHECK(::fcntl(a->fd(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
    CHECK((::fcntl(a->fd(), F_GETFD) & FD_CLOEXEC) != 0);
    // Freeing pages must still be possible.
    const auto at = a->take(page_bytes);
    *a->at(at) = std::byte{1};
    a->give_back(at, page_bytes);
    CHECK(*a->at(at) == std::byte{0});
}

TEST_CASE("a thousand jobs leave no descriptor, mapping or name behind") {
    const counts before = count_mine();
    for (int i = 0; i < 1000; ++i) (void)join_shm(nullptr, 0, 1, {});
    CHECK(count_mine() == before);

    const std::string job = fresh_job();
    processes p;
    for (int r = 0; r < 2; ++r)
        p.start(r, [&] {
            (void)join_shm(job.c_str(), r, 2,
                           deadline::in_ns(collx_test::patient(10'000'000'000))); // makes what exists once per process
            const counts at_first = count_mine();
            for (int i = 0; i < 100; ++i) {
                auto a = join_shm(job.c_str(), r, 2, deadline::in_ns(collx_test::patient(10'000'000'000)));
                peer_watch watch(*a, r, 2);
                if (watch.watched() != 1) return 3;
            }
            return count_mine() == at_first ? 0 : 2;
        });
    p.wait();
    for (int r = 0; r < 2; ++r) {
        INFO(p[r].what);
        CHECK(p[r].is_ok());
    }
    CHECK(count_mine() == before);
    CHECK(unix_sockets_of(job) == 0);
}
