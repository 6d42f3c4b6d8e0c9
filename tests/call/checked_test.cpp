// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=thread,nightly
//
// Ranks that disagree. With set_checked(true) every rank gets the same text, which names the differing ranks and what
// differs, and the communicator can still be used. Without it, only what the messages themselves reveal is detected.
#include "comm/support.hpp"
#include "support/one_limit.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

using namespace collx_test;
using collx::mismatch;

namespace {

// Calls f(odd) on all four ranks; it must fail on all of them with the same text.
template <class F>
void check(collx::communicator& w, std::vector<int> odd, std::vector<std::string> texts, F&& f) {
    bool is_odd = false;
    std::string names;
    for (const int r : odd) {
        is_odd |= r == w.rank();
        names += (names.empty() ? "" : ", ") + std::to_string(r);
    }
    const int culprit = odd.size() > 2 ? 0 : odd[0]; // most ranks are right
    const auto e = thrown<mismatch>(w, [&] { f(is_odd); });
    texts.push_back(odd.size() == 2 ? "ranks " + names + " differ from rank 0: "
                                    : "rank " + std::to_string(culprit) + " differs from the others: ");
    for (const auto& t : texts) {
        at("%s / %s", t.c_str(), e.what());
        EXPECT(says(e, t.c_str()));
    }
    EXPECT(e.code() == collx::errc::mismatch && e.peer() == culprit && e.rank() == w.rank());
    EXPECT(e.sequence() == w.sequence() && e.sequence() != 0);
    int one = 1; // no rank has started the call, so all may continue
    collx::all_reduce(w, collx::value(one));
    EXPECT(one == w.size());
}

template <class F>
void on_checked_ranks(F&& f) {
    on_ranks(4, [&](collx::communicator& w) {
        w.set_checked(true);
        w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
        f(w);
    });
}

} // namespace

TEST_CASE("checked: other counts, types, operators, roots") {
    on_checked_ranks([](collx::communicator& w) {
        std::vector<int> x(10);
        std::vector<float> y(10);
        check(w, {2}, {"count is 10 on rank 0 and 9 on rank 2"},
              [&](bool odd) { collx::all_reduce(w, collx::view(x.data(), odd ? 9u : 10u)); });
        check(w, {1, 3}, {"count is 10 on rank 0 and 0 on rank 1"},
              [&](bool odd) { collx::broadcast(w, collx::view(x.data(), odd ? 0u : 10u)); });
        check(w, {3}, {"element type"}, [&](bool odd) {
            if (odd) collx::all_reduce(w, y);
            else collx::all_reduce(w, x);
        });
        check(w, {1}, {"operator"}, [&](bool odd) {
            if (odd) collx::all_reduce(w, x, collx::max{});
            else collx::all_reduce(w, x, collx::min{});
        });
        check(w, {1, 2}, {"root is 0 on rank 0 and 3 on rank 1"},
              [&](bool odd) { collx::broadcast(w, x, {.root = odd ? 3 : 0}); });
    });
}

namespace {

struct pixel {
    float red, green, blue;
    friend pixel operator+(const pixel& a, const pixel& b) {
        return {a.red + b.red, a.green + b.green, a.blue + b.blue};
    }
};
struct sample_pair {
    float x, y;
    friend sample_pair operator+(const sample_pair& a, const sample_pair& b) { return {a.x + b.x, a.y + b.y}; }
};

// Sums eight elements of type A, on the odd rank of type B.
template <class A, class B>
void sum_either(collx::communicator& w, bool odd) {
    std::vector<A> a(8, A{});
    std::vector<B> b(8, B{});
    if (odd) collx::all_reduce(w, b);
    else collx::all_reduce(w, a);
}

} // namespace

