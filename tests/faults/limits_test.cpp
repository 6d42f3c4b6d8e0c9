// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators where the system gives less than usual: few descriptors, little address space, a small /dev/shm, no
// more shared memory. The rank that notices it throws `resource`; the other ranks are notified at once instead of
// timing out.
// collx-test: serial timeout=240
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <filesystem>

#include "faults/support.hpp"
#include "support/sanitizers.hpp"
#include "support/skip.hpp"
#include "transport/shm_support.hpp"

namespace {
int fallocate_fails_at = -1; // counts down to the failing call
}
// Replaces the C library's function, so that memory can run out wherever a test wants.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (fallocate_fails_at >= 0 && fallocate_fails_at-- == 0) {
        errno = ENOSPC;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}

using namespace collx_test;
using collx::errc;

namespace {

void limit(decltype(RLIMIT_AS) what, std::size_t to) {
    const rlimit low{to, to};
    ::setrlimit(what, &low);
}
void use(collx::communicator& w) {
    std::vector<int> x(50'000, 1);
    collx::all_reduce(w, x);
    for (const int v : x)
        if (v != w.size()) throw wrong_data(w.rank(), "all_reduce");
    collx::broadcast(w, x, {.root = w.size() - 1});
    collx::barrier(w);
}

} // namespace

TEST_CASE("few descriptors: it works, or every rank gets an error that says so") {
    constexpr std::size_t limits[] = {4, 5, 6, 7, 8, 10, 64};
    const auto of_mute = heard_within(std::chrono::milliseconds(4000)); // for ranks that cannot say why
    for (const int n : {3, 8}) { // all jobs of one size run at once: most of them only wait
        processes all;
        for (int i = 0; i < 7; ++i) {
            const std::int64_t limit_ms = limits[i] == 64 ? 20'000 : of_mute.count(); // of the start
            const std::string job = new_job();
            for (int r = 0; r < n; ++r)
                all.start(i * n + r, [&, r] {
                    for (int fd = 3; fd < 100; ++fd) ::close(fd);
                    limit(RLIMIT_NOFILE, limits[i]);
                    collx::communicator world(join(job, r, n, limit_ms * ms));
                    world.set_timeout(collx_test::patient(std::chrono::seconds(20)));
                    use(world);
                    auto half = world.split(r % 2);
                    use(half);
                    return 0;
                });
        }
        all.wait();
        for (int i = 0; i < 7; ++i) {
            int good = 0;
            for (int r = 0; r < n; ++r) {
                const outcome& one = all[i * n + r];
                INFO(n << " ranks, " << limits[i] << " descriptors, rank " << r << ": " << one.what);
                good += one.is_ok();
                CHECK(one.exit_code != outcome::killed_by_test);
                // A rank that cannot even open a socket cannot tell the others the reason.
                if (one.has_thrown)
                    CHECK((one.code == errc::resource || one.code == errc::peer_failed || one.says("rank 0 did not")));
                CHECK(one.took_ns < collx_test::patient(15'000 * ms));
            }
            INFO(n << " ranks, " << limits[i] << " descriptors");
            CHECK((good == n || good == 0));
            if (limits[i] == 64) CHECK(good == n);
        }
    }
}

TEST_CASE("a file of records that cannot be mapped is not left behind") {
    char directory[] = "/tmp/collx-records-XXXXXX";
    REQUIRE(::mkdtemp(directory) != nullptr);
    processes all;
    const std::string job = new_job();
    all.start(0, [&] {
        collx::communicator world(join(job, 0, 1));
        rlimit low{};
        ::getrlimit(RLIMIT_AS, &low);
        low.rlim_cur = 1 << 20; // less than the process has
        ::setrlimit(RLIMIT_AS, &low);
        world.record_calls(1000, directory);
        return 0;
    });
    all.wait();
    INFO(all[0].what);
    CHECK(all[0].has_thrown);
    CHECK(all[0].code == errc::resource);
    CHECK(all[0].says("raise the address space limit (ulimit -v)"));
    CHECK(std::filesystem::is_empty(directory));
    std::filesystem::remove_all(directory);
}

TEST_CASE("little address space: communicators until none fits, then every rank gets an error and the old ones go on") {
#if COLLX_TEST_ASAN
    return skip("the address sanitizer itself needs the address space");
#else
    constexpr int n = 3;
    shared_page<report> page;
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < n; ++r)
        all.start(r, [&, r] {
            limit(RLIMIT_AS, std::size_t{10} << 30);
            const auto home = join(job, r, n);
            collx::communicator world(home);
            use(world);
            // Communicators need little memory, so most of the arena is taken first.
            if (r == 0) (void)home->memory->take(home->memory->bytes() - (std::size_t{512} << 20));
            std::vector<collx::communicator> more;
            const auto expect_resource = [&](auto&& make) {
                for (int i = 0; i < 1000; ++i) {
                    int is_full = 0;
                    try {
                        more.push_back(make(i));
                        use(more.back());
                    } catch (const collx::error& e) {
                        if (e.code() != errc::resource) throw;
                        is_full = 1;
                    }
                    // A rank that completed the call before another rank found no memory has seen no error.
                    collx::all_reduce(world, collx::value(is_full), collx::max{});
                    if (is_full != 0) return;
                }
                collx::fail(errc::protocol, r, -1, "", "1000 communicators in 512 MiB");
            };
            int none = 0;
            collx::all_reduce(world, collx::value(none), collx::max{});
            expect_resource([&](int) { return world.split(0); });
            use(world);
            expect_resource([&](int) { return collx::communicator(home); });
            use(world);
            use(more.front());
            page->ranks[r].calls = static_cast<long>(more.size());
            more.clear();
            collx::barrier(world);
            auto again = world.split(0);
            use(again);
            return 0;
        });
    all.wait();
    for (int r = 0; r < n; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
        CHECK(page->ranks[r].calls >= 1);
        CHECK(all[r].took_ns < collx_test::patient(25'000 * ms));
    }
#endif
}

TEST_CASE("shared memory ends at any moment: no signal, no wait for the time-out") {
    constexpr int n = 3;
    int failed_rounds = 0, heard = 0;
    for (int k = 0; k < 60; ++k) {
        const int victim = k % n;
        INFO("rank " << victim << " has no memory at its request " << k / n);
        processes all;
        const std::string job = new_job();
        for (int r = 0; r < n; ++r)
            all.start(r, [&, r] {
                if (r == victim) fallocate_fails_at = k / n;
                collx::communicator world(join(job, r, n));
                use(world);
                auto part = world.split(0);
                use(part);
                int x = r, from = -1;
                collx::sendrecv(world, collx::value(x), (r + 1) % n, collx::value(from), (r + n - 1) % n);
                collx::barrier(world); // no rank leaves before all have had their error
                return 0;
            });
        all.wait();
        if (all[victim].is_ok()) { // it makes fewer requests than that
            for (int r = 0; r < n; ++r) CHECK(all[r].is_ok());
            continue;
        }
        ++failed_rounds;
        for (int r = 0; r < n; ++r) {
            INFO("rank " << r << ": exit " << all[r].exit_code << ", " << all[r].what);
            CHECK(all[r].has_thrown);
            CHECK((all[r].code == errc::resource || (r != victim && all[r].code == errc::peer_failed)));
            if (r != victim) CHECK(all[r].peer == victim);
            if (all[r].says(
                    "has no descriptor, port or memory left")) { // the victim's notification arrived during a call
                CHECK(all[r].says("(free memory there, or raise the memory limit of its job)"));
                ++heard;
            }
            CHECK(all[r].took_ns < collx_test::patient(15'000 * ms));
        }
    }
    CHECK(failed_rounds >= 9);
    CHECK(heard > 0);
}

TEST_CASE("shared memory that ends in the middle of a vector is given back") {
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < 2; ++r)
        all.start(r, [&, r] {
            collx::communicator world(join(job, r, 2));
            use(world);
            collx::barrier(world);
            if (r == 0) {
                const collx::arena& memory = *world.membership()->memory;
                const auto taken = [&] {
                    std::uint64_t free_bytes = 0;
                    for (int i = 0; i < memory.header().free_count; ++i) free_bytes += memory.header().free[i].bytes;
                    struct stat s {};
                    ::fstat(memory.fd(), &s);
                    return std::pair(free_bytes, s.st_blocks);
                };
                const auto before = taken();
                fallocate_fails_at = 3;
                try {
                    (void)collx::make_shared_vector<int>(world, std::size_t{2} << 20, 1); // 8 MiB
                    return 2;
                } catch (const collx::error& e) {
                    if (e.code() != errc::resource || taken() != before) return 3;
                }
            }
            collx::barrier(world);
            return 0;
        });
    all.wait();
    for (int r = 0; r < 2; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE("/dev/shm may be small, read-only or not there") {
    constexpr int n = 3, no_namespace = 99;
    struct shm_folder {
        const char* at;
        unsigned long flags;
    };
    for (const shm_folder& f : {shm_folder{"/dev/shm", 0}, {"/dev/shm", MS_RDONLY}, {"/dev", MS_RDONLY}}) {
        INFO(f.at << ", flags " << f.flags);
        processes all;
        const std::string job = new_job();
        for (int r = 0; r < n; ++r)
            all.start(r, [&, r] {
                if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                    ::mount("tmpfs", f.at, "tmpfs", f.flags, "size=4m") != 0)
                    return no_namespace;
                collx::communicator world(join(job, r, n));
                auto x = collx::make_shared_vector<int>(world, std::size_t{3} << 20, 1); // 12 MiB on each rank
                collx::all_reduce(world, x);
                for (const int v : x)
                    if (v != n) throw wrong_data(r, "all_reduce");
                collx::barrier(world);
                return 0;
            });
        all.wait();
        if (all[0].exit_code == no_namespace) return skip("a mount namespace needs root");
        for (int r = 0; r < n; ++r) {
            INFO(all[r].what);
            CHECK(all[r].is_ok());
        }
    }
}

TEST_CASE("ranks that launchers bind to cores of their own have as many cores as they have together") {
    const cpu_set_t all_cores = collx::core_set();
    if (CPU_COUNT(&all_cores) < 2) return skip("one core only");
    int core[2] = {-1, -1};
    for (int c = 0; c < CPU_SETSIZE && core[1] < 0; ++c)
        if (CPU_ISSET(c, &all_cores)) core[core[0] < 0 ? 0 : 1] = c;
    struct binding {
        int of_rank[2]; // -1: not bound
        bool oversubscribed;
    };
    for (const binding& b :
         {binding{{core[0], core[1]}, false}, binding{{core[1], core[1]}, true}, binding{{core[0], -1}, false}}) {
        INFO(b.of_rank[0] << " and " << b.of_rank[1]);
        processes all;
        const std::string job = new_job();
        for (int r = 0; r < 2; ++r)
            all.start(r, [&, r] {
                if (b.of_rank[r] >= 0) {
                    cpu_set_t mine;
                    CPU_ZERO(&mine);
                    CPU_SET(b.of_rank[r], &mine);
                    if (::sched_setaffinity(0, sizeof mine, &mine) != 0) return 2;
                }
                collx::communicator world(join(job, r, 2));
                use(world);
                const auto& s = world.internals().settings;
                auto half = world.split(0);
                use(half);
                const bool holds = s.oversubscribed() == b.oversubscribed &&
                                   (s.waiting.spins == 0) == b.oversubscribed &&
                                   half.internals().settings.oversubscribed() == b.oversubscribed;
                return holds ? 0 : 3;
            });
        all.wait();
        for (int r = 0; r < 2; ++r) {
            INFO("rank " << r << ": " << all[r].exit_code << " " << all[r].what);
            CHECK(all[r].is_ok());
        }
    }
}
