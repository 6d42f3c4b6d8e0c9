// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised timeout=180 sanitize=thread
//
// Windows: data that was put is visible after a signal or fence, over memory, sockets and both. Combining is atomic.
// Three hand-written programs are compared with their serial forms. Also bad input. ThreadSanitizer checks the order
// that signals promise. Processes and their deaths: faults/window_test.cpp.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include <collx/comm/progress.hpp>
#include <collx/comm/window.hpp>

#include "support.hpp"
#include "support/sanitizers.hpp"
#include "support/skip.hpp"

using namespace collx_test;
using namespace std::chrono_literals;
using collx::errc;

namespace {

constexpr int spreads[] = {0, 1, 2}; // ranks per host: memory, sockets, both
// Sizes around what a signal's line carries and what one message carries.
constexpr std::size_t word_counts[] = {0, 1, 4, 5, 9, 1000, 20'003};
constexpr std::size_t byte_counts[] = {1, 31, 32, 33, 16'384, 131'031, 131'032, 1'500'000};
constexpr std::size_t parts[] = {1, 8, 9, 5000, 50'000};
#if COLLX_TEST_TSAN
constexpr int many = 50;
#else
constexpr int many = 400;
#endif

// Two doubles and a number: larger than a machine word, so it is combined under a lock.
struct sums {
    double a, b;
    long n;
    bool operator==(const sums&) const = default;
};
struct add_sums {
    sums operator()(const sums& x, const sums& y) const { return {x.a + y.a, x.b + 2 * y.b, x.n + y.n}; }
};

} // namespace

// Has the same name as collx::max.
struct max {
    int operator()(int a, int b) const { return a + 10 * b; }
};

namespace {

int next_of(const collx::communicator& w) { return (w.rank() + 1) % w.size(); }
int before(const collx::communicator& w) { return (w.rank() + w.size() - 1) % w.size(); }
template <class T>
T value_of(int rank, int step, std::size_t i) {
    return static_cast<T>((static_cast<std::size_t>(rank + 3 * step) * 31 + i * 7) % 120 + 1);
}

// Checks all elements of x at once: x[i] must be at(i).
template <class X, class F>
void expect_all(collx::communicator& w, const X& x, F&& at_i) {
    std::size_t i = 0;
    while (i < x.size() && x[i] == at_i(i)) ++i;
    EXPECT_AT(i, i == x.size());
}

// Puts n elements to the next rank, in turn with the signal, before it, and twice to the same place.
template <class T>
void puts(collx::communicator& w, std::size_t n) {
    at("%zu elements of %zu bytes", n, sizeof(T));
    const int me = w.rank(), next = next_of(w), prev = before(w);
    collx::window<T> x(w, n + 5 + static_cast<std::size_t>(me)); // each rank's part has another size
    EXPECT(x.size(next) == n + 5 + static_cast<std::size_t>(next) && x.local().size() == x.size(me));
    expect_all(w, x.local(), [](std::size_t) { return T{}; });
    x.fence();
    std::vector<T> out(n);
    for (int step = 0; step < 6; ++step) {
        if (step % 3 == 2) x.put(next, 3, std::vector<T>(n, T{}));
        for (std::size_t i = 0; i < n; ++i) out[i] = value_of<T>(me, step, i);
        if (step % 3 == 1) {
            x.put(next, 3, out);
            x.signal(next);
        } else x.put_signal(next, 3, out);
        out.assign(n, T{}); // the buffer may be reused
        x.wait(prev);
        expect_all(w, x.local().subspan(3, n), [&](std::size_t i) { return value_of<T>(prev, step, i); });
        EXPECT(x.local()[2] == T{} && x.local()[n + 3] == T{}); // and the neighbouring elements are unchanged
                                                                // the place may be reused
        x.signal(prev);
        x.wait(next);
    }
    std::vector<T> in(n);
    x.get(next, 3, in);
    expect_all(w, in, [&](std::size_t i) { return value_of<T>(me, 5, i); });
    x.fence();
}

struct level { // no default constructor
    explicit level(int of) : height(of) {}
    int height, spare[3] = {};
    bool operator==(const level&) const = default;
};

} // namespace

TEST_CASE("elements without a default constructor are put, read, combined and exchanged") {
    for (const int per_host : spreads)
        on_hosts(2, {per_host}, [](collx::communicator& w) {
            const int me = w.rank(), peer = 1 - me;
            collx::window<level> x(w, 2);
            const std::vector<level> mine(2, level(me + 5));
            x.put(peer, 0, mine);
            x.fence();
            EXPECT(x.get(peer, 1) == level(me + 5));
            x.fence();
            const auto higher = [](const level& a, const level& b) { return a.height < b.height ? b : a; };
            EXPECT(x.fetch(peer, 0, level(9), higher) == level(me + 5) && x.get(peer, 0) == level(9));
            EXPECT(x.exchange(peer, 1, level(me + 5), level(3)) == level(me + 5) && x.get(peer, 1) == level(3));
            x.fence();
        });
}

TEST_CASE("what is put is in the peer's part when its wait returns, of any size and type, and nothing else is") {
    for (const int per_host : spreads)
        for (const int n : {1, 2, 3})
            on_hosts(n, {per_host}, [](collx::communicator& w) {
                for (const std::size_t count : word_counts) puts<std::uint64_t>(w, count);
                for (const std::size_t count : byte_counts) puts<unsigned char>(w, count);
                puts<float>(w, 8);
                puts<collx::bf16>(w, 77);
            });
    on_hosts(3, {1, true}, [](collx::communicator& w) { puts<float>(w, 700'000); }); // short transfers
    on_hosts(3, {2, false, true}, [](collx::communicator& w) { puts<float>(w, 300'000); });
}

// Neither signals that were not waited for yet nor the puts that travel in them may be lost.
TEST_CASE("signals add up, in any number before the wait, and puts that came with them are in order") {
    for (const int per_host : spreads)
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            const int next = next_of(w), prev = before(w);
            collx::window<int> x(w, many + 1);
            for (int round = 0; round < 2; ++round) {
                for (int i = 0; i < many; ++i) {
                    if (i % 3 == 0) {
                        x.put(next, static_cast<std::size_t>(i), i + round);
                        x.signal(next);
                    } else x.put_signal(next, static_cast<std::size_t>(i), i + round);
                }
                int seen = 0, taken = 0;
                for (const int count : {1, 1, 2, many / 2, many / 2 - 4}) {
                    x.wait(prev, static_cast<std::uint64_t>(count));
                    for (taken += count; seen < taken && seen < 4; ++seen) // of these signals, not of later ones
                        EXPECT_AT(seen, x.local()[static_cast<std::size_t>(seen)] == seen + round);
                    // a signal to itself, in between
                    x.signal(w.rank());
                    x.wait(w.rank());
                }
                EXPECT(!x.test(prev));
                for (int i = 0; i < many; ++i) EXPECT_AT(i, x.local()[static_cast<std::size_t>(i)] == i + round);
                x.fence();
            }
            // test() takes the signals that have arrived, and does not wait.
            x.put_signal(next, static_cast<std::size_t>(many), 77);
            until([&] { return x.test(prev); });
            EXPECT(x.local()[static_cast<std::size_t>(many)] == 77 && !x.test(prev));
        });
}

TEST_CASE("a fence completes what every rank has put, also puts that came with signals no wait has taken") {
    for (const int per_host : spreads)
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            collx::window<int> x(w, static_cast<std::size_t>(2 * w.size()));
            for (int step = 1; step < 30; ++step) {
                for (int r = 0; r < w.size(); ++r) {
                    const auto mine = static_cast<std::size_t>(2 * w.rank());
                    x.put_signal(r, mine, step * 100 + w.rank());
                    x.put(r, mine + 1, step);
                }
                x.fence();
                for (int of = 0; of < w.size(); ++of) // also the part of a third rank
                    for (int r = 0; r < w.size(); ++r) {
                        const auto there = static_cast<std::size_t>(2 * r);
                        EXPECT_AT(r, x.get(of, there) == step * 100 + r && x.get(of, there + 1) == step);
                    }
                x.fence();
            }
        });
}

TEST_CASE("combining is atomic in each element, from every rank of every host") {
    for (const int per_host : spreads)
        on_hosts(4, {per_host}, [](collx::communicator& w) {
            const int n = w.size(), half = many / 2;
            collx::window<long> count(w, 40);
            collx::window<sums> sum(w, 3);
            collx::window<collx::bf16> rough(w, 2);
            collx::window<unsigned char> top(w, 1);
            std::vector<long> drawn;
            for (int i = 0; i < half; ++i) {
                count.accumulate(0, 0, std::vector<long>(20, 1));
                count.accumulate(i % n, 30, 3L, [](long a, long b) { return a > b ? a : b; });
                count.accumulate(i % n, 31, 5L, [](long a, long b) { return a + 2 * b; }); // another lambda
                count.accumulate(i % n, 32, 2L, collx::commutative([](long a, long b) { return a | b; }));
                drawn.push_back(count.fetch_add(0, 39, 1));
                sum.accumulate(1, 1, sums{1, 1, 1}, add_sums{});
                if (i < 8) rough.accumulate(2, 1, collx::bf16(1.0f));
                top.accumulate(3, 0, static_cast<unsigned char>(w.rank() * 10), collx::max{});
            }
            count.fence();
            sum.fence();
            rough.fence();
            top.fence();
            EXPECT(sum.get(1, 1) == sums{double(n * half), 2.0 * n * half, n * half} && sum.get(1, 0) == sums{});
            EXPECT(static_cast<float>(rough.get(2, 1)) == 8.0f * static_cast<float>(n));
            EXPECT(top.get(3, 0) == 30);
            EXPECT(count.get(0, 0) == n * half && count.get(0, 19) == n * half && count.get(0, 20) == 0);
            EXPECT(count.get(1, 30) == 3 && count.get(n - 1, 31) == 10L * n * (half / n) && count.get(n - 1, 32) == 2);
            EXPECT(count.get(0, 39) == n * half); // each number was drawn once
            std::vector<long> all(static_cast<std::size_t>(n * half));
            collx::all_gather(w, drawn, all);
            std::sort(all.begin(), all.end());
            for (int i = 0; i < n * half; ++i) EXPECT_AT(i, all[static_cast<std::size_t>(i)] == i);
            // A lock made of exchange() keeps two words equal that are written one after the other.
            collx::window<int> guarded(w, 3);
            for (int i = 0; i < 20; ++i) {
                while (guarded.exchange(0, 0, 0, w.rank() + 1) != 0) guarded.progress();
                const int was = guarded.get(0, 1);
                EXPECT(guarded.get(0, 2) == was);
                guarded.put(0, 1, was + 1);
                guarded.put(0, 2, was + 1);
                guarded.flush(0);
                EXPECT(guarded.exchange(0, 0, w.rank() + 1, 0) == w.rank() + 1);
            }
            guarded.fence();
            EXPECT(guarded.get(0, 1) == 20 * n);
            guarded.fence(); // rank 0 serves requests until all have read
        });
}

TEST_CASE("an operator of the program that is called as one of collx is another, on other hosts too") {
    for (const int per_host : {0, 1})
        on_hosts(2, {per_host}, [](collx::communicator& w) {
            collx::window<int> x(w, 2);
            x.accumulate(next_of(w), 0, std::vector<int>{3, 2}, collx::max{});
            x.accumulate(next_of(w), 0, 5, ::max{});
            x.accumulate(next_of(w), 1, 7, collx::max{});
            x.fence();
            EXPECT(x.local()[0] == 53 && x.local()[1] == 7);
        });
}

TEST_CASE("an operator with state works where memory is shared, and is refused by name where it would have to travel") {
    for (const int per_host : {0, 1})
        on_hosts(2, {per_host}, [&](collx::communicator& w) {
            collx::window<int> x(w, 1);
            const int factor = w.size() + 1;
            const auto add = [&] {
                x.accumulate(1 - w.rank(), 0, 7, [factor](int a, int b) { return a + factor * b; });
            };
            if (per_host == 0) add();
            else EXPECT(refused(w, add, errc::unsupported, "operator that has state").peer() == 1 - w.rank());
            x.fence();
            EXPECT(x.local()[0] == (per_host == 0 ? 21 : 0));
        });
}

TEST_CASE("parts of ranks that share memory are loaded and stored, those of other hosts are not") {
    for (const int per_host : spreads)
        on_hosts(3, {per_host}, [&](collx::communicator& w) {
            std::vector<int> own(10, w.rank());
            collx::window<int> x(w, own); // the program's own buffer: other threads see it
            x.fence();
            for (int r = 0; r < w.size(); ++r) {
                const bool is_here = per_host == 0 || r / per_host == w.rank() / per_host;
                EXPECT(x.is_shared(r) == is_here);
                if (is_here) EXPECT(x.shared(r)[9] == r);
                else
                    EXPECT(refused(
                               w, [&] { (void)x.shared(r); }, errc::unsupported, "on another host")
                               .peer() == r);
                EXPECT(x.get(r, 9) == r);
            }
            x.fence();
            x.put(next_of(w), 0, 55);
            x.fence();
            EXPECT(own[0] == 55);
        });
    on_ranks(2, [](collx::communicator& w) {
        auto own = collx::make_shared_vector<double>(w, 100);
        collx::window<double> x(w, own);
        x.put_signal(1 - w.rank(), 99, 2.5);
        x.wait(1 - w.rank());
        EXPECT(own[99] == 2.5);
        x.fence();
    });
}

// ---------------------------------------------------------------------------------------------- three programs
namespace {

constexpr int cells = 37, steps = 60; // per rank
double smooth(double l, double m, double r) { return 0.25 * l + 0.5 * m + 0.25 * r; }

// Each rank has two halo cells for even steps and two for odd ones. A neighbour is at most one step ahead, because it
// waits.
void stencil(collx::communicator& w) {
    const int n = w.size(), me = w.rank(), left = before(w), right = next_of(w);
    const auto begin = [](int i) { return static_cast<double>((i * 37) % 101); };
    std::vector<double> all(static_cast<std::size_t>(n * cells)), mine(cells + 2), after(cells + 2);
    for (int i = 0; i < n * cells; ++i) all[static_cast<std::size_t>(i)] = begin(i);
    for (int i = 0; i < cells; ++i) mine[static_cast<std::size_t>(i + 1)] = begin(me * cells + i);
    collx::window<double> halo(w, 4);
    for (int s = 0; s < steps; ++s) {
        const auto at = static_cast<std::size_t>(s % 2 * 2);
        halo.put_signal(right, at, mine[cells]);
        halo.put_signal(left, at + 1, mine[1]);
        if (left == right) halo.wait(left, 2);
        else {
            halo.wait(left);
            halo.wait(right);
        }
        mine[0] = halo.local()[at];
        mine[cells + 1] = halo.local()[at + 1];
        for (std::size_t i = 1; i <= cells; ++i) after[i] = smooth(mine[i - 1], mine[i], mine[i + 1]);
        mine.swap(after);
        auto was = all; // the serial program
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = smooth(was[(i + all.size() - 1) % all.size()], was[i], was[(i + 1) % all.size()]);
    }
    for (std::size_t i = 0; i < cells; ++i) EXPECT_AT(i, mine[i + 1] == all[static_cast<std::size_t>(me * cells) + i]);
    halo.fence();
}

// Each item of work is taken by exactly one rank, the next one that is free.
void steal(collx::communicator& w) {
    constexpr long pieces = 200;
    collx::window<long> next(w, w.rank() == 0 ? 1 : 0);
    std::vector<int> done(pieces);
    for (long i; (i = next.fetch_add(0, 0, 1)) < pieces;) ++done[static_cast<std::size_t>(i)];
    collx::all_reduce(w, done); // rank 0 also serves the other ranks in this call
    for (std::size_t i = 0; i < done.size(); ++i) EXPECT_AT(i, done[i] == 1);
    next.fence();
}

// Each rank's part has a place for each step, so no rank waits for a free one.
void ring(collx::communicator& w, std::size_t part) {
    const int n = w.size(), me = w.rank(), to = next_of(w), from = before(w);
    std::vector<float> x(part * static_cast<std::size_t>(n)), serial(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = sample<float>(me, i);
        serial[i] = folded<float>(i, 0, n);
    }
    collx::window<float> in(w, part * static_cast<std::size_t>(2 * n));
    const auto chunk = [&](int k) {
        return std::span(x).subspan(static_cast<std::size_t>((k % n + n) % n) * part, part);
    };
    for (int s = 0; s < 2 * (n - 1); ++s) {
        const auto place = static_cast<std::size_t>(s) * part;
        in.put_signal(to, place, chunk(me - s));
        in.wait(from);
        const auto got = in.local().subspan(place, part), mine = chunk(me - s - 1);
        for (std::size_t i = 0; i < part; ++i) mine[i] = s < n - 1 ? mine[i] + got[i] : got[i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_AT(i, x[i] == serial[i]);
    in.fence();
}

} // namespace

TEST_CASE("a stencil with halos, a shared counter and a ring written by hand do what their serial programs do") {
    for (const int per_host : spreads)
        for (const int n : {1, 2, 4})
            on_hosts(n, {per_host}, [](collx::communicator& w) {
                stencil(w);
                steal(w);
                for (const std::size_t part : parts) ring(w, part);
            });
}

// ---------------------------------------------------------------------------------------------- who serves
TEST_CASE("ranks of other hosts are served in waits of the communicator, of its other windows, and by the thread") {
    for (const bool has_thread : {false, true})
        on_hosts(2, {1}, [&](collx::communicator& w) {
            if (has_thread) (void)w.with(collx::progress::thread{}); // of the communicator: it does not serve windows
            collx::window<int> x(w, 300'000), y(w, 1);
            std::vector<int> big(300'000, 5), got(300'000);
            if (w.rank() == 0) {
                // while rank 1 is in barrier()
                x.put_signal(1, 0, big);
                x.get(1, 0, got);
                EXPECT(got[299'999] == 5);
                collx::barrier(w);
                // while rank 1 waits in the other window
                x.get(1, 0, got);
                y.signal(1);
            } else {
                collx::barrier(w);
                y.wait(0);
                x.wait(0);
                EXPECT(x.local()[299'999] == 5);
            }
            // More puts than can be in transit, and then no call of the window.
            for (int i = 0; i < 40; ++i) x.put_signal(1 - w.rank(), static_cast<std::size_t>(i), i);
            collx::barrier(w);
            x.wait(1 - w.rank(), 40);
            EXPECT(x.local()[39] == 39);
            x.fence();
        });
    std::atomic<bool> has_read{false};
    on_hosts(2, {1}, [&](collx::communicator& w) {
        collx::window<int> x(w, 1);
        x.with(collx::progress::thread{});
        if (w.rank() == 0) {
            x.put(1, 0, 8);
            x.flush(1);
            EXPECT(x.get(1, 0) == 8);
            has_read = true;
        } else {
            until([&] { return has_read.load(); }); // not in any call
            count_check();
        }
        x.fence();
    });
}

TEST_CASE("waits for signals that are there already serve ranks of other hosts, too") {
    std::atomic<bool> has_read{false};
    on_hosts(3, {2}, [&](collx::communicator& w) {
        collx::window<int> x(w, 1);
        x.fence();
        if (w.rank() == 0) {
            until([&] {
                x.signal(0);
                x.wait(0);
                return has_read.load();
            });
        } else if (w.rank() == 2) {
            EXPECT(x.get(0, 0) == 0);
            has_read = true;
        }
        x.fence();
        count_check();
    });
}

TEST_CASE("a fence has one time limit for all that it waits for") {
    constexpr auto limit = 300ms;
    std::chrono::nanoseconds least = 1h;
    for (int i = 0; i < 10 && least > 450ms; ++i) { // now and then the machine is busy with something else
        std::atomic<bool> has_begun{false}, has_answered{false};
        on_hosts(2, {1}, [&](collx::communicator& w) {
            collx::window<int> x(w, 1);
            // now they are connected
            x.put(1 - w.rank(), 0, 0);
            x.fence();
            if (w.rank() == 0) {
                x.put(1, 0, 1);
                const auto begin = std::chrono::steady_clock::now();
                has_begun = true;
                refused(
                    w, [&] { x.fence(limit); }, errc::timeout, "rank 1");
                if (has_answered) // otherwise the flush has used the whole limit
                    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - begin);
            } else {
                until([&] { return has_begun.load(); });
                std::this_thread::sleep_for(limit * 2 / 3);
                try { // answers the flush, but does not enter the fence
                    for (const auto end = std::chrono::steady_clock::now() + 20s;
                         std::chrono::steady_clock::now() < end;) {
                        x.progress();
                        has_answered = has_answered || x.local()[0] == 1;
                    }
                } catch (const collx::error& e) {
                    EXPECT(e.code() == errc::timeout);
                }
            }
            collx::barrier(w);
            count_check();
        });
    }
    if (least == 1h) return collx_test::skip("the machine is so busy that rank 1 never answered a flush within 300 ms");
    REQUIRE(least <= patient(450ms));
}

// ---------------------------------------------------------------------------------------------- bad input
TEST_CASE("places beyond the peer's part, and peers that are none, are refused with rank, byte and size") {
    for (const int per_host : {0, 1})
        on_hosts(2, {per_host}, [](collx::communicator& w) {
            collx::window<double> x(w, w.rank() == 0 ? 4 : 8); // rank 0's part is smaller
            const int other = 1 - w.rank();
            const auto beyond = x.size(other);
            const std::vector<double> two(2);
            const auto e = refused(
                w, [&] { x.put(other, beyond - 1, two); }, errc::invalid_argument, "put of 16 bytes");
            EXPECT(e.peer() == other && says(e, w.rank() == 1 ? "at byte 24 of rank 0, whose part has 32"
                                                              : "at byte 56 of rank 1, whose part has 64"));
            for (const std::size_t place : {beyond, SIZE_MAX, SIZE_MAX / 8 + 1, SIZE_MAX / 2})
                refused(
                    w, [&] { x.put_signal(other, place, 1.0); }, errc::invalid_argument, "whose part has");
            refused(
                w, [&] { (void)x.get(other, beyond); }, errc::invalid_argument, "get of 8 bytes");
            refused(
                w, [&] { x.accumulate(other, beyond, 1.0); }, errc::invalid_argument, "accumulate of 8 bytes");
            refused(
                w, [&] { (void)x.fetch_add(other, beyond, 1); }, errc::invalid_argument, "whose part has");
            for (const int peer : {-1, 2, 1 << 30}) {
                refused(
                    w, [&] { x.put(peer, 0, 1.0); }, errc::invalid_argument, "of 2 ranks");
                refused(
                    w, [&] { x.signal(peer); }, errc::invalid_argument, "of 2 ranks");
                refused(
                    w, [&] { x.wait(peer); }, errc::invalid_argument, "of 2 ranks");
                refused(
                    w, [&] { x.flush(peer); }, errc::invalid_argument, "of 2 ranks");
                refused(
                    w, [&] { (void)x.shared(peer); }, errc::invalid_argument, "of 2 ranks");
                EXPECT(!x.is_shared(peer) && x.size(peer) == 0);
            }
            refused(
                w, [&] { x.wait(other, 0); }, errc::invalid_argument, "0 signals");
            constexpr std::uint64_t most = std::uint64_t{1} << 40; // so that no sum of counts wraps
            EXPECT(!x.test(other, most));
            for (const std::uint64_t count : {std::uint64_t{0}, most + 1, std::uint64_t{1} << 63, std::uint64_t(-1)})
                EXPECT(refused(
                           w, [&] { (void)x.test(other, count); }, errc::invalid_argument, "signals")
                           .peer() == other);
            refused(
                w, [&] { x.wait(other, 1, -1ns); }, errc::invalid_argument, "time limit");
            // the window still works
            x.put(other, 0, 3.0);
            x.fence();
            EXPECT(x.local()[0] == 3.0);
        });
}

// Messages as a foreign peer might send them: places within the part, operators that the program has.
TEST_CASE("combinations from other hosts that do not fit the window's elements are refused as protocol") {
    struct sent {
        std::size_t at;
        collx::detail::combination how;
    };
    const auto wide = collx::detail::combination_of<std::uint64_t>(collx::plus{});
    const auto narrow = collx::detail::combination_of<std::uint32_t>(collx::plus{});
    const auto real = collx::detail::combination_of<double>(collx::plus{}); // as wide, but another type
    const auto is_signed = collx::detail::combination_of<std::int64_t>(collx::max{});
    const auto swapped = collx::detail::combination_of<double>(collx::detail::swapped{});
    for (const sent& it : {sent{4, wide}, sent{8, narrow}, sent{8, real}, sent{0, is_signed}, sent{0, swapped}})
        on_hosts(2, {1}, [&](collx::communicator& w) {
            collx::detail::one_sided x(
                w, {nullptr, 32, 8, collx::type_hash<std::uint64_t>(), collx::type_name<std::uint64_t>()});
            const std::uint64_t two[2] = {0, 1};
            if (w.rank() == 0) {
                x.combine(1, it.at, two, 1, it.how, nullptr);
                const auto e = refused(
                    w, [&] { x.wait(1, 1, 0); }, errc::protocol, "other ranks refused what this rank sent");
                EXPECT(e.rank() == 0 && says(e, "same version of collx"));
            } else {
                const auto e = refused(
                    w, [&] { x.wait(0, 1, 0); }, errc::protocol, "rank 0 sent what this call does not allow");
                EXPECT(e.rank() == 1 && e.peer() == 0 && says(e, "same version of collx"));
                for (std::size_t i = 0; i < 32; ++i) EXPECT_AT(i, x.shared_part(1)[i] == std::byte{0});
            }
        });
}

TEST_CASE("a window of other elements on one rank is a mismatch on all, and the communicator goes on") {
    for (const int per_host : {0, 1})
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            const auto e = refused(
                w,
                [&] {
                    if (w.rank() == 1) collx::window<float>(w, 3);
                    else collx::window<int>(w, 3);
                },
                errc::mismatch, "the window of rank 1 has elements of 4 bytes");
            EXPECT(e.peer() == 1);
            std::vector<int> x(1, 1);
            collx::all_reduce(w, x);
            EXPECT(x[0] == 3);
            refused(
                w, [&] { collx::window<double> huge(w, SIZE_MAX / 16); }, errc::invalid_argument, "elements");
            // Not enough memory for this window: all ranks get the error.
            const auto full = thrown<collx::error>(w, [&] { collx::window<double> huge(w, std::size_t{1} << 45); });
            EXPECT(full.code() == errc::resource);
            collx::all_reduce(w, x);
            EXPECT(x[0] == 9);
        });
}

TEST_CASE("a signal that no rank gives is a timeout that names who should have, and ends the window on all ranks") {
    for (const int per_host : {0, 1})
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            collx::window<int> x(w, 1);
            x.signal(next_of(w));
            x.wait(before(w));
            collx::barrier(w); // no rank needs the window any more when rank 1 ends it
            if (w.rank() == 1) {
                const auto e = refused(
                    w, [&] { x.wait(2, 2, 300ms); }, errc::timeout,
                    "waiting for signal 2 of rank 2, which has given 0");
                EXPECT(e.peer() == 2);
            }
            collx::barrier(w); // the parent communicator still works
            if (w.rank() == 0)
                refused(
                    w, [&] { x.wait(1); }, errc::timeout, "rank 2");
            else if (w.rank() == 2)
                refused(
                    w,
                    [&] {
                        x.signal(0);
                        x.wait(0);
                    },
                    errc::timeout, "");
            refused(
                w, [&] { x.put(0, 0, 1); }, errc::timeout, ""); // the window has ended for good
            collx::window<int> y(w, 1);
            y.put(next_of(w), 0, 4);
            y.fence();
            EXPECT(y.local()[0] == 4);
        });
}

TEST_CASE("errors of windows and records of calls say that it was a window") {
    for (const int per_host : {0, 1})
        on_hosts(2, {per_host}, [](collx::communicator& w) {
            w.record_calls(8);
            {
                collx::window<int> x(w, 1);
                const auto calls = w.recent_calls();
                EXPECT(calls.size() == 1 && std::string(calls[0].verb) == "window");
                EXPECT(calls[0].outcome == collx::call_outcome::done && x.ranks() == 2);
                if (w.rank() == 0) {
                    const auto e = refused(
                        w, [&] { x.fence(300ms); }, errc::timeout, "window: timed out waiting for rank 1");
                    EXPECT(says(e, "progress::thread{}"));
                }
                collx::barrier(w);
                if (w.rank() == 1)
                    refused(
                        w, [&] { x.fence(); }, errc::timeout, "window: other ranks gave up waiting for this rank");
            }
            EXPECT(w.recent_calls().size() == 2);
        });
}

TEST_CASE("a checked communicator says which rank makes a window") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        const auto e = thrown<collx::mismatch>(w, [&] {
            if (w.rank() == 0) collx::window<int>(w, 4);
            else (void)w.dup();
        });
        EXPECT(says(e, "collective is window on rank 0 and split on rank 1"));
    });
}

TEST_CASE("a test() that finds nothing for as long as a wait may take is a timeout, too") {
    on_ranks(2, [](collx::communicator& w) {
        collx::window<int> x(w, 1);
        x.set_timeout(300ms);
        if (w.rank() == 0) {
            const auto look = [&] {
                while (!x.test(1)) {
                }
            };
            EXPECT(refused(w, look, errc::timeout, "signal 1 of rank 1, which has given 0").peer() == 1);
        }
        collx::barrier(w);
        count_check();
    });
}

// Each peer has its own limit, which restarts when any call takes that peer's next signal.
TEST_CASE("a test() that comes late blames no rank for the time before") {
    for (const int per_host : {0, 1})
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            collx::window<int> x(w, 1);
            if (w.rank() == 0) {
                x.set_timeout(100ms);
                EXPECT(!x.test(1)); // the limit for rank 1 starts
                collx::barrier(w);
                x.wait(1, 1, patient(10s));
                std::this_thread::sleep_for(150ms);
                EXPECT(!x.test(2)); // the limit for rank 2 starts only now
                EXPECT(!x.test(1)); // and so does that for rank 1's second signal
            } else {
                collx::barrier(w);
                if (w.rank() == 1) {
                    x.signal(0);
                    x.flush(0);
                }
            }
            x.fence(patient(10s));
            count_check();
        });
}
TEST_CASE("a test() for a rank that has left says so, whatever others are tested for in turn with it") {
    for (const bool succeeds : {true, false})
        on_hosts(3, {1}, [&](collx::communicator& w) {
            std::optional<collx::window<int>> x(std::in_place, w, 1);
            x->fence();
            if (w.rank() == 2) x.reset();
            if (w.rank() == 0) {
                const auto look = [&] {
                    for (const auto end = std::chrono::steady_clock::now() + patient(10s);
                         std::chrono::steady_clock::now() < end;) {
                        if (succeeds) x->signal(0);
                        EXPECT(x->test(succeeds ? 0 : 1) == succeeds && !x->test(2));
                    }
                };
                EXPECT(refused(w, look, errc::peer_failed, "rank 2").peer() == 2);
            }
            collx::barrier(w);
            count_check();
        });
}

TEST_CASE("a window ends with its communicator, whose survivors make another") {
    for (const int per_host : {0, 1})
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            auto mine = w.dup();
            collx::window<int> x(mine, 1);
            x.fence();
            collx::barrier(w); // no rank is in the fence any more
            if (w.rank() == 1) mine.abort();
            else if (w.rank() == 0)
                refused(
                    w, [&] { x.wait(2); }, errc::aborted, "rank 1"); // in the middle of a wait
            const auto until_heard = [&] {                           // rank 2 may be notified a little later
                const auto end = std::chrono::steady_clock::now() + patient(20s);
                while (std::chrono::steady_clock::now() < end) {
                    x.put(w.rank(), 0, 1);
                    x.progress();
                    mine.progress();
                }
            };
            refused(w, until_heard, errc::aborted, "abort");
            auto after = mine.shrink();
            refused(
                w, [&] { x.signal(0); }, errc::aborted, "");
            collx::window<int> y(after, 1);
            y.put(next_of(w), 0, 6);
            y.fence();
            EXPECT(y.local()[0] == 6);
        });
}