TEST_CASE("checked: types and operators that collx knows are named, of others only that they differ") {
    on_checked_ranks([](collx::communicator& w) {
        check(w, {2}, {"element type is float on rank 0 and double on rank 2 ("},
              [&](bool odd) { sum_either<float, double>(w, odd); });
        check(w, {1}, {"element type is int64_t on rank 0 and uint8_t on rank 1 ("},
              [&](bool odd) { sum_either<long long, unsigned char>(w, odd); });
        check(w, {3}, {"element type is f16 on rank 0 and bf16 on rank 3 ("},
              [&](bool odd) { sum_either<collx::f16, collx::bf16>(w, odd); });
        check(w, {3}, {"element type is float on rank 0 and e4m3 on rank 3 ("}, [&](bool odd) {
            std::vector<float> x(8);
            if (odd) collx::all_reduce(w.with(collx::wire<collx::e4m3>{}), x);
            else collx::all_reduce(w, x);
        });
        check(w, {2}, {"element type is float on rank 0 and another type on rank 2 ("},
              [&](bool odd) { sum_either<float, pixel>(w, odd); });
        check(w, {1, 3}, {"element type is another type on rank 0 and float on rank 1 ("},
              [&](bool odd) { sum_either<pixel, float>(w, odd); });
        check(w, {2}, {"element type is one type on rank 0 and another type on rank 2 ("},
              [&](bool odd) { sum_either<pixel, sample_pair>(w, odd); });
        std::vector<int> x(8);
        check(w, {1}, {"operator is plus on rank 0 and max on rank 1 ("}, [&](bool odd) {
            if (odd) collx::all_reduce(w, x, collx::max{});
            else collx::all_reduce(w, x);
        });
        check(w, {1}, {"operator is another operator on rank 0 and bit_xor on rank 1 ("}, [&](bool odd) {
            if (odd) collx::all_reduce(w, x, collx::bit_xor{});
            else collx::all_reduce(w, x, [](int a, int b) { return a + b; });
        });
    });
}

TEST_CASE("checked: other collectives and another order") {
    on_checked_ranks([](collx::communicator& w) {
        std::vector<int> x(8), part(2);
        check(w, {1, 2, 3}, {"collective is all_reduce on rank 0 and broadcast on rank 1"}, [&](bool odd) {
            if (odd) collx::broadcast(w, x);
            else collx::all_reduce(w, x);
        });
        check(w, {2}, {"collective is barrier on rank 0 and reduce_scatter on rank 2"}, [&](bool odd) {
            if (odd) collx::reduce_scatter(w, x, part);
            else collx::barrier(w);
        });
        // One rank calls all_gather first and barrier second, the others the reverse: the rank is named at the first
        // call.
        check(w, {3}, {"collective is barrier on rank 0 and all_gather on rank 3"}, [&](bool odd) {
            if (odd) {
                collx::all_gather(w, part, x);
                collx::barrier(w);
            } else {
                collx::barrier(w);
                collx::all_gather(w, part, x);
            }
        });
        check(w, {1}, {"collective is scan on rank 0 and exclusive_scan on rank 1"}, [&](bool odd) {
            if (odd) collx::exclusive_scan(w, x);
            else collx::scan(w, x);
        });
        check(w, {2}, {"collective is all_reduce on rank 0 and split on rank 2"}, [&](bool odd) {
            if (odd) (void)w.split(0);
            else collx::all_reduce(w, x);
        });
        check(w, {1, 2, 3}, {"collective is split on rank 0 and barrier on rank 1"}, [&](bool odd) {
            if (odd) collx::barrier(w);
            else (void)w.split(0);
        });
        check(w, {1}, {"collective is all_reduce on rank 0 and group on rank 1"}, [&](bool odd) {
            collx::group g(w);
            g.all_reduce(x);
            if (odd) g.launch();
            else collx::all_reduce(w, x);
        });
    });
}

TEST_CASE("checked: other policies, by type and by value, and another kind of memory") {
    on_checked_ranks([](collx::communicator& w) {
        std::vector<float> x(1000);
        check(w, {2}, {"policy"}, [&](bool odd) {
            if (odd) collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x);
            else collx::all_reduce(w, x);
        });
        check(w, {2}, {"policy"}, [&](bool odd) { collx::all_reduce(w.with(collx::piece{odd ? 64u : 128u}), x); });
        check(w, {3}, {"element type"}, [&](bool odd) { // the type on the wire
            if (odd) collx::all_reduce(w.with(collx::wire<collx::bf16>{}), x);
            else collx::all_reduce(w, x);
        });
        auto shared = collx::make_shared_vector<float>(w, 1000);
        check(w, {1}, {"kind of memory"}, [&](bool odd) {
            if (odd) collx::all_reduce(w, x);
            else collx::all_reduce(w, shared);
        });
    });
}

