// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Calls that are prepared once and made many times: each verb compared with a serial oracle, with new data each time.
#include "comm/support.hpp"
#include "support/caught_stderr.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace collx_test;
using namespace std::chrono_literals;
namespace per = collx::persistent;

namespace {

using list = std::vector<int>;

// Every second run uses start(), then wait() or test().
void run(collx::persistent_call& call, int round) {
    if (round % 2 == 0) return call();
    call.start();
    if (round % 4 == 1) return call.wait();
    while (!call.test()) {
    }
}
void fill(list& x, int rank, int round) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = sample(rank + round, i);
}
// Elements [first, first + n) of the sum over ranks, in the given round.
bool is_sum(const int* x, std::size_t first, std::size_t n, int ranks, int round) {
    for (std::size_t i = 0; i < n; ++i)
        if (x[i] != folded(first + i, round, round + ranks)) return false;
    return true;
}
bool is_sample(const int* x, std::size_t first, std::size_t n, int rank, int round) {
    for (std::size_t i = 0; i < n; ++i)
        if (x[i] != sample(rank + round, first + i)) return false;
    return true;
}

constexpr int rounds = 4;

// Each rank has m elements.
void reduce_with_all(collx::communicator& w, std::size_t m) {
    const int n = w.size(), me = w.rank(), root = n - 1;
    const auto u = static_cast<std::size_t>(n), k = static_cast<std::size_t>(me);
    list x(u * m), y(u * m), in_place(u * m), part(m), scanned(u * m), before(u * m);
    auto sum = per::all_reduce(w, x, y);
    auto sum_in_place = per::all_reduce(w, in_place);
    auto at_root = per::reduce(w, x, y, collx::plus{}, {.root = root});
    auto scattered = per::reduce_scatter(w, x, part);
    auto scattered_v = per::reduce_scatter_v(w, x, part, std::vector<std::size_t>(u, m));
    auto scan = per::scan(w, x, scanned);
    auto exclusive = per::exclusive_scan(w, x, before);
    for (int t = 0; t < rounds; ++t) {
        fill(x, me, t);
        fill(in_place, me, t);
        run(sum, t);
        EXPECT_AT(t, is_sum(y.data(), 0, u * m, n, t));
        run(sum_in_place, t);
        EXPECT_AT(t, is_sum(in_place.data(), 0, u * m, n, t));
        std::fill(y.begin(), y.end(), -1);
        run(at_root, t);
        EXPECT_AT(t, me == root ? is_sum(y.data(), 0, u * m, n, t) : m == 0 || y[0] == -1);
        run(scattered, t);
        EXPECT_AT(t, is_sum(part.data(), k * m, m, n, t));
        std::fill(part.begin(), part.end(), -1);
        run(scattered_v, t);
        EXPECT_AT(t, is_sum(part.data(), k * m, m, n, t));
        run(scan, t);
        EXPECT_AT(t, is_sum(scanned.data(), 0, u * m, me + 1, t));
        run(exclusive, t);
        EXPECT_AT(t, me == 0 || is_sum(before.data(), 0, u * m, me, t));
    }
}

void move_with_all(collx::communicator& w, std::size_t m) {
    const int n = w.size(), me = w.rank(), root = n - 1;
    const auto u = static_cast<std::size_t>(n), k = static_cast<std::size_t>(me);
    const std::vector<std::size_t> counts(u, m);
    list all(u * m), mine(m), x(u * m), y(u * m), replaced(u * m), replaced_v(u * m);
    auto everywhere = per::broadcast(w, all, {.root = root});
    auto gathered = per::all_gather(w, mine, y);
    auto gathered_v = per::all_gather_v(w, mine, y, counts);
    auto at_root = per::gather(w, mine, y, {.root = root});
    auto at_root_v = per::gather_v(w, mine, y, counts, std::vector<std::size_t>(), {.root = root});
    auto scattered = per::scatter(w, x, mine, {.root = root});
    auto scattered_v = per::scatter_v(w, x, mine, counts, std::vector<std::size_t>(), {.root = root});
    auto exchanged = per::all_to_all(w, x, y);
    auto exchanged_v = per::all_to_all_v(w, x, counts, y, counts);
    auto in_place = per::all_to_all(w, replaced);
    auto in_place_v = per::all_to_all_v(w, replaced_v, counts);
    auto all_here = per::barrier(w);
    const auto is_gathered = [&](int t) {
        for (int r = 0; r < n; ++r)
            if (!is_sample(y.data() + static_cast<std::size_t>(r) * m, 0, m, r, t)) return false;
        return true;
    };
    // Whether v has part `me` of every rank's x.
    const auto is_exchanged = [&](const list& v, int t) {
        for (int r = 0; r < n; ++r)
            if (!is_sample(v.data() + static_cast<std::size_t>(r) * m, k * m, m, r, t)) return false;
        return true;
    };
    for (int t = 0; t < rounds; ++t) {
        fill(all, me, t);
        run(everywhere, t);
        EXPECT_AT(t, is_sample(all.data(), 0, u * m, root, t));
        for (auto* call : {&gathered, &gathered_v, &at_root, &at_root_v}) {
            fill(mine, me, t);
            std::fill(y.begin(), y.end(), -1);
            run(*call, t);
            const bool is_rooted = call == &at_root || call == &at_root_v;
            EXPECT_AT(t, (is_rooted && me != root) || is_gathered(t));
        }
        for (auto* call : {&scattered, &scattered_v}) {
            fill(x, me, t);
            std::fill(mine.begin(), mine.end(), -1);
            run(*call, t);
            EXPECT_AT(t, is_sample(mine.data(), k * m, m, root, t));
        }
        for (auto* call : {&exchanged, &exchanged_v}) {
            fill(x, me, t);
            std::fill(y.begin(), y.end(), -1);
            run(*call, t);
            EXPECT_AT(t, is_exchanged(y, t));
        }
        fill(replaced, me, t);
        fill(replaced_v, me, t);
        run(in_place, t);
        run(in_place_v, t);
        EXPECT_AT(t, is_exchanged(replaced, t) && is_exchanged(replaced_v, t));
        run(all_here, t);
    }
}