TEST_CASE("an operator that calls its window is refused, one that throws ends it") {
    on_ranks(2, [](collx::communicator& w) {
        collx::window<int> x(w, 1);
        x.fence();
        bool was_refused = false;
        x.accumulate(w.rank(), 0, 1, [&](int a, int b) {
            try {
                x.signal(0);
            } catch (const collx::invalid_argument& e) {
                was_refused = says(e, "makes another call");
            }
            return a + b;
        });
        EXPECT(was_refused && x.local()[0] == 1);
        x.fence();
        collx::barrier(w); // no rank is in the fence any more
        if (w.rank() == 0) {
            (void)thrown<std::runtime_error>(
                w, [&] { x.accumulate(0, 0, 1, [](int, int) -> int { throw std::runtime_error("no"); }); });
        } else {
            refused(
                w, [&] { x.wait(0); }, errc::aborted, "rank 0 aborted");
        }
    });
}

TEST_CASE("a window may outlive its communicator, and may end while others put") {
    for (const int per_host : {0, 1})
        on_hosts(2, {per_host}, [&](collx::communicator& w) {
            std::optional<collx::window<int>> x;
            {
                auto gone = w.dup();
                x.emplace(gone, 100'000);
            }
            x->put_signal(1 - w.rank(), 0, std::vector<int>(100'000, 2));
            x->wait(1 - w.rank());
            EXPECT(x->local()[99'999] == 2);
            x->fence();
            // Rank 1 destroys its window; later puts of rank 0 reach memory that still exists, or get an error.
            if (w.rank() == 1) x.reset();
            collx::barrier(w);
            if (w.rank() == 0) {
                try {
                    for (int i = 0; i < 20; ++i) x->put_signal(1, 0, std::vector<int>(100'000, i));
                    EXPECT(per_host == 0);
                } catch (const collx::error& e) {
                    at("%.190s", e.what());
                    EXPECT(per_host == 1 && e.peer() == 1);
                }
            }
            collx::barrier(w);
        });
}

TEST_CASE("a loop that spins on the own part sees what another host puts there, and lets it in") {
    for (const bool combines : {false, true})
        on_hosts(2, {1}, [combines](collx::communicator& w) {
            collx::window<int> x(w, w.rank() == 0 ? 2 : 0);
            x.fence();
            if (w.rank() == 1) {
                EXPECT(x.fetch_add(0, 1, 5) == 0); // waits for rank 0's answer
                x.put(0, 0, 1);
                x.flush();
            } else {
                const auto end = std::chrono::steady_clock::now() + patient(20s);
                const auto look = [&] { return combines ? x.fetch_add(0, 0, 0) : x.get(0, 0); };
                int seen = 0;
                while (seen == 0 && std::chrono::steady_clock::now() < end) seen = look();
                EXPECT(seen == 1 && x.local()[1] == 5);
            }
            x.fence();
        });
}
