// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Thousands of communicators are made, fail and are destroyed in the same processes. Afterwards descriptors,
// mappings, the arena's address space and memory, and system-wide names are as before.
// collx-test: serial timeout=300
#include <sys/stat.h>

#include "faults/support.hpp"
#include "support/night.hpp"
#include "transport/shm_support.hpp"

using namespace collx_test;
using collx::errc;

namespace {

std::string current_job; // of this process and the ranks that it starts

// The counts that must not grow.
struct belongings {
    int descriptors = 0, mappings = 0, arenas = 0, shm_names = 0, sockets = 0;
    long free_ranges = 0, free_bytes = 0, memory_blocks = 0; // of the arena; only rank 0 counts, while the others wait
};
belongings count(const collx::arena& a) {
    belongings b;
    b.descriptors = entries_of("/proc/self/fd");
    b.mappings = lines_with("/proc/self/maps", "");
    b.arenas = lines_with("/proc/self/maps", "memfd:collx");
    b.shm_names = shm_names();
    b.sockets = unix_sockets_of(current_job);
    b.free_ranges = a.header().free_count;
    for (int i = 0; i < a.header().free_count; ++i) b.free_bytes += static_cast<long>(a.header().free[i].bytes);
    struct stat about {};
    ::fstat(a.fd(), &about);
    b.memory_blocks = about.st_blocks;
    return b;
}

// The life of one communicator and its children; its end depends on k. Errors are expected where the end is a failure.
void live_and_fail(const collx::counted_ptr<collx::job>& home, int k) {
    collx::communicator world(home);
    const int r = world.rank(), n = world.size();
    world.set_timeout(collx_test::patient(std::chrono::seconds(20)));
    int x = 1;
    try { // from here on, because other ranks may already fail
        collx::all_reduce(world, collx::value(x));
        auto part = world.split(r == n - 1 && k % 3 == 0 ? -1 : r % 2);
        if (!part.is_empty()) collx::all_reduce(part, collx::value(x));
        switch (k % 5) {
            case 0: break;
            case 1: // one rank aborts it while the others are in a call, after the split has ended on all ranks
                collx::barrier(world);
                if (k % n == r) world.abort();
                else collx::barrier(world);
                break;
            case 2: // its child is aborted
                if (!part.is_empty() && part.rank() == 0) part.abort();
                if (!part.is_empty()) collx::barrier(part);
                break;
            case 3: // message sizes differ
                if (r == 0) collx::send(world, std::vector<int>(5), 1);
                if (r == 1) collx::recv(world, collx::value(x), 0);
                if (r == 2) collx::recv(world, collx::value(x), 1);
                break;
            case 4: // no other rank calls
                if (r == 0) collx::recv(world, collx::value(x), 1, {.timeout = std::chrono::milliseconds(1)});
                else collx::barrier(world);
                break;
        }
    } catch (const collx::error& e) {
        const errc expected[] = {errc::protocol, errc::aborted, errc::aborted, errc::mismatch, errc::timeout};
        if (e.code() != expected[k % 5]) throw;
    }
}

template <class F>
void run_three_in_one_job(F&& body) {
    processes all;
    const std::string job = current_job = new_job();
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            const auto home = join(job, r, 3);
            collx::communicator still(home);
            body(home, still);
            return 0;
        });
    all.wait(200'000);
    for (int r = 0; r < 3; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

[[noreturn]] void grown(int rank, const char* what, long before, long after) {
    collx::fail(errc::protocol, rank, -1, "", "%s: %ld before, %ld after", what, before, after);
}
// The barriers ensure that no rank makes or destroys anything while rank 0 counts.
belongings count_in_peace(collx::communicator& w) {
    collx::barrier(w);
    const belongings b = count(*w.internals().home->memory);
    collx::barrier(w);
    return b;
}
void compare(const belongings& a, const belongings& b, int rank) {
    if (a.descriptors != b.descriptors) grown(rank, "descriptors", a.descriptors, b.descriptors);
    if (b.mappings > a.mappings + 2) grown(rank, "mappings", a.mappings, b.mappings); // malloc may add some
    if (a.arenas != b.arenas) grown(rank, "mapped arenas", a.arenas, b.arenas);
    if (a.shm_names != b.shm_names) grown(rank, "names in /dev/shm", a.shm_names, b.shm_names);
    if (a.sockets != b.sockets) grown(rank, "socket names", a.sockets, b.sockets);
    if (rank != 0) return;
    if (a.free_bytes != b.free_bytes) grown(rank, "free bytes of the arena", a.free_bytes, b.free_bytes);
    if (b.free_ranges > a.free_ranges) grown(rank, "ranges in the free list", a.free_ranges, b.free_ranges);
    if (b.memory_blocks > a.memory_blocks) grown(rank, "blocks of shared memory", a.memory_blocks, b.memory_blocks);
}

} // namespace

// 300 by day, a thousand at night, or as many as fit a minute.
TEST_CASE("hundreds of communicators that were made, failed and destroyed leave nothing") {
    const int lives = collx_test::is_night() ? 1000 : 300;
    run_three_in_one_job([lives](const collx::counted_ptr<collx::job>& home, collx::communicator& still) {
        for (int k = 0; k < 15; ++k) live_and_fail(home, k);
        int go_on = 1;
        collx::broadcast(still, collx::value(go_on)); // keeps what its first call allocates
        const belongings before = count_in_peace(still);
        const std::int64_t until =
            collx::now_ns() + collx_test::patient(60'000 * ms); // a busy machine makes some hundreds in that time
        for (int k = 0; k < lives && go_on != 0; ++k) {
            live_and_fail(home, k);
            if (k % 50 != 49) continue;
            go_on = k < 100 || collx::now_ns() < until;
            collx::broadcast(still, collx::value(go_on));
        }
        compare(before, count_in_peace(still), still.rank());
    });
}

TEST_CASE("a communicator that not all ranks made in time leaves nothing") {
    run_three_in_one_job([](const collx::counted_ptr<collx::job>& home, collx::communicator& still) {
        const int me = still.rank();
        const auto try_to_make = [&](int late) {
            collx::barrier(still);
            home->settings.timeout_ns = me == late && late != 0 ? 20'000 * ms : 20 * ms; // rank 0 is not notified
            if (me == late) collx::barrier(still); // by then the others have given up
            int failures = 0;
            try {
                collx::communicator w(home);
                collx::barrier(w);
            } catch (const collx::timed_out&) {
                ++failures;
            }
            if (me != late) collx::barrier(still);
            if (failures != 1) collx::fail(errc::protocol, me, -1, "", "no time-out although rank %d came late", late);
        };
        const auto make = [&] { // a rank that gave up before rank 0 made one settles that here
            home->settings.timeout_ns = patient(20'000 * ms);
            collx::communicator w(home);
            collx::barrier(w);
        };
        for (int k = 0; k < 6; ++k) try_to_make(k % 3);
        make();
        const belongings before = count_in_peace(still);
        for (int k = 0; k < 51; ++k) try_to_make(k % 3);
        make();
        compare(before, count_in_peace(still), me);
    });
}

TEST_CASE("jobs that were joined and left leave nothing") {
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            const auto life = [&](int k) {
                auto home = join(job + "-" + std::to_string(k), r, 3);
                collx::communicator world(home);
                int x = 1;
                try {
                    collx::all_reduce(world, collx::value(x));
                    if (k % 2 == 0 && r == 1) world.abort();
                    collx::barrier(world);
                } catch (const collx::aborted&) {
                }
            };
            life(0);
            const int descriptors = entries_of("/proc/self/fd"), mappings = lines_with("/proc/self/maps", "");
            for (int k = 1; k < 100; ++k) life(k);
            if (entries_of("/proc/self/fd") != descriptors)
                grown(r, "descriptors", descriptors, entries_of("/proc/self/fd"));
            if (lines_with("/proc/self/maps", "") > mappings + 2)
                grown(r, "mappings", mappings, lines_with("/proc/self/maps", ""));
            if (lines_with("/proc/self/maps", "memfd:collx") != 0)
                grown(r, "mapped arenas", 0, lines_with("/proc/self/maps", "memfd:collx"));
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < 3; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("when all ranks are killed in the middle of calls no name is left") {
    const int names = shm_names();
    int sockets = 0;
    for (int round = 0; round < 5; ++round) {
        shared_page<report> page;
        processes all;
        const std::string job = new_job();
        for (int r = 0; r < 3; ++r)
            all.start(r, [&, r]() -> int {
                collx::communicator world(join(job, r, 3)), half = world.split(r % 2);
                std::vector<int> x(100'000, 1);
                page->ready.fetch_add(1);
                for (;;) collx::all_reduce(world, x);
            });
        wait_until(page->ready, 3);
        ::usleep(3'000);
        for (int r = 0; r < 3; ++r) ::kill(all.pid(r), SIGKILL);
        all.wait();
        sockets += unix_sockets_of(job);
    }
    CHECK(shm_names() == names);
    CHECK(sockets == 0);
}
