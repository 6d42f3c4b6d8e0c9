// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised timeout=180 sanitize=thread,nightly
//
// Gradient buckets compared with serial sums, in any order of readiness, with and without a wire type. Bad input.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include <collx/comm/bucketed.hpp>
#include <collx/comm/progress.hpp>

#include "support.hpp"
#include "support/caught_stderr.hpp"

using namespace collx_test;
using namespace std::chrono_literals;
using collx::errc;

namespace {

constexpr std::size_t lengths[] = {7, 1500, 0, 64, 2'500, 33, 900, 1};
constexpr std::size_t tensors = std::size(lengths);
const char* const names[] = {"embed", "l1.w", "l1.none", "l1.b", "l2.w", "l2.b", "l3.w", "l3.b"};

template <class T>
using layers = std::vector<std::vector<T>>;
template <class T>
layers<T> zeros() {
    layers<T> all;
    for (const std::size_t n : lengths) all.emplace_back(n);
    return all;
}
template <class T>
void add_all(collx::bucketed<T>& b, layers<T>& of) {
    for (std::size_t k = 0; k < tensors; ++k) (void)b.add(names[k], of[k]);
}
// The gradients of one rank and step: absolute values up to `most`.
float gradient(int rank, int step, std::size_t k, std::size_t i, float most) {
    std::minstd_rand r(static_cast<unsigned>(1 + i + 1000 * k) * 7919u + static_cast<unsigned>(rank * 101 + step));
    r.discard(3);
    return most * (static_cast<float>(r() % 2001) / 1000 - 1);
}
std::vector<std::size_t> shuffled(unsigned seed) {
    std::vector<std::size_t> order(tensors);
    for (std::size_t k = 0; k < tensors; ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), std::minstd_rand(seed));
    return order;
}
// Sums of small whole numbers: exact in every type.
template <class T>
void exact_sums(collx::communicator& w, std::size_t bytes, bool has_thread) {
    collx::bucketed<T> b(w, {.bytes = bytes, .first_bytes = bytes / 4 + 1});
    if (has_thread) b.with(collx::progress::thread{});
    auto g = zeros<T>();
    add_all(b, g);
    for (int step = 0; step < 3; ++step) {
        for (const std::size_t k : shuffled(static_cast<unsigned>(7 * w.rank() + step + 1))) { // another on each rank
            for (std::size_t i = 0; i < g[k].size(); ++i)
                g[k][i] = T(static_cast<float>(sample(w.rank() + step, i + k)));
            if (step == 1) b.ready(names[k]);
            else b.ready(static_cast<int>(k));
        }
        b.finish();
        for (std::size_t k = 0; k < tensors; ++k)
            for (std::size_t i = 0; i < g[k].size(); ++i) {
                int sum = 0;
                for (int r = 0; r < w.size(); ++r) sum += sample(r + step, i + k);
                EXPECT_AT(i, static_cast<double>(g[k][i]) == sum);
            }
    }
    EXPECT(b.buckets() == (bytes == 1 ? tensors - 1 : b.buckets()) && b.buckets() >= 1);
}

// With a wire type and feedback, the sum of the results over all steps differs from the exact sum by at most one
// step's rounding.
template <class T, class W>
void fed_back(collx::communicator& w, double unit) {
    constexpr int steps = 24;
    constexpr float most = 0.3f;
    for (const bool feedback : {true, false}) {
        collx::bucketed<T, W> b(w, {.bytes = 8000, .first_bytes = 500, .feedback = feedback});
        b.with(collx::progress::thread{});
        layers<T> g = zeros<T>();
        layers<double> got = zeros<double>(), exact = zeros<double>();
        for (std::size_t k = 0; k < tensors; ++k) (void)b.add(names[k], g[k]);
        for (int step = 0; step < steps; ++step) {
            for (const std::size_t k : shuffled(static_cast<unsigned>(w.rank() * 31 + step))) {
                for (std::size_t i = 0; i < g[k].size(); ++i) g[k][i] = T(gradient(w.rank(), step % 2, k, i, most));
                b.ready(static_cast<int>(k));
            }
            b.finish();
            for (std::size_t k = 0; k < tensors; ++k)
                for (std::size_t i = 0; i < g[k].size(); ++i) {
                    got[k][i] += static_cast<double>(g[k][i]);
                    for (int r = 0; r < w.size(); ++r)
                        exact[k][i] += static_cast<double>(T(gradient(r, step % 2, k, i, most)));
                }
        }
        double worst = 0;
        for (std::size_t k = 0; k < tensors; ++k)
            for (std::size_t i = 0; i < got[k].size(); ++i) worst = std::max(worst, std::abs(got[k][i] - exact[k][i]));
        // Half a unit in the last place for each rank's part and for the sum; both may be a little larger than `most`.
        const double once = unit * 1.2 * most * 2 * w.size();
        at("worst %g, once %g", worst, once);
        if (feedback) EXPECT(worst <= once);
        else EXPECT(worst > once || worst == 0 || unit < 1e-2); // without feedback, errors add up
        auto first = g;
        for (auto& v : first) collx::broadcast(w, v);
        for (std::size_t k = 0; k < tensors; ++k) // the same bits on all ranks
            EXPECT(g[k].empty() || std::memcmp(first[k].data(), g[k].data(), g[k].size() * sizeof(T)) == 0);
    }
}

} // namespace