void pass_messages(collx::communicator& w, std::size_t m) {
    const int n = w.size(), me = w.rank(), next = (me + 1) % n, last = (me + n - 1) % n;
    list mine(m), theirs(m), again(m);
    auto ring = per::sendrecv(w, mine, next, theirs, last);
    auto sent = per::send(w, mine, next);
    auto received = per::recv(w, again, last);
    for (int t = 0; t < rounds; ++t) {
        fill(mine, me, t);
        run(ring, t);
        EXPECT_AT(t, is_sample(theirs.data(), 0, m, last, t));
        if (n == 1) continue;
        if (me % 2 == 0) {
            run(sent, t);
            run(received, t);
        } else {
            received.start(); // concurrently with a blocking message
            run(sent, t);
            received.wait();
        }
        EXPECT_AT(t, is_sample(again.data(), 0, m, last, t));
    }
}

} // namespace

TEST_CASE("every verb, made once and run with other numbers each time") {
    struct job {
        int ranks, ranks_per_host;
        std::vector<std::size_t> sizes;
    };
    for (const job& j :
         {job{1, 0, {0, 17}}, job{3, 0, {0, 1, 1000, 20'011}}, job{4, 0, {17}}, job{3, 2, {0, 17, 20'011}}})
        on_hosts(j.ranks, {j.ranks_per_host}, [&](collx::communicator& w) {
            for (const std::size_t m : j.sizes) {
                at("%d ranks, %d per host, %zu elements", j.ranks, j.ranks_per_host, m);
                reduce_with_all(w, m);
                move_with_all(w, m);
                pass_messages(w, m);
                EXPECT(w.progress() == 0);
            }
        });
}

TEST_CASE("checked communicators compare a persistent call once, and its runs are right") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(true);
        reduce_with_all(w, 100);
        move_with_all(w, 100);
    });
}

TEST_CASE("bound algorithms, types on the wire and pieces are those of the call's making") {
    on_ranks(4, [](collx::communicator& w) {
        std::vector<double> x(5000);
        auto ring = per::all_reduce(w.with(collx::algo::ring_all_reduce{}), x);
        auto narrow = per::all_reduce(w.with(collx::wire<float>{}), x);
        auto in_pieces = per::all_reduce(w.with(collx::piece{512}, collx::deterministic{}), x);
        auto largest = per::all_reduce(w, x, [](double a, double b) { return a < b ? b : a; });
        for (int t = 0; t < rounds; ++t) {
            for (auto* call : {&ring, &narrow, &in_pieces, &largest}) {
                std::fill(x.begin(), x.end(), w.rank() + t);
                run(*call, t);
                const double expected = call == &largest ? 3 + t : 6 + 4 * t;
                EXPECT_AT(t, x.front() == expected && x.back() == expected);
            }
        }
    });
}

