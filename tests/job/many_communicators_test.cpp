// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 alone sanitize=no
//
// Many live communicators: each holds as much of the arena as it used, its end frees that, and calls do not poll idle
// communicators. Times are printed, counts are checked.
#include "comm/support.hpp"
#include "support/open_files.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

using namespace collx_test;

namespace {

struct stop_watch {
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    double us() const {
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    }
};

std::uint64_t free_bytes(const collx::communicator& w) {
    const auto& h = w.membership()->memory->header();
    std::uint64_t bytes = 0;
    for (int i = 0; i < h.free_count; ++i) bytes += h.free[i].bytes;
    return bytes;
}

void add_one(collx::communicator& c, collx::communicator& w) {
    double x = 1;
    collx::all_reduce(c, collx::value(x));
    EXPECT_AT(x, x == c.size());
}

double call_us(collx::communicator& w) {
    constexpr int calls = 200;
    for (int i = 0; i < 20; ++i) add_one(w, w);
    const stop_watch t;
    for (int i = 0; i < calls; ++i) add_one(w, w);
    return t.us() / calls;
}

// Counts this rank's receive calls, by connection.
struct counted_calls {
    static inline thread_local std::array<long, 8192> looks{};
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        if (static_cast<std::size_t>(fd) < looks.size()) ++looks[static_cast<std::size_t>(fd)];
        return collx::detail::receive_parts(fd, m, flags);
    }
    static collx::socket_calls all() {
        collx::socket_calls c = collx::system_socket_calls;
        c.recvmsg = recvmsg;
        return c;
    }
};
const collx::socket_calls counting = counted_calls::all();

} // namespace

TEST_CASE("a thousand communicators of one host have room, also when each has been used") {
    struct part {
        int ranks, made;
    };
    for (const part p : {part{2, 1000}, part{4, 1000}, part{16, 100}, part{64, 10}, part{256, 2}})
        on_ranks(p.ranks, [&](collx::communicator& w) {
            std::vector<collx::communicator> all;
            collx::barrier(w);
            const std::uint64_t before = free_bytes(w);
            collx::barrier(w);
            const stop_watch t;
            for (int i = 0; i < p.made; ++i) all.push_back(w.split(0));
            const double each_us = t.us() / p.made;
            collx::barrier(w);
            const std::uint64_t idle = (before - free_bytes(w)) / static_cast<unsigned>(p.made);
            collx::barrier(w);
            for (auto& c : all) add_one(c, w);
            collx::barrier(w);
            const std::uint64_t used = (before - free_bytes(w)) / static_cast<unsigned>(p.made);
            if (w.rank() == 0)
                std::printf("%d ranks, %d communicators: %.0f us to make one, %.2f MiB of the arena idle, %.2f used\n",
                            p.ranks, p.made, each_us, static_cast<double>(idle) / (1 << 20),
                            static_cast<double>(used) / (1 << 20));
            EXPECT_AT(used, used * 1000 < w.membership()->memory->bytes());
            EXPECT_AT(idle, idle <= (std::uint64_t{4} << 20));
            collx::barrier(w);
            all.clear();
            collx::barrier(w);
            EXPECT(free_bytes(w) == before);
            collx::barrier(w);
        });
}

TEST_CASE("ten thousand communicators one after the other leave the arena as it was") {
    on_ranks(2, [](collx::communicator& w) {
        collx::barrier(w);
        const std::uint64_t before = free_bytes(w);
        const int parts = w.membership()->memory->header().free_count;
        const long files = w.rank() == 0 ? open_files() : 0;
        collx::barrier(w);
        for (int i = 0; i < 10'000; ++i) {
            auto c = w.split(0);
            if (i % 100 == 0) add_one(c, w);
        }
        collx::barrier(w);
        EXPECT(free_bytes(w) == before);
        EXPECT(w.membership()->memory->header().free_count == parts);
        EXPECT(w.rank() != 0 || open_files() == files);
        collx::barrier(w);
    });
}

TEST_CASE("an arena that is full says how full, and what to do") {
    on_ranks(2, [](collx::communicator& w) {
        const auto memory = w.membership()->memory;
        const auto e = thrown<collx::error>(w, [&] { (void)memory->take(memory->bytes()); });
        EXPECT(e.code() == collx::errc::resource && says(e, "COLLX_ARENA_BYTES") && says(e, "in a row"));
    });
}

