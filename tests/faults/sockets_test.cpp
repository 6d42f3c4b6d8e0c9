// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of ranks that are processes on several hosts: SIGKILL, SIGSTOP, an end without goodbye, a connection cut while
// both its ends live, an exception, an abort, a closed door. Every survivor names the guilty rank, soon, whether it was
// connected to it or not. The hosts are words in COLLX_HOST_ID; the rest is what several machines would do.
// collx-test: serial timeout=180
#include <sys/socket.h>

#include <random>

#include "faults/support.hpp"

#include <collx/bootstrap/file_store.hpp>

using namespace collx_test;

namespace {

// A directory for a file store, gone with the object.
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

struct cell {
    int n = 4, ranks_per_host = 1, victim = 0;
    verb what = verb::all_reduce;
    std::size_t elems = 10;
    int timeout_ms = 30'000;
};

collx::communicator world_of(const cell& c, const store_directory& d, int r) {
    ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r / c.ranks_per_host)).c_str(), 1);
    collx::file_store store(d.path());
    return collx::communicator(r, c.n, store, std::chrono::milliseconds(c.timeout_ms));
}

// Runs calls on all ranks; the victim calls strike() before its tenth and whoever is left calls on.
template <class Strike>
void run_cell(const cell& c, collx::errc code, stopwatch& watch, Strike&& strike, int victim_code) {
    INFO(verb_names[static_cast<int>(c.what)] << ", rank " << c.victim << " of " << c.n << ", " << c.ranks_per_host
                                              << " per host, " << c.elems << " elements");
    shared_page<report> page;
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            collx::communicator world = world_of(c, dir, r);
            if (world.internals().net.is_one_host()) return 7;
            caller calls(world, c.elems);
            for (int salt = 1; salt < 5; ++salt) calls.call(c.what, salt);
            collx::barrier(world);
            if (r != c.victim) {
                until_error(*page, r, [&](int salt) { calls.call(c.what, salt); });
                return 0;
            }
            for (int salt = 1; salt < 4; ++salt) calls.call(c.what, salt);
            page->struck_ns.store(collx::now_ns());
            strike(world, calls);
            return victim_code;
        });
    for (int i = 0; code == collx::errc::timeout && i < 20'000; ++i) { // a stopped victim ends when the others have
        int ended = 0;
        for (int r = 0; r < c.n; ++r) ended += page->ranks[r].ended_ns != 0;
        if (ended == c.n - 1) break;
        ::usleep(500);
    }
    if (code == collx::errc::timeout) ::kill(all.pid(c.victim), SIGKILL);
    all.wait();
    CHECK(all[c.victim].exit_code == victim_code);
    check_survivors(all, *page, c.n, c.victim, code, watch);
}

// Cells of all verbs; ranks, spread and victim change from one to the next.
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
        f(c);
    }
}

} // namespace

TEST_CASE("a killed rank is named by everybody") {
    stopwatch watch{"SIGKILL across hosts"};
    each_cell(1, [&](const cell& c) {
        run_cell(
            c, collx::errc::peer_failed, watch, [](auto&, auto&) { ::kill(::getpid(), SIGKILL); }, 128 + SIGKILL);
    });
}

TEST_CASE("a rank killed within a large call is named by everybody") {
    stopwatch watch{"SIGKILL within a call across hosts"};
    each_cell(2, [&](cell c) {
        c.elems = 200'000;
        run_cell(
            c, collx::errc::peer_failed, watch,
            [&](auto&, caller& calls) {
                // Killed by the clock, somewhere in the calls that follow.
                ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
                ::ualarm(2000, 0);
                for (int salt = 4;; ++salt) calls.call(c.what, salt);
            },
            128 + SIGKILL);
    });
}

TEST_CASE("a stopped rank is named by everybody when their time is over") {
    stopwatch watch{"SIGSTOP across hosts, time-out 1 s"};
    each_cell(
        3,
        [&](cell c) {
            c.timeout_ms = 1000;
            run_cell(
                c, collx::errc::timeout, watch, [](auto&, auto&) { ::kill(::getpid(), SIGSTOP); }, 128 + SIGKILL);
        },
        4);
}