// ------------------------------------------------------------------ the composed reading
namespace {

// Rank and round decide which ranks use the composed run and which a task: peers cannot tell the difference.
template <class Call>
void run_mixed(collx::communicator& w, Call& call, int round) {
    if ((w.rank() + round) % 2 == 0) return call();
    call.start();
    call.wait();
}

template <class List>
void sum_by_all(collx::communicator& w, List& x, List& y) {
    const int n = w.size();
    const auto try_call = [&](collx::persistent_call call, const char* name) {
        for (int t = 0; t < 4; ++t) {
            at("%s, %d ranks, %zu elements", name, n, x.size());
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = sample(w.rank() + t, i);
            std::fill(y.begin(), y.end(), -1);
            const auto before = w.sent();
            run_mixed(w, call, t);
            EXPECT_AT(t, is_sum(y.data(), 0, y.size(), n, t));
            const auto after = w.sent();
            const std::uint64_t wrote = after.window_bytes_written - before.window_bytes_written;
            run_mixed(w, call, t + 1); // the other kind of run
            EXPECT_AT(t, is_sum(y.data(), 0, y.size(), n, t));
            EXPECT_AT(t, w.sent().window_bytes_written - after.window_bytes_written == wrote);
        }
    };
    collx::algo::algorithms<collx::collective::all_reduce>::for_each([&](auto a) {
        if constexpr (std::is_same_v<List, list>)
            if (is_zero_copy(decltype(a)::name)) return;
        try_call(per::all_reduce(w.with(a), x, y), decltype(a)::name);
    });
    try_call(per::all_reduce(w, x, y), "default");
}

} // namespace

TEST_CASE("runs by the composed reading and by a task give the same, whichever rank takes which") {
    for (const int n : {1, 2, 3})
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t size : {1u, 40u, 5000u}) {
                list x(size), y(size);
                sum_by_all(w, x, y);
                auto a = collx::make_shared_vector<int>(w, size), b = collx::make_shared_vector<int>(w, size);
                sum_by_all(w, a, b);
            }
        });
}

TEST_CASE("composed: scans of three ranks that have a core each read what precedes them in one round") {
    on_ranks(3, [](collx::communicator& w) {
        w.internals().net.share_cores(1);
        w.internals().schedules.share_cores(1);
        const int me = w.rank();
        list x(12), y(12), before(12);
        auto sum = per::scan(w, x, y);
        auto exclusive = per::exclusive_scan(w, x, before);
        for (int t = 0; t < 4; ++t) {
            fill(x, me, t);
            run_mixed(w, sum, t);
            run_mixed(w, exclusive, t);
            EXPECT_AT(t, is_sum(y.data(), 0, 12, me + 1, t));
            EXPECT_AT(t, me == 0 || is_sum(before.data(), 0, 12, me, t));
        }
    });
}

TEST_CASE("composed: moves, roots, conversions and hooks") {
    on_ranks(3, [](collx::communicator& w) {
        const int me = w.rank();
        list x(12), all(36), part(12);
        std::vector<double> d(12);
        for (int root = 0; root < 3; ++root) {
            auto there = per::broadcast(w, x, {.root = root});
            auto reduced = per::reduce(w, all, collx::plus{}, {.root = root});
            for (int t = 0; t < 4; ++t) {
                fill(x, me, t);
                fill(all, me, t);
                run_mixed(w, there, t);
                run_mixed(w, reduced, t);
                EXPECT_AT(t, is_sample(x.data(), 0, 12, root, t));
                EXPECT_AT(t, me != root || is_sum(all.data(), 0, 36, 3, t));
            }
        }
        auto gathered = per::all_gather(w, part, all);
        auto scattered = per::reduce_scatter(w, all, x);
        auto narrow = per::all_reduce(w.with(collx::wire<float>{}, collx::algo::one_shot_all_reduce{}), d);
        auto averaged = per::all_reduce(w, d, collx::average{});
        auto here = per::barrier(w);
        for (int t = 0; t < 4; ++t) {
            fill(part, me, t);
            run_mixed(w, gathered, t);
            for (int r = 0; r < 3; ++r) EXPECT_AT(t, is_sample(all.data() + r * 12, 0, 12, r, t));
            fill(all, me, t);
            run_mixed(w, scattered, t);
            EXPECT_AT(t, is_sum(x.data(), static_cast<std::size_t>(me) * 12, 12, 3, t));
            std::fill(d.begin(), d.end(), me + t);
            run_mixed(w, narrow, t);
            EXPECT_AT(t, d[0] == 3 + 3 * t && d[11] == 3 + 3 * t);
            std::fill(d.begin(), d.end(), me + t);
            run_mixed(w, averaged, t);
            EXPECT_AT(t, d[0] == 1 + t && d[11] == 1 + t);
            run_mixed(w, here, t);
        }
    });
}

