// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joining under attack, under limits and under SIGKILL; which ranks notice a death.
//
// collx-test: sanitize=address serial timeout=240
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/transport/shm.hpp>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "support/processes.hpp"
#include "support/sanitizers.hpp"
#include "support/skip.hpp"
#include "transport/shm_support.hpp"

using namespace collx;
using namespace collx_test;

namespace {

descriptor connect_to(const detail::socket_name& name) {
    descriptor s(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    timeval limit{0, 200'000}; // a full queue must not block the attacker forever
    ::setsockopt(s.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    for (int i = 0; i < 1000; ++i) {
        if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) == 0) return s;
        ::usleep(500);
    }
    return {};
}

detail::join_packet hello_of(const std::string& job, int rank, int ranks) {
    detail::join_packet p;
    p.number = detail::hash_bytes(job.data(), job.size(), 3);
    p.rank = rank;
    p.ranks = ranks;
    p.left_ns = INT64_MAX;
    p.pid = ::getpid();
    return p;
}

// Joins as ranks 0..ranks-1 during an attack that starts when rank 0 listens. The other ranks join when the attack
// says that it is under way. Returns the time of the slowest of them.
template <class Attack>
std::int64_t join_once(Attack attack) {
    constexpr int ranks = 4;
    const std::string job = fresh_job();
    shared_page<std::atomic<int>> is_under_way;
    processes p;
    p.start(0, [&] { return join_and_leave(job, 0, ranks, 30'000); });
    p.start(10, [&] {
        const int code = wait_for_guests(job, 0) ? attack(job, detail::name_of_job(job.c_str()), *is_under_way) : 9;
        is_under_way->store(1);
        return code;
    });
    (void)wait_until(*is_under_way, 1);
    for (int r = 1; r < ranks; ++r)
        p.start(r, [&] {
            ::usleep(static_cast<unsigned>(r) * 20'000);
            return join_and_leave(job, r, ranks, 30'000);
        });
    p.wait();
    CHECK(p[10].exit_code == 0); // the attack was carried out
    std::int64_t slowest = 0;
    for (int r = 0; r < ranks; ++r) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].is_ok());
        if (r != 0 && p[r].took_ns > slowest) slowest = p[r].took_ns;
    }
    return slowest;
}
// No rank loses the two seconds that a silent stranger gets; a busy machine may, so one good try suffices.
template <class Attack>
void join_under(const char* what, Attack attack) {
    INFO(what);
    std::int64_t took = INT64_MAX;
    for (int tries = 0; tries < 5 && took >= 1'500'000'000; ++tries) took = join_once(attack);
    CHECK(took < collx_test::patient(1'500'000'000));
}

} // namespace

TEST_CASE("strangers at the listener do not keep ranks out") {
    using flag = std::atomic<int>;
    join_under("silent", [](const std::string&, const detail::socket_name& name, flag& is_under_way) {
        std::vector<descriptor> held;
        for (int i = 0; i < 10; ++i) held.push_back(connect_to(name));
        is_under_way = 1;
        ::usleep(150'000);
        return held.back().is_open() ? 0 : 9;
    });
    const auto many = [](const std::string&, const detail::socket_name& name, flag& is_under_way) {
        std::vector<descriptor> held;
        for (int i = 0; i < 200; ++i) held.push_back(connect_to(name));
        if (!held[100].is_open()) return 9;
        int still_in = 200; // rank 0 disconnects them, and stays until the ranks have joined
        for (int i = 0; i < 1000 && still_in > detail::join_host::most_strangers; ++i, ::usleep(5'000)) {
            still_in = 0;
            for (const descriptor& s : held) still_in += !detail::wait_for_event(s.get(), POLLIN, deadline{1});
        }
        if (still_in > detail::join_host::most_strangers) return 8;
        is_under_way = 1;
        // Stay connected until rank 0 has left.
        for (const descriptor& s : held) (void)detail::wait_for_event(s.get(), POLLIN, deadline::in_ns(3'000'000'000));
        return 0;
    };
    join_under("200 silent ones, more than there is room for", many);
    join_under("garbage of all lengths", [](const std::string&, const detail::socket_name& name, flag& is_under_way) {
        for (std::size_t n = 1; n < 2000; n += 37) {
            if (n > 100) is_under_way = 1;
            const descriptor s = connect_to(name);
            const std::string garbage(n, static_cast<char>(n));
            if (!s.is_open()) return 0; // all ranks have joined
            (void)::send(s.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
        }
        return 0;
    });
    join_under("half a hello, one with a wrong word, one too long",
               [](const std::string& job, const detail::socket_name& name, flag& is_under_way) {
                   std::vector<descriptor> held;
                   const auto send = [&](const auto& packet, std::size_t bytes) {
                       held.push_back(connect_to(name));
                       if (held.back().is_open()) (void)::send(held.back().get(), &packet, bytes, MSG_NOSIGNAL);
                   };
                   const auto good = hello_of(job, 1, 4);
                   for (const std::size_t n : {std::size_t{1}, std::size_t{8}, sizeof good / 2, sizeof good - 1})
                       send(good, n);
                   auto bad = good;
                   bad.magic ^= 1;
                   send(bad, sizeof bad);
                   bad = good;
                   bad.version += 1;
                   send(bad, sizeof bad);
                   // a hello of another job
                   bad = good;
                   bad.number ^= 1;
                   send(bad, sizeof bad);
                   bad = good;
                   bad.rank = -5;
                   send(bad, sizeof bad);
                   bad = good;
                   bad.rank = 4;
                   send(bad, sizeof bad);
                   bad = good;
                   bad.rank = 0;
                   send(bad, sizeof bad);
                   bad = good;
                   bad.what = detail::join_packet::kind::mapped;
                   send(bad, sizeof bad);
                   char longer[sizeof good + 1] = {};
                   std::memcpy(longer, &good, sizeof good);
                   send(longer, sizeof longer);
                   is_under_way = 1;
                   ::usleep(150'000);
                   return held.front().is_open() ? 0 : 9;
               });
    const auto gifts = [](const std::string& job, const detail::socket_name& name, flag& is_under_way) {
        const auto hello = hello_of(job, 1, 4);
        std::vector<descriptor> held;
        for (int i = 0; i < 30; ++i) {
            if (i == 5) is_under_way = 1;
            held.push_back(connect_to(name));
            if (held.back().is_open()) (void)detail::send_packet(held.back().get(), &hello, sizeof hello, 0);
        }
        return 0;
    };
    join_under("descriptors that were not asked for", gifts);
    const auto passers_by = [](const std::string&, const detail::socket_name& name, flag& is_under_way) {
        for (int i = 0; i < 300 && connect_to(name).is_open(); ++i)
            if (i == 5) is_under_way = 1;
        return 0;
    };
    join_under("connections that come and go", passers_by);
}

TEST_CASE("descriptors sent by strangers do not pile up at rank 0") {
    const std::string job = fresh_job();
    processes p;
    p.start(0, [&] {
        const counts before = count_mine();
        (void)join_shm(job.c_str(), 0, 2, deadline::in_ns(collx_test::patient(10'000'000'000)));
        return count_mine() == before ? 0 : 2;
    });
    p.start(1, [&] {
        const auto name = detail::name_of_job(job.c_str());
        const auto hello = hello_of(job, 1, 2);
        for (int i = 0; i < 100; ++i) {
            const descriptor s = connect_to(name);
            if (!detail::send_packet(s.get(), &hello, sizeof hello, 0)) return 9;
        }
        return join_and_leave(job, 1, 2, 10'000);
    });
    p.wait();
    INFO(p[0].what << p[1].what);
    CHECK(p[0].is_ok());
    CHECK(p[1].is_ok());
}

// A false rank 0: same user, right name, wrong memory.
TEST_CASE("a rank does not take just any memory from a process that says it is rank 0") {
    enum { not_sealed, too_small, no_header, two_descriptors, none };
    for (const int gift : {not_sealed, too_small, no_header, two_descriptors, none}) {
        const std::string job = fresh_job();
        const bool is_retried = gift == two_descriptors || gift == none; // until the deadline
        shared_page<std::atomic<int>> is_over;
        processes p;
        p.start(0, [&] {
            const auto name = detail::name_of_job(job.c_str());
            const descriptor listener = detail::packet_socket();
            if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0 ||
                ::listen(listener.get(), 8) != 0)
                return 9;
            const descriptor memory(::memfd_create("collx-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
            const std::size_t bytes = std::size_t{1} << 20;
            if (::ftruncate(memory.get(), bytes) != 0) return 9;
            void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
            if (base == MAP_FAILED) return 9;
            arena there(base, bytes, -1);
            if (gift != no_header) there.format(2); // only one thing is wrong at a time
            if (gift != not_sealed) ::fcntl(memory.get(), F_ADD_SEALS, detail::size_seals);
            for (const auto until = deadline::in_ns(collx_test::patient(30'000'000'000));
                 *is_over == 0 && !until.passed();) {
                if (!detail::wait_for_event(listener.get(), POLLIN, deadline::in_ns(20'000'000))) continue;
                const descriptor guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
                detail::join_packet welcome;
                welcome.what = detail::join_packet::kind::welcome;
                welcome.number = gift == too_small ? 2 * bytes : bytes;
                iovec part{&welcome, sizeof welcome};
                const int fds[2] = {memory.get(), memory.get()};
                alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
                msghdr m{};
                m.msg_iov = &part;
                m.msg_iovlen = 1;
                if (gift != none) {
                    const std::size_t n = (gift == two_descriptors ? 2 : 1) * sizeof(int);
                    m.msg_control = control;
                    m.msg_controllen = CMSG_SPACE(n);
                    cmsghdr* c = CMSG_FIRSTHDR(&m);
                    c->cmsg_level = SOL_SOCKET;
                    c->cmsg_type = SCM_RIGHTS;
                    c->cmsg_len = CMSG_LEN(n);
                    std::memcpy(CMSG_DATA(c), fds, n);
                }
                (void)::sendmsg(guest.get(), &m, MSG_NOSIGNAL);
                detail::nap_ns(20'000'000);
            }
            return 0;
        });
        p.start(1, [&] {
            const counts before = count_mine();
            try {
                (void)join_and_leave(job, 1, 2, is_retried ? 400 : 20'000);
            } catch (const error&) {
                is_over->store(1);
                if (!(count_mine() == before)) return 2; // refused memory is not kept
                throw;
            }
            return 0;
        });
        p.wait();
        INFO("gift " << gift << ": " << p[1].what);
        CHECK(p[0].exit_code == 0);
        CHECK(p[1].has_thrown);
        CHECK((p[1].code == errc::protocol || p[1].code == errc::timeout));
        if (!is_retried) CHECK(p[1].code == errc::protocol);
    }
}

TEST_CASE("processes of another user are not let in") {
    if (::geteuid() != 0) return skip("only root can make a process of another user");
    const std::string job = fresh_job();
    // Root is another user, too: the name contains the uid, so the stranger must choose the right one.
    processes p;
    p.start(0, [&] { return join_and_leave(job, 0, 2, 1500); });
    const auto name = detail::name_of_job(job.c_str());
    REQUIRE(wait_for_guests(job, 0));
    p.start(1, [&] {
        if (::setuid(65534) != 0) return 9;
        const descriptor s = connect_to(name);
        const auto hello = hello_of(job, 1, 2);
        (void)::send(s.get(), &hello, sizeof hello, MSG_NOSIGNAL);
        detail::join_packet answer;
        return ::recv(s.get(), &answer, sizeof answer, 0) > 0 ? 2 : 0;
    });
    p.wait();
    CHECK(p[0].code == errc::timeout);
    CHECK(p[1].exit_code == 0);

    // Conversely, a rank does not talk to another user's listener.
    shared_page<std::atomic<int>> listens, is_over;
    p.start(2, [&] {
        if (::setuid(65534) != 0) return 9;
        const descriptor listener = detail::packet_socket();
        if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0 ||
            ::listen(listener.get(), 8) != 0)
            return 9;
        listens->store(1);
        int heard = 0;
        for (const auto until = deadline::in_ns(collx_test::patient(30'000'000'000));
             *is_over == 0 && !until.passed();) {
            if (!detail::wait_for_event(listener.get(), POLLIN, deadline::in_ns(20'000'000))) continue;
            const descriptor guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
            char byte;
            ::usleep(5000);
            heard += ::recv(guest.get(), &byte, 1, MSG_DONTWAIT) > 0;
        }
        return heard > 0 ? 2 : 0;
    });
    REQUIRE(wait_until(*listens, 1));
    p.start(3, [&] {
        try {
            return join_and_leave(job, 1, 2, 1000);
        } catch (const error&) {
            is_over->store(1);
            throw;
        }
    });
    p.wait();
    CHECK(p[2].exit_code == 0);
    CHECK(p[3].code == errc::timeout);
    CHECK(p[3].says("a process of another user answers in place of rank 0"));
}

TEST_CASE("a small /dev/shm does not matter") {
    processes p;
    constexpr int no_namespace = 50;
    p.start(0, [&] {
        if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") != 0)
            return no_namespace;
        auto a = join_shm(nullptr, 0, 1, {});
        const std::size_t bytes = std::size_t{200} << 20;
        const auto at = a->take(bytes);
        a->reserve(at, bytes);
        std::memset(a->at(at), 1, bytes);
        a->give_back(at, bytes);
        return 0;
    });
    p.wait();
    if (p[0].exit_code == no_namespace) return skip("a mount namespace needs root");
    INFO(p[0].what);
    CHECK(p[0].is_ok());
}

TEST_CASE("nothing is left when all ranks are killed, in whatever phase") {
    const int names = shm_names();
    for (int round = 0; round < 15; ++round) {
        const std::string job = fresh_job();
        processes p;
        for (int r = 0; r < 3; ++r)
            p.start(r, [&] {
                auto a = join_shm(job.c_str(), r, round % 5 == 4 ? 4 : 3,
                                  deadline::in_ns(collx_test::patient(20'000'000'000)));
                ::usleep(20'000'000);
                return 0;
            });
        ::usleep(static_cast<unsigned>(round) * 700);
        for (int r = 0; r < 3; ++r) ::kill(p.pid(r), SIGKILL);
        p.wait();
        for (int r = 0; r < 3; ++r) {
            // Either killed, or it noticed the death of another rank before it was killed.
            const bool has_noticed = p[r].exit_code == 1 && p[r].code == errc::peer_failed;
            CHECK((p[r].exit_code == 128 + SIGKILL || has_noticed));
        }
        // The name can be reused immediately.
        CHECK(unix_sockets_of(job) == 0);
        for (int r = 0; r < 2; ++r) p.start(10 + r, [&] { return join_and_leave(job, r, 2, 20'000); });
        p.wait();
        for (int r = 0; r < 2; ++r) CHECK(p[10 + r].is_ok());
        CHECK(unix_sockets_of(job) == 0);
    }
    CHECK(shm_names() == names);
}

TEST_CASE("a limit of open files gives an error that says so, on all ranks, and leaks nothing") {
    constexpr int ranks = 9;
    struct row {
        int limited, room;
    };
    // Rank 0 may open a listener, the memory and a few guests. Other ranks may not even open a socket, or may open a
    // socket but not receive the memory through it.
    for (const auto& [limited, room] : {row{0, 5}, row{1, 0}, row{1, 1}}) {
#if COLLX_TEST_ASAN
        if (limited != 0) continue; // UndefinedBehaviorSanitizer needs a pipe to inspect an exception
#endif
        const std::string job = fresh_job();
        processes p;
        for (int r = 0; r < ranks; ++r)
            p.start(r, [&, limited = limited, room = room] {
                ::close_range(3, ~0u, 0); // so that descriptor numbers have no gaps
                const counts before = count_mine();
                rlimit limit{};
                ::getrlimit(RLIMIT_NOFILE, &limit);
                if (r == limited) {
                    const rlimit low{static_cast<rlim_t>(3 + room), limit.rlim_max};
                    ::setrlimit(RLIMIT_NOFILE, &low);
                }
                try {
                    return join_and_leave(job, r, ranks, 4000); // long enough for all to join
                } catch (const error&) {
                    ::setrlimit(RLIMIT_NOFILE, &limit);
                    if (!(count_mine() == before)) return 2;
                    throw;
                }
            });
        p.wait();
        for (int r = 0; r < ranks; ++r) {
            INFO("limited " << limited << ", room " << room << ", rank " << r << ": " << p[r].what);
            CHECK(p[r].has_thrown);
            CHECK(p[r].exit_code == 1);
            if (limited == 1 && room == 1) CHECK((p[r].code == errc::resource && p[r].says("may open no more files")));
        }
        CHECK(p[limited].code == errc::resource);
        CHECK(p[limited].says("ulimit -n"));
    }
}

namespace {

// After this, the next forked process is number 1 of a new pid namespace.
bool take_own_numbers() {
    const auto user = static_cast<unsigned long>(::geteuid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return false;
    std::FILE* map = std::fopen("/proc/self/uid_map", "we");
    if (map == nullptr) return false;
    std::fprintf(map, "%lu %lu 1", user, user);
    return std::fclose(map) == 0;
}

} // namespace

// As in two containers that share a network but not their process numbers: a number of one means any process in the
// other, or none.
TEST_CASE("a rank whose process numbers are not those of the others watches no rank, and none watches it") {
    processes p;
    p.start(10, [] { return take_own_numbers() ? 0 : 77; });
    p.wait();
    if (p[10].exit_code != 0) return skip("this system gives users no process numbers of their own");
    const std::string job = fresh_job();
    shared_page<std::atomic<int>> looked;
    const auto as_rank = [&](int r, std::size_t peers, std::initializer_list<int> unknown) {
        auto a = join_shm(job.c_str(), r, 3, deadline::in_ns(collx_test::patient(20'000'000'000)));
        peer_watch watch(*a, r, 3);
        const int dead = watch.find_dead();
        looked->fetch_add(1);
        if (!wait_until(*looked, 3)) return 2; // no rank has left yet
        if (dead != -1) return 3;
        for (const int other : unknown)
            if (a->process_of(other, r) != -1) return 4;
        return watch.watched() != peers ? 5 : 0;
    };
    p.start(0, [&] { return as_rank(0, 1, {1}); });
    p.start(1, [&] {
        if (!take_own_numbers()) return 6;
        const pid_t inner = ::fork();
        if (inner == 0) ::_exit(as_rank(1, 0, {0, 2}));
        int status = 0;
        return ::waitpid(inner, &status, 0) == inner && WIFEXITED(status) ? WEXITSTATUS(status) : 7;
    });
    p.start(2, [&] { return as_rank(2, 1, {1}); });
    p.wait();
    for (int r = 0; r < 3; ++r) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].exit_code == 0);
    }
}

TEST_CASE("a limit of address space gives a smaller arena, and an error on all ranks where even that does not fit") {
#if COLLX_TEST_ASAN
    return skip("the address sanitizer itself needs the address space");
#else
    const auto limit_to = [](std::size_t bytes) {
        const rlimit low{bytes, bytes};
        ::setrlimit(RLIMIT_AS, &low);
    };
    processes p;
    p.start(0, [&] {
        limit_to(std::size_t{4} << 30);
        auto a = join_shm(nullptr, 0, 1, {});
        return a->bytes() >= std::size_t{1} << 30 && a->bytes() <= std::size_t{4} << 30 ? 0 : 2;
    });
    p.start(1, [&] {
        const rlimit low{std::size_t{1} << 30, std::size_t{1} << 30};
        ::setrlimit(RLIMIT_FSIZE, &low); // a larger file would raise SIGXFSZ
        auto a = join_shm(nullptr, 0, 1, {});
        return a->bytes() == std::size_t{1} << 30 ? 0 : 2;
    });
    const std::string job = fresh_job();
    for (int r = 0; r < 3; ++r)
        p.start(2 + r, [&] {
            if (r == 2) limit_to(std::size_t{1} << 30);
            return join_and_leave(job, r, 3, 30'000);
        });
    p.wait();
    CHECK(p[0].is_ok());
    CHECK(p[1].is_ok());
    for (int i = 2; i < 5; ++i) {
        INFO(p[i].what);
        CHECK(p[i].code == errc::resource);
        CHECK(p[i].took_ns < collx_test::patient(15'000'000'000));
        CHECK(p[i].says("cannot map"));
        if (i < 4) CHECK(p[i].peer == 2);
        CHECK(p[i].says("(raise the address space limit (ulimit -v), or"));
    }
    processes again; // with that remedy applied
    const std::string other = fresh_job();
    for (int r = 0; r < 3; ++r)
        again.start(r, [&, r] {
            if (r == 2) limit_to(std::size_t{1} << 30);
            const auto a = join_shm(other.c_str(), r, 3, deadline::in_ns(collx_test::patient(30'000'000'000)),
                                    std::size_t{256} << 20);
            return a->bytes() == std::size_t{256} << 20 ? 0 : 2;
        });
    again.wait();
    for (int r = 0; r < 3; ++r) CHECK(again[r].is_ok());
#endif
}

namespace {

// Returns 0 if make() fails for lack of a resource, the error names this remedy and no other, and make() works after
// apply().
template <class Make, class Apply>
int is_mended(const char* remedy, Make&& make, Apply&& apply) {
    try {
        make();
        return 2;
    } catch (const error& e) {
        if (e.code() != errc::resource || std::strstr(e.what(), remedy) == nullptr) throw;
    }
    apply();
    make();
    return 0;
}
// Lowers a soft limit, which can be raised again.
rlimit lower(decltype(RLIMIT_AS) what, rlim_t to) {
    rlimit usual{};
    ::getrlimit(what, &usual);
    const rlimit low{to, usual.rlim_max};
    ::setrlimit(what, &low);
    return usual;
}

} // namespace

TEST_CASE("what is short is named, and the remedy that the error says helps") {
#if COLLX_TEST_ASAN || COLLX_TEST_TSAN
    return skip("the sanitizers themselves need what is taken away here");
#else
    const auto alone = [] { (void)join_shm(nullptr, 0, 1, {}); };
    processes p;
    p.start(0, [&] {
        const rlimit usual = lower(RLIMIT_NOFILE, 3);
        return is_mended("(raise the limit of open files (ulimit -n))", alone,
                         [&] { ::setrlimit(RLIMIT_NOFILE, &usual); });
    });
    p.start(1, [&] {
        const rlimit usual = lower(RLIMIT_FSIZE, 1000);
        return is_mended("(raise the file size limit (ulimit -f))", alone, [&] { ::setrlimit(RLIMIT_FSIZE, &usual); });
    });
    p.start(2, [&] {
        const rlimit usual = lower(RLIMIT_AS, 1 << 20);
        return is_mended("(raise the address space limit (ulimit -v))", alone, [&] { ::setrlimit(RLIMIT_AS, &usual); });
    });
    p.start(3, [&] {
        (void)lower(RLIMIT_MEMLOCK, 64 << 10);
        if (::getuid() == 0 && ::setuid(65534) != 0) return 3; // root may lock any amount of memory
        if (::mlockall(MCL_FUTURE) != 0) return 4;
        return is_mended(
            "(raise the limit of locked memory (ulimit -l), or do not lock all memory (mlockall))",
            [] { (void)make_memory_arena(1); }, [] { ::munlockall(); });
    });
    p.start(4, [&] { // pthread_create() gives the same error as where the number of threads is limited
        rlimit usual{};
        return is_mended(
            "(raise the address space limit (ulimit -v), or make stacks smaller (ulimit -s))",
            [&] {
                if (usual.rlim_max == 0) usual = lower(RLIMIT_AS, 8 << 20);
                (void)tcp_server();
            },
            [&] { ::setrlimit(RLIMIT_AS, &usual); });
    });
    p.wait();
    for (int i = 0; i < 5; ++i) {
        INFO(i << ": exit " << p[i].exit_code << " " << p[i].what);
        CHECK(p[i].is_ok());
    }
#endif
}

TEST_CASE("joining succeeds under a storm of signals") {
    const std::string job = fresh_job();
    processes p;
    for (int r = 0; r < 3; ++r)
        p.start(r, [&] {
            struct sigaction act {};
            act.sa_handler = [](int) {};
            ::sigaction(SIGALRM, &act, nullptr);
            const itimerval every{{0, 500}, {0, 500}};
            ::setitimer(ITIMER_REAL, &every, nullptr);
            for (int i = 0; i < 50; ++i)
                (void)join_shm(job.c_str(), r, 3, deadline::in_ns(collx_test::patient(10'000'000'000)));
            return 0;
        });
    p.wait();
    for (int r = 0; r < 3; ++r) {
        INFO(p[r].what);
        CHECK(p[r].is_ok());
    }
}

TEST_CASE("a dead rank is found, the right one, and only then") {
    const std::string job = fresh_job();
    constexpr int ranks = 4;
    for (const bool has_pidfds : {true, false}) {
        processes p;
        const auto as_rank = [&](int r) {
            auto a = join_shm(job.c_str(), r, ranks, deadline::in_ns(collx_test::patient(10'000'000'000)));
            if (r != 0) {
                ::usleep(20'000'000);
                return 0;
            }
            rlimit usual{};
            ::getrlimit(RLIMIT_NOFILE, &usual);
            const rlimit none{0, usual.rlim_max};
            if (!has_pidfds) ::setrlimit(RLIMIT_NOFILE, &none);
            peer_watch watch(*a, 0, ranks);
            ::setrlimit(RLIMIT_NOFILE, &usual);
            if (watch.watched() != ranks - 1 || watch.find_dead() != -1) return 2;
            // The parent of these processes kills rank 2, which stays a zombie until it is waited for. It is dead,
            // but only a pidfd shows that.
            ::kill(a->header().pid[2].load(), SIGSTOP);
            ::usleep(20'000);
            if (watch.find_dead() != -1) return 3; // a stopped process is not dead
            const rlimit few{2, usual.rlim_max};   // fewer descriptors than peers
            ::setrlimit(RLIMIT_NOFILE, &few);
            ::kill(a->header().pid[2].load(), SIGKILL);
            const std::int64_t begin = now_ns();
            while (watch.find_dead() == -1)
                if (now_ns() - begin > collx_test::patient(10'000'000'000)) return 4;
            ::setrlimit(RLIMIT_NOFILE, &usual); // UndefinedBehaviorSanitizer inspects objects through a pipe
            if (watch.find_dead() != 2) return 6;
            peer_watch moved(static_cast<peer_watch&&>(watch));
            if (moved.find_dead() != 2 || watch.find_dead() != -1) return 7;
            return 0;
        };
        for (int r = 0; r < ranks; ++r) p.start(r, [&] { return as_rank(r); });
        while (p[0].took_ns == 0 && p.pid(0) > 0) {
            // Reaps rank 2, which frees its process number: the case without pidfds.
            int status;
            if (::waitpid(p.pid(2), &status, WNOHANG) != 0) break;
            ::usleep(1000);
        }
        const std::int64_t until = now_ns() + collx_test::patient(15'000'000'000);
        while (p[0].took_ns == 0 && now_ns() < until) ::usleep(1000);
        for (const int r : {1, 3}) ::kill(p.pid(r), SIGKILL);
        p.wait();
        INFO("pidfds " << has_pidfds << ": " << p[0].what);
        CHECK(p[0].exit_code == 0);
    }
}

TEST_CASE("threads and strangers in number are never found dead") {
    auto a = join_shm(nullptr, 0, 1, {}, std::size_t{64} << 20);
    a->header().pid[1].store(::getpid()); // a thread of this process
    a->header().pid[2].store(-1);         // a process of another pid namespace
    a->header().pid[3].store(0);          // no process
    peer_watch watch(*a, 0, 4);
    CHECK(watch.watched() == 0);
    CHECK(watch.find_dead() == -1);
    CHECK(peer_watch().find_dead() == -1);
    const int before = entries_of("/proc/self/fd");
    {
        peer_watch empty;
        empty = static_cast<peer_watch&&>(watch);
    }
    CHECK(entries_of("/proc/self/fd") == before);
}

TEST_CASE("the probe of cross-memory attach reads, or says no") {
    static std::uint64_t word = 0x1234'5678'9abc'def0;
    CHECK(cma_probe(::getpid(), &word, word));
    CHECK_FALSE(cma_probe(::getpid(), &word, word + 1));
    CHECK_FALSE(cma_probe(::getpid(), nullptr, 0));
    CHECK_FALSE(cma_probe(-1, &word, word));
    shared_page<std::atomic<int>> is_set;
    processes p;
    p.start(0, [&] {
        word = 42;
        is_set->store(1);
        ::usleep(30'000'000);
        return 0;
    });
    REQUIRE(wait_until(*is_set, 1));
    // The child's copy of the word, not this process's. A parent may read it under every usual ptrace setting.
    const bool works = cma_probe(p.pid(0), &word, 42);
    CHECK_FALSE(cma_probe(p.pid(0), &word, 0x1234'5678'9abc'def0));
    ::kill(p.pid(0), SIGKILL);
    p.wait();
    if (!works) skip("cross-memory attach is forbidden here");
}