TEST_CASE("buckets sum what a serial loop sums, whatever is ready first, on every rank another") {
    for (const int per_host : {0, 1})
        for (const int n : {1, 2, 3})
            on_hosts(n, {per_host}, [](collx::communicator& w) {
                for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{25} << 20}) {
                    exact_sums<float>(w, bytes, false);
                    exact_sums<double>(w, bytes, true);
                    exact_sums<collx::bf16>(w, bytes, false);
                }
            });
}

TEST_CASE("with a wire type, error feedback keeps the sum over steps within one step's rounding") {
    for (const int per_host : {0, 1})
        for (const int n : {1, 3})
            on_hosts(n, {per_host}, [](collx::communicator& w) {
                fed_back<float, collx::bf16>(w, 0x1p-8);
                fed_back<float, collx::e4m3>(w, 0x1p-4);
                fed_back<double, collx::f16>(w, 0x1p-11);
                fed_back<float, collx::e5m2>(w, 0x1p-3);
            });
}

TEST_CASE("tensors of one array are summed where they lie, others are copied, each rank as its own lie") {
    for (const int per_host : {0, 1})
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            collx::bucketed<float> b(w, {.bytes = 400, .first_bytes = 100});
            std::vector<float> all(300), elsewhere(50);
            const std::size_t sizes[] = {0,   100, 0,  50,
                                         100, 0,   50, 0}; // buckets: the last two, two, three, and an empty one
            std::vector<collx::contiguous_view<float>> parts;
            std::size_t at = 0;
            for (const std::size_t n : sizes) {
                parts.emplace_back(n == 0 ? nullptr : all.data() + at, n);
                (void)b.add(std::to_string(parts.size()), parts.back());
                at += n;
            }
            for (int step = 0; step < 3; ++step) {
                // In the second step one tensor of rank 1 has separate memory. In the third, rank 2's two tensors of
                // 50 elements change places.
                auto now = parts;
                if (step == 1 && w.rank() == 1) now[3] = collx::contiguous_view<float>(elsewhere.data(), 50);
                if (step == 2 && w.rank() == 2) std::swap(now[3], now[6]);
                for (std::size_t k = 0; k < now.size(); ++k)
                    for (std::size_t i = 0; i < sizes[k]; ++i)
                        now[k].data()[i] = static_cast<float>(sample(w.rank() + step, i + 100 * k));
                for (std::size_t k = now.size(); k-- > 0;) b.ready(static_cast<int>(k), now[k]);
                b.finish();
                for (std::size_t k = 0; k < now.size(); ++k)
                    for (std::size_t i = 0; i < sizes[k]; ++i) {
                        int sum = 0;
                        for (int r = 0; r < w.size(); ++r) sum += sample(r + step, i + 100 * k);
                        EXPECT_AT(i, now[k].data()[i] == static_cast<float>(sum));
                    }
                EXPECT(b.buckets() == 4 && b.copied() == (step == w.rank() && step > 0 ? 1u : 0u));
            }
        });
}

