// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 serial sanitize=nightly
//
// Ranks that wait for each other in a circle: every rank's error names the circle, and none says that it waits for
// itself. Over memory, shm and sockets.
#include "comm/support.hpp"
#include "faults/support.hpp"
#include "support/side_by_side.hpp"

#include <cstring>

using namespace collx_test;
using collx::timed_out;

namespace {

std::string circle(int n) {
    std::string text = "ranks 0";
    for (int r = 1; r < n; ++r) text += " -> " + std::to_string(r);
    return text + " -> 0 wait for each other";
}

// Returns when all ranks are here: one that left the barrier late could be named as absent.
void meet(collx::communicator& w, std::atomic<int>& come) {
    collx::barrier(w);
    ++come;
    until([&] { return come == w.size(); });
}

// Every rank sends before it receives, a message larger than all buffers on its way.
void send_first(collx::communicator& w, std::atomic<int>& come, std::chrono::milliseconds limit) {
    std::vector<int> out(4u << 20), in(4u << 20);
    const int n = w.size();
    w.set_checked(false);
    meet(w, come);
    collx::send(w, out, (w.rank() + 1) % n, {.timeout = limit});
    collx::recv(w, in, (w.rank() + n - 1) % n, {.timeout = limit});
}

using spread_ranks = std::vector<int>; // the host of each rank

// How long the ranks wait for each other. Between hosts, waiting words are sent every 1/64 of it and forwarded by
// ranks that need a core for it: ThreadSanitizer takes several times as long.
std::chrono::milliseconds circle_limit(const spread_ranks& host_of) {
    const int slower = is_under_thread_sanitizer ? 2 : 1;
    return heard_within(std::chrono::milliseconds(host_of.back() == 0 ? 2000 : 8000) * slower);
}

void run_circle(const spread_ranks& host_of) {
    const int n = static_cast<int>(host_of.size());
    const bool is_one_host = host_of.back() == 0;
    const auto limit = circle_limit(host_of);
    std::atomic<int> come{0};
    collx::run_threads(host_of, [&](collx::communicator& w) {
        at("%d ranks on %d hosts", n, host_of.back() + 1);
        const auto e = thrown<timed_out>(w, [&] { send_first(w, come, limit); });
        EXPECT(e.peer() != w.rank() && e.peer() >= 0);
        // Across hosts, where not all pairs are connected, a rank may not know every hop.
        const bool knows_all = says(e, (circle(n) + ": each sends before it receives").c_str());
        const bool knows_part = !is_one_host && n > 3 && says(e, ": ranks ") && says(e, " wait for each other");
        if (!knows_all) std::fprintf(stderr, "%s\n", e.what());
        EXPECT(knows_all || knows_part);
        EXPECT(e.sequence() == 2 && says(e, "call 2: ")); // call 1 is the barrier
        const auto again = thrown<timed_out>(w, [&] { collx::barrier(w); });
        EXPECT(again.peer() != w.rank() && says(again, " wait for each other"));
    });
}
void check_circles(const std::vector<spread_ranks>& all) {
    const long before = checks.load();
    long ranks = 0;
    {
        side_by_side jobs;
        for (const auto& host_of : all) {
            jobs.add([=] { run_circle(host_of); });
            ranks += static_cast<long>(host_of.size());
        }
    }
    CHECK(checks.load() - before == 6 * ranks);
}

// Ranks 0 to 2 wait for messages in a circle, and rank 3 waits for one of them.
void run_into_circle(const spread_ranks& host_of) {
    const auto limit = circle_limit(host_of);
    std::atomic<int> come{0};
    collx::run_threads(host_of, [&](collx::communicator& w) {
        w.set_checked(false);
        int x = 0;
        meet(w, come);
        const int from = w.rank() == 3 ? 0 : (w.rank() + 1) % 3;
        const auto e = thrown<timed_out>(w, [&] { collx::recv(w, collx::value(x), from, {.timeout = limit}); });
        at("%s", e.what());
        EXPECT(e.peer() != w.rank() && e.peer() >= 0);
        if (w.rank() < 3) EXPECT(says(e, circle(3).c_str()));
        else EXPECT(says(e, "wait for each other"));
        EXPECT(!says(e, "sends before"));
    });
}

} // namespace

