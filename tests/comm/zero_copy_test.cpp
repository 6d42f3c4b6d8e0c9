// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised timeout=300 sanitize=thread,nightly
//
// Collectives on buffers in shared memory: chosen by default and bound by name, mixed with other calls, and refused
// where a buffer is not shared.
#include <atomic>
#include <optional>

#include "support.hpp"
#include "support/caught_stderr.hpp"

using namespace collx_test;
using collx::collective;
using collx::make_shared_vector;

namespace {

// A buffer with a guard element at its end.
collx::shared_vector<int> shared(collx::communicator& w, std::size_t n) {
    return make_shared_vector<int>(w, n + 1, -1);
}
auto most(collx::shared_vector<int>& v) { return collx::window_view<int>(v.data(), v.size() - 1); }

template <collective C, class F>
void by_default_and_by_name(collx::communicator& w, F&& f) {
    f(w);
    collx::algo::algorithms<C>::for_each([&](auto a) {
        if constexpr (is_zero_copy(decltype(a)::name)) f(w.with(a));
    });
}

constexpr std::size_t zero_copy_sizes[] = {0, 1, 15, 64, 1000, 50021};

} // namespace

TEST_CASE("zero-copy all_reduce, in place, out of place, and both at once") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : zero_copy_sizes) {
                at("n=%d size=%zu", n, size);
                auto x = shared(w, size), out = shared(w, size);
                by_default_and_by_name<collective::all_reduce>(w, [&](auto&& bound) {
                    for (std::size_t i = 0; i < size; ++i) x[i] = sample(w.rank(), i);
                    collx::all_reduce(bound, most(x), most(out));
                    for (std::size_t i = 0; i < size; ++i)
                        EXPECT_AT(i, out[i] == folded(i, 0, n) && x[i] == sample(w.rank(), i));
                    if (w.rank() % 2 == 0) {
                        collx::all_reduce(bound, most(x)); // half of the ranks in place
                        EXPECT(std::equal(x.begin(), x.end(), out.begin()));
                    } else {
                        collx::all_reduce(bound, most(x), most(out));
                        for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[i] == folded(i, 0, n));
                    }
                    EXPECT(x[size] == -1 && out[size] == -1);
                });
            }
        });
}

TEST_CASE("zero-copy reduce and broadcast with every root") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : zero_copy_sizes)
                for (int root = 0; root < n; ++root) {
                    at("n=%d size=%zu root=%d", n, size, root);
                    auto x = shared(w, size), out = shared(w, size);
                    by_default_and_by_name<collective::reduce>(w, [&](auto&& bound) {
                        for (std::size_t i = 0; i < size; ++i) x[i] = sample(w.rank(), i);
                        collx::reduce(bound, most(x), most(out), collx::plus{}, {.root = root});
                        for (std::size_t i = 0; i < size; ++i)
                            EXPECT_AT(i, out[i] == (w.rank() == root ? folded(i, 0, n) : -1) &&
                                             x[i] == sample(w.rank(), i));
                        collx::reduce(bound, most(x), collx::plus{}, {.root = root});
                        for (std::size_t i = 0; i < size; ++i)
                            EXPECT_AT(i, x[i] == (w.rank() == root ? folded(i, 0, n) : sample(w.rank(), i)));
                        EXPECT(x[size] == -1 && out[size] == -1);
                        std::fill(out.begin(), out.end(), -1);
                    });
                    by_default_and_by_name<collective::broadcast>(w, [&](auto&& bound) {
                        for (std::size_t i = 0; i < size; ++i) x[i] = w.rank() == root ? sample(root, i) : -2;
                        collx::broadcast(bound, most(x), {.root = root});
                        for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == sample(root, i));
                        EXPECT(x[size] == -1);
                    });
                }
        });
}

