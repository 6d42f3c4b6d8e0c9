// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The start-up matrix: a rank dies, falls silent or loses its connections after each message that it sends while the
// job starts (to the store, to other ranks' listeners, to the host's memory). The rank is rank 0, a middle rank or
// the last one; there is a TCP store or a file store, and one host or two. All survivors must name it: within a
// second of its death, or at the time limit if it is only silent. By day only some messages of each kind are tried,
// at night (COLLX_TEST_NIGHTLY) all. Prints the named ranks and the times.
// collx-test: serial sanitize=no timeout=240
#include <fcntl.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <deque>

#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>

#include "faults/hosts.hpp"
#include "support/night.hpp"
#include "support/patience.hpp"

using namespace collx_test;

namespace {

enum class fault { killed, silent, closed };
constexpr const char* fault_names[] = {"killed", "silent", "closed"};

constexpr int ranks = 4;

struct start_cell {
    bool is_tcp = true;
    int hosts = 1, victim = 0;
    fault what = fault::killed;
    int word = -1; // the fault comes after this message of the victim; -1: never
};

struct start_page {
    struct of_rank {
        std::int64_t ended_ns;
        int code, peer;            // code -1: the start succeeded
        int words;                 // messages sent before the communicator was made
        volatile bool has_reached; // the store has answered this rank
        char text[400];
    };
    std::atomic<std::int64_t> struck_ns;
    char after[80]; // the last message before the fault
    bool has_said_hello;
    of_rank rank[ranks];
};

// Counts the messages that a rank's process sends, by the calls that send them.
struct words {
    static inline start_page* page = nullptr;
    static inline int rank = -1, said = 0, strike_after = -1;
    static inline bool has_sent = false;
    static inline fault what = fault::killed;

    static void close_connections() {
        for (int fd = 3; fd < 64; ++fd) {
            sockaddr_storage a;
            socklen_t bytes = sizeof a;
            if (::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &bytes) == 0 && a.ss_family == AF_INET)
                (void)::shutdown(fd, SHUT_RDWR);
        }
    }
    static void count(const char* call, const void* data, std::size_t bytes) {
        if (rank < 0 || ::syscall(SYS_gettid) != ::getpid()) return; // the store's server is not a rank
        const int error = errno;
        const bool is_send = std::strcmp(call, "send") == 0;
        has_sent |= is_send;
        if (is_send && bytes > 24) page->rank[rank].has_reached = true;
        if (said++ == strike_after) strike(call, data, bytes);
        errno = error;
    }
    // A store that ends before a rank has reached it looks like one that has not started yet, so all reach it first.
    static void let_all_come() {
        for (int i = 0; i < 3000; ++i, ::usleep(1000)) {
            int there = 0;
            for (int r = 0; r < ranks; ++r) there += r == rank || page->rank[r].has_reached;
            if (there == ranks) return;
        }
    }
    static void strike(const char* call, const void* data, std::size_t bytes) {
        if (rank == 0) let_all_come();
        std::snprintf(page->after, sizeof page->after, "%s", call);
        if (std::strcmp(call, "send") == 0 && bytes > 24) // a message to the TCP store: its key
            std::snprintf(page->after, sizeof page->after, "%s %.*s", call,
                          static_cast<int>(std::min<std::size_t>(bytes - 24, 40)), static_cast<const char*>(data) + 24);
        if (std::strcmp(call, "rename") == 0 || std::strcmp(call, "link") == 0)
            std::snprintf(page->after, sizeof page->after, "%s %.60s", call, static_cast<const char*>(data));
        page->has_said_hello = has_sent;
        page->struck_ns.store(collx::now_ns());
        if (what == fault::killed) ::kill(::getpid(), SIGKILL);
        if (what == fault::silent) ::kill(::getpid(), SIGSTOP);
        if (what == fault::closed) close_connections();
    }
};

} // namespace

// Replaces the C library's functions, so that each message of a rank can be its last.
extern "C" ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
    const ssize_t n = ::syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
    words::count("send", data, bytes);
    return n;
}
extern "C" ssize_t sendmsg(int fd, const msghdr* m, int flags) {
    const ssize_t n = ::syscall(SYS_sendmsg, fd, m, flags);
    words::count("sendmsg", nullptr, 0);
    return n;
}
extern "C" int connect(int fd, const sockaddr* a, socklen_t bytes) {
    const int r = static_cast<int>(::syscall(SYS_connect, fd, a, bytes));
    if (r == 0 || errno == EINPROGRESS) words::count("connect", nullptr, 0);
    return r;
}
extern "C" int renameat(int from, const char* old, int to, const char* name) {
    const int r = static_cast<int>(::syscall(SYS_renameat2, from, old, to, name, 0));
    words::count("rename", name, 0);
    return r;
}
extern "C" int linkat(int from, const char* old, int to, const char* name, int flags) {
    const int r = static_cast<int>(::syscall(SYS_linkat, from, old, to, name, flags));
    words::count("link", name, 0);
    return r;
}

