// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators with ranks on several hosts that have devices for RDMA: threads over the tests' fabric. Every
// collective is correct, and messages take the expected way. If a device refuses something, only that goes over
// sockets. A failure is named, and shrink() removes the failed rank. Each test ends with a check of the fabric:
// nothing was misused, and no header had to wait for a receive.
//
// collx-test: timeout=240 sanitize=address,nightly
#include "faults/support.hpp"
#include "support.hpp"
#include <collx/bootstrap/host.hpp>

#include <algorithm>
#include <set>

#include "support/night.hpp"
#include "support/sanitizers.hpp"
#include "transport/verbs_fabric.hpp"

using namespace collx_test;
using collx::errc;

namespace {

struct over_fabric {
    fabric net;
    const fabric_installed here{net};
    explicit over_fabric(const fabric_options& o = {}) : net(o) {}
    ~over_fabric() {
        INFO(net.first_misuse());
        CHECK(net.misuses() == 0);
        CHECK(net.counters().not_ready == 0);
    }
};

struct counting {
    static inline std::atomic<std::size_t> bytes{0};
    static ssize_t sendmsg(int fd, const msghdr* m, int flags) {
        const ssize_t sent = ::sendmsg(fd, m, flags);
        if (sent > 0) bytes += static_cast<std::size_t>(sent);
        return sent;
    }
};
constexpr collx::socket_calls counting_calls{::socket,          ::connect, ::accept4,
                                             counting::sendmsg, ::recvmsg, ::epoll_wait};

constexpr int verbs_of_all = static_cast<int>(verb::count);

void every_verb(collx::communicator& w, std::size_t part, int times) {
    caller calls(w, part); // throws if a result is wrong
    for (int salt = 1; salt <= times; ++salt)
        for (int v = 0; v < verbs_of_all; ++v) {
            at("%s of %zu, call %d", verb_names[v], part, salt);
            calls.call(static_cast<verb>(v), salt);
            EXPECT(true);
        }
}

} // namespace