TEST_CASE("composed: algorithms of messages, with roots, conversions and hooks") {
    for (const int n : {1, 3, 4})
        on_ranks(n, [n](collx::communicator& w) {
            using collx::collective;
            const int me = w.rank();
            const auto u = static_cast<std::size_t>(n);
            list x(12), all(12 * u), part(12);
            std::vector<double> d(12);
            const auto each = [&]<collective C>(auto&& make, auto&& before, auto&& check) {
                for_each_copying_algorithm<C>([&](auto a) {
                    at("%s %d ranks", decltype(a)::name, n);
                    auto call = make(w.with(a));
                    for (int t = 0; t < 4; ++t) {
                        before(t);
                        run_mixed(w, call, t);
                        check(t);
                    }
                });
            };
            const auto fill_x = [&](int t) { fill(x, me, t); };
            for (int root = 0; root < n; ++root) {
                each.template operator()<collective::broadcast>(
                    [&](auto c) { return per::broadcast(c, x, {.root = root}); }, fill_x,
                    [&](int t) { EXPECT_AT(t, is_sample(x.data(), 0, 12, root, t)); });
                each.template operator()<collective::reduce>(
                    [&](auto c) { return per::reduce(c, x, part, collx::plus{}, {.root = root}); }, fill_x,
                    [&](int t) { EXPECT_AT(t, me != root || is_sum(part.data(), 0, 12, n, t)); });
            }
            each.template operator()<collective::scan>(
                [&](auto c) { return per::scan(c, x, part); }, fill_x,
                [&](int t) { EXPECT_AT(t, is_sum(part.data(), 0, 12, me + 1, t)); });
            each.template operator()<collective::all_gather>(
                [&](auto c) { return per::all_gather(c, x, all); }, fill_x,
                [&](int t) {
                    for (int r = 0; r < n; ++r) EXPECT_AT(t, is_sample(all.data() + r * 12, 0, 12, r, t));
                });
            each.template operator()<collective::reduce_scatter>(
                [&](auto c) { return per::reduce_scatter(c, all, part); }, [&](int t) { fill(all, me, t); },
                [&](int t) { EXPECT_AT(t, is_sum(part.data(), static_cast<std::size_t>(me) * 12, 12, n, t)); });
            const auto fill_d = [&](int t) { std::fill(d.begin(), d.end(), me + t); };
            const auto mean = [&](int t) { EXPECT_AT(t, d[0] == (n - 1) / 2.0 + t && d[11] == d[0]); };
            each.template operator()<collective::all_reduce>(
                [&](auto c) { return per::all_reduce(c, d, collx::average{}); }, fill_d, mean);
            auto narrow = per::all_reduce(w.with(collx::wire<float>{}, collx::algo::ring_all_reduce{}), d);
            for (int t = 0; t < 4; ++t) {
                fill_d(t);
                run_mixed(w, narrow, t);
                EXPECT_AT(t, d[0] == n * (n - 1) / 2 + n * t && d[11] == d[0]);
            }
        });
}

TEST_CASE("composed: messages of a rank with other counts are refused, and one that does not come is named") {
    on_ranks(2, [](collx::communicator& w) {
        for (const bool is_late : {false, true}) {
            auto own = w.dup();
            own.set_checked(false);
            list x(is_late ? 10u : 10u + static_cast<unsigned>(w.rank()));
            auto sum = per::all_reduce(own.with(collx::algo::ring_all_reduce{}), x, collx::plus{},
                                       {.timeout = is_late ? 50ms : 60s});
            if (!is_late)
                EXPECT(thrown<collx::error>(w, [&] {
                           sum();
                           sum();
                       }).code() == collx::errc::mismatch);
            else if (w.rank() == 0) EXPECT(thrown<collx::timed_out>(w, [&] { sum(); }).peer() == 1);
            collx::barrier(w);
        }
    });
}

TEST_CASE("composed: ranks with other counts notice, and one that does not come is named") {
    on_ranks(2, [](collx::communicator& w) {
        auto own = w.dup();
        own.set_checked(false);
        list x(10u + static_cast<unsigned>(w.rank()));
        auto sum = per::all_reduce(own.with(collx::algo::one_shot_all_reduce{}), x);
        const auto e = thrown<collx::error>(w, [&] {
            for (int i = 0; i < 100; ++i) sum();
        });
        EXPECT(e.code() == collx::errc::mismatch);
        auto late = w.dup();
        late.set_checked(false);
        auto alone =
            per::all_reduce(late.with(collx::algo::one_shot_all_reduce{}), x, collx::plus{}, {.timeout = 50ms});
        if (w.rank() == 0) EXPECT(thrown<collx::timed_out>(w, [&] { alone(); }).peer() == 1);
        collx::barrier(w);
    });
}

