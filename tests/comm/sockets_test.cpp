// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=240
//
// Communicators with ranks on several hosts, as threads: which connections they use, what they refuse, and the error
// texts. The property tests check that every collective is correct over sockets.
#include "support.hpp"
#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/memory_store.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/job/listener.hpp>
#include <collx/transport/detail/socket_calls.hpp>

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "support/skip.hpp"
#include "support/toy_macs.hpp"

using namespace collx_test;
using collx::errc;

namespace {

const spread each_alone{1}, two_a_host{2}, over_unix{1, false, false, true};

bool is_here(collx::communicator& w) { return w.internals().net.is_one_host(); }
// Counts how often this thread, a rank, reads sockets, and the bytes that the system stores in the watched range.
struct watched {
    static inline thread_local int looks = 0;
    static inline thread_local const char *begin = nullptr, *end = nullptr;
    static inline thread_local std::size_t bytes = 0;
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        const ssize_t got = ::recvmsg(fd, m, flags);
        ++looks;
        std::size_t left = got > 0 ? static_cast<std::size_t>(got) : 0;
        for (std::size_t k = 0; k < m->msg_iovlen && left != 0; ++k) {
            const auto* const at = static_cast<const char*>(m->msg_iov[k].iov_base);
            const std::size_t here = std::min(left, m->msg_iov[k].iov_len);
            if (at >= begin && at < end) bytes += here;
            left -= here;
        }
        return got;
    }
};
constexpr collx::socket_calls watched_calls{::socket, ::connect, ::accept4, ::sendmsg, watched::recvmsg, ::epoll_wait};

int connections(collx::communicator& w) { return w.internals().net.remote()->connections(); }

collx::host_description host_from(std::vector<const char*> variables) {
    variables.push_back(nullptr);
    return collx::describe_host(collx::environment(variables.data()));
}

} // namespace