TEST_CASE("averages, tensors that lie elsewhere in each step, and numbers that are not finite") {
    on_ranks(2, [](collx::communicator& w) {
        collx::bucketed<float> b(w, {.average = true});
        collx::bucketed<float, collx::e4m3> rough(w, {.average = true});
        std::vector<float> first(100);
        const int one = b.add("one", first), same = rough.add("one", first);
        for (int step = 0; step < 3; ++step) {
            std::vector<float> x(100, 8.0f * static_cast<float>(w.rank() + step));
            b.ready(one, x);
            b.finish();
            EXPECT(x[99] == 8.0f * static_cast<float>(step) + 4.0f && first[99] == 0);
            x.assign(100, 3.0f);
            if (step == 1 && w.rank() == 0) x[7] = INFINITY;
            rough.ready("one", x);
            rough.finish();
            EXPECT(std::isnan(x[7]) == (step == 1) && x[99] == 3.0f); // other parts and later steps are not affected
            (void)same;
        }
    });
}

TEST_CASE("the bytes on the wire are those of the formula") {
    on_hosts(2, {1}, [](collx::communicator& w) {
        constexpr std::size_t n = 100'000;
        std::vector<float> x(n, 1), y(n, 1);
        collx::bucketed<float> b(w, {.bytes = 50'000});
        collx::bucketed<float, collx::bf16> half(w, {.bytes = 50'000});
        (void)b.add("x", x);
        (void)half.add("y", y);
        b.ready(0);
        half.ready(0);
        const auto before = b.sent().bytes, before_half = half.sent().bytes;
        b.finish();
        half.finish();
        b.ready(0);
        b.finish();
        half.ready(0);
        half.finish();
        EXPECT(b.sent().bytes - before <= 2 * n * 4 && b.sent().bytes >= n * 4); // 2(n-1)/n is 1 for two ranks
        EXPECT(half.sent().bytes < 2 * (n * 2 + 200) + before_half && half.sent().bytes < b.sent().bytes * 6 / 10);
    });
}

TEST_CASE("bad input names the tensor") {
    on_ranks(2, [](collx::communicator& w) {
        collx::bucketed<float> b(w);
        std::vector<float> x(10, 1), y(20, 1), z(11);
        refused(
            w, [&] { collx::bucketed<float> none(w, {.bytes = 0}); }, errc::invalid_argument, "no bytes");
        (void)b.add("x", x);
        (void)b.add("y", y);
        refused(
            w, [&] { (void)b.add("x", z); }, errc::invalid_argument, "'x' is registered twice");
        refused(
            w, [&] { b.ready("q"); }, errc::invalid_argument, "'q' is not registered");
        refused(
            w, [&] { b.ready(2); }, errc::invalid_argument, "'2' is not registered");
        b.ready("y");
        refused(
            w, [&] { b.ready("y"); }, errc::invalid_argument, "'y' is ready twice");
        refused(
            w, [&] { (void)b.add("z", z); }, errc::invalid_argument, "'z' is registered after ready()");
        refused(
            w, [&] { b.ready("x", z); }, errc::invalid_argument, "'x' was registered with 10 elements and has 11");
        b.ready("x");
        b.finish(); // the refused calls had no effect
        EXPECT(x[9] == 2 && y[19] == 2);
        collx::bucketed<float> empty(w);
        empty.finish();
    });
}

TEST_CASE("registrations that differ between ranks are named on all of them") {
    for (const int what : {0, 1, 2, 3})
        on_ranks(3, [what](collx::communicator& w) {
            const bool odd = w.rank() == 1;
            collx::bucketed<float> b(w, {.bytes = odd && what == 3 ? 999u : 1000u});
            std::vector<float> x(10), y(odd && what == 0 ? 21 : 20), z(5);
            (void)b.add("x", x);
            if (what != 1 || !odd) {
                (void)b.add("y", y);
                (void)b.add("z", z);
            } else {
                (void)b.add("z", z);
                (void)b.add("y", y);
            }
            if (what == 2 && odd) (void)b.add("more", z);
            const auto e = refused(
                w, [&] { b.ready("y"); }, errc::mismatch, "the buckets of rank 1 differ");
            EXPECT(e.peer() == 1 && says(e, what == 0   ? "'y' of 2"
                                            : what == 1 ? (odd ? "'z' of 5" : "'y' of 20")
                                                        : "here"));
        });
}

TEST_CASE("a missing tensor is named where it is missing, and its bucket where it is waited for") {
    for (const int per_host : {0, 1})
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            collx::bucketed<float> b(w, {.bytes = 100, .first_bytes = 100});
            std::vector<float> x(30, 1), y(20, 1), z(10, 1);
            (void)b.add("x", x);
            (void)b.add("y", y);
            (void)b.add("z", z);
            b.ready("z");      // y and z share a bucket
            collx::barrier(w); // all ranks have agreed on the buckets before rank 1 calls finish()
            if (w.rank() == 1) {
                refused(
                    w, [&] { b.finish(); }, errc::invalid_argument, "2 tensor(s) are not ready: 'x', 'y'");
            } else {
                const auto waits = [&] {
                    b.ready("y");
                    b.ready("x");
                    b.finish();
                };
                const auto e = refused(w, waits, errc::aborted, "tensor(s) '");
                EXPECT(e.peer() == 1);
            }
            collx::barrier(w); // does not belong to the buckets
        });
}

TEST_CASE("a slow tensor is named when the time is over") {
    const auto limit = collx_test::heard_within(200ms);
    std::atomic<int> past{0};
    on_ranks(2, [&](collx::communicator& w) {
        std::vector<float> x(10, 1);
        collx::bucketed<float> b(w, {.timeout = limit});
        (void)b.add("slow", x);
        b.ready(0);
        b.finish(); // the time limit does not apply to the first step
        ++past;
        until([&] { return past == 2; }); // or the second step may end the first one of rank 1
        if (w.rank() == 0) {
            const auto e = refused(
                w,
                [&] {
                    b.ready(0);
                    b.finish();
                },
                errc::timeout, "tensor(s) 'slow'");
            EXPECT(e.peer() == 1);
        }
        collx::barrier(w);
        EXPECT(true);
    });
}

TEST_CASE("a bucket that could not go out is not taken for done, and finish() throws what ended the calls") {
    std::atomic<bool> has_ended{false}, has_stepped{false};
    on_ranks(2, [&](collx::communicator& w) {
        std::vector<float> a(100, 1.f), b(100, 1.f);
        collx::bucketed<float> g(w, {.bytes = 100, .first_bytes = 100}); // a bucket each
        const int first = g.add("a", a), second = g.add("b", b);
        g.ready(second);
        g.ready(first);
        g.finish();
        EXPECT(a[0] == 2 && b[99] == 2);
        if (w.rank() == 1) {
            until([&] { return has_stepped.load(); }); // otherwise rank 0 may hear of the end in its first step
            g.ready(second);
            (void)thrown<collx::invalid_argument>(w, [&] { g.finish(); });
            has_ended = true;
            return;
        }
        has_stepped = true;
        until([&] { return has_ended.load(); });
        for (const int k : {second, first}) (void)thrown<collx::aborted>(w, [&] { g.ready(k); });
        EXPECT(thrown<collx::aborted>(w, [&] { g.finish(); }).peer() == 1);
    });
}

TEST_CASE("a missing tensor also ends the second halves of sums with a wire type") {
    std::atomic<int> second_halves[2]{};
    std::atomic<bool> is_sent{false}, has_ended{false};
    caught_stderr caught;
    on_ranks(2, [&](collx::communicator& w) {
        std::atomic<int>& mine = second_halves[w.rank()];
        w.record_calls(8); // the communicators of the buckets have the observer, too
        w.on_calls({[](void* to, const collx::call_record& r) {
                        if (r.kind == collx::call_kind::async && r.verb == std::string_view("all_gather"))
                            ++*static_cast<std::atomic<int>*>(to);
                    },
                    &mine});
        std::vector<float> a(100, 1.f), b(100, 1.f);
        collx::bucketed<float, collx::bf16> g(w, {.bytes = 100, .first_bytes = 100}); // a bucket each
        const int first = g.add("a", a), second = g.add("b", b);
        g.ready(second);
        g.ready(first);
        g.finish();
        mine = 0;
        collx::barrier(w);
        if (w.rank() == 1) {
            g.with(collx::progress::thread{}); // the first half goes on while this rank waits for the other
            g.ready(second);
            is_sent = true;
            until([&] { return second_halves[0] != 0; });
            (void)thrown<collx::invalid_argument>(w, [&] { g.finish(); });
            has_ended = true;
        } else {
            until([&] { return is_sent.load(); }); // so that rank 1 does not begin the second half in ready()
            const auto waits = [&] {
                g.ready(second);
                g.ready(first);
                g.finish();
            };
            EXPECT(thrown<collx::aborted>(w, waits).peer() == 1);
            EXPECT(mine != 0);
            until([&] { return has_ended.load(); });
        }
    });
    CHECK(caught.text() == ""); // no warning that an unfinished call is dropped: it was ended, with its communicator
}

TEST_CASE("a tensor that lay elsewhere in one step is again where it was registered") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<float> registered(100, 1.f);
        collx::bucketed<float> g(w);
        const int k = g.add("x", registered);
        auto elsewhere = std::make_unique<std::vector<float>>(100, 5.f);
        g.ready(k, *elsewhere);
        g.finish();
        EXPECT((*elsewhere)[99] == 10 && registered[99] == 1);
        elsewhere.reset();
        g.ready(k);
        g.finish();
        EXPECT(registered[99] == 2);
    });
}