TEST_CASE("many persistent calls are under way at once, beside async and blocking ones") {
    for (const int ranks_per_host : {0, 2})
        on_hosts(4, {ranks_per_host}, [](collx::communicator& w) {
            constexpr std::size_t count = 11; // more than there are ports
            std::vector<list> x(count);
            std::vector<collx::persistent_call> calls;
            for (std::size_t k = 0; k < count; ++k) x[k].resize(k * k * 100 + 1);
            for (auto& v : x) calls.push_back(per::all_reduce(w, v));
            list beside(1000), after(7);
            for (int t = 0; t < rounds; ++t) {
                for (std::size_t k = 0; k < count; ++k) fill(x[k], w.rank(), t);
                for (auto& c : calls) c.start();
                fill(beside, w.rank(), t);
                fill(after, w.rank(), t);
                auto work = collx::async::all_reduce(w, beside);
                collx::all_reduce(w, after);
                for (std::size_t k = count; k-- > 0;) calls[k].wait();
                work.wait();
                for (const list& v : x) EXPECT_AT(t, is_sum(v.data(), 0, v.size(), 4, t));
                EXPECT_AT(t, is_sum(beside.data(), 0, 1000, 4, t) && is_sum(after.data(), 0, 7, 4, t));
            }
        });
}

TEST_CASE("a run in place of one that is queued behind others of its port waits for them") {
    on_ranks(2, [](collx::communicator& w) {
        list x(30'000), y(10);
        auto long_one = per::all_reduce(w, x);
        std::vector<collx::persistent_call> short_ones; // one of them shares the port of the long call
        for (int k = 0; k < 8; ++k) short_ones.push_back(per::all_reduce(w, y));
        for (int t = 0; t < rounds; ++t)
            for (auto& one : short_ones) {
                fill(x, w.rank(), t);
                fill(y, w.rank(), t);
                long_one.start();
                one();
                long_one.wait();
                EXPECT_AT(t, is_sum(x.data(), 0, x.size(), 2, t) && is_sum(y.data(), 0, y.size(), 2, t));
            }
    });
}

TEST_CASE("inputs that are temporaries live as long as the call") {
    on_ranks(2, [](collx::communicator& w) {
        list out(2000);
        auto call = per::all_gather(w, list(1000, w.rank() + 7), out);
        const list scratch(1000, 3); // likely to reuse the input's memory, had it been freed
        call();
        call();
        EXPECT(out.front() == 7 && out.back() == 8 && scratch[0] == 3);
        auto counted =
            per::all_gather_v(w, list(static_cast<std::size_t>(w.rank()) + 1, w.rank()), out, std::vector<int>{1, 2});
        counted();
        EXPECT(out[0] == 0 && out[1] == 1 && out[2] == 1);
    });
}

TEST_CASE("a persistent group: small and large collectives and messages, again and again") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 3}) {
            if (ranks_per_host >= n) continue;
            on_hosts(n, {ranks_per_host}, [&](collx::communicator& w) {
                const int me = w.rank(), next = (me + 1) % n, last = (me + n - 1) % n;
                const auto u = static_cast<std::size_t>(n);
                list a(10), b(1000), large(400'000), mine(5), all(5 * u), rooted(33), out(50), in(50),
                    large_out(40'000), large_in(40'000);
                per::group g(w);
                g.all_reduce(a);
                g.broadcast(b, n - 1);
                g.all_gather(mine, all);
                g.all_reduce(large);
                g.reduce(rooted, 0);
                for (list* v : {&out, &large_out}) g.send(*v, next);
                for (list* v : {&in, &large_in}) g.recv(*v, last);
                auto call = g.launch();
                EXPECT(g.size() == 0);
                for (int t = 0; t < rounds; ++t) {
                    for (list* v : {&a, &b, &large, &mine, &rooted, &out, &large_out}) fill(*v, me, t);
                    run(call, t);
                    EXPECT_AT(t, is_sum(a.data(), 0, 10, n, t) && is_sample(b.data(), 0, 1000, n - 1, t));
                    EXPECT_AT(t, is_sum(large.data(), 0, large.size(), n, t));
                    EXPECT_AT(t, me != 0 || is_sum(rooted.data(), 0, 33, n, t));
                    for (int r = 0; r < n; ++r)
                        EXPECT_AT(t, is_sample(all.data() + 5 * static_cast<std::size_t>(r), 0, 5, r, t));
                    EXPECT_AT(t,
                              is_sample(in.data(), 0, 50, last, t) && is_sample(large_in.data(), 0, 40'000, last, t));
                }
                a.resize(11);
                EXPECT(says(thrown<collx::invalid_argument>(w, [&] { call(); }), "group's"));
                a.resize(10);
                collx::barrier(w);
            });
        }
}

TEST_CASE("a persistent call is moved like a handle") {
    on_ranks(2, [](collx::communicator& w) {
        list x(100), y(100);
        auto a = per::all_reduce(w, x);
        auto b = per::all_reduce(w, y);
        fill(x, w.rank(), 1);
        a.start();
        std::optional<collx::persistent_call> c(std::move(a));
        c->wait();
        EXPECT(is_sum(x.data(), 0, 100, 2, 1));
        *c = std::move(b);
        fill(y, w.rank(), 2);
        (*c)();
        EXPECT(is_sum(y.data(), 0, 100, 2, 2));
        const auto e = thrown<collx::invalid_argument>(w, [&] { b(); });
        EXPECT(says(e, "empty"));
    });
}

// ------------------------------------------------------------------ what bad use gets
TEST_CASE("a buffer that was moved, resized or emptied is found at the next start") {
    on_ranks(2, [](collx::communicator& w) {
        list x(100), in(10), out(20);
        auto sum = per::all_reduce(w, x);
        auto gathered = per::all_gather(w, in, out);
        sum();
        gathered();
        const auto refused = [&](auto& call, const char* which) {
            for (const bool starts : {true, false}) {
                const auto e = thrown<collx::invalid_argument>(w, [&] { starts ? call.start() : call(); });
                EXPECT(says(e, which) && says(e, "moved, resized or freed") && e.rank() == w.rank());
            }
        };
        list elsewhere = std::move(x);
        refused(sum, "output");
        x = std::move(elsewhere);
        sum(); // no call was started, and the buffer is back
        x.resize(101);
        refused(sum, "output");
        in.clear();
        refused(gathered, "input");
        list(10).swap(in);
        refused(gathered, "input");
        list there(5);
        auto to = per::send(w, there, 1 - w.rank());
        there = list();
        refused(to, "send");
        collx::barrier(w); // the communicator is unchanged
    });
}

TEST_CASE("started twice, or waited for without a start") {
    on_ranks(2, [](collx::communicator& w) {
        list x(100);
        auto sum = per::all_reduce(w, x);
        EXPECT(says(thrown<collx::invalid_argument>(w, [&] { sum.wait(); }), "start() it first"));
        EXPECT(says(thrown<collx::invalid_argument>(w, [&] { (void)sum.test(); }), "start() it first"));
        fill(x, w.rank(), 0);
        sum.start();
        EXPECT(says(thrown<collx::invalid_argument>(w, [&] { sum.start(); }), "under way already"));
        EXPECT(says(thrown<collx::invalid_argument>(w, [&] { sum(); }), "wait() for it first"));
        sum.wait();
        EXPECT(is_sum(x.data(), 0, 100, 2, 0));
        EXPECT(says(thrown<collx::invalid_argument>(w, [&] { sum.wait(); }), "not under way"));
        sum.start();
        while (!sum.test()) {
        }
        EXPECT(sum.test());
        sum.start(); // after a successful test() no wait() is needed
        sum.wait();
    });
}

TEST_CASE("dropped while under way: the communicator is aborted") {
    std::atomic<int> made{0};
    std::atomic<bool> is_dropped{false};
    caught_stderr caught;
    on_ranks(2, [&](collx::communicator& w) {
        list x(100'000);
        std::optional<collx::persistent_call> sum(per::all_reduce(w, x));
        ++made;
        if (w.rank() == 0) {
            collx_test::until([&] { return made == 2; });
            sum->start();
            sum.reset();
            is_dropped = true;
        } else {
            collx_test::until([&] { return is_dropped.load(); });
            EXPECT(thrown<collx::aborted>(w, [&] { (*sum)(); }).peer() == 0);
        }
        EXPECT(thrown<collx::aborted>(w, [&] { collx::barrier(w); }).peer() == 0);
    });
    CHECK(caught.text().starts_with("collx: warning: rank 0: a persistent call was started and destroyed"));
}

TEST_CASE("a persistent group that is not launched says so, and a call that was started and not waited for") {
    for (const spread& hosts : {spread{}, spread{1}}) {
        caught_stderr caught;
        on_hosts(2, hosts, [&](collx::communicator& w) {
            w.set_checked(false);
            int x = 1, y = 1;
            {
                per::group g(w);
                g.all_reduce(collx::value(x));
                g.all_reduce(collx::value(y));
                auto never_started = g.launch(); // not an error
            }
            if (w.rank() == 0) {
                per::group g(w);
                g.all_reduce(collx::value(x));
            }
            collx::barrier(w);
            {
                auto sum = per::all_reduce(w, collx::value(x));
                sum.start();
                if (w.rank() == 0) sum.wait();
                while (w.progress() != 0) std::this_thread::yield(); // completes it
            }
            collx::barrier(w);
            EXPECT(x == 2 && y == 1);
        });
        CHECK(caught.text() ==
              "collx: warning: rank 0: a group was destroyed without launch(): none of its 1 calls was "
              "made, the first is all_reduce (call launch())\n"
              "collx: warning: rank 1: a persistent call was started and destroyed without wait() "
              "(wait() for it)\n");
    }
}

TEST_CASE("a persistent call that another takes the place of says so, if it was started and not waited for") {
    caught_stderr caught;
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        int x = 1, y = 1;
        auto call = per::all_reduce(w, collx::value(x)), other = per::all_reduce(w, collx::value(y));
        call.start();
        if (w.rank() == 0) call.wait();
        while (w.progress() != 0) std::this_thread::yield(); // completes it
        call = std::move(other);
        call();
        EXPECT(x == 2 && y == 2);
    });
    CHECK(caught.text() == "collx: warning: rank 1: a persistent call was started and destroyed without wait() "
                           "(wait() for it)\n");
}

TEST_CASE("after the communicator has failed, shrunk or gone") {
    on_ranks(3, [](collx::communicator& w) {
        list x(10);
        std::optional<collx::communicator> own(w.dup());
        auto sum = per::all_reduce(*own, x);
        auto gone = per::all_reduce(*own, x);
        sum();
        collx::barrier(w); // no rank is in that call any more
        if (own->rank() == 1) own->abort();
        const auto e = thrown<collx::aborted>(w, [&] {
            for (int i = 0; i < 1000; ++i) sum();
        });
        EXPECT(e.peer() == 1);
        auto next = own->shrink();
        for (const bool starts : {true, false}) {
            const auto again = thrown<collx::aborted>(w, [&] { starts ? sum.start() : sum(); });
            EXPECT(again.peer() == 1 && says(again, "shrink()") && again.rank() == w.rank());
        }
        auto anew = per::all_reduce(next, x);
        fill(x, w.rank(), 0);
        anew();
        EXPECT(is_sum(x.data(), 0, 10, 3, 0));
        own.reset();
        EXPECT(says(thrown<collx::aborted>(w, [&] { gone(); }), "was destroyed"));
        EXPECT(says(thrown<collx::aborted>(w, [&] { gone.start(); }), "was destroyed"));
    });
}

TEST_CASE("checked: a persistent call on one rank and a plain one on the other, or other arguments") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        list x(10), y(11);
        auto own = w.dup();
        const auto e = thrown<collx::mismatch>(w, [&] {
            if (w.rank() == 0) (void)per::all_reduce(own, x);
            else collx::all_reduce(own, x);
        });
        EXPECT(says(e, "persistent all_reduce"));
        auto other = w.dup();
        EXPECT(says(thrown<collx::mismatch>(w, [&] { (void)per::all_reduce(other, w.rank() == 0 ? x : y); }), "count"));
    });
}