TEST_CASE("a rank connects to those it talks to and to no others") {
    on_hosts(8, each_alone, [](collx::communicator& w) {
        collx::barrier(w.with(collx::algo::dissemination_barrier{}));
        const int me = w.rank();
        // The tree of a communicator has 7 edges; there are 28 pairs.
        EXPECT(connections(w) < 7);
        auto pair = w.split(me / 2);
        std::vector<int> x(1000, me);
        for (int i = 0; i < 3; ++i) collx::all_reduce(pair, x);
        EXPECT(connections(pair) == 1);
    });
    on_hosts(6, each_alone, [](collx::communicator& w) {
        const int tree = connections(w), me = w.rank();
        std::vector<int> x(60'000, 1);
        collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x);
        EXPECT(x[59'999] == 6);
        EXPECT(connections(w) <= tree + 2);
        if (me == 5) EXPECT(connections(w) <= 3);
    });
}

// Messages of another call may have to wait for a receiver that waits for this very rank.
TEST_CASE("a call that is done waits for no message of another call") {
    const std::size_t many = 10'000'000; // more elements than slots and sockets hold
    for (const bool is_one_peer : {false, true})
        on_hosts(3, each_alone, [&](collx::communicator& w) {
            at("one peer: %d", is_one_peer);
            std::vector<int> large(w.rank() != 1 ? many : 0, w.rank());
            int x = w.rank(), sum = 1;
            if (w.rank() == 0) {
                auto first = collx::async::send(w, collx::view(large.data(), is_one_peer ? 3'000'000 : 1), 2);
                auto second = collx::async::send(w, large, 2);
                if (is_one_peer) first.wait();
                else collx::recv(w, collx::value(x), 1);
                collx::all_reduce(w, collx::value(sum));
                second.wait();
                first.wait();
            } else if (w.rank() == 1) {
                if (!is_one_peer) collx::send(w, collx::value(x), 0);
                collx::all_reduce(w, collx::value(sum));
            } else {
                if (is_one_peer) collx::recv(w, collx::view(large.data(), 3'000'000), 0);
                collx::all_reduce(w, collx::value(sum));
                if (!is_one_peer) collx::recv(w, collx::view(large.data(), 1), 0);
                collx::recv(w, large, 0);
                EXPECT(large[many - 1] == 0);
            }
            EXPECT(sum == 3 && x == (w.rank() == 0 && !is_one_peer ? 1 : w.rank()));
        });
}

TEST_CASE("groups of several hosts find together whatever calls have failed on one rank alone") {
    on_hosts(3, each_alone, [](collx::communicator& w) {
        w.set_checked(false);
        if (w.rank() == 1) w.internals().begin_collective(); // as if it had then failed, for lack of memory for example
        w.set_timeout(collx_test::patient(std::chrono::seconds(20)));
        auto c = w.split(0);
        int x = 1;
        collx::all_reduce(c.with(collx::algo::ring_all_reduce{}), collx::value(x));
        EXPECT(x == 3);
    });
}

TEST_CASE("split: groups of one host share memory, others do not") {
    on_hosts(6, two_a_host, [](collx::communicator& w) {
        EXPECT(!is_here(w));
        auto row = w.split(w.rank() / 2), column = w.split(w.rank() % 2, -w.rank());
        EXPECT(is_here(row) && row.size() == 2);
        EXPECT(!is_here(column) && column.size() == 3);
        int x = w.rank(), y = w.rank();
        collx::all_reduce(row.with(collx::algo::one_shot_all_reduce{}), collx::value(x));
        EXPECT(x == w.rank() / 2 * 4 + 1);
        collx::all_reduce(column, collx::value(y));
        EXPECT(y == 6 + w.rank() % 2 * 3);
        EXPECT(column.rank() == 2 - w.rank() / 2);
        auto none = w.split(w.rank() == 3 ? -1 : 0);
        EXPECT(none.is_empty() == (w.rank() == 3));
        if (w.rank() != 3) {
            int one = 1;
            collx::all_reduce(none, collx::value(one));
            EXPECT(one == 5);
        }
    });
}

TEST_CASE("communicators are independent: two ranks use them in different orders") {
    on_hosts(2, each_alone, [](collx::communicator& w) {
        auto a = w.split(0), b = w.split(0);
        std::vector<int> x(30'000, w.rank()), y(30'000, w.rank());
        for (int i = 0; i < 20; ++i) {
            if (w.rank() == 0) {
                collx::send(a, x, 1);
                collx::recv(b, y, 1);
            } else {
                collx::send(b, y, 0);
                collx::recv(a, x, 0);
            }
        }
        EXPECT(x[0] == 0 && y[0] == 1);
        collx::barrier(w);
    });
}

TEST_CASE("outstanding calls and groups go on over sockets") {
    for (const spread& s : {each_alone, two_a_host, spread{2, true}, spread{1, false, false, true}})
        on_hosts(4, s, [](collx::communicator& w) {
            std::vector<int> x(50'000, w.rank()), y(10, 1), z(300, w.rank());
            auto first = collx::async::all_reduce(w, x);
            auto second = collx::async::all_reduce(w, y);
            collx::barrier(w);
            second.wait();
            while (!first.test()) {
            }
            EXPECT(x[49'999] == 6 && y[9] == 4);
            collx::group g(w);
            g.all_reduce(y);
            g.broadcast(z, 2);
            g.launch();
            EXPECT(y[0] == 16 && z[299] == 2);
        });
}

TEST_CASE("after a failure nothing of a large call goes from or to the memory that it was given") {
    for (int round = 0; round < 8; ++round)
        on_hosts(3,
                 {.ranks_per_host = 1,
                  .single_copy = round < 4 ? collx::single_copy_mode::never : collx::single_copy_mode::always},
                 [&](collx::communicator& w) {
                     auto other = w.split(0);
                     auto lost = std::make_unique<std::vector<float>>(1'500'000, 1.0f); // unmapped when freed
                     collx::all_reduce(w, *lost);
                     collx::barrier(other); // all ranks have returned from it: an abort must find no rank in that call
                     if (w.rank() == 2) {
                         ::usleep(static_cast<useconds_t>(200 * (round % 4)));
                         w.abort();
                     } else {
                         const auto e = thrown<collx::error>(w, [&] {
                             auto all = std::make_unique<std::vector<float>>(3 * lost->size());
                             for (;;) {
                                 collx::all_gather(w, *lost, *all);
                                 collx::all_reduce(w, *lost);
                             }
                         });
                         EXPECT(e.code() == errc::aborted && e.peer() == 2);
                     }
                     lost.reset();
                     std::vector<int> x(100'000, w.rank()); // a rank that waits here advances the other communicator
                     for (int i = 0; i < 5; ++i) {
                         x.assign(x.size(), w.rank());
                         collx::all_reduce(other, x);
                     }
                     EXPECT(x[99'999] == 3);
                 });
}

TEST_CASE("messages of any size between hosts: from and to the user's memory or not, in place or not") {
    constexpr auto always = collx::single_copy_mode::always; // by reference wherever possible
    for (const spread& s : {each_alone, over_unix, spread{.ranks_per_host = 1, .has_key = true, .lanes = 3},
                            spread{.ranks_per_host = 1, .single_copy = always},
                            spread{.ranks_per_host = 1, .bad_day = true, .single_copy = always}})
        on_hosts(3, s, [](collx::communicator& w) {
            const int n = w.size(), me = w.rank();
            for (const std::size_t m : {4095u, 4096u, 4097u, 30'001u, 131'072u, 400'003u}) { // 16 KiB, several pieces
                at("%zu elements", m);
                const auto mine = samples(me, m);
                std::vector<int> sum(m), all(3 * m), here = mine;
                collx::all_reduce(w, mine, sum);
                collx::all_reduce(w, here);
                EXPECT(here == sum && mine == samples(me, m));
                for (std::size_t i = 0; i < m; i += 101) EXPECT_AT(i, sum[i] == folded(i, 0, n));
                collx::all_gather(w, mine, all);
                for (int r = 0; r < n; ++r)
                    EXPECT(std::equal(all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * m),
                                      all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r + 1) * m),
                                      samples(r, m).begin()));
                auto first = collx::async::broadcast(w, here, {.root = 1});
                auto second = collx::async::all_reduce(w, all);
                first.wait();
                EXPECT(here == sum);
                second.wait();
                for (std::size_t i = 0; i < m; i += 101) EXPECT_AT(i, all[i] == n * sample(0, i));
            }
        });
}

TEST_CASE("large messages of sendrecv and of calls beside others are received where they are wanted") {
    const std::vector keys(2, collx::job_protection());
    collx::detail::run_thread_jobs(
        collx::detail::thread_jobs({0, 1}, watched_calls, keys.data(), "127.0.0.1", 1), [](collx::communicator& w) {
            w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
            const int me = w.rank(), other = 1 - me;
            for (const std::size_t m : {32'768u, 1'000'003u}) { // one message, several
                const auto mine = samples(me, m), theirs = samples(other, m);
                std::vector<int> got(m);
                watched::begin = reinterpret_cast<const char*>(got.data());
                watched::end = watched::begin + m * sizeof(int);
                const auto check_share = [&](auto&& call) {
                    call(); // the first call tells the sender that pre-posted receives are wanted
                    watched::bytes = 0;
                    for (int i = 0; i < 8; ++i) {
                        std::fill(got.begin(), got.end(), -1);
                        call();
                        EXPECT(got == theirs);
                    }
                    at("%zu of %zu bytes", watched::bytes, 8 * m * sizeof(int));
                    EXPECT(watched::bytes > 8 * m * sizeof(int) * 3 / 4); // all except what comes with the headers
                };
                check_share([&] { collx::sendrecv(w, mine, other, got, other); });
                check_share([&] {
                    auto sending = collx::async::send(w, mine, other);
                    collx::recv(w, got, other);
                    sending.wait();
                });
                watched::begin = watched::end = nullptr;
            }
        });
}

TEST_CASE("who has nothing left to receive sends without a look at what may come") {
    const std::vector keys(2, collx::job_protection());
    collx::detail::run_thread_jobs(collx::detail::thread_jobs({0, 1}, watched_calls, keys.data(), "127.0.0.1", 1),
                                   [](collx::communicator& w) {
                                       w.set_checked(false); // comparing calls reads sockets
                                       for (const std::size_t m : {10u, 2'000u, 10'000u})
                                           for (int i = 0; i < 8; ++i) {
                                               std::vector<int> x(m, w.rank() == 0 ? 7 + i : 0);
                                               collx::barrier(w); // connected, and a slot is free
                                               watched::looks = 0;
                                               collx::broadcast(w, x);
                                               at("%zu elements, call %d: %d looks", m, i, watched::looks);
                                               if (w.rank() == 0) EXPECT(watched::looks == 0);
                                               EXPECT(x.front() == 7 + i && x.back() == 7 + i);
                                           }
                                   });
}

TEST_CASE("what no step reads again goes past the caches, what is sent on from where it lies does not") {
    on_hosts(3, each_alone, [](collx::communicator& w) {
        auto& schedules = w.internals().schedules;
        EXPECT(!schedules.bind(collx::algo::ring_reduce_scatter{}, 0).uses_results);
        EXPECT(!schedules.bind(collx::algo::pairwise_all_to_all{}, 0).uses_results);
        EXPECT(schedules.bind(collx::algo::ring_all_reduce{}, 0).uses_results);
        constexpr std::size_t m = 700'003; // elements of the output: large enough to go past the caches
        const auto mine = samples(w.rank(), 3 * m);
        std::vector<int> part(m);
        collx::reduce_scatter(w, mine, part);
        const std::size_t first = static_cast<std::size_t>(w.rank()) * m;
        for (std::size_t i = 0; i < m; i += 101) EXPECT_AT(i, part[i] == folded(first + i, 0, 3));
    });
}

TEST_CASE("a call that differs from the last one in the size of its pieces alone is prepared anew") {
    on_hosts(2, each_alone, [](collx::communicator& w) {
        w.set_checked(false); // checked calls are always prepared
        std::vector<char> x(64 * 1024);
        const auto messages = [&](std::size_t piece) {
            const auto before = w.sent().messages;
            x.back() = static_cast<char>(w.rank() + 1);
            collx::broadcast(w.with(collx::piece{piece}), x, {.root = 0});
            EXPECT(x.back() == 1);
            return w.sent().messages - before;
        };
        const std::size_t pieces[] = {1024, 4096, 0, 4096, 1024}; // 0: as the library chooses
        std::uint64_t sent[5];
        for (int i = 0; i < 5; ++i) sent[i] = messages(pieces[i]);
        if (w.rank() != 0) return;
        EXPECT(sent[0] == 64 && sent[1] == 16 && sent[2] < 16 && sent[3] == 16 && sent[4] == 64);
    });
}

TEST_CASE("more lanes are made when large messages come, and only then") {
    for (const spread& s :
         {spread{.ranks_per_host = 1, .lanes = 4}, spread{.ranks_per_host = 1, .bad_day = true, .lanes = 2},
          spread{.ranks_per_host = 1, .has_key = true, .is_unix = true, .lanes = 3}})
        on_hosts(3, s, [&](collx::communicator& w) {
            const int me = w.rank(), pairs = connections(w);
            std::vector<int> few(1000, me), many(800'000);
            for (int i = 0; i < 20; ++i) {
                few.assign(few.size(), me);
                collx::all_reduce(w, few);
            }
            const int before = connections(w);
            EXPECT(before >= pairs && before <= 2);
            bool has_all = false;
            for (int i = 0; i < 3000 && !has_all; ++i) { // until all ranks have all lanes
                many.assign(many.size(), me);
                collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), many);
                EXPECT(many.front() == 3 && many.back() == 3);
                int least = connections(w);
                collx::all_reduce(w, collx::value(least), collx::min{});
                has_all = least == 2 * s.lanes;
            }
            EXPECT(has_all);
            for (int i = 0; i < 5; ++i) {
                many.assign(many.size(), me);
                collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), many);
                for (const std::size_t at : {0u, 266'700u, 533'400u, 799'999u}) EXPECT_AT(at, many[at] == 3);
            }
            auto rest = w.shrink();
            many.assign(many.size(), me);
            collx::all_reduce(rest, many);
            EXPECT(many[400'000] == 3);
        });
}

TEST_CASE("ranks that do not mean the same number of lanes say so at once") {
    const int n = 3;
    collx::memory_store store;
    collx::detail::store_face<collx::memory_store> face(store);
    std::vector<std::thread> threads;
    std::atomic<int> said{0};
    for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            auto h = collx::describe_host();
            h.id = "host" + std::to_string(r);
            h.lanes = r == 1 ? 2 : 4;
            try {
                collx::communicator w(collx::detail::join_by_store(r, n, static_cast<collx::any_store&>(face),
                                                                   collx_test::patient(30'000'000'000), h,
                                                                   collx::system_socket_calls));
            } catch (const collx::error& e) {
                const std::string text = e.what();
                said += e.code() == errc::mismatch && text.find("COLLX_LANES=2") != text.npos &&
                        text.find("COLLX_LANES=4") != text.npos;
            }
        });
    for (auto& t : threads) t.join();
    CHECK(said == n);
    CHECK(host_from({}).lanes == 1);
    const char *none[] = {nullptr}, *seven[] = {"COLLX_OWN_CONNECTIONS=7", nullptr},
               *wrong_number[] = {"COLLX_OWN_CONNECTIONS=0", nullptr};
    CHECK(collx::most_own_communicators(collx::environment(none)) == 4);
    CHECK(collx::most_own_communicators(collx::environment(seven)) == 7);
    CHECK_THROWS_AS(collx::most_own_communicators(collx::environment(wrong_number)), collx::error);
    CHECK(host_from({"COLLX_LANES=8"}).lanes == 8);
    for (const char* wrong : {"COLLX_LANES=0", "COLLX_LANES=9", "COLLX_LANES=two", "COLLX_LANES="})
        CHECK_THROWS_AS(host_from({wrong}), collx::error);
}

// Ranks that are alone on their hosts, each with its own protection. Returns the error of each.
std::vector<std::pair<errc, int>> with_keys(const std::vector<collx::job_protection>& of,
                                            const collx::socket_calls& calls, void (*body)(collx::communicator&),
                                            std::int64_t limit_ns = collx_test::patient(60'000'000'000)) {
    const auto n = static_cast<int>(of.size());
    std::vector<std::pair<errc, int>> seen(of.size(), {errc::forked, -1});
    std::vector<int> hosts;
    for (int r = 0; r < n; ++r) hosts.push_back(r);
    auto jobs = collx::detail::thread_jobs(hosts, calls, of.data());
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            auto mine = std::move(jobs[static_cast<std::size_t>(r)]);
            mine->settings.timeout_ns = limit_ns;
            try {
                collx::communicator w(mine);
                body(w);
            } catch (const collx::error& e) {
                seen[static_cast<std::size_t>(r)] = {e.code(), e.peer()};
            }
        });
    for (auto& t : ranks) t.join();
    return seen;
}
void sums(collx::communicator& w) {
    w.set_timeout(collx_test::patient(std::chrono::seconds(20)));
    std::vector<int> x(50'000, w.rank());
    for (int i = 0; i < 3; ++i) {
        collx::all_reduce(w, x);
        EXPECT(x[49'999] == w.size() * (w.size() - 1) / 2);
        x.assign(x.size(), w.rank());
    }
    auto pairs = w.split(w.rank() / 2);
    collx::all_reduce(pairs, x);
}

TEST_CASE("ranks with one key compute as ranks without") {
    const with_toy_macs toy;
    for (const int n : {2, 5})
        for (const auto* calls : {&collx::system_socket_calls, &bad_day_calls})
            for (const auto& [code, peer] :
                 with_keys(std::vector(static_cast<std::size_t>(n), toy_protection('k')), *calls, sums))
                CHECK(code == errc::forked);
}

TEST_CASE("ranks with different keys, levels, or one without a key: both ends get an error that says so, long before "
          "their time is over") {
    const with_toy_macs toy;
    const auto k = toy_protection('k'), other = toy_protection('x');
    auto sealed = k;
    sealed.level = collx::protection::integrity;
    const collx::job_protection none;
    for (const auto& keys : {std::vector{k, other}, {other, k}, {k, none}, {none, k}, {k, sealed}, {sealed, k}}) {
        const std::int64_t begin = collx::now_ns();
        const auto seen = with_keys(keys, collx::system_socket_calls, sums);
        CHECK(collx::now_ns() - begin < collx_test::patient(45'000'000'000)); // well before the limit of 60 s
        for (std::size_t r = 0; r < 2; ++r) {
            INFO(r << " threw " << static_cast<int>(seen[r].first) << " about " << seen[r].second);
            CHECK(seen[r].first == errc::security);
            CHECK(seen[r].second == 1 - static_cast<int>(r));
        }
    }
}

namespace {

// A collective store, as process managers have, which only reports which rank differs.
struct manager : collx::memory_store {
    static constexpr bool is_collective = true;
    int next_turn() { return 0; }
};

} // namespace

TEST_CASE("where a process manager brings the ranks together all of them hear of another key or level") {
    const with_toy_macs toy;
    const auto k = toy_protection('k'), other = toy_protection('x');
    auto sealed = k;
    sealed.level = collx::protection::encrypted;
    constexpr int n = 5;
    // Each job waits for two seconds, so all of them run at once.
    const auto right_in_job_with = [&](const collx::job_protection& of_odd, int odd) {
        manager store;
        std::atomic<int> right{0};
        std::vector<std::thread> threads;
        for (int r = 0; r < n; ++r)
            threads.emplace_back([&, r] {
                auto h = collx::describe_host();
                h.id = "host" + std::to_string(r);
                h.by = r == odd ? of_odd : k;
                const auto until = collx::deadline::in_ns(collx_test::patient(60'000'000'000));
                try {
                    collx::detail::listener d(0, h.by);
                    (void)collx::meet_at(store, r, n, until, h, "version=1", d);
                } catch (const collx::error& e) {
                    // The odd rank and those that would connect to it detect it themselves; they notify the other
                    // ranks.
                    const bool is_right = e.code() == errc::security && (r == odd ? e.peer() >= 0 : e.peer() == odd);
                    right += is_right;
                    if (!is_right) std::printf("odd %d, rank %d: %s\n", odd, r, e.what());
                }
            });
        for (auto& t : threads) t.join();
        return right.load();
    };
    const collx::job_protection kinds[] = {other, collx::job_protection(), sealed};
    int right[3][n] = {};
    const std::int64_t begin = collx::now_ns();
    std::vector<std::thread> jobs;
    for (int kind = 0; kind < 3; ++kind)
        for (int odd = 0; odd < n; ++odd)
            jobs.emplace_back([&, kind, odd] { right[kind][odd] = right_in_job_with(kinds[kind], odd); });
    for (auto& job : jobs) job.join();
    CHECK(collx::now_ns() - begin < collx_test::patient(45'000'000'000)); // well before the limit of 60 s
    for (int kind = 0; kind < 3; ++kind)
        for (int odd = 0; odd < n; ++odd) {
            INFO("kind " << kind << ", odd rank " << odd);
            CHECK(right[kind][odd] == n);
        }
}

TEST_CASE("shared vectors are ordinary memory across hosts") {
    on_hosts(4, two_a_host, [](collx::communicator& w) {
        auto x = collx::make_shared_vector<int>(w, 5000, w.rank());
        collx::all_reduce(w, x);
        EXPECT(x[4999] == 6);
    });
}

TEST_CASE("what needs a common memory is refused with a remedy, on every rank") {
    on_hosts(4, two_a_host, [](collx::communicator& w) {
        std::vector<int> x(100, 1), y(400);
        auto e = thrown<collx::error>(w, [&] { collx::all_reduce(w.with(collx::algo::one_shot_all_reduce{}), x); });
        EXPECT(e.code() == errc::unsupported && says(e, "several hosts") && says(e, "ring"));
        e = thrown<collx::error>(w, [&] { collx::barrier(w.with(collx::algo::flag_barrier{})); });
        EXPECT(e.code() == errc::unsupported);
        e = thrown<collx::error>(w, [&] { collx::all_gather(w.with(collx::attach{}), x, y); });
        EXPECT(e.code() == errc::unsupported && says(e, "attach"));
        collx::all_reduce(w, x); // the communicator still works
        EXPECT(x[99] == 4);
    });
}

TEST_CASE("calls that differ end across hosts; checked calls are compared before they begin") {
    on_hosts(4, two_a_host, [](collx::communicator& w) {
        w.set_checked(true);
        std::vector<int> x(w.rank() == 3 ? 11 : 10, 1);
        const auto e = thrown<collx::mismatch>(w, [&] { collx::all_reduce(w, x); });
        EXPECT(e.peer() == 3 && says(e, "count"));
    });
    on_hosts(3, each_alone, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> x(w.rank() == 1 ? 11 : 10, 1);
        const auto e = thrown<collx::mismatch>(w, [&] {
            collx::all_reduce(w, x);
            collx::barrier(w); // a rank may have had all that it waits for
        });
        at("%s", e.what());
        EXPECT(names_odd_part(e));
    });
}

TEST_CASE("an address that others can reach must be allowed") {
    CHECK(host_from({"COLLX_HOST_ID=a"}).id == "a");
    CHECK(host_from({}).address == "127.0.0.1");
    CHECK(host_from({"COLLX_ADDRESS=::1"}).address == "::1");
    CHECK(host_from({"COLLX_ADDRESS=10.1.2.3", "COLLX_INSECURE=1"}).has_address);
    for (const char* address : {"COLLX_ADDRESS=10.1.2.3", "COLLX_ADDRESS=fd00::1"}) {
        try {
            (void)host_from({address, "COLLX_INSECURE=0"});
            FAIL(address);
        } catch (const collx::error& e) {
            CHECK(e.code() == errc::environment);
            CHECK(says(e, "COLLX_INSECURE=1"));
        }
    }
    CHECK_THROWS_AS(host_from({"COLLX_ADDRESS=localhost"}), collx::error);
}

TEST_CASE("ranks on several machines need addresses") {
    struct row {
        std::vector<collx::arrival> ranks;
        int guilty; // -1: none
        bool is_one_host;
    };
    for (const row& c : {row{{{"", "a", "m", false}, {"", "b", "m", false}, {"", "a", "m", false}}, -1, false},
                         row{{{"", "a", "m", false}, {"", "a", "n", false}}, -1, true}, // the user says one host
                         row{{{"", "a", "m", true}, {"", "b", "n", true}}, -1, false},
                         row{{{"", "a", "m", true}, {"", "b", "n", false}}, 1, false},
                         row{{{"", "a", "m", true}, {"", "c", "m", true}, {"", "b", "n", false}}, 2, false}}) {
        collx::memory_store store;
        std::vector<std::thread> threads;
        const int n = static_cast<int>(c.ranks.size());
        std::atomic<int> right{0};
        for (int r = 0; r < n; ++r)
            threads.emplace_back([&, r] {
                try {
                    const auto a =
                        collx::come_together(store, r, n, collx::deadline::in_ns(collx_test::patient(10'000'000'000)),
                                             c.ranks[static_cast<std::size_t>(r)]);
                    right += c.guilty < 0 && a.is_one_host == c.is_one_host;
                } catch (const collx::error& e) {
                    right += c.guilty >= 0 && e.code() == errc::environment && e.peer() == c.guilty &&
                             says(e, "COLLX_ADDRESS");
                }
            });
        for (auto& t : threads) t.join();
        CHECK(right == n);
    }
}

TEST_CASE("threads as ranks of several hosts go on without one that failed") {
    for (const int victim : {0, 1, 5}) {
        std::atomic<int> went_on{0};
        try {
            collx::run_threads({0, 0, 1, 1, 2, 2}, [&](collx::communicator& w) {
                const int me = w.rank();
                if (me == victim) {
                    collx::barrier(w); // now all ranks have made their communicators
                    throw std::runtime_error("of the program");
                }
                try {
                    for (;;) collx::barrier(w);
                } catch (const collx::peer_failed&) {
                }
                collx::communicator rest = w.shrink();
                int bits = 1 << me;
                collx::all_reduce(rest, collx::value(bits));
                collx::communicator again = rest.shrink(); // no rank has failed, so the same ranks remain
                went_on += rest.size() == 5 && bits == (0x3f & ~(1 << victim)) && again.size() == 5;
            });
        } catch (const std::runtime_error& e) {
            CHECK(std::string(e.what()) == "of the program");
        }
        CHECK(went_on == 5);
    }
}

TEST_CASE("ranks of several hosts meet in a store and tell each other where they listen") {
    constexpr int n = 7;
    collx::memory_store store;
    collx::detail::store_face<collx::memory_store> face(store);
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            auto h = collx::describe_host();
            h.id = "host" + std::to_string(r);
            try {
                collx::communicator w(collx::detail::join_by_store(r, n, static_cast<collx::any_store&>(face),
                                                                   collx_test::patient(30'000'000'000), h,
                                                                   collx::system_socket_calls));
                int x = r;
                collx::all_reduce(w, collx::value(x));
                right += x == n * (n - 1) / 2 && !is_here(w);
            } catch (const collx::error& e) {
                std::printf("%s\n", e.what());
            }
        });
    for (auto& t : threads) t.join();
    CHECK(right == n);
}

namespace {

// is_full: no descriptor is left for a connection to this rank's listener. is_stuck: this rank cannot send.
thread_local bool is_full = false, is_stuck = false;
constexpr collx::socket_calls narrow_calls{::socket,
                                           ::connect,
                                           [](int fd, sockaddr* a, socklen_t* bytes, int flags) {
                                               if (!is_full) return ::accept4(fd, a, bytes, flags);
                                               errno = EMFILE;
                                               return -1;
                                           },
                                           [](int fd, const msghdr* m, int flags) -> ssize_t {
                                               if (!is_stuck) return ::sendmsg(fd, m, flags);
                                               errno = EAGAIN;
                                               return -1;
                                           },
                                           ::recvmsg,
                                           ::epoll_wait};

} // namespace

TEST_CASE("a rank that has no descriptor for the others, or no way to them, says so while addresses are exchanged") {
    constexpr int n = 3;
    for (const bool full : {true, false}) {
        collx::memory_store store;
        collx::detail::store_face<collx::memory_store> face(store);
        std::vector<std::thread> threads;
        std::vector<std::string> said(n);
        for (int r = 0; r < n; ++r)
            threads.emplace_back([&, r] {
                auto h = collx::describe_host();
                h.id = "host" + std::to_string(r);
                is_full = full && r == 0;
                is_stuck = !full && r == 0;
                const std::int64_t limit_ns = full     ? collx_test::patient(20'000'000'000)
                                              : r == 0 ? 3'000'000'000
                                                       : 6'000'000'000;
                try {
                    (void)collx::detail::join_by_store(r, n, static_cast<collx::any_store&>(face), limit_ns, h,
                                                       narrow_calls);
                } catch (const collx::error& e) {
                    const bool is_right = r != 0 ? e.peer() == 0
                                          : full ? e.peer() == 0 && e.code() == errc::resource && says(e, "ulimit -n")
                                                 : e.peer() > 0 && e.code() == errc::timeout;
                    said[static_cast<std::size_t>(r)] = (is_right ? "" : "not as expected: ") + std::string(e.what());
                }
            });
        for (auto& t : threads) t.join();
        for (const std::string& what : said) {
            INFO(what);
            CHECK((!what.empty() && what.find("not as expected") == std::string::npos));
        }
    }
}

namespace {

// The names of the files in a directory.
std::vector<std::string> files_in(const std::string& directory) {
    std::vector<std::string> names;
    DIR* d = ::opendir(directory.c_str());
    for (const dirent* e; d != nullptr && (e = ::readdir(d)) != nullptr;)
        if (e->d_name[0] != '.') names.emplace_back(e->d_name);
    if (d != nullptr) ::closedir(d);
    return names;
}

// n ranks, each on its own host with this address. Returns the text of each rank's error, or an empty text.
std::vector<std::string> join_at(const std::vector<std::string>& addresses, void (*body)(collx::communicator&)) {
    const int n = static_cast<int>(addresses.size());
    collx::memory_store store;
    collx::detail::store_face<collx::memory_store> face(store);
    std::vector<std::string> said(addresses.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            auto h = collx::describe_host();
            h.id = "host" + std::to_string(r);
            h.address = addresses[static_cast<std::size_t>(r)];
            h.has_address = h.address != "unix";
            try {
                collx::communicator w(collx::detail::join_by_store(r, n, static_cast<collx::any_store&>(face),
                                                                   collx_test::patient(30'000'000'000), h,
                                                                   collx::system_socket_calls));
                body(w);
            } catch (const collx::error& e) {
                said[static_cast<std::size_t>(r)] = e.what();
            }
        });
    for (auto& t : threads) t.join();
    return said;
}

} // namespace

TEST_CASE("ranks of several hosts meet over unix sockets, and nothing is left behind") {
    char directory[] = "/tmp/collx-unix-XXXXXX";
    REQUIRE(::mkdtemp(directory) != nullptr);
    const std::string files = std::string("unix:") + directory;
    for (const std::string& at : {std::string("unix"), files})
        for (const std::string& said : join_at(std::vector<std::string>(5, at), [](collx::communicator& w) {
                 EXPECT(!is_here(w));
                 std::vector<int> x(100'000, w.rank());
                 for (int i = 0; i < 3; ++i) collx::all_reduce(w, x);
                 EXPECT(x[99'999] == 10 * 5 * 5);
                 auto rest = w.shrink(); // connects to listeners
                 EXPECT(rest.size() == 5);
                 collx::barrier(rest);
             }))
            CHECK(said == "");
    CHECK(files_in(directory).empty());
    // A directory that does not exist, a path too long for a socket, and ranks with different kinds of address.
    const std::string gone = files + "/gone", deep = files + std::string(110, 'x');
    for (const std::string& said : join_at({gone, gone}, sums)) CHECK(said.find("COLLX_ADDRESS=unix") != said.npos);
    for (const std::string& said : join_at({deep, deep}, sums)) CHECK(said.find("shorter path") != said.npos);
    for (const auto& mixed : {std::vector{std::string("unix"), files, files}, {"127.0.0.1", "unix", "unix"}})
        for (const std::string& said : join_at(mixed, sums)) {
            INFO(said);
            CHECK(said.find("COLLX_ADDRESS=unix") != said.npos);
        }
    CHECK(files_in(directory).empty());
    CHECK(::rmdir(directory) == 0);
}

namespace {

collx::socket_address left_at; // where rank 1 listened

// A process of another user that listens there as soon as it can. The pipe's other end is closed then.
pid_t take_over(const collx::socket_address& at, int ready) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(static_cast<unsigned>(patient_s(60)));
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    const int s = ::socket(AF_UNIX, SOCK_STREAM, 0);
    while (::bind(s, at.get(), at.bytes) != 0) ::usleep(1000);
    if (::listen(s, 8) != 0) ::_exit(2);
    (void)!::write(ready, "x", 1);
    for (;;) ::pause();
}

} // namespace

TEST_CASE("another user's process in the place of a rank is not taken for one that is late to shrink") {
    if (::geteuid() != 0) return skip("being another user needs root");
    for (const std::string& said : join_at({"unix", "unix"}, [](collx::communicator& w) {
             if (w.rank() == 1) left_at = w.membership()->connector->of_sockets()->hub()->own_address();
             collx::barrier(w);
             EXPECT(w.size() == 2);
             if (w.rank() == 1) return; // it leaves
             errc found{};
             try {
                 collx::barrier(w);
             } catch (const collx::error& e) {
                 found = e.code();
             }
             EXPECT(found == errc::peer_failed);
             int ready[2];
             EXPECT(::pipe(ready) == 0);
             const pid_t other = take_over(left_at, ready[1]);
             char c;
             EXPECT(::read(ready[0], &c, 1) == 1);
             std::string text;
             try {
                 (void)w.shrink();
             } catch (const collx::error& e) {
                 found = e.code();
                 text = e.what();
                 EXPECT(e.peer() == 1);
             }
             EXPECT(found == errc::security);
             EXPECT(text.find("COLLX_SECURITY") != text.npos);
             ::kill(other, SIGKILL);
             ::waitpid(other, nullptr, 0);
             for (const int end : ready) ::close(end);
         }))
        CHECK(said == "");
}