TEST_CASE("a call that finds the arena full names its rank, and the others learn what that rank is short of") {
    std::atomic<bool> has_room_again{false};
    on_ranks(2, [&](collx::communicator& w) {
        auto own = w.dup();
        own.set_checked(false);
        const auto memory = w.membership()->memory;
        std::vector<std::pair<std::uint64_t, std::size_t>> taken;
        if (w.rank() == 1)
            for (std::size_t bytes = memory->bytes(); bytes >= 4096; bytes /= 2)
                while (free_bytes(w) >= bytes) {
                    try {
                        taken.emplace_back(memory->take(bytes), bytes);
                    } catch (const collx::error&) { // not in a row
                        break;
                    }
                }
        std::vector<int> x(1000, 1);
        if (w.rank() == 0) until([&] { return own.internals().net.failed(); });
        const auto e = thrown<collx::error>(w, [&] { collx::all_reduce(own, x); });
        at("%s", e.what());
        EXPECT(e.code() == collx::errc::resource && e.rank() == w.rank() && says(e, "COLLX_ARENA_BYTES"));
        EXPECT(says(e, w.rank() == 1 ? "rank 1: no " : "rank 1 has no shared address space left"));
        for (const auto& [offset, bytes] : taken) memory->give_back(offset, bytes);
        if (w.rank() == 1) has_room_again = true;
        until([&] { return has_room_again.load(); });
        collx::barrier(w);
    });
}

TEST_CASE("a communicator of the whole job for which there is no room names the rank") {
    on_ranks(1, [](collx::communicator& w) {
        const auto memory = w.membership()->memory;
        for (std::size_t bytes = memory->bytes(); bytes >= 4096; bytes /= 2) try {
                for (;;) (void)memory->take(bytes);
            } catch (const collx::error&) { // no such range any more
            }
        const auto e = thrown<collx::error>(w, [&] { const collx::communicator more(w.internals().home); });
        EXPECT(e.code() == collx::errc::resource && e.rank() == 0 && says(e, "rank 0: no "));
    });
}

TEST_CASE("idle communicators over sockets cost a call no look each, and are heard when they have something to say") {
    for (const int others : {0, 100, 400, 1000}) {
        collx::detail::run_thread_jobs(
            collx::detail::thread_jobs({0, 1}, counting, nullptr, "127.0.0.1", 1), [&](collx::communicator& w) {
                std::vector<collx::communicator> idle;
                const stop_watch t;
                for (int i = 0; i < others; ++i) idle.push_back(w.split(0));
                const double each_us = others == 0 ? 0 : t.us() / others;
                collx::barrier(w);
                counted_calls::looks.fill(0);
                const double us = call_us(w);
                long all = 0, most = 0;
                for (const long n : counted_calls::looks) {
                    all += n;
                    most = std::max(most, n);
                }
                if (w.rank() == 0)
                    std::printf("%d idle communicators: %.0f us to make one, all_reduce of 8 bytes %.1f us, "
                                "%.2f looks at all for one at its own connection, %d files\n",
                                others, each_us, us, static_cast<double>(all) / static_cast<double>(most),
                                open_files());
                EXPECT_AT(all, all <= 2 * most);
                EXPECT_AT(open_files(), open_files() <= 40); // of both ranks, which are in this process
                if (others == 0) return;
                std::vector<int> x(500'000, w.rank());
                auto& last = idle.back();
                auto h = w.rank() == 0 ? collx::async::send(last, x, 1) : collx::async::recv(last, x, 0);
                collx::barrier(w);
                h.wait();
                EXPECT(x[499'999] == 0);
                // A communicator that shares a connection, while all others are alive.
                for (auto& c : idle) add_one(c, w);
                counted_calls::looks.fill(0);
                const double shared_us = call_us(last);
                all = most = 0;
                for (const long n : counted_calls::looks) {
                    all += n;
                    most = std::max(most, n);
                }
                EXPECT_AT(all, all <= 2 * most);
                if (w.rank() == 0)
                    std::printf("  all_reduce of 8 bytes of the last of them %.1f us, %.2f looks at all for one\n",
                                shared_us, static_cast<double>(all) / static_cast<double>(most));
                EXPECT_AT(open_files(), open_files() <= 40);
                collx::barrier(w);
            });
    }
}

TEST_CASE("communicators over sockets beyond the first few share one connection to each rank") {
    for (const int ranks : {2, 4}) {
        std::vector<int> host_of;
        for (int r = 0; r < ranks; ++r) host_of.push_back(r);
        collx::run_threads(host_of, [&](collx::communicator& w) {
            const int made = 100;
            add_one(w, w);
            collx::barrier(w);
            const long before = w.rank() == 0 ? open_files() : 0;
            collx::barrier(w);
            std::vector<collx::communicator> all;
            for (int i = 0; i < made; ++i) all.push_back(i % 2 == 0 ? w.split(0) : w.dup());
            for (auto& c : all) add_one(c, w);
            for (auto& c : all) add_one(c, w);
            collx::barrier(w);
            const long used = w.rank() == 0 ? open_files() - before : 0;
            if (w.rank() == 0) std::printf("%d ranks: %ld files for %d communicators\n", ranks, used, made);
            // Of all ranks, which are in this process: a few connections to each peer, and what polls many at once.
            EXPECT_AT(static_cast<int>(used), used <= ranks * ((ranks - 1) * 5 + 6));
            collx::barrier(w);
            std::vector<int> x(500'000, w.rank());
            auto& last = all.back();
            collx::broadcast(last, x, {.root = 0});
            EXPECT(x[499'999] == 0);
        });
    }
}