TEST_CASE("an operator that throws, and a peer that does not come") {
    on_ranks(2, [](collx::communicator& w) {
        list x(10, 1);
        auto own = w.dup();
        auto failing = per::all_reduce(own, x, [me = w.rank()](int a, int b) {
            if (me == 0) throw std::runtime_error("no");
            return a + b;
        });
        if (w.rank() == 0) EXPECT(says(thrown<std::runtime_error>(w, [&] { failing(); }), "no"));
        else
            EXPECT(thrown<collx::aborted>(w, [&] {
                       for (int i = 0; i < 1000; ++i) failing();
                   }).peer() == 0);
        auto late = w.dup();
        late.set_checked(false); // or the ranks are compared within the 50 ms
        auto sum = per::all_reduce(late, x, collx::plus{}, {.timeout = 50ms});
        if (w.rank() == 0) EXPECT(thrown<collx::timed_out>(w, [&] { sum(); }).peer() == 1);
        collx::barrier(w);
    });
}

TEST_CASE("a persistent group whose operator threw has failed, however often it is asked") {
    for (const spread& hosts : {spread{}, spread{1}})
        for (const bool by_list : {false, true})
            on_hosts(2, hosts, [&](collx::communicator& world) {
                auto w = world.dup();
                list x(4, 1), y(4, 1);
                per::group g(w);
                g.all_reduce(x, [me = w.rank()](int a, int b) { return me == 0 ? throw wrong("mine") : a + b; });
                g.all_reduce(y);
                auto sums = g.launch();
                if (w.rank() == 1) {
                    (void)thrown<collx::aborted>(w, [&] {
                        for (;;) sums();
                    });
                } else {
                    bool is_started = false;
                    (void)thrown<wrong>(w, [&] {
                        sums.start(); // inside a host the sum may begin, and throw, here
                        is_started = true;
                        if (by_list) collx::wait_all(sums);
                        else sums.wait();
                    });
                    for (const int way : {0, 1})
                        if (is_started)
                            EXPECT(thrown<collx::aborted>(w, [&] {
                                       way == 0 ? (void)sums.test() : sums.wait();
                                   }).peer() == 0);
                }
                collx::barrier(world);
            });
}