namespace {

int free_port() { return collx::tcp_server().port(); }

// One start of four ranks. As in a program, the environment gives the store's address.
struct running_start {
    start_cell c;
    int timeout_s;
    shared_page<start_page> page;
    store_directory dir;
    processes all;

    explicit running_start(const start_cell& cell, int limit_s) : c(cell), timeout_s(limit_s) {
        const std::string store =
            c.is_tcp ? "tcp:127.0.0.1:" + std::to_string(free_port()) : "file:" + dir.path() + "/store";
        for (int r = 0; r < ranks; ++r) all.start(r, [this, r, store] { return run(r, store); });
    }
    int run(int r, const std::string& store) {
        ::unsetenv("COLLX_TEST_NIGHTLY"); // not a variable of collx
        ::setenv("COLLX_RANK", std::to_string(r).c_str(), 1);
        ::setenv("COLLX_SIZE", std::to_string(ranks).c_str(), 1);
        ::setenv("COLLX_STORE", store.c_str(), 1);
        ::setenv("COLLX_TIMEOUT", std::to_string(timeout_s).c_str(), 1);
        if (c.hosts > 1) ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r * c.hosts / ranks)).c_str(), 1);
        auto& mine = page->rank[r];
        words::page = &*page;
        words::rank = r;
        words::what = c.what;
        words::strike_after = r == c.victim ? c.word : -1;
        mine.code = -1;
        try {
            collx::communicator world;
            mine.words = words::said;
            collx::barrier(world);
            words::rank = -1;
            if (c.word < 0) return 0;
            collx::barrier(world); // the victim may have struck during the first
        } catch (const collx::error& e) {
            mine.ended_ns = collx::now_ns();
            mine.code = static_cast<int>(e.code());
            mine.peer = e.peer();
            std::snprintf(mine.text, sizeof mine.text, "%s", e.what());
        }
        return 0;
    }
    // Waits until all ranks have ended, except a silent victim.
    void wait() {
        for (const std::int64_t until = collx::now_ns() + patient((timeout_s + 15) * 1000 * ms);
             c.what == fault::silent && c.word >= 0 && collx::now_ns() < until; ::usleep(1000)) {
            int ended = 0;
            for (int r = 0; r < ranks; ++r) ended += r != c.victim && has_ended(r);
            if (ended == ranks - 1) break;
        }
        if (c.what == fault::silent && all.pid(c.victim) > 0) ::kill(all.pid(c.victim), SIGKILL);
        all.wait(timeout_s * 1000 + 20'000);
    }
    bool has_ended(int r) {
        siginfo_t how{};
        return ::waitid(P_PID, static_cast<id_t>(all.pid(r)), &how, WEXITED | WNOHANG | WNOWAIT) != 0 ||
               how.si_pid != 0;
    }
};

// Counts the cells and those whose survivors named the right rank in time.
struct tally {
    int cells = 0, right = 0, in_time = 0;
    std::int64_t worst_ns = 0;

    // False if the cell is to be run once more, alone, and only that verdict counts: a survivor that had no core for
    // seconds is late, and may find the store gone with the victim's process.
    bool judge(running_start& run, int limit_s, bool is_last) {
        const start_cell& c = run.c;
        const std::int64_t struck = run.page->struck_ns.load();
        if (struck == 0) return true; // this run sent fewer messages
        int unharmed = 0;             // connections that are no longer needed may be lost
        for (const auto& rank : run.page->rank) unharmed += rank.code < 0;
        if (c.what == fault::closed && unharmed == ranks) return true;
        bool is_right = true;
        std::int64_t slowest = 0;
        std::string told;
        for (int r = 0; r < ranks; ++r) {
            if (r == c.victim) continue;
            const auto& seen = run.page->rank[r];
            is_right = is_right && seen.code >= 0 && seen.peer == c.victim;
            slowest = std::max(slowest, seen.ended_ns - struck);
            told += "\n    rank " + std::to_string(r) + " after " + std::to_string((seen.ended_ns - struck) / ms) +
                    " ms: " +
                    (seen.code < 0 ? std::string("no error, exit ") + std::to_string(run.all[r].exit_code)
                                   : std::string(seen.text));
        }
        // A process that has connected but sent nothing does not count as a rank yet.
        const bool is_known = !c.is_tcp || run.page->has_said_hello;
        // The verdict may take a second more, and the test's own processes half a second.
        const std::int64_t due =
            (c.what == fault::silent || !is_known ? limit_s * 1000 : 0) * ms + 1000 * ms + patient(500 * ms);
        const bool is_fine = is_right && slowest <= due;
        if (!is_fine)
            std::printf("  %s, rank %d %s after its word %d (%s)%s:%s\n", is_right ? "late" : "WRONG", c.victim,
                        fault_names[static_cast<int>(c.what)], c.word, run.page->after, is_last ? ", again" : "",
                        told.c_str());
        if (!is_fine && !is_last) return false;
        ++cells;
        right += is_right;
        in_time += is_fine;
        worst_ns = std::max(worst_ns, slowest);
        return true;
    }
};

