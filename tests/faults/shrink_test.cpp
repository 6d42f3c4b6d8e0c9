// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// shrink() of ranks that are processes on several hosts: whichever rank is killed, wherever, also while the others
// shrink, the survivors continue with the same communicator.
// collx-test: serial timeout=300
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/job/survival_word.hpp>

#include <poll.h>
#include <sys/resource.h>

#include "faults/hosts.hpp"
#include "support/patience.hpp"
#include "support/sanitizers.hpp"
#include "support/skip.hpp"

using namespace collx_test;
using collx::errc;

namespace {

// Calls until the failure is reported; other tests check the error.
void run_into_failure(collx::communicator& w, verb v = verb::all_reduce) {
    caller calls(w, 1000);
    try {
        const std::int64_t until = collx::now_ns() + collx_test::patient(15'000 * ms);
        for (int salt = 1; collx::now_ns() < until; ++salt) calls.call(v, salt);
    } catch (const wrong_data&) {
        throw;
    } catch (const collx::error&) {
        return;
    }
    throw std::runtime_error("no failure came");
}

// A barrier after which victims die. Some may be dead before others have left the barrier; these then know the failure.
void meet(collx::communicator& w) {
    try {
        collx::barrier(w);
    } catch (const collx::peer_failed&) {
    }
}

// Aborts after a call, so that the other ranks have completed everything before it.
void abort_within_calls(collx::communicator& w) {
    caller calls(w, 1000);
    calls.call(verb::all_reduce, 1);
    w.abort();
}

// The surviving ranks in the old numbering, as bits, as this rank sees them.
unsigned bits_of(collx::communicator& w, int old_rank) {
    int mine = 1 << old_rank;
    collx::all_reduce(w, collx::value(mine));
    return static_cast<unsigned>(mine);
}

// What each survivor reports to the test.
struct seen_members {
    std::atomic<unsigned> bits[processes::most];
    std::atomic<std::int64_t> took_ns[processes::most];
};

} // namespace

TEST_CASE("who learns of a death elsewhere and shrinks does not leave the others waiting in a call") {
    const cell c{.n = 4, .ranks_per_host = 2};
    shared_page<report> seen;
    store_directory dir;
    stopwatch watch{"a death that a half heard of"};
    processes all;
    for (int me = 0; me < c.n; ++me)
        all.start(me, [&, me] {
            auto world = world_of(c, dir, me);
            auto half = world.split(me / 2);
            world.set_checked(false);
            half.set_checked(false);
            int x = 0;
            meet(world);
            if (me == 3) {
                seen->struck_ns = collx::now_ns();
                ::kill(::getpid(), SIGKILL);
            }
            // Rank 2 hears of the death in a call of its half; ranks 0 and 1 wait in the next call of all.
            until_error(*seen, me, [&](int) {
                collx::all_reduce(half, collx::value(x));
                collx::all_reduce(world, collx::value(x));
            });
            // In the half of rank 2, the dead rank is rank 1.
            expect(seen->ranks[me].code == static_cast<int>(errc::peer_failed), "code");
            expect(seen->ranks[me].peer == 3 || (me == 2 && seen->ranks[me].peer == 1), "peer");
            world = world.shrink();
            expect(world.size() == 3, "size");
            check_works(world, 100);
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < 3; ++r) {
        INFO("rank " << r << ", error " << seen->ranks[r].code << " about rank " << seen->ranks[r].peer << ": "
                     << all[r].what);
        CHECK(all[r].is_ok());
        const std::int64_t took = seen->ranks[r].ended_ns - seen->struck_ns.load();
        CHECK(took < collx_test::patient(15'000 * ms)); // the time limit of a call is 30 s
        watch.add(took > 0 ? took : 0);
    }
}

TEST_CASE("who learns of a death on another host and shrinks does not leave its own host waiting in a call") {
    // Rank 2 learns of the death in a call of its half, rank 1 from the system. Rank 3 waits for rank 2, and has
    // connections to no other rank.
    shrink_after_a_death(
        2, 0, [](int me) { return me % 2; },
        [](auto& world, auto& half, int me) {
            int x = 0;
            if (me == 2) collx::recv(half, collx::value(x), 0);
            else collx::recv(world, collx::value(x), me - 1);
        },
        [](int) { return 0; });
}

TEST_CASE("survivors of killed ranks and hosts go on, again and again") {
    struct row {
        int n, ranks_per_host;
        std::vector<unsigned> killed; // one set of ranks after the other, as bits
    };
    stopwatch watch{"shrink across hosts"};
    for (const row& r : {row{4, 1, {1u << 0, 1u << 3}}, row{5, 2, {1u << 4}}, row{6, 2, {1u << 0, 1u << 2, 1u << 5}},
                         row{6, 2, {3u << 0, 3u << 2}}, row{6, 3, {7u << 3}}, row{3, 1, {3u}}, row{4, 2, {1u << 1}}}) {
        const cell c{.n = r.n, .ranks_per_host = r.ranks_per_host};
        shared_page<seen_members> page;
        store_directory dir;
        processes all;
        for (int me = 0; me < r.n; ++me)
            all.start(me, [&, me] {
                auto world = world_of(c, dir, me);
                unsigned alive = (1u << r.n) - 1;
                check_works(world, 100);
                for (const unsigned killed : r.killed) {
                    meet(world);
                    if ((killed >> me & 1) != 0) ::kill(::getpid(), SIGKILL);
                    run_into_failure(world);
                    const std::int64_t begun = collx::now_ns();
                    world = world.shrink();
                    page->took_ns[me] = collx::now_ns() - begun;
                    alive &= ~killed;
                    // Deaths of ranks that die together are noticed one after the other, as the kernel ends them.
                    while (world.size() > __builtin_popcount(alive)) {
                        run_into_failure(world);
                        world = world.shrink();
                    }
                    expect(world.size() == __builtin_popcount(alive), "size");
                    expect(world.rank() == __builtin_popcount(alive & ((1u << me) - 1)), "order");
                    expect(bits_of(world, me) == alive, "members");
                    check_works(world, 5000);
                }
                page->bits[me] = alive;
                return 0;
            });
        all.wait(60'000);
        unsigned dead = 0;
        for (const unsigned k : r.killed) dead |= k;
        for (int me = 0; me < r.n; ++me) {
            INFO("rank " << me << " of " << r.n << ", " << r.ranks_per_host << " per host: " << all[me].what);
            if ((dead >> me & 1) != 0) {
                CHECK(all[me].exit_code == 128 + SIGKILL);
                continue;
            }
            CHECK(all[me].is_ok());
            CHECK(page->bits[me] == (((1u << r.n) - 1) & ~dead));
            CHECK(page->took_ns[me] < collx_test::patient(15'000 * ms));
            watch.add(page->took_ns[me]);
        }
    }
}

namespace {

// The failed communicator of a surviving rank, after `victim` has died.
collx::communicator failed_world(const cell& c, store_directory& dir, int me, int victim) {
    auto world = world_of(c, dir, me);
    meet(world);
    if (me == victim) ::kill(::getpid(), SIGKILL);
    run_into_failure(world);
    return world;
}
void shrink_to(collx::communicator& world, int ranks) {
    while (world.size() > ranks) {
        run_into_failure(world);
        world = world.shrink();
    }
}

} // namespace

TEST_CASE("a rank that dies at any moment of shrinking does not divide the others") {
    stopwatch watch{"shrink while another rank is killed in it"};
    int died = 0;
    for (const int second : {0, 1, 3}) // the first coordinator, the next, and a rank that follows
        for (long at = 1; at <= 8; ++at) {
            const cell c{.n = 5, .ranks_per_host = 1 + static_cast<int>(at % 2)};
            const int first = second == 0 ? 4 : 0;
            shared_page<seen_members> page;
            store_directory dir;
            processes all;
            for (int me = 0; me < c.n; ++me)
                all.start(me, [&, me] {
                    auto world = failed_world(c, dir, me, first);
                    if (me == second) harm::plan(harm::kind::die, at);
                    const std::int64_t begun = collx::now_ns();
                    world = world.shrink();
                    page->took_ns[me] = collx::now_ns() - begun;
                    // Whether it was counted as a survivor or not, all ranks have the same result.
                    shrink_to(world, 3);
                    page->bits[me] = bits_of(world, me);
                    check_works(world, 100);
                    return 0;
                });
            all.wait(40'000);
            died += all[second].exit_code == 128 + SIGKILL;
            for (int me = 0; me < c.n; ++me) {
                if (me == first || me == second) continue;
                INFO("rank " << me << ", rank " << second << " died at its send " << at << ": " << all[me].what);
                CHECK(all[me].is_ok());
                CHECK(page->bits[me] == (0x1fu & ~(1u << first) & ~(1u << second)));
                watch.add(page->took_ns[me]);
            }
        }
    CHECK(died == 24);
}

// The coordinator notifies ranks in order, and dies when some have continued: among them one rank above the next
// coordinator, and it alone.
TEST_CASE("a coordinator hears what holds from a rank that has gone on") {
    for (long at = 1; at <= 10; ++at) {
        const cell c{.n = 5, .ranks_per_host = 1};
        shared_page<seen_members> page;
        store_directory dir;
        processes all;
        for (int me = 0; me < c.n; ++me)
            all.start(me, [&, me] {
                auto world = failed_world(c, dir, me, 4);
                if (me == 0) harm::plan(harm::kind::cut_and_die, at);
                world = world.shrink();
                shrink_to(world, 3);
                page->bits[me] = bits_of(world, me);
                return 0;
            });
        all.wait(40'000);
        for (int me = 1; me < 4; ++me) {
            INFO("rank " << me << ", rank 0 cut at its send " << at << ": " << all[me].what);
            CHECK((all[me].is_ok() && page->bits[me] == 0xeu));
        }
    }
}

TEST_CASE("connections cut while ranks shrink are made again") {
    for (const int victim : {0, 2})
        for (long at = 1; at <= 6; ++at) {
            const cell c{.n = 4, .ranks_per_host = 1};
            store_directory dir;
            processes all;
            for (int me = 0; me < c.n; ++me)
                all.start(me, [&, me] {
                    auto world = world_of(c, dir, me);
                    collx::barrier(world);
                    if (me == 1) abort_within_calls(world);
                    run_into_failure(world);
                    if (me == victim) harm::plan(harm::kind::cut, at);
                    world = world.shrink();
                    harm::plan(harm::kind::none, 0);
                    expect(world.size() == c.n, "size");
                    return 0;
                });
            all.wait(40'000);
            for (int me = 0; me < c.n; ++me) {
                INFO("rank " << me << ", cut by " << victim << " at its send " << at << ": " << all[me].what);
                CHECK(all[me].is_ok());
            }
        }
}

TEST_CASE("the rank that runs the store dies") {
    const cell c{.n = 4, .ranks_per_host = 2};
    const int port = collx::tcp_server().port();
    processes all;
    for (int me = 0; me < c.n; ++me)
        all.start(me, [&, me] {
            collx::sole_ptr<collx::tcp_server> server;
            if (me == 0) server = collx::make_sole<collx::tcp_server>("127.0.0.1", port);
            collx::tcp_store store("127.0.0.1", port, collx::deadline::in_ns(collx_test::patient(10'000 * ms)));
            auto world = world_of(c, store, me);
            meet(world);
            if (me == 0) ::kill(::getpid(), SIGKILL);
            run_into_failure(world);
            world = world.shrink();
            expect(world.size() == 3 && bits_of(world, me) == 0xe, "members");
            return 0;
        });
    all.wait();
    for (int me = 1; me < c.n; ++me) {
        INFO("rank " << me << ": " << all[me].what);
        CHECK(all[me].is_ok());
    }
}

TEST_CASE("who lives on another host and does not come is named, and may come later") {
    const cell c{.n = 4, .ranks_per_host = 1};
    const auto limit = heard_within(std::chrono::milliseconds(5000));
    struct counts {
        std::atomic<int> know{0}, gave_up{0};
    };
    struct late_job {
        int late;
        shared_page<counts> page{};
        store_directory dir{};
        processes all{};
    } jobs[] = {{0}, {2}}; // at the same time: they mostly wait
    for (late_job& j : jobs)
        for (int me = 0; me < c.n; ++me)
            j.all.start(me, [&, me] {
                const int late = j.late;
                auto& page = j.page;
                auto world = world_of(c, j.dir, me);
                collx::barrier(world);
                if (me == 3) abort_within_calls(world);
                run_into_failure(world);
                world.set_timeout(limit);
                page->know.fetch_add(1);
                wait_until(page->know, c.n); // their time limits start here
                if (me != late) {
                    try {
                        (void)world.shrink();
                        throw std::runtime_error("shrink() did not throw");
                    } catch (const collx::timed_out& e) {
                        expect(e.peer() == late, "names the one that is late");
                    }
                    page->gave_up.fetch_add(1);
                } else {
                    wait_until(page->gave_up, 3);
                }
                world.set_timeout(collx_test::patient(std::chrono::seconds(20)));
                world = world.shrink();
                expect(world.size() == 4 && world.rank() == me, "size");
                check_works(world, 10);
                return 0;
            });
    for (late_job& j : jobs) {
        j.all.wait();
        for (int me = 0; me < c.n; ++me) {
            INFO("rank " << me << ", late " << j.late << ": " << j.all[me].what);
            CHECK(j.all[me].is_ok());
        }
    }
}

TEST_CASE("a rank that may open no more files says so and takes no other for dead, and may come again") {
#if COLLX_TEST_ASAN
    return skip("the undefined-behaviour sanitizer needs a pipe to look at an exception");
#else
    const cell c{.n = 3, .ranks_per_host = 1, .timeout_ms = 8000};
    for (const int full : {0, 1}) { // the coordinator, and a rank that connects to it
        store_directory dir;
        processes all;
        for (int me = 0; me < c.n; ++me)
            all.start(me, [&, me] {
                auto world = world_of(c, dir, me);
                collx::barrier(world);
                if (me == 2) abort_within_calls(world);
                run_into_failure(world);
                if (me == full) {
                    rlimit usual{};
                    ::getrlimit(RLIMIT_NOFILE, &usual);
                    const rlimit low{3, usual.rlim_max};
                    ::setrlimit(RLIMIT_NOFILE, &low);
                    const std::int64_t begun = collx::now_ns();
                    try {
                        (void)world.shrink();
                        throw std::runtime_error("shrink() did not throw");
                    } catch (const collx::error& e) {
                        expect(e.code() == errc::resource && std::strstr(e.what(), "ulimit -n") != nullptr, e.what());
                    }
                    expect(collx::now_ns() - begun < collx_test::patient(3'000 * ms), "at once");
                    ::setrlimit(RLIMIT_NOFILE, &usual);
                }
                world = world.shrink();
                expect(world.size() == c.n && world.rank() == me, "size");
                check_works(world, 10);
                return 0;
            });
        all.wait();
        for (int me = 0; me < c.n; ++me) {
            INFO("rank " << me << ", full " << full << ": " << all[me].what);
            CHECK(all[me].is_ok());
        }
    }
#endif
}

namespace {

// System calls for hosts that are lost silently: what is sent to them disappears, nothing arrives from them, and they
// refuse no connection. Each host has its own address.
struct lost_hosts {
    static inline unsigned lost = 0; // bits of hosts
    static inline int own = 0;
    static inline sockaddr_in nowhere{};

    static sockaddr_in address(int host) {
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_addr.s_addr = htonl(0x7f00'0002u + static_cast<unsigned>(host));
        return a;
    }
    static std::string text(int host) { return "127.0.0." + std::to_string(2 + host); }
    static bool is_lost(const sockaddr* a) {
        const std::uint32_t number = ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr) - 0x7f00'0002u;
        return a->sa_family == AF_INET && number < 32 && (lost >> number & 1) != 0;
    }
    static bool is_lost(int fd) {
        sockaddr_storage a{};
        socklen_t bytes = sizeof a;
        return ::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &bytes) == 0 &&
               is_lost(reinterpret_cast<const sockaddr*>(&a));
    }
    static int connect(int fd, const sockaddr* a, socklen_t bytes) {
        if (is_lost(a)) return ::connect(fd, reinterpret_cast<const sockaddr*>(&nowhere), sizeof nowhere);
        const sockaddr_in mine = address(own); // the peer identifies the host by it
        (void)::bind(fd, reinterpret_cast<const sockaddr*>(&mine), sizeof mine);
        return ::connect(fd, a, bytes);
    }
    static ssize_t sendmsg(int fd, const msghdr* m, int flags) {
        if (!is_lost(fd)) return ::sendmsg(fd, m, flags);
        std::size_t all = 0;
        for (std::size_t i = 0; i < m->msg_iovlen; ++i) all += m->msg_iov[i].iov_len;
        return static_cast<ssize_t>(all);
    }
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        if (!is_lost(fd)) return ::recvmsg(fd, m, flags);
        errno = EAGAIN;
        return -1;
    }
};
constexpr collx::socket_calls losing_calls{
    ::socket, lost_hosts::connect, ::accept4, lost_hosts::sendmsg, lost_hosts::recvmsg, ::epoll_wait};

// An address where connections are neither accepted nor refused: a listener with a full queue.
class silent_listener {
public:
    silent_listener() {
        lost_hosts::nowhere = lost_hosts::address(100);
        auto* const at = reinterpret_cast<sockaddr*>(&lost_hosts::nowhere);
        socklen_t bytes = sizeof lost_hosts::nowhere;
        listener_ = collx::descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::bind(listener_.get(), at, bytes) != 0 || ::listen(listener_.get(), 0) != 0) return;
        if (::getsockname(listener_.get(), at, &bytes) != 0) return;
        for (int i = 0; i < 8 && !is_silent_; ++i) {
            guests_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            (void)::connect(guests_.back().get(), at, bytes);
            pollfd p{guests_.back().get(), POLLOUT, 0};
            is_silent_ = ::poll(&p, 1, 200) == 0;
        }
    }
    bool is_silent() const { return is_silent_; }

private:
    collx::descriptor listener_;
    std::vector<collx::descriptor> guests_;
    bool is_silent_ = false;
};

} // namespace

// If the hosts were noticed one after the other, each would take half the time limit, as a host that may come back.
TEST_CASE("hosts that are lost together without a word are noticed together") {
    const silent_listener listener;
    if (!listener.is_silent()) return skip("this system answers where a queue is full");
    struct row {
        int n, ranks_per_host;
        unsigned lost; // hosts
    };
    const auto limit_ms = static_cast<int>(heard_within(std::chrono::milliseconds(5000)).count());
    for (const row& r : {row{6, 2, 3u << 0}, row{4, 1, 7u << 0}, row{4, 1, 3u << 1}}) {
        const cell c{.n = r.n, .ranks_per_host = r.ranks_per_host, .timeout_ms = limit_ms};
        const auto is_lost = [&](int rank) { return (r.lost >> (rank / r.ranks_per_host) & 1) != 0; };
        unsigned alive = 0;
        for (int k = 0; k < r.n; ++k) alive |= is_lost(k) ? 0u : 1u << k;
        shared_page<std::atomic<int>> deaf;
        store_directory dir;
        processes all;
        for (int me = 0; me < r.n; ++me)
            all.start(me, [&, me] {
                collx::file_store store(dir.path());
                collx::host_description host = host_of(c, me);
                lost_hosts::own = me / r.ranks_per_host;
                host.address = lost_hosts::text(lost_hosts::own);
                auto world = world_of(c, store, host, me, losing_calls);
                check_works(world, 100);
                if (!is_lost(me)) lost_hosts::lost = r.lost;
                deaf->fetch_add(!is_lost(me));
                wait_until(*deaf, __builtin_popcount(alive));
                if (is_lost(me)) ::kill(::getpid(), SIGKILL);
                world.abort(); // how each rank learns of the failure does not matter here
                world = world.shrink();
                expect(bits_of(world, me) == alive, "members");
                check_works(world, 100);
                return 0;
            });
        all.wait(30'000);
        for (int me = 0; me < r.n; ++me) {
            if (is_lost(me)) continue;
            INFO("rank " << me << " of " << r.n << ", hosts " << r.lost << " lost: " << all[me].what);
            CHECK(all[me].is_ok());
        }
    }
}

namespace {

// System calls of a rank that accepts the coordinator's proposal and then stops until the others have finished with
// the resulting communicator. After that its connection is cut.
struct stalled {
    static inline std::atomic<int>* others = nullptr; // counts ranks that have finished; null: no stall is planned
    static inline int count = 0, fd_of_acceptance = -1;

    static bool accepts(const msghdr& m) {
        using word = collx::detail::survival_word;
        std::vector<std::byte> all;
        for (std::size_t i = 0; i < m.msg_iovlen; ++i) {
            const auto* from = static_cast<const std::byte*>(m.msg_iov[i].iov_base);
            all.insert(all.end(), from, from + m.msg_iov[i].iov_len);
        }
        for (std::size_t i = 0; i + sizeof(collx::detail::stream_frame) + sizeof(word) <= all.size(); ++i) {
            collx::detail::stream_frame head;
            word w;
            std::memcpy(static_cast<void*>(&head), all.data() + i, sizeof head);
            std::memcpy(static_cast<void*>(&w), all.data() + i + sizeof head, sizeof w);
            if (head.magic == collx::detail::stream_frame::magic_value && head.tag == word::tag &&
                w.what == word::kind::accept)
                return true;
        }
        return false;
    }
    static ssize_t sendmsg(int fd, const msghdr* m, int flags) {
        if (others != nullptr && accepts(*m)) fd_of_acceptance = fd;
        return ::sendmsg(fd, m, flags);
    }
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        if (others != nullptr && fd == fd_of_acceptance) {
            wait_until(*std::exchange(others, nullptr), count);
            harm::cut(fd);
        }
        return ::recvmsg(fd, m, flags);
    }
};
constexpr collx::socket_calls stalling_calls{::socket,         ::connect,        ::accept4,
                                             stalled::sendmsg, stalled::recvmsg, ::epoll_wait};

} // namespace

TEST_CASE("who missed the end hears it when the others have long left what it led to") {
    for (const int ranks_per_host : {1, 2}) {
        const cell c{.n = 4, .ranks_per_host = ranks_per_host};
        shared_page<std::atomic<int>> done;
        store_directory dir;
        processes all;
        for (int me = 0; me < c.n; ++me)
            all.start(me, [&, me] {
                collx::file_store store(dir.path());
                auto world = world_of(c, store, host_of(c, me), me, me == 3 ? stalling_calls : harmful_calls);
                {
                    auto part = world.split(0);
                    collx::barrier(part);
                    if (me == 1) abort_within_calls(part);
                    run_into_failure(part);
                    if (me == 3) {
                        stalled::count = 3;
                        stalled::others = &*done;
                    }
                    part = part.shrink();
                    expect(part.size() == c.n && part.rank() == me, "size");
                    expect(me != 3 || stalled::others == nullptr, "it never accepted");
                }
                done->fetch_add(1);
                check_works(world, 10); // the others wait here for the last rank
                return 0;
            });
        all.wait(60'000);
        for (int me = 0; me < c.n; ++me) {
            INFO("rank " << me << ", " << ranks_per_host << " per host: " << all[me].what);
            CHECK(all[me].is_ok());
        }
    }
}