TEST_CASE("a persistent group under way whose communicator is destroyed") {
    for (const bool is_across : {false, true})
        on_hosts(2, is_across ? spread{1} : spread{}, [&](collx::communicator& w) {
            list x(4, 1), y(4, 1);
            std::optional<collx::communicator> own(w.dup());
            own->set_checked(false);
            per::group g(*own);
            g.all_reduce(x);
            g.all_reduce(y);
            auto sums = g.launch();
            sums.start();
            while (own->progress() != 0) std::this_thread::yield();
            collx::barrier(w);
            own.reset();
            try {
                sums.wait();
                EXPECT(!is_across && x[3] == 2 && y[3] == 2);
            } catch (const collx::aborted& e) { // across hosts nothing was folded yet
                EXPECT(is_across && says(e, "the communicator was destroyed here") && x[3] == 1);
            }
            collx::barrier(w);
        });
}

TEST_CASE("a call that a persistent group has refused is none of its own") {
    on_ranks(1, [](collx::communicator& w) {
        per::group g(w);
        list x(8, 1);
        for (const int way : {0, 1, 2}) {
            auto gone = std::make_unique<list>(8);
            list small(3);
            const auto refused = thrown<collx::error>(w, [&] {
                if (way == 0) g.send(*gone, 99);
                else if (way == 1) g.all_gather(*gone, small);
                else g.neighbor_all_gather(collx::neighbors{{0}, {0, 0}}, *gone, small);
            });
            EXPECT(refused.code() == collx::errc::invalid_argument);
        }
        g.all_reduce(x);
        auto sum = g.launch();
        sum(); // looks at the buffers of its calls
        EXPECT(x[7] == 1);
    });
}