TEST_CASE("checked: other tables of counts") {
    on_checked_ranks([](collx::communicator& w) {
        std::vector<int> out(4), mine(1);
        check(w, {3}, {"table of counts"}, [&](bool odd) {
            std::array counts{1, 1, 1, 1};
            if (odd) counts = {0, 2, 1, 1};
            collx::all_gather_v(w, mine, out, counts);
        });
        check(w, {0 + 1}, {"table of counts"}, [&](bool odd) {
            std::array counts{1, 1, 1, 1};
            if (odd) counts = {1, 1, 0, 2};
            collx::reduce_scatter_v(w, out, mine, counts);
        });
    });
}

// Each rank knows only a part of the counts, so they are compared among those who know both ends.
TEST_CASE("checked: private counts that differ are one sentence on all ranks, and nothing has moved") {
    // The sender of the part is blamed, and to itself the receiver.
    const auto differs = [](collx::communicator& w, int sender, const char* text, auto&& call) {
        at("%s", text);
        const auto e = thrown<mismatch>(w, call);
        EXPECT(says(e, text));
        EXPECT(e.rank() == w.rank() && e.sequence() == w.sequence());
        EXPECT(e.peer() == (w.rank() == sender ? 1 - sender : sender));
        collx::barrier(w);
        int one = 1;
        collx::all_reduce(w, collx::value(one));
        EXPECT(one == w.size());
    };
    for (const int ranks_per_host : {0, 1, 2})
        on_hosts(3, {ranks_per_host}, [&](collx::communicator& w) {
            w.set_checked(true);
            const bool odd = w.rank() == 1;
            const std::vector<std::size_t> two{2, 2, 2};
            std::vector<int> mine(odd ? 3 : 2), all(6), part(odd ? 3 : 2), send(7);
            differs(w, 1, "rank 1 sends 3 elements to rank 0, where the counts say 2",
                    [&] { collx::gather_v(w, mine, all, two); });
            differs(w, 0, "rank 0 sends 2 elements to rank 1, where the counts say 3",
                    [&] { collx::scatter_v(w, all, part, two); });
            const std::vector<std::size_t> sent{odd ? 3u : 2u, 2, 2};
            differs(w, 1, "rank 1 sends 3 elements to rank 0, where the counts say 2",
                    [&] { collx::all_to_all_v(w, send, sent, all, two); });
            mine.assign(2, w.rank());
            collx::gather_v(w, mine, all, two);
            EXPECT(w.rank() != 0 || all == std::vector<int>{0, 0, 1, 1, 2, 2});
        });
}

TEST_CASE("checked: calls that are under way, and groups") {
    on_checked_ranks([](collx::communicator& w) {
        std::vector<int> x(10), y(10);
        check(w, {2}, {"count is 10 on rank 0 and 9 on rank 2"},
              [&](bool odd) { collx::async::all_reduce(w, collx::view(x.data(), odd ? 9u : 10u)).wait(); });
        check(w, {1}, {"number of collectives is 1 on rank 0 and 2 on rank 1"}, [&](bool odd) {
            collx::group g(w);
            g.all_reduce(x);
            if (odd) g.all_reduce(y);
            g.launch();
        });
        check(w, {1}, {"in the size or order of its calls"}, [&](bool odd) {
            collx::group g(w);
            if (!odd) g.all_reduce(x);
            g.all_reduce(collx::view(y.data(), std::size_t{5}));
            if (odd) g.all_reduce(x);
            g.launch();
        });
        std::vector<float> z(10);
        check(w, {3}, {"in the verb or element type of a collective"}, [&](bool odd) {
            collx::group g(w);
            g.all_reduce(x);
            if (odd) g.all_reduce(z);
            else g.all_reduce(y);
            g.launch();
        });
        check(w, {1}, {"in the operator of a collective"}, [&](bool odd) {
            collx::group g(w);
            if (odd) g.all_reduce(x, collx::max{});
            else g.all_reduce(x);
            g.launch();
        });
        check(w, {2}, {"root"}, [&](bool odd) {
            collx::group g(w);
            g.broadcast(x, odd ? 1 : 0);
            g.launch();
        });
        check(w, {1}, {"size or order of its calls"}, [&](bool odd) { // the same total of bytes
            collx::group g(w);
            g.all_reduce(collx::view(x.data(), odd ? 4u : 6u));
            g.all_reduce(collx::view(y.data(), odd ? 6u : 4u));
            g.launch();
        });
    });
}