TEST_CASE("zero-copy all_gather, reduce_scatter and all_to_all") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : zero_copy_sizes) {
                at("n=%d size=%zu", n, size);
                const std::size_t whole = size * static_cast<std::size_t>(n),
                                  mine = size * static_cast<std::size_t>(w.rank());
                auto part = shared(w, size), all = shared(w, whole), all2 = shared(w, whole);
                by_default_and_by_name<collective::all_gather>(w, [&](auto&& bound) {
                    for (std::size_t i = 0; i < size; ++i) part[i] = all2[mine + i] = sample(w.rank(), i);
                    collx::all_gather(bound, most(part), most(all));
                    collx::all_gather(bound, most(all2));
                    for (std::size_t i = 0; i < whole; ++i)
                        EXPECT_AT(i, all[i] == sample(static_cast<int>(i / size), i % size) && all2[i] == all[i]);
                    EXPECT(all[whole] == -1 && all2[whole] == -1);
                });
                by_default_and_by_name<collective::reduce_scatter>(w, [&](auto&& bound) {
                    for (std::size_t i = 0; i < whole; ++i) all[i] = sample(w.rank(), i);
                    collx::reduce_scatter(bound, most(all), most(part));
                    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, part[i] == folded(mine + i, 0, n));
                    collx::reduce_scatter(bound, most(all));
                    for (std::size_t i = 0; i < whole; ++i)
                        EXPECT_AT(i, all[i] == (i >= mine && i < mine + size ? part[i - mine] : sample(w.rank(), i)));
                    EXPECT(part[size] == -1 && all[whole] == -1);
                });
                by_default_and_by_name<collective::all_to_all>(w, [&](auto&& bound) {
                    for (std::size_t i = 0; i < whole; ++i) all[i] = w.rank() * 100 + static_cast<int>(i / size);
                    collx::all_to_all(bound, most(all), most(all2));
                    for (std::size_t i = 0; i < whole; ++i)
                        EXPECT_AT(i, all2[i] == static_cast<int>(i / size) * 100 + w.rank());
                    EXPECT(all2[whole] == -1);
                });
            }
        });
}

TEST_CASE("v-variants on shared memory, parts may be empty") {
    on_ranks(5, [](collx::communicator& w) {
        const std::vector<std::size_t> counts = {3, 0, 20'000, 1, 0};
        auto mine = make_shared_vector<int>(w, counts[static_cast<std::size_t>(w.rank())], w.rank());
        auto all = make_shared_vector<int>(w, 20'004, -1);
        collx::all_gather_v(w, mine, all, counts);
        std::size_t p = 0;
        for (int r = 0; r < 5; ++r)
            for (std::size_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i, ++p) EXPECT_AT(p, all[p] == r);
        std::fill(all.begin(), all.end(), w.rank());
        collx::reduce_scatter_v(w, all, mine, counts);
        for (const int x : mine) EXPECT(x == 10);
        EXPECT(p == all.size());
    });
}

TEST_CASE("a zero-copy call may follow any other at once") {
    on_ranks(4, [](collx::communicator& w) {
        auto x = make_shared_vector<int>(w, 3000);
        std::vector<int> y(3000);
        for (int i = 0; i < 200; ++i) {
            std::fill(x.begin(), x.end(), w.rank() + i);
            std::fill(y.begin(), y.end(), w.rank() + i);
            collx::all_reduce(w, x);
            x[static_cast<std::size_t>(i)] += 1; // the buffer may be changed as soon as the call has returned
            collx::broadcast(w, x, {.root = i % 4});
            collx::all_reduce(w, y);
            EXPECT(x[0] == 6 + 4 * i + (i == 0) && x[static_cast<std::size_t>(i)] == 7 + 4 * i && y[2999] == 6 + 4 * i);
        }
    });
}

TEST_CASE("attach takes calls of any size: short ones are staged, long ones are read where they lie") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [n](collx::communicator& w) {
            const auto bound = w.with(collx::attach{});
            const auto ranks = static_cast<std::size_t>(n);
            for (const std::size_t size : {0u, 1u, 17u, 1000u, 5000u, 100'003u}) {
                at("n=%d size=%zu", n, size);
                std::vector<int> x(size, w.rank() + 1), all(size * ranks), back(size * ranks);
                try {
                    collx::all_gather(bound, x, all);
                } catch (const collx::error& e) { // a container may forbid what long ones do
                    return EXPECT(size > 4096 && e.code() == collx::errc::unsupported);
                }
                collx::all_to_all(bound, all, back);
                collx::broadcast(bound, x, {.root = n - 1});
                for (std::size_t i = 0; i < all.size(); ++i)
                    EXPECT_AT(i, all[i] == static_cast<int>(i / size) + 1 && back[i] == w.rank() + 1);
                for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == n);
            }
        });
}