TEST_CASE("a root in a group's options is refused, on one host and across hosts, and the group goes on without it") {
    for (const spread& hosts : {spread{}, spread{1}})
        on_hosts(2, hosts, [&](collx::communicator& w) {
            list x(2, 1), y(2, 1);
            collx::group now(w);
            now.all_reduce(x);
            now.all_reduce(y);
            EXPECT(says(thrown<collx::invalid_argument>(w, [&] { now.launch({.root = 1}); }), "has no root"));
            now.launch();
            EXPECT(x[1] == 2 && y[1] == 2);
            per::group later(w);
            later.all_reduce(x);
            later.all_reduce(y);
            EXPECT(says(thrown<collx::invalid_argument>(w, [&] { (void)later.launch({.root = 1}); }), "has no root"));
            later.launch()();
            EXPECT(x[1] == 4 && y[1] == 4);
        });
}

// Rank 0 makes `call` with a time limit L. Ranks 1 to 3 send it an int each, after 0.7, 1.4 and 2.1 L; rank 3 then
// receives 400,000 ints from it. No wait is longer than L, but the call is.
template <class Call>
void expect_one_limit_for_all_parts(bool by_groups, Call&& call) {
    const auto limit = collx_test::heard_within(300ms);
    on_ranks(4, [&](collx::communicator& w) {
        w.set_checked(false);
        int x = w.rank();
        EXPECT(w.size() == 4);
        if (w.rank() == 0) return (void)thrown<collx::timed_out>(w, [&] { call(w, {.timeout = limit}); });
        std::this_thread::sleep_for(limit * 7 / 10 * w.rank());
        try { // rank 0 has given up meanwhile
            if (by_groups) collx::group(w).send(collx::value(x), 0).launch();
            else collx::send(w, collx::value(x), 0);
            list large(400'000);
            if (w.rank() == 3) collx::recv(w, large, 0);
        } catch (const collx::error&) {
        }
    });
}
TEST_CASE("the time limit of a call of several messages is for all of them together") {
    using options = collx::call_options;
    expect_one_limit_for_all_parts(false, [](collx::communicator& w, const options& o) {
        list one(1), three(3);
        per::neighbor_all_gather(w, {{1, 2, 3}, {}}, one, three, o)();
    });
    expect_one_limit_for_all_parts(true, [](collx::communicator& w, const options& o) {
        list a(1), b(1), c(1);
        per::group g(w);
        g.recv(a, 1);
        g.recv(b, 2);
        g.recv(c, 3);
        g.launch(o)();
    });
    const list large(400'000, 1);
    expect_one_limit_for_all_parts(false, [&](collx::communicator& w, const options& o) {
        int x = 0;
        collx::sendrecv(w, large, 3, collx::value(x), 1, o);
    });
    expect_one_limit_for_all_parts(false, [&](collx::communicator& w, const options& o) {
        int x = 0;
        per::sendrecv(w, large, 3, collx::value(x), 1, o)();
    });
}

TEST_CASE("a run that throws has ended when its error comes: nothing of it is under way") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        if (w.rank() == 1)
            return (void)thrown<collx::error>(w, [&] {
                for (;;) collx::barrier(w);
            });
        list in(1000);
        auto p = per::sendrecv(w, list(1 << 20), 1, in, 1, {.timeout = 50ms}); // the input is the call's
        (void)thrown<collx::timed_out>(w, [&] { p(); });
        EXPECT(w.internals().pending.empty());
        (void)thrown<collx::error>(w, [&] { p.start(); });
        EXPECT(w.internals().pending.empty());
    });
}