TEST_CASE("every collective by verbs, for all sizes") {
    for (const spread& s : {spread{1}, spread{2}, spread{1, true}})
        for (const int n : {2, 3, 5}) {
            if (s.is_one_host(n)) continue;
            over_fabric f({.seed = static_cast<std::uint64_t>(n)});
            on_hosts(n, s, [&](collx::communicator& w) {
                every_verb(w, 1, times(4, 2));
                every_verb(w, 40, times(4, 2));
                every_verb(w, 3000, times(4, 2));
                every_verb(w, 150'001, 1);
            });
            CHECK(f.net.counters().sends > 300);
            CHECK(f.net.counters().bytes_written > 4'000'000);
        }
}

TEST_CASE("communicators by verbs have connections of their own, however many there are") {
    spread many{1};
    many.is_shared = true; // the second communicator and all later ones use sockets
    over_fabric f({.seed = 4});
    on_hosts(3, many, [&](collx::communicator& w) {
        every_verb(w, 40, 2);
        EXPECT(w.internals().net.remote()->connections() > 0);
    });
    CHECK(f.net.counters().sends > 100);
}

TEST_CASE("every algorithm by verbs") {
    for (const int n : {3, 4}) {
        over_fabric f({.seed = static_cast<std::uint64_t>(n) + 50, .most_delay_polls = 8});
        on_hosts(n, spread{1}, [&](collx::communicator& w) {
            const auto u = static_cast<std::size_t>(n);
            for (const std::size_t part : {1u, 30u, 5000u}) {
                std::vector<int> all(part * u), out(part * u), one(part);
                const auto is_sum = [&](const std::vector<int>& x, int sum) {
                    return std::count(x.begin(), x.end(), sum) == static_cast<std::ptrdiff_t>(x.size());
                };
                for_each_copying_algorithm<collx::collective::all_reduce>([&](auto a) {
                    if constexpr (!requires { a.signals; }) {
                        at("all_reduce %s %zu", std::string(decltype(a)::name).c_str(), part);
                        all.assign(all.size(), w.rank() + 1);
                        collx::all_reduce(w.with(a, collx::piece{part > 1000 ? 3000u : 0u}), all);
                        EXPECT(is_sum(all, n * (n + 1) / 2));
                    }
                });
                for_each_copying_algorithm<collx::collective::broadcast>([&](auto a) {
                    if constexpr (!requires { a.signals; }) {
                        at("broadcast %s %zu", std::string(decltype(a)::name).c_str(), part);
                        all.assign(all.size(), w.rank());
                        collx::broadcast(w.with(a), all, {.root = 1});
                        EXPECT(is_sum(all, 1));
                    }
                });
                for_each_copying_algorithm<collx::collective::all_gather>([&](auto a) {
                    if constexpr (!requires { a.signals; }) {
                        at("all_gather %s %zu", std::string(decltype(a)::name).c_str(), part);
                        one.assign(part, w.rank());
                        collx::all_gather(w.with(a), one, all);
                        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_AT(i, all[i] == static_cast<int>(i / part));
                    }
                });
                for_each_copying_algorithm<collx::collective::all_to_all>([&](auto a) {
                    if constexpr (!requires { a.signals; }) {
                        at("all_to_all %s %zu", std::string(decltype(a)::name).c_str(), part);
                        for (std::size_t i = 0; i < all.size(); ++i)
                            all[i] = w.rank() * 100 + static_cast<int>(i / part);
                        collx::all_to_all(w.with(a), all, out);
                        for (std::size_t i = 0; i < out.size(); ++i)
                            EXPECT_AT(i, out[i] == static_cast<int>(i / part) * 100 + w.rank());
                    }
                });
            }
        });
    }
}

TEST_CASE("messages go by verbs and not over sockets") {
    const auto bytes_over_sockets = [] {
        counting::bytes = 0;
        collx::detail::run_thread_jobs(collx::detail::thread_jobs({0, 1, 2}, counting_calls, nullptr, "127.0.0.1", 1),
                                       [&](collx::communicator& w) { every_verb(w, 5000, 20); });
        return counting::bytes.load();
    };
    const std::size_t without = bytes_over_sockets();
    over_fabric f;
    const std::size_t with = bytes_over_sockets();
    const auto by_verbs = f.net.counters().bytes_written;
    CAPTURE(without, with, by_verbs);
    CHECK(without > 10'000'000);
    CHECK(with < without / 5); // bytes sent before both ends had exchanged their slot addresses
    CHECK(with + by_verbs > without / 2);
    CHECK(by_verbs > without / 2);
}

TEST_CASE("communicators made of communicators go by verbs, and calls under way at once") {
    over_fabric f({.seed = 9, .most_delay_polls = 6});
    on_hosts(6, spread{2}, [](collx::communicator& w) {
        for (int round = 0; round < 4; ++round) {
            auto column = w.split(w.rank() % 2, -w.rank());
            auto pair = w.split(w.rank() / 2);
            every_verb(column, 100, 2);
            std::vector<int> x(50'000, w.rank()), y(10, 1), z(300, w.rank());
            auto first = collx::async::all_reduce(w, x);
            auto second = collx::async::all_reduce(w, y);
            collx::barrier(pair);
            second.wait();
            first.wait();
            EXPECT(x[49'999] == 15 && y[9] == 6);
            collx::group g(w);
            g.all_reduce(y);
            g.broadcast(z, 2);
            g.launch();
            EXPECT(y[0] == 36 && z[299] == 2);
        }
    });
    CHECK(f.net.counters().sends > 500);
}

// ------------------------------------------------------------------------------------------- what a device refuses
TEST_CASE("what a device refuses goes over sockets") {
    for (const auto which :
         {&fabric_options::refuse_memory, &fabric_options::refuse_queue_pair, &fabric_options::refuse_connect})
        for (const fabric_fault fault : {fabric_fault{.at = 1, .times = 100'000},
                                         {.at = 1, .times = 100'000, .device = 1},
                                         {.at = 3},
                                         {.at = 6, .times = 3}}) {
            CAPTURE(fault.at, fault.device, which == &fabric_options::refuse_memory);
            fabric_options o;
            o.*which = fault;
            over_fabric f(o);
            on_hosts(3, spread{1}, [](collx::communicator& w) { every_verb(w, 2000, 3); });
            const bool all_refused = fault.times > 1000 && fault.device < 0;
            CHECK((f.net.counters(0).sends == 0) == all_refused);
            if (fault.device == 1) CHECK(f.net.counters(1).sends == 0);
        }
}

TEST_CASE("verbs alone: ranks that have devices, no library, no device") {
    constexpr collx::transports only = collx::per_peer{collx::verbs{}};
    {
        over_fabric f;
        collx::run_threads(only, 3, [](collx::communicator& w) { every_verb(w, 2000, 3); });
        CHECK(f.net.counters().sends > 100);
    }
    const auto code = [&] {
        try {
            collx::run_threads(only, 2, [](collx::communicator&) {});
        } catch (const collx::error& e) {
            return e.code();
        }
        return errc::protocol;
    };
    CHECK(code() == errc::unsupported);
    over_fabric none({.devices = 0});
    CHECK(code() == errc::environment);
}

// ------------------------------------------------------------------------------------------------ what breaks
namespace {

// The rank that the error of these calls names; the error must come soon.
int run_into_failure(collx::communicator& w, verb v, auto&& before_call) {
    caller calls(w, 700);
    const std::int64_t until = collx::now_ns() + collx_test::patient(20'000 * ms);
    try {
        for (int salt = 1; collx::now_ns() < until; ++salt) {
            before_call(salt);
            calls.call(v, salt);
        }
    } catch (const wrong_data&) {
        throw;
    } catch (const collx::error& e) {
        at("%s: %s", verb_names[static_cast<int>(v)], e.what());
        EXPECT(e.code() == errc::peer_failed);
        return e.peer();
    }
    throw wrong("no failure came");
}

} // namespace

TEST_CASE("a queue pair that fails within any collective: who cannot be reached is named, and the others go on") {
    enum class harm { breaks, is_cut, breaks_at_rest };
#if COLLX_TEST_TSAN
    const bool has_time = is_night(); // by day each verb is tested with one harm
#else
    const bool has_time = true;
#endif
    for (int v = 0; v < verbs_of_all; ++v)
        for (const harm h : {harm::breaks, harm::is_cut, harm::breaks_at_rest}) {
            if (!has_time && static_cast<int>(h) != v % 3) continue;
            CAPTURE(verb_names[v], static_cast<int>(h));
            over_fabric f({.seed = static_cast<std::uint64_t>(v) + 1, .patience_ns = 20 * ms});
            const fabric_fault fault{.at = 5 + 9 * (v % 5), .times = 1, .device = 1};
            if (h == harm::breaks) f.net.inject(&fabric_options::break_pair, fault);
            if (h == harm::is_cut) f.net.inject(&fabric_options::cut_pair, fault);
            std::atomic<int> named[3] = {-1, -1, -1};
            on_hosts(3, spread{1}, [&](collx::communicator& w) {
                w.set_timeout(collx_test::patient(std::chrono::seconds(20)));
                named[w.rank()] = run_into_failure(w, static_cast<verb>(v), [&](int salt) {
                    if (h == harm::breaks_at_rest && salt == 30 && w.rank() == 1) f.net.break_all(1);
                });
                auto next = w.shrink(); // no rank has died
                EXPECT(next.size() == 3);
                every_verb(next, 500, 1);
            });
            // Ranks 0 and 1 cannot reach each other: each may name the other, and the accused gets the error that says
            // it has left. All ranks name the same one if the accusation that arrives first comes from the other.
            CAPTURE(named[0], named[1], named[2]);
            std::set<int> both{1};
            for (const auto& who : named) both.insert(who);
            CHECK((both.size() <= 2 && *both.begin() >= 0));
            CHECK((named[0] != 0 || named[1] != 1 || named[2] != 2));
            CHECK(f.net.counters().failures > 0);
        }
}
