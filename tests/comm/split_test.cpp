// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Communicators made from communicators.
#include "support.hpp"

#include <numeric>

using namespace collx_test;

TEST_CASE("split groups ranks by colour and orders them by key, then by rank") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (int colours = 1; colours <= 3; ++colours) {
                const int me = w.rank(), key = me % 2 == 0 ? 10 : -10; // odd ranks first
                auto c = w.split(me % colours, key);
                std::vector<int> members;
                for (const int parity : {1, 0})
                    for (int r = 0; r < n; ++r)
                        if (r % colours == me % colours && r % 2 == parity) members.push_back(r);
                EXPECT(!c.is_empty() && c.size() == static_cast<int>(members.size()) &&
                       members[static_cast<std::size_t>(c.rank())] == me);
                std::vector<int> seen(members.size());
                collx::all_gather(c, collx::value(me), seen);
                EXPECT(seen == members);
                int sum = me;
                collx::all_reduce(c, collx::value(sum));
                EXPECT(sum == std::accumulate(members.begin(), members.end(), 0));
            }
        });
}

TEST_CASE("a negative colour takes no part") {
    on_ranks(5, [](collx::communicator& w) {
        auto c = w.split(w.rank() == 3 ? -1 : 7);
        EXPECT(c.is_empty() == (w.rank() == 3));
        if (!c.is_empty()) {
            int x = 1;
            collx::all_reduce(c, collx::value(x));
            EXPECT(x == 4);
        }
        auto none = w.split(-5);
        EXPECT(none.is_empty());
    });
}

TEST_CASE("splits of splits, in rows and columns, all used in turn") {
    on_ranks(8, [](collx::communicator& w) {
        auto rows = w.split(w.rank() / 4), columns = w.split(w.rank() % 4);
        auto halves = rows.split(rows.rank() / 2);
        EXPECT(rows.size() == 4 && columns.size() == 2 && halves.size() == 2);
        for (int i = 0; i < 100; ++i) {
            int a = 1, b = w.rank(), c = w.rank(), d = i;
            collx::all_reduce(rows, collx::value(a));
            collx::broadcast(columns, collx::value(b), {.root = i % 2});
            collx::all_reduce(halves, collx::value(c));
            collx::all_reduce(w, collx::value(d));
            EXPECT(a == 4 && b == w.rank() % 4 + i % 2 * 4 && c == w.rank() / 2 * 4 + 1 && d == 8 * i);
        }
    });
}

TEST_CASE("split_by_host groups the ranks of one host, also of a part, in the order of the keys") {
    on_hosts(5, spread{2}, [](collx::communicator& w) { // hosts of ranks 0, 1 | 2, 3 | 4
        const int first = w.rank() / 2 * 2, count = first == 4 ? 1 : 2;
        auto host = w.split_by_host(), turned = w.split_by_host(-w.rank());
        EXPECT(host.size() == count && host.rank() == w.rank() - first);
        EXPECT(turned.size() == count && turned.rank() == count - 1 - host.rank());
        EXPECT(host.internals().net.is_one_host());
        auto odd = w.split(w.rank() % 2 == 0 ? -1 : 0); // ranks 1 and 3, on two hosts
        if (!odd.is_empty()) EXPECT(odd.split_by_host().size() == 1);
    });
    on_ranks(3, [](collx::communicator& w) {
        EXPECT(w.split_by_host().size() == 3);
        auto late = w.split(w.rank() == 0 ? -1 : 0);
        if (!late.is_empty()) EXPECT(late.split_by_host().size() == 2);
    });
    collx::run_threads(collx::per_peer{collx::sockets{}}, 2, [](collx::communicator& w) {
        if (w.split_by_host().size() != 1) throw wrong("no rank shares memory, yet some have one host");
    });
}

// Rank 2, which gets no communicator, ends. Rank 1 learns of it while it waits in split(), and rank 0 learns of the new
// communicator's end first.
namespace {

// Rank 1 learns in split() that rank 2 has ended the parent. Rank 0 first hears what rank 1 says in the new one.
template <class SayThere>
void ended_from_outside(SayThere&& say_there) {
    std::atomic<bool> has_seen{false};
    on_hosts(3, spread{1}, [&](collx::communicator& w) {
        const bool is_in = w.rank() < 2;
        w.set_checked(false);
        if (w.rank() == 1) { // what split() does, but for the wait
            auto& c = w.internals();
            c.begin_collective();
            ++c.splits;
            collx::detail::growing_array<int> members;
            for (const int r : {0, 1}) members.push_back(c.members[r]);
            const auto layout = c.home->layout_of(members);
            const std::uint64_t at = collx::job::take_links(*c.home->memory, layout, 1);
            c.exchange_each(collx::detail::split_request{0, 0}, [](int, auto&) {});
            c.exchange_each(collx::detail::split_place{at, 0, 0}, [](int, auto&) {});
            collx::communicator_core made(c.home, at, 1, 2, std::move(members), &c, false,
                                          collx::detail::id_of_split(c, 0, false));
            say_there(made.net);
            const std::int64_t until = collx::now_ns() + 50'000'000; // rank 0 gets this word first
            while (collx::now_ns() < until) (void)made.progress_or_move();
            c.net.report(collx::failure(collx::errc::peer_failed, 2));
            c.net.announce_failure();
            EXPECT(c.net.failed().rank() == 2);
        } else {
            const auto e = thrown<collx::peer_failed>(w, [&] {
                (void)w.split(is_in ? 0 : -1);
                collx::barrier(w);
            });
            EXPECT(e.peer() == 2 && !says(e, "aborted"));
            if (is_in) has_seen = true;
        }
        until([&] { return has_seen.load(); });
    });
}

} // namespace