// Every message of each victim, or every `stride`-th one.
void run_matrix(bool is_tcp, int hosts, fault what, int stride) {
    start_cell c{is_tcp, hosts, -1, what, -1};
    int said[ranks] = {};
    {
        running_start all(c, patient_s(30));
        all.wait();
        for (int r = 0; r < ranks; ++r) {
            for (int k = 0; k < ranks; ++k) UNSCOPED_INFO("rank " << k << ": " << all.page->rank[k].text);
            REQUIRE(all.all[r].is_ok());
            REQUIRE(all.page->rank[r].code == -1);
            said[r] = all.page->rank[r].words;
        }
    }
    // A rank that a busy machine does not run for half of the limit is as silent as the victim.
    const int limit_s = what == fault::silent ? std::min(patient_s(2), 8) : 5;
    tally seen;
    std::deque<running_start> side_by_side; // a start mostly waits
    const auto end_all = [&] {
        std::vector<start_cell> again;
        for (auto& run : side_by_side) {
            run.wait();
            if (!seen.judge(run, limit_s, false)) again.push_back(run.c);
        }
        side_by_side.clear();
        for (const start_cell& one : again) {
            running_start alone(one, limit_s);
            alone.wait();
            (void)seen.judge(alone, limit_s, true);
        }
    };
    for (const int victim : {0, 1, ranks - 1}) {
        if (what == fault::closed && victim == 0) continue; // it has the store: its loss affects all other ranks
        for (int word = victim % stride; word < said[victim]; word += stride) {
            c.victim = victim;
            c.word = word;
            side_by_side.emplace_back(c, limit_s);
            if (side_by_side.size() == (what == fault::silent ? 6 : 3)) end_all();
        }
    }
    end_all();
    std::printf("%s store, %d host%s, %s: %d of %d cells right, %d of them in time, slowest %.0f ms\n",
                is_tcp ? "tcp" : "file", hosts, hosts > 1 ? "s" : "", fault_names[static_cast<int>(what)], seen.right,
                seen.cells, seen.in_time, static_cast<double>(seen.worst_ns) / 1e6);
    std::fflush(nullptr);
    CHECK(seen.cells > 0);
    CHECK(seen.right == seen.cells);
    CHECK(seen.in_time == seen.cells);
}

// By day only two hosts, which send most messages, and few of the messages.
void run_all(fault what) {
    for (const bool is_tcp : {true, false})
        for (const int hosts : {1, 2})
            if (is_night() || hosts == 2) run_matrix(is_tcp, hosts, what, is_night() ? 1 : 9);
}

} // namespace

TEST_CASE("a rank sends nothing before its store has a listener, not even a bye") {
    const int bound = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); // has the port, but does not listen
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    REQUIRE(::bind(bound, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::getsockname(bound, reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
    start_page page{};
    words::page = &page;
    words::rank = 1;
    words::has_sent = false;
    CHECK_THROWS_AS(collx::tcp_store("127.0.0.1", ntohs(at.sin_port), collx::deadline::in_ns(200'000'000), 1),
                    collx::error);
    CHECK_FALSE(words::has_sent);
    words::page = nullptr;
    words::rank = -1;
    words::said = 0;
    words::has_sent = false;
    ::close(bound);
}

TEST_CASE("a rank that dies while the job comes up is named by all others within a second") { run_all(fault::killed); }

TEST_CASE("a rank that falls silent while the job comes up is named by all others at the limit") {
    run_all(fault::silent);
}

TEST_CASE("a rank that loses its connection to the store is named by all others") {
    run_matrix(true, 1, fault::closed, is_night() ? 1 : 9);
}