TEST_CASE("a rank that sends before it receives gets the circle in its error: in memory") {
    check_circles({{0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}});
}
TEST_CASE("a rank that sends before it receives gets the circle in its error: over sockets") {
    // All ranks of all circles poll for messages at once: fewer circles where polling is slow.
    if (is_under_thread_sanitizer) check_circles({{0, 1, 2}, {0, 0, 1, 1, 2}});
    else check_circles({{0, 1}, {0, 1, 2}, {0, 1, 2, 3, 4}, {0, 0, 1, 1, 2}});
}
TEST_CASE("the error of a rank that waits for itself says so") {
    for (const bool sends : {true, false})
        collx::run_threads(spread_ranks{0}, [&](collx::communicator& w) {
            std::vector<int> x(4u << 20);
            const auto e = thrown<timed_out>(w, [&] {
                constexpr std::chrono::milliseconds limit(300); // no other rank is waited for
                if (sends) collx::send(w, x, 0, {.timeout = limit});
                else collx::recv(w, x, 0, {.timeout = limit});
            });
            at("%s", e.what());
            EXPECT(
                says(e, sends ? "rank 0 waits for itself: it sends before" : "rank 0 waits for itself: it receives"));
            EXPECT(says(e, "sendrecv()") && e.peer() == 0);
        });
}

TEST_CASE("a rank that sends before it receives gets the circle in its error: over shared memory") {
    const auto limit = circle_limit({0});
    struct job {
        int n;
        std::string name = new_job();
        shared_page<std::atomic<int>> come{};
        processes all{};
    } jobs[] = {{2}, {4}}; // at the same time: they mostly wait
    for (job& j : jobs)
        for (int r = 0; r < j.n; ++r)
            j.all.start(r, [&, r] {
                collx::communicator w(join(j.name, r, j.n));
                try {
                    send_first(w, *j.come, limit);
                } catch (const timed_out& e) {
                    if (e.peer() == r || e.peer() < 0) return 2;
                    if (!says(e, (circle(j.n) + ": each sends before it receives").c_str())) throw;
                    return 0;
                }
                return 1;
            });
    for (job& j : jobs) {
        j.all.wait();
        for (int r = 0; r < j.n; ++r) {
            INFO("rank " << r << " of " << j.n << ": " << j.all[r].what);
            CHECK(j.all[r].exit_code == 0);
        }
    }
}

TEST_CASE("ranks that wait for messages in a circle, and one that waits for them") {
    const long before = checks.load();
    {
        side_by_side jobs;
        for (const auto& host_of : {spread_ranks{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3}})
            jobs.add([=] { run_into_circle(host_of); });
    }
    CHECK(checks.load() - before == 3 * 4 * 4);
}

TEST_CASE("what others report of a rank does not read as if it accused itself") {
    for (const collx::errc code :
         {collx::errc::peer_failed, collx::errc::timeout, collx::errc::aborted, collx::errc::mismatch,
          collx::errc::resource, collx::errc::unsupported, collx::errc::security, collx::errc::protocol})
        collx::run_threads(2, [&](collx::communicator& w) {
            at("%s", collx::name_of(code));
            w.set_checked(false);
            if (w.rank() == 1) w.internals().net.report(collx::failure(code, 0));
            const auto e = thrown<collx::error>(w, [&] {
                for (;;) collx::barrier(w);
            });
            EXPECT(e.code() == code && e.peer() == 0);
            EXPECT(std::strncmp(e.what(), "collx: rank ", 12) == 0);
            if (w.rank() == 0) EXPECT(!says(e, ": rank 0 ") && !says(e, "for rank 0") && says(e, "this rank"));
            else EXPECT(says(e, "rank 0") && !says(e, "this rank"));
        });
}

TEST_CASE("what a rank is short of travels with its failure, and the others say the remedy for that") {
    using collx::detail::shortage;
    const std::pair<shortage, const char*> rows[] = {
        {shortage::open_files, "(raise its limit of open files (ulimit -n))"},
        {shortage::system_files, "fs.file-max"},
        {shortage::address_space, "(raise its address space limit (ulimit -v))"},
        {shortage::file_size, "(raise its file size limit (ulimit -f))"},
        {shortage::locked, "ulimit -l"},
        {shortage::threads, "ulimit -u"},
        {shortage::memory, "(free memory there, or raise the memory limit of its job)"},
        {shortage::arena, "has no shared address space left (destroy communicators or shared buffers there"},
        {shortage::ports, "(its system has no free local port: widen net.ipv4.ip_local_port_range)"},
        {shortage::unknown, "see its output"}};
    for (const auto& host_of : {spread_ranks{0, 0}, {0, 1}})
        for (const auto& [what, remedy] : rows)
            collx::run_threads(host_of, [&, what = what, remedy = remedy](collx::communicator& w) {
                at("%s", remedy);
                if (w.rank() == 1) w.internals().net.report(collx::failure(collx::errc::resource, 1, what));
                const auto e = thrown<collx::error>(w, [&] {
                    for (;;) collx::barrier(w);
                });
                EXPECT(e.code() == collx::errc::resource && e.peer() == 1);
                EXPECT_AT(w.rank(), says(e, remedy));
            });
}