TEST_CASE("checked: ranks of a split communicator are named by their numbers there") {
    on_checked_ranks([](collx::communicator& w) {
        auto back = w.split(0, -w.rank());
        EXPECT(back.is_checked() && back.rank() == 3 - w.rank());
        check(back, {1}, {"root is 0 on rank 0 and 2 on rank 1"}, [&](bool odd) {
            int x = 0;
            collx::broadcast(back, collx::value(x), {.root = odd ? 2 : 0});
        });
    });
}

TEST_CASE("checked: a rank that has left is named, although another rank is late, too") {
    std::atomic<int> through{0};
    std::atomic<bool> has_heard{false};
    on_ranks(3, [&](collx::communicator& w) {
        auto other = std::make_unique<collx::communicator>(w.dup());
        other->set_timeout(patient(std::chrono::seconds(60)));
        other->set_checked(true);
        collx::barrier(*other);
        ++through;
        until([&] { return through == 3; });
        if (w.rank() == 0) {
            const std::int64_t began = collx::now_ns();
            const auto e = thrown<collx::error>(w, [&] { collx::barrier(*other); });
            EXPECT(e.code() == collx::errc::peer_failed && e.peer() == 2);
            EXPECT(collx::now_ns() - began < patient(40'000'000'000));
            has_heard = true;
        } else if (w.rank() == 1) {
            until([&] { return has_heard.load(); });
            EXPECT(true);
        } else {
            other.reset();
            EXPECT(true);
        }
    });
}

TEST_CASE("checking may be switched on and off in step") {
    on_ranks(3, [](collx::communicator& w) {
        for (int i = 0; i < 50; ++i) {
            w.set_checked(i % 3 == 0);
            int x = i;
            collx::all_reduce(w, collx::value(x));
            EXPECT(x == 3 * i);
        }
    });
}

TEST_CASE("unchecked: the error says of long messages how much is expected in all, and no number that is not true") {
    struct alignas(32) wide {
        int v[8];
    };
    struct message {
        std::size_t sent, expected;
        std::string text;
    };
    const std::vector<message> ints = {{5'000, 20'000, "of the 80000 bytes in messages of "},
                                       {50'000, 60'000, "of the 240000 bytes in messages of "},
                                       {500'000, 600'000, "of the 2400000 bytes in messages of "},
                                       {600'000, 3, "another size than this call expects: a message of "},
                                       {100'000, 300, " bytes instead of 1200"}};
    const std::vector<message> wides = {{1, 2, "is not the 64 bytes that this call expects"},
                                        {0, 2, "is not the 64 bytes that this call expects"},
                                        {4, 40, "128 bytes instead of 1280"}};
    const auto compare = []<class T>(const std::vector<message>& all, T) {
        for (const message& m : all)
            on_ranks(2, [&](collx::communicator& w) {
                w.set_checked(false);
                std::vector<T> x(m.sent), y(m.expected);
                if (w.rank() == 0) {
                    (void)thrown<mismatch>(w, [&] {
                        collx::send(w, x, 1);
                        collx::barrier(w);
                    });
                } else {
                    const auto e = thrown<mismatch>(w, [&] { collx::recv(w, y, 0); });
                    at("%zu sent, %zu expected: %s", m.sent, m.expected, e.what());
                    EXPECT(says(e, m.text.c_str()) && !says(e, "113"));
                }
            });
    };
    compare(ints, 0);
    compare(wides, wide{});
}

TEST_CASE("unchecked: a message of another size than expected names its sender") {
    for (const std::size_t sent : {100u, 0u, 10u, 90'000u})
        on_ranks(2, [sent](collx::communicator& w) {
            w.set_checked(false);
            std::vector<int> x(sent), y(50);
            at("sent=%zu", sent);
            if (w.rank() == 0) {
                try {
                    collx::send(w, x, 1); // may complete before the other rank looks
                } catch (const mismatch& e) {
                    EXPECT(e.peer() == 0);
                }
            } else {
                const auto e = thrown<mismatch>(w, [&] { collx::recv(w, y, 0); });
                const std::string came = sent > 10'000 ? "" : std::to_string(sent * sizeof(int)); // else in pieces
                EXPECT(e.peer() == 0 && e.rank() == 1 && says(e, (came + " bytes instead of 200").c_str()) &&
                       says(e, "the part of rank 0 has another size than this call expects"));
            }
            EXPECT(thrown<mismatch>(w, [&] { collx::barrier(w); }).peer() ==
                   0); // a communicator that failed stays failed
        });
}

TEST_CASE("a message of another size: only where calls are not checked does the error say that they can be") {
    for (const bool is_checked : {false, true})
        on_ranks(2, [is_checked](collx::communicator& w) {
            w.set_checked(is_checked);
            at("checked=%d", is_checked);
            std::vector<int> x(100), y(50);
            const auto e = thrown<mismatch>(w, [&] {
                if (w.rank() == 0) collx::send(w, x, 1); // may complete before the other rank looks
                else collx::recv(w, y, 0);
                collx::barrier(w);
            });
            at("checked=%d, says %s", is_checked, e.what());
            EXPECT(e.peer() == 0 && says(e, "in order, root, counts, type or operator"));
            EXPECT(says(e, "set_checked(true)") == !is_checked);
        });
}

TEST_CASE(
    "a call that another rank does not make: only where calls are not checked does the error say that they can be") {
    for (const bool is_checked : {false, true})
        for (const int n : {2, 4}) {
            std::atomic<int> ended{0};
            on_ranks(n, [&](collx::communicator& w) {
                w.set_checked(is_checked);
                w.set_timeout(std::chrono::milliseconds(50));
                if (w.rank() != 0) {
                    std::vector<int> x(100);
                    const auto e = thrown<collx::timed_out>(w, [&] { collx::all_reduce(w, x); });
                    at("checked=%d, says %s", is_checked, e.what());
                    EXPECT(says(e, "set_checked(true)") == !is_checked);
                    ++ended;
                }
                until([&] { return ended == n - 1; });
                EXPECT(ended == n - 1);
            });
        }
}

TEST_CASE("unchecked: other counts over channels are found at the first message") {
    for (const int n : {2, 3, 5})
        on_ranks(n, [n](collx::communicator& w) {
            w.set_checked(false);
            std::vector<int> x(100'000 + (w.rank() == n - 1 ? 1 : 0));
            const auto e = thrown<mismatch>(w, [&] { collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x); });
            EXPECT(e.peer() >= 0 && e.peer() < n && (says(e, "another size") || says(e, "of another call")));
        });
}

// Makes one call on a new communicator, in which the last rank has `more` elements: all ranks get the error.
template <class F>
void check_window(std::size_t elems, F&& f) {
    for (const bool later : {false, true}) {
        std::atomic<int> together{0};
        on_ranks(3, [&](collx::communicator& w) {
            w.set_checked(false);
            w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
            std::vector<int> x(elems + (w.rank() == 2 ? 1 : 0), 1), y(3 * elems + 3);
            const auto call = [&](std::size_t n) { f(w, collx::view(x.data(), n), collx::view(y.data(), 3 * n)); };
            if (later) // uses stages and numbers before
                for (int i = 0; i < 9; ++i) call(elems);
            ++together;
            until([&] { return together == 3; }); // a rank still in the ninth call would get the mismatch there
            const auto e = thrown<mismatch>(w, [&] { call(x.size()); });
            at("%zu elements, later: %d, says %s", elems, later, e.what());
            EXPECT(e.peer() >= 0 && e.peer() < 3 && says(e, "another size than this call expects"));
        });
    }
}

TEST_CASE("unchecked: other counts over windows are found before a rank has a wrong result") {
    using namespace collx::algo;
    for (const std::size_t n : {1u, 10u, 2000u, 40'000u}) { // in lines, in rings, in pieces
        check_window(n, [](auto& w, auto x, auto) { collx::all_reduce(w, x); });
        check_window(n, [](auto& w, auto x, auto) { collx::all_reduce(w.with(one_shot_all_reduce{}), x); });
        check_window(n,
                     [](auto& w, auto x, auto) { collx::async::all_reduce(w.with(two_shot_all_reduce{}), x).wait(); });
        check_window(n, [](auto& w, auto x, auto y) { collx::all_gather(w.with(direct_all_gather{}), x, y); });
        check_window(n, [](auto& w, auto x, auto y) { collx::reduce_scatter(w.with(direct_reduce_scatter{}), y, x); });
        check_window(n, [](auto& w, auto, auto y) {
            std::vector<int> z(y.size());
            collx::all_to_all(w.with(direct_all_to_all{}), y, z);
        });
        check_window(n, [](auto& w, auto x, auto) { collx::scan(w.with(one_shot_scan{}), x); });
    }
}

TEST_CASE("unchecked: another type of the same size, or another of collx's operators, is a mismatch") {
    for (const std::size_t n : {10u, 40'000u, 300'000u}) // in lines, in rings, in slots or by single copy
        for (const int how : {0, 1, 2, 3, 4, 5})
            on_ranks(2, [n, how](collx::communicator& w) {
                w.set_checked(false);
                std::vector<int> x(n, 1);
                std::vector<float> y(n, 1), all_floats(2 * n);
                std::vector<int> all(2 * n);
                const std::array halves{n / 2, n / 2};
                const bool is_odd = w.rank() == 1;
                const auto e = thrown<mismatch>(w, [&] {
                    if (how == 0 && is_odd) collx::all_reduce(w, y);
                    else if (how == 1 && is_odd) collx::all_reduce(w, x, collx::max{});
                    else if (how < 2) collx::all_reduce(w, x);
                    else if (how == 2 && is_odd) collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), y);
                    else if (how == 2) collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x);
                    else if (how == 3 && is_odd) collx::recv(w, y, 0);
                    else if (how == 3) collx::send(w, x, 1);
                    else if (how == 4 && is_odd) collx::gather(w, y, std::vector<float>());
                    else if (how == 4) collx::gather(w, x, all);
                    else if (is_odd) collx::all_to_all_v(w, y, halves, all_floats, halves);
                    else collx::all_to_all_v(w, x, halves, all, halves);
                    collx::barrier(w);
                });
                at("%zu elements, %d, says %s", n, how, e.what());
                EXPECT(says(e, "of another call"));
                if (how == 3 && is_odd && n == 10)
                    EXPECT(says(e, "has the 40 bytes that this call expects, but is of another type"));
            });
    on_ranks(2, [](collx::communicator& w) { // the program's own operators: collx cannot know which are the same
        w.set_checked(false);
        int x = 1;
        if (w.rank() == 0) collx::all_reduce(w, collx::value(x), [](int a, int b) { return a + b; });
        else collx::all_reduce(w, collx::value(x), [](const int& a, const int& b) { return b + a; });
        EXPECT(x == 2);
    });
}

TEST_CASE("unchecked: a short part of another type is refused where it arrives") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> ints(5, w.rank()), all(10, -1);
        std::vector<float> floats(5, 1);
        const auto e = thrown<mismatch>(w, [&] {
            if (w.rank() == 0) return collx::gather(w, ints, all);
            collx::gather(w, floats, std::vector<float>());
            collx::barrier(w);
        });
        EXPECT(e.peer() == 1);
        EXPECT(all[5] == -1);
    });
}

TEST_CASE("unchecked: another algorithm's parameter over windows is a mismatch") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> x(10);
        (void)thrown<mismatch>(w, [&] {
            collx::broadcast(w.with(collx::algo::direct_broadcast{}), x, {.root = w.rank() == 2 ? 1 : 0});
            collx::barrier(w);
        });
    });
}

