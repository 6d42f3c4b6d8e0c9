// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows of ranks that are processes: a put is seen by the other rank, memory private to one process is refused.
// SIGKILL during puts and signals, or while a part is locked, gives peer_failed with the dead rank's number on all
// survivors, who then make a window without it.
// collx-test: serial timeout=180
#include <chrono>

#include <collx/comm/window.hpp>

#include "faults/hosts.hpp"

using namespace collx_test;

namespace {

struct wide {
    long a, b, c;
};

// Repeatedly puts, signals and combines into the next rank's part, and checks the result of each step.
class exchanger {
public:
    explicit exchanger(collx::communicator& w) : w_(w), x_(w, 50'000), counts_(w, 1) {}
    void step(int salt) {
        const int n = w_.size(), next = (w_.rank() + 1) % n, prev = (w_.rank() + n - 1) % n;
        x_.put_signal(next, 0, salt);
        if (salt % 2 == 0) x_.wait(prev);
        else
            while (!x_.test(prev)) {
            } // test() notices deaths, too
        x_.put(next, 1, std::vector<int>(40'000, salt));
        x_.signal(next);
        x_.wait(prev);
        counts_.accumulate(0, 0, wide{1, 2, 3}, [](const wide& a, const wide& b) {
            return wide{a.a + b.a, a.b + b.b, a.c + b.c};
        });
        if (x_.local()[0] != salt || x_.local()[40'000] != salt) throw wrong_data(w_.rank(), "window");
        x_.signal(prev);
        x_.wait(next);
    }

private:
    collx::communicator& w_;
    collx::window<int> x_;
    collx::window<wide> counts_;
};

// The windows have failed; the communicator learns of it in its own call.
void go_on(collx::communicator& world, int left) {
    try {
        for (;;) collx::barrier(world);
    } catch (const collx::peer_failed&) {
    }
    auto after = world.shrink();
    if (after.size() != left) throw std::runtime_error("shrink() has made a communicator of another size");
    exchanger again(after);
    for (int salt = 1; salt < 4; ++salt) again.step(salt);
}

template <class Join>
void killed(int n, int victim, double after_ms, Join&& join_rank) {
    INFO("rank " << victim << " of " << n << " after " << after_ms << " ms");
    shared_page<report> page;
    processes all;
    stopwatch watch{"windows"};
    for (int r = 0; r < n; ++r)
        all.start(r, [&, r] {
            collx::communicator world = join_rank(r);
            exchanger x(world);
            for (int salt = 1; salt < 4; ++salt) x.step(salt);
            collx::barrier(world);
            page->ready.fetch_add(1);
            until_error(*page, r, [&](int salt) { x.step(salt); });
            go_on(world, n - 1);
            return 0;
        });
    wait_until(page->ready, n);
    ::usleep(static_cast<unsigned>(after_ms * 1000));
    page->struck_ns.store(collx::now_ns());
    ::kill(all.pid(victim), SIGKILL);
    all.wait();
    REQUIRE(all[victim].exit_code == 128 + SIGKILL);
    check_survivors(all, *page, n, victim, collx::errc::peer_failed, watch);
}

} // namespace

TEST_CASE("SIGKILL in the middle of puts and signals is peer_failed on all survivors, over shared memory") {
    for (int i = 0; i < 8; ++i) {
        const std::string job = new_job();
        const int n = 2 + i % 3;
        killed(n, i % n, 0.3 + 1.7 * i, [&](int r) { return collx::communicator(join(job, r, n)); });
    }
}

TEST_CASE("SIGKILL in the middle of puts and signals is peer_failed on all survivors, across hosts") {
    for (int i = 0; i < 6; ++i) {
        store_directory dir;
        cell c;
        c.n = 3;
        c.ranks_per_host = 1 + i % 2;
        c.victim = i % 3;
        killed(c.n, c.victim, 0.3 + 2.3 * i, [&](int r) { return world_of(c, dir, r); });
    }
}

TEST_CASE("who dies while it combines under the lock of a part is named by those who wait for the lock") {
    shared_page<report> page;
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            collx::communicator world(join(job, r, 3));
            collx::window<wide> x(world, 1);
            x.fence();
            leave_together(*page, 3);
            if (r == 1)
                x.accumulate(0, 0, wide{}, [&](const wide& a, const wide&) {
                    page->ready.store(4);
                    ::pause();
                    return a;
                });
            wait_until(page->ready, 4);
            until_error(*page, r, [&](int) {
                x.accumulate(0, 0, wide{1, 1, 1}, [](const wide&, const wide& b) { return b; });
            });
            return 0;
        });
    wait_until(page->ready, 4);
    ::usleep(20'000);
    page->struck_ns.store(collx::now_ns());
    ::kill(all.pid(1), SIGKILL);
    all.wait();
    stopwatch watch{"windows"};
    check_survivors(all, *page, 3, 1, collx::errc::peer_failed, watch);
}

TEST_CASE(
    "a buffer of one process alone is refused on all ranks by name, shared buffers and buffers alone on a host not") {
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < 3; ++r)
        all.start(r, [&, r] {
            collx::communicator world(join(job, r, 3));
            std::vector<int> own(10);
            auto shared = collx::make_shared_vector<int>(world, 10);
            try {
                if (r == 2) collx::window<int> x(world, own);
                else collx::window<int> x(world, shared);
                return 2;
            } catch (const collx::error& e) {
                if (e.code() != collx::errc::unsupported || e.peer() != 2 || e.rank() != r) return 3;
            }
            collx::window<int> x(world, shared);
            x.put_signal((r + 1) % 3, 9, r + 1);
            x.wait((r + 2) % 3);
            const bool is_right = shared[9] == (r + 2) % 3 + 1;
            x.fence();
            return is_right ? 0 : 4;
        });
    all.wait();
    for (int r = 0; r < 3; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].exit_code == 0);
    }
    processes apart;
    store_directory dir;
    cell c;
    c.n = 2;
    for (int r = 0; r < 2; ++r)
        apart.start(r, [&, r] {
            collx::communicator world = world_of(c, dir, r);
            std::vector<int> own(50'000);
            collx::window<int> x(world, own);
            x.put_signal(1 - r, 0, std::vector<int>(50'000, r + 5));
            x.wait(1 - r);
            const bool is_right = own[49'999] == 6 - r;
            x.fence();
            return is_right ? 0 : 4;
        });
    apart.wait();
    for (int r = 0; r < 2; ++r) CHECK(apart[r].exit_code == 0);
}