namespace {

// Rank 1 has started a call of x into y, but not touched the buffers of rank 0, when rank 0 drops its own call and uses
// them for something else.
template <class Start>
void dropped_before_a_peer_comes(Start&& start) {
    std::atomic<int> turn{0};
    on_ranks(2, [&](collx::communicator& w) {
        auto c = w.dup();
        c.set_checked(false); // a checked call would wait for the peer's
        auto x = make_shared_vector<int>(w, 100'000, 1);
        if (w.rank() == 1) {
            auto y = make_shared_vector<int>(w, 100'000, 1);
            auto work = start(c, x, y);
            turn = 1;
            until([&] { return turn == 2; });
            EXPECT(thrown<collx::aborted>(w, [&] { work.wait(); }).peer() == 0);
            turn = 3;
            return;
        }
        until([&] { return turn == 1; });
        {
            auto y = make_shared_vector<int>(w, 100'000, 1);
            const collx_test::caught_stderr warning;
            (void)start(c, x, y);
        }
        std::fill(x.begin(), x.end(), 1000);
        const auto other = make_shared_vector<int>(w, 100'000, 7); // where y was
        turn = 2;
        until([&] { return turn == 3; });
        for (std::size_t i = 0; i < other.size(); ++i) EXPECT_AT(i, other[i] == 7 && x[i] == 1000);
    });
}

// Rank 1 is in the buffers of rank 0, combining, when rank 0 drops its own call. call(c, x, y, op): rank 1's call.
template <class Start, class Call>
void dropped_while_a_peer_combines(Start&& start, Call&& call) {
    std::atomic<int> turn{0};
    on_ranks(2, [&](collx::communicator& w) {
        auto c = w.dup();
        c.set_checked(false);
        auto x = make_shared_vector<int>(w, 100'000, 1);
        std::optional<collx::shared_vector<int>> y = make_shared_vector<int>(w, 100'000, 1);
        const auto op = [&, me = w.rank()](int a, int b) {
            if (me == 1 && turn == 1) {
                turn = 2;
                until([&] { return turn == 3; });
                std::this_thread::sleep_for(std::chrono::milliseconds(20)); // rank 0 would be ahead, if it did not wait
            }
            return a + b;
        };
        if (w.rank() == 1) {
            until([&] { return turn == 1; });
            try {
                call(c, x, *y, op);
                for (std::size_t i = 0; i < x.size(); ++i) EXPECT_AT(i, (*y)[i] == 2);
            } catch (const collx::aborted& e) {
                EXPECT(e.peer() == 0);
            }
            turn = 4;
            return;
        }
        {
            auto work = start(c, x, *y, op);
            turn = 1;
            until([&] { return turn == 2; });
            const collx_test::caught_stderr warning;
            turn = 3;
            const auto dropped = std::move(work);
        }
        y.reset();
        std::fill(x.begin(), x.end(), 1000);
        const auto other = make_shared_vector<int>(w, 100'000, 7); // where y was
        until([&] { return turn == 4; });
        for (std::size_t i = 0; i < other.size(); ++i) EXPECT_AT(i, other[i] == 7 && x[i] == 1000);
    });
}

} // namespace

TEST_CASE("a zero-copy call touches no buffer of a rank whose own call has failed") {
    dropped_before_a_peer_comes([](auto& c, auto& x, auto& y) { return collx::async::all_reduce(c, x, y); });
    dropped_before_a_peer_comes([](auto& c, auto& x, auto& y) {
        return collx::async::reduce(c, x, y, collx::plus{}, {.root = 1}); // rank 1 waits for nothing after reading
    });
}

TEST_CASE("a rank whose zero-copy call fails has its buffers back when no peer is in them") {
    const auto start = [](auto& c, auto& x, auto& y, auto op) { return collx::async::all_reduce(c, x, y, op); };
    dropped_while_a_peer_combines(start, [](auto& c, auto& x, auto& y, auto op) { collx::all_reduce(c, x, y, op); });
    dropped_while_a_peer_combines(
        [](auto& c, auto& x, auto& y, auto op) {
            auto ready = collx::persistent::all_reduce(c, x, y, op);
            ready.start();
            return ready;
        },
        [](auto& c, auto& x, auto& y, auto op) { collx::persistent::all_reduce(c, x, y, op)(); }); // composed
}

TEST_CASE("zero copy refuses memory that is not shared") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(5000);
        const auto e = thrown<collx::invalid_argument>(
            w, [&] { collx::all_reduce(w.with(collx::algo::zero_copy_all_reduce{}), x); });
        EXPECT(says(e, "zero-copy algorithm needs all buffers in windows"));
        const auto f = thrown<collx::invalid_argument>(
            w, [&] { collx::all_reduce(w, collx::window_view<int>(x.data(), x.size())); });
        EXPECT(says(f, "does not lie in shared memory"));
    });
}