TEST_CASE("unchecked: private counts that disagree name the peer") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> x(30), y(30);
        std::array send{10, 10, 10}, receive{10, 10, 10};
        if (w.rank() == 1) receive[2] = 9; // but rank 2 sends ten
        const auto e = thrown<mismatch>(w, [&] {
            collx::all_to_all_v(w, x, send, y, receive);
            collx::barrier(w);
        });
        EXPECT(e.peer() == 2);
    });
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> mine(w.rank() == 2 ? 7 : 5), all(15);
        const auto e = thrown<mismatch>(w, [&] {
            collx::gather_v(w, mine, all, std::array{5, 5, 5});
            collx::barrier(w);
        });
        EXPECT(e.peer() == 2);
    });
}

namespace {

// The last rank makes one call differently, then correct calls follow. All received data is right, and within a few
// calls every rank gets the error.
template <class F>
void check_noticed(const char* what, const spread& hosts, F&& call) {
    on_hosts(3, hosts, [&](collx::communicator& w) {
        w.set_checked(false);
        w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
        at("%s, %d hosts", what, hosts.ranks_per_host == 0 ? 1 : 3);
        const auto e = thrown<mismatch>(w, [&] {
            call(w, w.rank() == 2);
            for (int i = 0; i < 40; ++i) {
                std::array x{w.rank() == 0 ? i : -1, 7};
                collx::broadcast(w, x);
                EXPECT_AT(i, x[0] == i);
            }
        });
        at("%s, %d hosts: %s", what, hosts.ranks_per_host == 0 ? 1 : 3, e.what());
        EXPECT(names_odd_part(e));
    });
}
// check_noticed() for calls with buffers of `n` elements, and of three times as many.
template <class F>
void check_buffers(const char* what, std::size_t n, const spread& hosts, F&& call) {
    check_noticed(what, hosts, [&](collx::communicator& w, bool odd) {
        std::vector<int> x(n, 3), y(3 * n);
        call(w, x, y, odd);
    });
}

} // namespace