TEST_CASE("options that differ are called that, and a rank without tensors learns of those of others") {
    const auto said = [](auto&& options_of, bool has_none = false) {
        on_ranks(2, [&](collx::communicator& w) {
            std::vector<float> x(10, 1.f);
            collx::bucketed<float> g(w, options_of(w.rank()));
            const bool adds = !has_none || w.rank() == 0;
            if (adds) g.add("weights", x);
            const auto e = thrown<collx::mismatch>(w, [&] { adds ? g.ready(0) : g.finish(); });
            EXPECT(says(e, !has_none ? "here the options, or the types" : adds ? "here 'weights'" : "here no tensor"));
        });
    };
    said([](int r) { return collx::bucket_options{.bytes = r == 0 ? 1000u : 2000u}; });
    said([](int r) { return collx::bucket_options{.average = r == 0}; });
    said([](int) { return collx::bucket_options{}; }, true);
    on_ranks(2, [](collx::communicator& w) { // no rank has any
        collx::bucketed<float> g(w);
        g.finish();
        g.finish();
        EXPECT(g.buckets() == 0);
    });
}

TEST_CASE("averages of narrow elements do not overflow on the way, and late registrations are compared, too") {
    on_ranks(4, [](collx::communicator& w) {
        std::vector<collx::f16> g(8, collx::f16(30'000.0f));
        collx::bucketed<collx::f16> halves(w, {.average = true});
        halves.ready(halves.add("g", g));
        halves.finish();
        EXPECT(static_cast<float>(g[0]) == 30'000.0f && static_cast<float>(g[7]) == 30'000.0f);

        std::vector<float> a(1, 1.0f), b(1, 10.0f);
        collx::bucketed<float> sums(w);
        sums.finish(); // nothing is registered yet
        const bool is_first = w.rank() == 0;
        const auto k = sums.add(is_first ? "weights" : "bias", is_first ? a : b);
        (void)sums.add(is_first ? "bias" : "weights", is_first ? b : a);
        const auto e = thrown<collx::mismatch>(w, [&] { sums.ready(k); });
        EXPECT(says(e, "the buckets of rank 0 differ from those of rank 1") && e.peer() == 0); // most ranks are right
    });
}

TEST_CASE("tensors that share memory are refused, where they are registered and where they are given") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<float> g(8), o(8), moved(8);
        collx::bucketed<float> tied(w, {.bytes = 1, .first_bytes = 1});
        const int embed = tied.add("embed", g);
        (void)tied.add("middle", o);
        (void)tied.add("head", collx::view(g.data() + 4, 4));
        tied.ready("head");
        const auto e = thrown<collx::error>(w, [&] { tied.ready(embed); });
        EXPECT(e.code() == errc::invalid_argument && says(e, "tensor 'embed' shares memory with tensor 'head'"));
        // not there, it is a tensor as any other
        tied.ready(embed, moved);
        tied.ready("middle");
        tied.finish();

        collx::bucketed<float> apart(w, {.bytes = 1, .first_bytes = 1});
        const int a = apart.add("a", g), b = apart.add("b", o);
        g.assign(8, 1.0f);
        o.assign(8, 2.0f);
        apart.ready(b);
        apart.ready(a);
        apart.finish();
        EXPECT(g[7] == 2.0f && o[7] == 4.0f);
        apart.ready(b, g); // a itself comes later
        EXPECT(says(thrown<collx::error>(w, [&] { apart.ready(a); }), "tensor 'a' shares memory with tensor 'b'"));
        // the places are exchanged
        apart.ready(a, o);
        apart.finish();
        EXPECT(g[7] == 4.0f && o[7] == 8.0f);
        apart.ready(b);
        apart.ready(a);
        apart.finish();
        EXPECT(g[7] == 8.0f && o[7] == 16.0f);
    });
}

