// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes on several hosts, for the tests of faults. Only their names say that the hosts differ; the rest is
// as on several machines. Also system calls that cut a connection or end the process at a given moment.
#pragma once

#include <sys/socket.h>

#include <random>
#include <stdexcept>

#include <collx/bootstrap/file_store.hpp>
#include <collx/bootstrap/host.hpp>
#include <collx/job/world.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/socket_connector.hpp>

#include "faults/support.hpp"
#include "support/faulty_sockets.hpp"

namespace collx_test {

// A directory for a file store; the destructor deletes it.
class store_directory {
public:
    store_directory() {
        char name[] = "/tmp/collx-sockets-XXXXXX";
        if (::mkdtemp(name) == nullptr) std::abort();
        path_ = name;
    }
    ~store_directory() { (void)std::system(("rm -r " + path_).c_str()); }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

// Socket calls that do harm once, at the n-th sendmsg() of this process after plan(). cut_and_die cuts that
// connection, and ends the process at its second later send to another one. The other calls may have a bad day.
struct harm {
    enum class kind { none, cut, die, cut_and_die };
    static inline kind planned = kind::none;
    static inline long left = 0;
    static void plan(kind k, long after) {
        planned = k;
        left = after;
    }
    template <ssize_t (*Send)(int, const msghdr*, int) = ::sendmsg>
    static ssize_t sendmsg(int fd, const msghdr* m, int flags) {
        if (planned != kind::none && --left <= 0) {
            const kind now = std::exchange(planned, kind::none);
            if (now == kind::die) ::kill(::getpid(), SIGKILL);
            if (now == kind::cut_and_die) plan(kind::die, 2);
            cut(fd);
        }
        return Send(fd, m, flags);
    }
    // Sends RST to the other end; this end then has an unconnected socket.
    static void cut(int fd) {
        const linger now{1, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        const int nothing = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ::dup2(nothing, fd);
        ::close(nothing);
    }
    // Cuts all connections to other hosts, over TCP or unix sockets.
    static void cut_all() {
        for (int fd = 3; fd < 64; ++fd) {
            sockaddr_storage a;
            socklen_t bytes = sizeof a;
            int type = 0;
            socklen_t type_bytes = sizeof type;
            if (::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &bytes) == 0 &&
                ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_STREAM)
                cut(fd);
        }
    }
};
inline constexpr collx::socket_calls harmful_calls{::socket,  ::connect,    ::accept4,  harm::sendmsg<>,
                                                   ::recvmsg, ::epoll_wait, ::vmsplice, ::splice};
inline constexpr collx::socket_calls harmful_calls_on_a_bad_day = [] {
    auto calls = bad_day_calls;
    calls.sendmsg = harm::sendmsg<bad_day::sendmsg>;
    return calls;
}();

struct cell {
    int n = 4, ranks_per_host = 1, victim = 0;
    verb what = verb::all_reduce;
    std::size_t elems = 10;
    int timeout_ms = 30'000;
    bool is_unix = false;   // unix sockets between the hosts
    bool is_shared = false; // the communicator shares its rank's connections with many others
    int lanes = 1;          // connections of a pair, for large messages
    collx::single_copy_mode single_copy = collx::single_copy_mode::automatic;
    bool bad_day = false;     // system calls transfer less, are interrupted, or return EAGAIN
    collx::transports over{}; // with a transport of the test's own
};

inline collx::host_description host_of(const cell& c, int r) {
    collx::host_description h = collx::describe_host();
    h.id = "host" + std::to_string(r / c.ranks_per_host);
    if (c.is_unix) h.address = "unix";
    h.lanes = c.lanes;
    return h;
}
template <collx::Store Store>
collx::communicator world_of(const cell& c, Store& store, const collx::host_description& host, int r,
                             const collx::socket_calls& calls) {
    collx::detail::store_face<Store> face(store);
    auto job =
        collx::detail::join_by_store(r, c.n, static_cast<collx::any_store&>(face), c.timeout_ms * ms, host, calls);
    job->settings.single_copy = c.single_copy;
    job->settings.over = c.over;
    job = collx::detail::join_custom(job);
    const bool shares = c.is_shared && job->connector && job->connector->of_sockets() != nullptr;
    if (shares) job->connector->of_sockets()->hub()->set_most_own(1);
    collx::communicator world(std::move(job));
    return shares ? world.split(0) : std::move(world);
}
template <collx::Store Store>
collx::communicator world_of(const cell& c, Store& store, int r) {
    return world_of(c, store, host_of(c, r), r, c.bad_day ? harmful_calls_on_a_bad_day : harmful_calls);
}
inline collx::communicator world_of(const cell& c, const store_directory& d, int r) {
    collx::file_store store(d.path());
    return world_of(c, store, r);
}

// Calls f with cells of all verbs; ranks, spread and victim change from cell to cell.
template <class F>
void each_cell(unsigned seed, F&& f, int verbs = static_cast<int>(verb::count)) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    for (int v = 0; v < verbs; ++v) {
        cell c;
        c.n = 3 + below(3);
        c.ranks_per_host = 1 + below(2);
        c.victim = below(static_cast<unsigned>(c.n));
        c.what = static_cast<verb>(v);
        c.elems = v % 3 == 2 ? 100'000 : 10;
        c.is_unix = (v + static_cast<int>(seed)) % 3 == 0;
        c.is_shared = (v + static_cast<int>(seed)) % 2 == 0;
        f(c);
    }
}

// Checks that a communicator of the survivors works: calls of all verbs give correct results.
inline void check_works(collx::communicator& w, std::size_t elems) {
    caller calls(w, elems);
    for (int v = 0; v < static_cast<int>(verb::count); ++v) calls.call(static_cast<verb>(v), v + 1);
}

// A check in a process, whose error its parent shows.
inline void expect(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

// Four ranks, each also in the half of its colour, none connected to more ranks than that takes. When the victim has
// been killed, every other one makes call(world, half, rank) until it gets an error, of peer_of(rank), and shrinks.
template <class Colour, class Call, class Peer>
void shrink_after_a_death(int ranks_per_host, int victim, Colour&& colour, Call&& call, Peer&& peer_of) {
    const cell c{.n = 4, .ranks_per_host = ranks_per_host};
    shared_page<report> seen;
    store_directory dir;
    processes all;
    for (int me = 0; me < c.n; ++me)
        all.start(me, [&, me] {
            auto world = world_of(c, dir, me);
            auto half = world.split(colour(me));
            world.set_checked(false);
            half.set_checked(false);
            leave_together(*seen, c.n);
            if (me == victim) {
                seen->struck_ns = collx::now_ns();
                ::kill(::getpid(), SIGKILL);
            }
            until_error(*seen, me, [&](int) { call(world, half, me); });
            expect(seen->ranks[me].code == static_cast<int>(collx::errc::peer_failed), "code");
            expect(seen->ranks[me].peer == peer_of(me), "peer");
            world = world.shrink();
            expect(world.size() == c.n - 1, "size");
            check_works(world, 100);
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < c.n; ++r) {
        if (r == victim) continue;
        INFO("rank " << r << ", error " << seen->ranks[r].code << " about rank " << seen->ranks[r].peer << ": "
                     << all[r].what);
        CHECK(all[r].is_ok());
        CHECK(seen->ranks[r].ended_ns - seen->struck_ns.load() < collx_test::patient(15'000 * ms));
    }
}

} // namespace collx_test