TEST_CASE("unchecked: what ranks disagreed on once is noticed in the next calls, and no call gets old data") {
    for (const spread& hosts : {spread{}, spread{1}})
        for (const std::size_t n : {12u, 30'000u}) {
            check_buffers("broadcast, root", n, hosts,
                          [](auto& w, auto& x, auto&, bool odd) { collx::broadcast(w, x, {.root = odd ? 2 : 1}); });
            check_buffers("async broadcast, root", n, hosts, [](auto& w, auto& x, auto&, bool odd) {
                collx::async::broadcast(w, x, {.root = odd ? 2 : 1}).wait();
            });
            check_buffers("scatter, root", n, hosts,
                          [](auto& w, auto& x, auto& y, bool odd) { collx::scatter(w, y, x, {.root = odd ? 2 : 0}); });
        }
}

TEST_CASE("unchecked: another number of calls, and tables and groups that differ where no message shows it") {
    for (const spread& hosts : {spread{}, spread{1}}) {
        check_buffers("broadcast, one more", 12, hosts, [](auto& w, auto& x, auto&, bool) {
            if (w.rank() == 0) collx::broadcast(w, x);
        });
        check_buffers(
            "all_gather_v, counts that have the same sum", 12, hosts, [](auto& w, auto& x, auto& y, bool odd) {
                const std::size_t m = x.size(), d = odd ? 1 : 0;
                const std::array counts{m - 1 + d, m - 1 - d, m - 2};
                collx::all_gather_v(w, collx::view(x.data(), counts[static_cast<std::size_t>(w.rank())]), y, counts);
            });
        check_buffers("a group of fewer calls", 12, hosts, [](auto& w, auto& x, auto& y, bool odd) {
            collx::group g(w);
            g.broadcast(collx::view(x.data(), 5u), 0);
            if (!odd) g.broadcast(collx::view(y.data(), 5u), 0);
            g.launch();
        });
        check_buffers("a group with another root", 12, hosts, [](auto& w, auto& x, auto& y, bool odd) {
            collx::group g(w);
            g.broadcast(collx::view(x.data(), 5u), odd ? 1 : 0);
            g.broadcast(collx::view(y.data(), 5u), 0);
            g.launch();
        });
    }
}

TEST_CASE("unchecked: where a rank waits for what no other rank sends it, the time limit ends it") {
    for (const spread& hosts : {spread{}, spread{1}})
        for (const int how : {0, 1, 2})
            on_hosts(3, hosts, [&](collx::communicator& w) {
                w.set_checked(false);
                w.set_timeout(std::chrono::milliseconds(300));
                std::vector<int> x(10, 1), y(30), z(30);
                const collx::call_options o{.root = w.rank() == 2 ? 1 : 0};
                const auto e = thrown<collx::error>(w, [&] {
                    if (how == 0) collx::reduce(w, x, collx::plus{}, o);
                    else if (how == 1) collx::gather(w, x, y, o);
                    else if (w.rank() == 2) collx::all_to_all(w, y, z);
                    else collx::all_gather(w, x, z);
                    collx::barrier(w);
                });
                EXPECT(e.code() == collx::errc::timeout || e.code() == collx::errc::mismatch);
            });
}

TEST_CASE("unchecked: a rank that takes itself for the root of each call is noticed though it waits for no data") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(false);
        w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
        std::array x{w.rank()};
        (void)thrown<mismatch>(w, [&] {
            for (int i = 0; i < 40; ++i) collx::broadcast(w, x, {.root = w.rank()});
        });
    });
}

