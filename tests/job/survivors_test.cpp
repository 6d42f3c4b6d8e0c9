// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks of one host propose a place for the new communicator at the same time: one proposal holds, and the memory
// of the other comes back. A third rank of that host keeps the table of memory locked until both are about to take a
// place. Also who looks for the dead meanwhile, who is not waited for, and who sends the last words of an agreement.
// collx-test: serial
#include <atomic>

#include "../../examples/16_write_a_transport/datagrams.hpp"
#include "faults/hosts.hpp"

#include <collx/job/custom_transport.hpp>
#include <collx/job/survivor_links.hpp>
#include <collx/net.hpp>

using namespace collx_test;

namespace {

std::uint64_t free_bytes(const collx::communicator& w) {
    std::uint64_t bytes = 0;
    const auto& h = w.membership()->memory->header();
    for (int i = 0; i < h.free_count; ++i) bytes += h.free[i].bytes;
    return bytes;
}

// What ranks 0 and 1 show to rank 2, which is in no communicator with their notes.
struct shown {
    std::atomic<std::uint64_t> note[2]; // where in the memory of their host
};

void lock(const collx::communicator& w) {
    auto& by = w.membership()->memory->header().lock;
    const auto me = static_cast<std::uint32_t>(::getpid());
    for (std::uint32_t none = 0; !by.compare_exchange_strong(none, me, collx::memory_order::acquire); none = 0)
        ::usleep(100);
}
// Unlocks the table when both ranks have written that they have no place yet.
void unlock_when_both_propose(const collx::communicator& w, shown& page) {
    const auto memory = w.membership()->memory;
    for (auto& place : page.note) {
        const std::int64_t until = collx::now_ns() + 8'000 * ms; // a rank waits ten seconds for the lock
        while (place.load() == 0 && collx::now_ns() < until) ::usleep(100);
        const auto* const note = reinterpret_cast<const collx::survival_note*>(memory->at(place.load()));
        const auto* const proposed = static_cast<const volatile std::uint64_t*>(&note->place);
        while (*proposed != collx::job::no_place && collx::now_ns() < until) ::usleep(100);
    }
    memory->header().lock.store(0, collx::memory_order::release);
}

// After each message that goes, the system has no room for a while.
struct stingy {
    static inline bool is_on = false;
    static inline int refusals = 0;
    static ssize_t sendmsg(int fd, const msghdr* m, int flags) {
        if (is_on && refusals-- > 0) {
            errno = EAGAIN;
            return -1;
        }
        refusals = 8;
        return ::sendmsg(fd, m, flags);
    }
};
constexpr collx::socket_calls stingy_calls{::socket,  ::connect,    ::accept4,  stingy::sendmsg,
                                           ::recvmsg, ::epoll_wait, ::vmsplice, ::splice};

// Rank 2 of 3 leaves. Rank 0 cannot send at once what the others have decided, and goes on.
void shrink_with_words_left(const cell& c) {
    shared_page<report> page;
    store_directory dir;
    processes all;
    for (int me = 0; me < c.n; ++me)
        all.start(me, [&, me] {
            collx::file_store store(dir.path());
            auto world = world_of(c, store, host_of(c, me), me, stingy_calls);
            collx::barrier(world);
            leave_together(*page, c.n);
            if (me == 2) return 0;
            until_error(*page, me, [&](int) { collx::barrier(world); });
            stingy::is_on = me == 0;
            world = world.shrink();
            expect(world.size() == 2, "size");
            check_works(world, 10); // rank 1 comes when it has heard
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < c.n; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

// Ranks 0 to 2 are on one host, others on another.
void shrink_at_once(int n) {
    const cell c{.n = n, .ranks_per_host = 3};
    shared_page<shown> page;
    store_directory dir;
    processes all;
    for (int me = 0; me < n; ++me)
        all.start(me, [&, me] {
            auto world = world_of(c, dir, me);
            auto part = world.split(me == 2 ? -1 : 0);
            collx::barrier(world);
            const std::uint64_t before = free_bytes(world);
            collx::barrier(world);
            if (me == 2) lock(world);
            collx::barrier(world); // takes no memory: there was one before
            if (me == 2) {
                unlock_when_both_propose(world, *page);
                collx::barrier(world);
                return 0;
            }
            if (me < 2) page->note[me] = world.membership()->memory->offset_of(&part.internals().net.note(me));
            auto next = part.shrink();
            expect(next.size() == n - 1, "all of them");
            collx::barrier(world); // no rank has used the new communicator yet
            if (me == 0) expect(free_bytes(world) == before - next.internals().net.arena_bytes(), "one place is taken");
            collx::barrier(next);
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < n; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

} // namespace

TEST_CASE("of two proposals of one host the memory of one comes back") { shrink_at_once(3); }
TEST_CASE("of two proposals of one host among several the memory of one comes back") { shrink_at_once(4); }

TEST_CASE("who learns of a death and shrinks does not leave a rank waiting whom it waits for itself") {
    // Rank 2 learns of the death in a call of its half, and shrinks: it follows rank 0, which waits for it.
    shrink_after_a_death(
        1, 3, [](int me) { return me / 2; },
        [](auto& world, auto& half, int me) {
            int x = 0;
            if (me == 2) collx::recv(half, collx::value(x), 1);
            else collx::recv(world, collx::value(x), 2 * (1 - me));
        },
        [](int me) { return me == 2 ? 1 : 3; });
}

TEST_CASE("between hosts shrink() does not wait for a rank that has ended the communicator, and lives") {
    for (const int ranks_per_host : {1, 2})
        for (int leaver = 0; leaver < 3; ++leaver) {
            const cell c{.n = 3, .ranks_per_host = ranks_per_host, .is_shared = leaver == 1};
            store_directory dir;
            processes all;
            for (int me = 0; me < c.n; ++me)
                all.start(me, [&, me] {
                    auto world = world_of(c, dir, me);
                    auto part = world.split(0);
                    part.set_timeout(collx_test::patient(std::chrono::seconds(30)));
                    collx::barrier(world);                 // no rank is still in split()
                    for (int turn = 0; turn < 2; ++turn) { // again, as all that are left shrink a second time
                        if (me == leaver) break;
                        auto rest = part.shrink();
                        expect(rest.size() == 2, "the two that use it");
                        std::vector<int> x(100, 1);
                        collx::all_reduce(rest, x);
                        expect(x[99] == 2, "wrong sum");
                    }
                    { auto ended = std::move(part); }
                    collx::barrier(world);
                    return 0;
                });
            all.wait(120'000);
            for (int r = 0; r < c.n; ++r) {
                INFO("rank " << r << ", ranks per host " << ranks_per_host << ", rank " << leaver
                             << " leaves: " << all[r].what);
                CHECK(all[r].is_ok());
            }
        }
}

TEST_CASE("a rank that has continued and ended the old communicator tells late survivors what holds") {
    using links = collx::detail::survivor_links;
    const cell c{.n = 2};
    store_directory dir;
    processes all;
    for (int me = 0; me < c.n; ++me)
        all.start(me, [&, me] {
            auto world = world_of(c, dir, me);
            auto part = world.split(0);
            collx::barrier(world); // no rank is still in split()
            auto rest = part.shrink();
            if (me == 0) auto ended = std::move(part);
            collx::barrier(world);
            if (me == 1) { // asks as one that has not heard it
                links late(part.internals(), 1, collx_test::patient(30'000 * ms));
                expect(late.connect(0), "rank 0 lives");
                links::heard h{};
                for (const std::int64_t until = collx::now_ns() + collx_test::patient(20'000 * ms);
                     !late.hear(0, h) && !late.is_known_gone(0) && collx::now_ns() < until; ::usleep(1000)) {
                    (void)late.move(0);
                    if (late.take_new(0)) late.say(0, links::kind::here, 0, late.none());
                }
                expect(h.word.what == links::kind::commit, "what holds");
                late.part_all();
            }
            collx::barrier(world);
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < c.n; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

TEST_CASE(
    "what survivors have decided reaches the last of them, though no call of theirs uses these sockets any more") {
    shrink_with_words_left({.n = 3, .ranks_per_host = 2});
    shrink_with_words_left({.n = 3, .over = collx::per_peer{collx::shm{}, datagrams{}}});
}