TEST_CASE("a rank that ends without a goodbye is named by everybody") {
    stopwatch watch{"_exit across hosts"};
    each_cell(
        4,
        [&](const cell& c) {
            run_cell(
                c, collx::errc::peer_failed, watch, [](auto&, auto&) { ::_exit(3); }, 3);
        },
        4);
}

TEST_CASE("a rank that leaves by an exception of its own is named by everybody") {
    stopwatch watch{"exception across hosts"};
    each_cell(
        5,
        [&](const cell& c) {
            if (c.what == verb::broadcast) return; // whoever is no root need not miss it
            run_cell(
                c, collx::errc::peer_failed, watch,
                [](collx::communicator& w, auto&) { collx::communicator gone = std::move(w); }, 0);
        },
        5);
}

TEST_CASE("an abort reaches everybody") {
    stopwatch watch{"abort across hosts"};
    each_cell(
        6,
        [&](const cell& c) {
            run_cell(
                c, collx::errc::aborted, watch, [](collx::communicator& w, auto&) { w.abort(); }, 0);
        },
        4);
}

TEST_CASE("connections that are reset while all ranks live end the communicator on all of them") {
    cell c{.n = 4, .ranks_per_host = 1, .victim = 2};
    shared_page<report> page;
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            collx::communicator world = world_of(c, dir, r);
            caller calls(world, 1000);
            for (int salt = 1; salt < 5; ++salt) calls.call(c.what, salt);
            if (r == c.victim)
                for (int fd = 3; fd < 64; ++fd) { // RST on everything that is connected
                    sockaddr_storage a;
                    socklen_t bytes = sizeof a;
                    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &bytes) != 0) continue;
                    const linger now{1, 0};
                    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
                    const int nothing = ::socket(AF_INET, SOCK_STREAM, 0);
                    ::dup2(nothing, fd);
                    ::close(nothing);
                }
            until_error(*page, r, [&](int salt) { calls.call(c.what, salt); });
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        INFO("rank " << r << ": " << page->ranks[r].code << " about " << page->ranks[r].peer << " " << all[r].what);
        CHECK(all[r].is_ok());
        CHECK(page->ranks[r].code == static_cast<int>(collx::errc::peer_failed));
        // Either end of a connection may be the first to find it cut; the victim's own can only be about others.
        CHECK(page->ranks[r].peer >= 0);
        if (r == c.victim) CHECK(page->ranks[r].peer != c.victim);
    }
}

TEST_CASE("a rank that dies while the communicator is being made is named") {
    const cell c{.n = 4, .ranks_per_host = 1, .victim = 3, .timeout_ms = 3000};
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r)).c_str(), 1);
            collx::file_store store(dir.path());
            auto job = collx::detail::join_by_store(r, c.n, store, std::int64_t{c.timeout_ms} * ms);
            if (r == c.victim) ::_exit(5);
            collx::communicator world(job);
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        if (r == c.victim) continue;
        INFO(r << ": " << all[r].what);
        CHECK(all[r].has_thrown);
        CHECK(all[r].code == collx::errc::peer_failed);
        CHECK(all[r].peer == c.victim);
    }
}

TEST_CASE("what was sent last arrives although its sender has ended") {
    // Far more than the system's buffers hold; the receivers come late.
    const cell c{.n = 3, .ranks_per_host = 1, .timeout_ms = 20'000};
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            collx::communicator world = world_of(c, dir, r);
            std::vector<int> x(40'000, r == 0 ? 17 : 0), y(900'000, r == 0 ? 5 : 0);
            collx::broadcast(world, x);
            if (r == 0) collx::send(world, x, 2);
            if (r == 2) ::usleep(100'000), collx::recv(world, x, 0);
            if (r != 0) ::usleep(300'000);
            collx::broadcast(world, y);
            for (int v : x)
                if (v != 17) return 3;
            for (int v : y)
                if (v != 5) return 4;
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        INFO(r << ": " << all[r].exit_code << " " << all[r].what);
        CHECK(all[r].is_ok());
    }
}