TEST_CASE("an error of one rank's own that nothing was sent for is no part of what ranks agree on") {
    for (const spread& hosts : {spread{}, spread{1}})
        on_hosts(3, hosts, [](collx::communicator& w) {
            w.set_checked(false);
            std::array x{w.rank() == 0 ? 5 : 0};
            if (w.rank() == 1) (void)thrown<collx::error>(w, [&] { collx::broadcast(w, x, {.root = 9}); });
            collx::broadcast(w, x);
            EXPECT(x[0] == 5);
            collx::barrier(w);
        });
}

TEST_CASE("the time limit of a checked call includes the time in which calls are compared") {
    expect_one_limit(true, [](collx::communicator& w, const auto& in, const collx::call_options& o) {
        std::vector<int> sum(1000);
        collx::all_reduce(w, in, sum, o);
    });
    const std::vector<int> counts{500, 500};
    expect_one_limit(true, [&](collx::communicator& w, const auto& in, const collx::call_options& o) {
        std::vector<int> out(1000);
        collx::all_to_all_v(w, in, counts, out, counts, o);
    });
    expect_one_limit(true, [&](collx::communicator& w, const auto& in, const collx::call_options& o) {
        std::vector<int> out(1000);
        const int other = 1 - w.rank();
        collx::neighbor_all_gather(w, collx::neighbors{{other}, {other}}, in, out, o);
    });
}

TEST_CASE("errors say that one rank compares calls and another does not") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(w.rank() == 1);
        w.set_timeout(collx_test::heard_within(std::chrono::milliseconds(300)));
        std::vector<int> x(10);
        const auto e = thrown<collx::timed_out>(w, [&] { collx::all_reduce(w, x); });
        at("%s", e.what());
        EXPECT(w.rank() != 1 || says(e, "compare calls (set_checked, NDEBUG)") || says(e, "in this call?"));
        EXPECT(w.rank() == 1 || says(e, "set_checked() and NDEBUG must be alike on all ranks"));
    });
}