TEST_CASE("a split that a rank outside the new communicator ends names that rank") {
    ended_from_outside([](collx::links& made) {
        made.report(collx::failure(collx::errc::aborted, 1));
        made.announce_failure();
    });
    ended_from_outside([](collx::links& made) { made.remote()->say_bye(); });
}

TEST_CASE("a rank that finds no room for a new communicator says why, and the others name it") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<std::pair<std::uint64_t, std::size_t>> taken;
        const auto memory = w.membership()->memory;
        if (w.rank() == 0)
            for (std::size_t bytes = memory->bytes(); bytes >= 4096; bytes /= 2) try {
                    for (;;) taken.emplace_back(memory->take(bytes), bytes);
                } catch (const collx::error&) { // no such range any more
                }
        const auto e = thrown<collx::error>(w, [&] { (void)w.split(0); });
        EXPECT(e.code() == collx::errc::resource && e.rank() == w.rank());
        EXPECT(says(e, w.rank() == 0 ? "rank 0: no " : "rank 0 of the job found no room for the communicator"));
        for (const auto& [offset, bytes] : taken) memory->give_back(offset, bytes);
        collx::barrier(w);
        EXPECT(w.split(0).size() == 2);
    });
}

TEST_CASE("a split inherits what was set") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        auto a = w.split(0);
        w.set_checked(false);
        auto b = w.split(0);
        EXPECT(a.is_checked() && !b.is_checked());
    });
}

TEST_CASE("dup has the same ranks in the same order, the same settings, and calls that do not meet the original's") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            w.set_checked(true);
            auto d = w.dup();
            w.set_checked(false);
            EXPECT(d.rank() == w.rank() && d.size() == w.size() && d.is_checked());
            d.set_checked(false);
            // The order of calls matters only within one communicator: rank 1 starts with the other one.
            std::vector<int> x(5000, 1), y(5000, 10);
            for (int round = 0; round < 20; ++round) {
                auto first = collx::async::all_reduce(w.rank() == 1 ? d : w, w.rank() == 1 ? y : x);
                auto second = collx::async::all_reduce(w.rank() == 1 ? w : d, w.rank() == 1 ? x : y);
                std::vector<collx::work<void>> both;
                both.push_back(std::move(first));
                both.push_back(std::move(second));
                for (auto& b : both)
                    while (!b.test()) {
                        (void)w.progress();
                        (void)d.progress();
                    }
                for (std::size_t i = 0; i < x.size(); ++i) EXPECT_AT(i, x[i] == 3 && y[i] == 30);
                std::fill(x.begin(), x.end(), 1);
                std::fill(y.begin(), y.end(), 10);
            }
            auto of_dup = d.dup();
            int one = 1;
            collx::all_reduce(of_dup, collx::value(one));
            EXPECT(one == 3);
        });
}

TEST_CASE("the end of a dup is not the end of its original, nor the other way round") {
    on_ranks(2, [](collx::communicator& w) {
        auto d = w.dup(), e = w.dup();
        if (w.rank() == 0) d.abort();
        (void)thrown<collx::aborted>(w, [&] { collx::barrier(d); });
        (void)thrown<collx::aborted>(w, [&] { (void)d.dup(); }); // the error that ended d also ends this call
        int one = 1;
        collx::all_reduce(w, collx::value(one));
        EXPECT(one == 2);
        // every rank that has left the second barrier has left the first
        collx::barrier(w);
        collx::barrier(e);
        if (w.rank() == 1) w.abort();
        (void)thrown<collx::aborted>(w, [&] { collx::barrier(w); });
        collx::all_reduce(e, collx::value(one));
        EXPECT(one == 4);
        collx::communicator moved = std::move(e);
        const auto error = thrown<collx::invalid_argument>(w, [&] { (void)e.dup(); });
        EXPECT(says(error, "this communicator is empty"));
    });
}

TEST_CASE("communicators may be made and destroyed in any order, while others work") {
    on_ranks(4, [](collx::communicator& w) {
        std::vector<collx::communicator> kept;
        for (int i = 0; i < 60; ++i) {
            kept.push_back(w.split(w.rank() % (i % 3 + 1)));
            if (i % 4 == 3) kept.erase(kept.begin() + i % static_cast<int>(kept.size()));
            int x = 1;
            collx::all_reduce(kept.back(), collx::value(x));
            EXPECT(x == kept.back().size());
        }
        while (!kept.empty()) kept.erase(kept.begin()); // destroying waits for no rank
        int x = 1;
        collx::all_reduce(w, collx::value(x));
        EXPECT(x == 4);
    });
}

TEST_CASE("worlds of one job are independent; a thread may make its own") {
    std::atomic<long> sum{0};
    collx::run_threads(3, [&] {
        collx::communicator a, b;
        for (int i = 0; i < 50; ++i) {
            int x = a.rank(), y = 1;
            collx::all_reduce(a, collx::value(x));
            collx::all_reduce(b, collx::value(y));
            sum += x * 10 + y;
        }
        collx::communicator moved = std::move(a);
        int z = 1;
        collx::all_reduce(moved, collx::value(z));
        sum += z;
        for (int i = 0; i < 70; ++i) { // more than the board has lines
            collx::communicator c;
            sum += c.size();
        }
    });
    CHECK(sum == 3 * (50 * 33 + 3 + 70 * 3));
}