TEST_CASE("a number that no tensor has is refused, however large, and after an error the first cause is said again") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<float> g(8), h(8);
        collx::bucketed<float> b(w, {.bytes = 1, .first_bytes = 1});
        (void)b.add("g", g);
        const int last = b.add("h", h);
        const auto is_refused = [&](auto number) {
            return says(thrown<collx::error>(w, [&] { b.ready(number); }), "is not registered") &&
                   says(thrown<collx::error>(w, [&] { b.ready(number, h); }), "is not registered");
        };
        EXPECT(is_refused(std::size_t{1} << 32) && is_refused(std::size_t{1} << 63) && is_refused(-1) &&
               is_refused(2u) && is_refused("i") && is_refused(std::string("")));
        b.ready(last);
        collx::barrier(w); // a rank that is still in its ready() would hear of the other's end there
        const auto missing = thrown<collx::error>(w, [&] { b.finish(); });
        EXPECT(missing.code() == errc::invalid_argument);
        EXPECT(thrown<collx::error>(w, [&] { b.ready(last); }).code() == errc::aborted); // not "ready twice"
    });
}

TEST_CASE("the largest numbers stay finite on the wire") {
    const auto kept = [](auto largest, auto wire) {
        using T = decltype(largest);
        on_ranks(2, [&](collx::communicator& w) {
            std::vector<T> x(64, T(0));
            for (std::size_t i = 0; i < x.size(); i += 3) x[i] = w.rank() == 0 ? largest : T(0);
            collx::bucketed<T, decltype(wire)> b(w, {.feedback = false});
            b.ready(b.add("x", x));
            b.finish();
            for (std::size_t i = 0; i < x.size(); ++i) {
                at("%zu of %zu bytes: %g", i, sizeof(wire), static_cast<double>(x[i]));
                EXPECT(i % 3 == 0 ? std::isfinite(x[i]) && x[i] > largest * T(0.8) : x[i] == T(0));
            }
        });
    };
    for (float most = std::numeric_limits<float>::max(); most > 3.3e38f; most *= 0.9991f) {
        kept(most, collx::bf16());
        kept(most, collx::f16());
        kept(most, collx::e4m3());
        kept(most, collx::e5m2());
    }
    kept(1e300, 0.0f);
    kept(std::numeric_limits<double>::max(), collx::f16());
    kept(std::numeric_limits<double>::max(), collx::bf16());
}
