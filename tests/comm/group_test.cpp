// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=thread,nightly
//
// Many calls as one exchange: the results equal those of separate calls.
#include "support.hpp"
#include "support/caught_stderr.hpp"
#include "support/one_limit.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace collx_test;

namespace {

void check_group(collx::communicator& w) {
    const int n = w.size();
    for (int round = 0; round < 3; ++round) {
        at("n=%d round=%d", n, round);
        std::vector<std::vector<int>> sums;
        std::vector<float> mean(7 + 300 * static_cast<std::size_t>(round), static_cast<float>(n * w.rank()));
        std::vector<char> letters(5, static_cast<char>('a' + w.rank()));
        std::vector<short> parts(static_cast<std::size_t>(n) * 3);
        const std::vector<short> part(3, static_cast<short>(w.rank()));
        long largest = w.rank();
        double at_root = 1;
        collx::group g(w);
        for (std::size_t k = 0; k < 20; ++k)
            sums.push_back(samples(w.rank(), k * k * static_cast<std::size_t>(round + 1)));
        for (auto& s : sums) g.all_reduce(s);
        g.all_reduce(mean, collx::average{});
        g.broadcast(letters, n - 1);
        g.all_gather(part, parts);
        g.all_reduce(collx::value(largest), collx::max{});
        g.reduce(collx::value(at_root), n / 2);
        // The element counts put the operands of the next call at arbitrary offsets.
        const std::size_t m = 2 * static_cast<std::size_t>(round) + 1, all = m * static_cast<std::size_t>(n);
        const std::vector<int> whole = samples(w.rank(), all);
        std::vector<int> my_part(m), exchanged(all), upto_me = samples(w.rank(), m), before_me = upto_me;
        g.reduce_scatter(whole, my_part);
        g.all_to_all(whole, exchanged);
        g.scan(upto_me);
        g.exclusive_scan(before_me);
        EXPECT(g.size() == 29);
        g.launch();
        EXPECT(g.size() == 0);
        for (auto& s : sums)
            for (std::size_t i = 0; i < s.size(); ++i) EXPECT_AT(i, s[i] == folded(i, 0, n));
        EXPECT(mean.back() == static_cast<float>(n * (n - 1) / 2));
        EXPECT(letters.back() == 'a' + n - 1 && largest == n - 1 && at_root == (w.rank() == n / 2 ? n : 1));
        for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_AT(i, parts[i] == static_cast<short>(i / 3));
        const std::size_t mine = m * static_cast<std::size_t>(w.rank());
        for (std::size_t i = 0; i < m; ++i) {
            EXPECT_AT(i, my_part[i] == folded(mine + i, 0, n));
            EXPECT_AT(i, upto_me[i] == folded(i, 0, w.rank() + 1));
            EXPECT_AT(i, before_me[i] == (w.rank() == 0 ? samples(0, m)[i] : folded(i, 0, w.rank())));
        }
        for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k)
            for (std::size_t i = 0; i < m; ++i)
                EXPECT_AT(i, exchanged[k * m + i] == samples(static_cast<int>(k), all)[mine + i]);
    }
}

} // namespace

TEST_CASE("the roots of many calls are compared, and their sum may be larger than a number") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(true);
        std::vector<int> x(20, w.rank());
        collx::group g(w);
        for (int& v : x) g.broadcast(collx::value(v), 2);
        g.launch(); // a signed sum of the roots would overflow, which UndefinedBehaviorSanitizer reports
        EXPECT(x == std::vector<int>(20, 2));
        for (int& v : x) g.broadcast(collx::value(v), &v == &x[3] && w.rank() == 1 ? 1 : 2);
        EXPECT(std::string(thrown<collx::mismatch>(w, [&] { g.launch(); }).what()).find("root") != std::string::npos);
    });
}

TEST_CASE("a group does what its calls would do one by one") {
    for (const int n : rank_counts) on_ranks(n, check_group);
    for (const spread& s : {spread{1}, spread{2}, spread{1, true}, spread{3, false, false, true}})
        for (const int n : {2, 3, 5, 8}) on_hosts(n, s, check_group);
}

TEST_CASE("a group may be written as one chain, and launched or made ready with it") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(4, 1), whole(6, w.rank()), part(2), theirs(1), mine(1, w.rank());
        const int n = w.size(), next = (w.rank() + 1) % n, last = (w.rank() + n - 1) % n;
        collx::group(w).send(mine, next).recv(theirs, last).all_reduce(x).reduce_scatter(whole, part).launch();
        EXPECT(x[3] == 3 && part[1] == 3 && theirs[0] == last);
        auto again = collx::persistent::group(w).scan(x).broadcast(whole, 2).launch();
        again();
        EXPECT(x[3] == 3 * (w.rank() + 1) && whole[5] == 2);
        again();
        EXPECT(x[3] == (w.rank() == 0 ? 3 : w.rank() == 1 ? 9 : 18));
        collx::group named(w); // so may one that has a name
        named.broadcast(mine, 1).all_reduce(part);
        named.all_reduce(theirs).launch();
        EXPECT(mine[0] == 1 && part[0] == 9 && theirs[0] == 3);
    });
}

TEST_CASE("the sizes of a group's calls are checked when they are added") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> three(3), four(4);
        collx::group g(w);
        const auto refused = [&](auto&& f, const char* text) {
            try {
                f();
            } catch (const collx::error& e) {
                EXPECT(std::string(e.what()).find(text) != std::string::npos);
                return;
            }
            fail_check(text);
        };
        refused([&] { g.reduce_scatter(four, three); }, "the output buffer has 3 elements and needs 2");
        refused([&] { g.all_to_all(three, three); }, "3 elements do not divide among 2 ranks");
        refused([&] { g.reduce(four, 2); }, "root 2");
        EXPECT(g.size() == 0);
    });
}

TEST_CASE("small collectives of a group cross hosts together") {
    on_hosts(4, spread{1}, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<std::vector<int>> x(50, std::vector<int>(10, w.rank()));
        const auto messages = [&] {
            std::uint64_t sent = 0;
            for (int p = 0; p < w.size(); ++p) sent += w.internals().net.sent_to(p).messages;
            return sent;
        };
        collx::group g(w);
        for (auto& v : x) g.all_reduce(v);
        const std::uint64_t before = messages();
        g.launch({.timeout = collx_test::patient(std::chrono::seconds(20))});
        const std::uint64_t together = messages() - before;
        for (auto& v : x) EXPECT(v[9] == 6);
        EXPECT(together > 0);
        EXPECT(together <= 4);
        // Calls that are too large to share a message run alone, in their turn.
        std::vector<std::vector<int>> y;
        for (const std::size_t m : {10u, 300'000u, 20u, 17'000u, 1u, 2u}) y.push_back(samples(w.rank(), m));
        for (auto& v : y) g.all_reduce(v);
        g.launch();
        for (auto& v : y)
            for (std::size_t i = 0; i < v.size(); ++i) EXPECT_AT(i, v[i] == folded(i, 0, 4));
    });
}

TEST_CASE("groups that differ are found across hosts, with and without comparing") {
    for (const bool is_checked : {true, false})
        on_hosts(3, spread{1}, [=](collx::communicator& w) {
            w.set_checked(is_checked);
            std::vector<int> x(10, 1), y(w.rank() == 2 ? 30 : 20, 1);
            collx::group g(w);
            g.all_reduce(x);
            g.all_reduce(y);
            const auto e = thrown<collx::mismatch>(w, [&] { g.launch(); });
            EXPECT(e.code() == collx::errc::mismatch);
        });
}

TEST_CASE("a group larger than one exchange is cut, and calls larger than one exchange go alone") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<std::vector<int>> x;
        for (const std::size_t size : {100'000u, 1u, 200'000u, 1'000'000u, 5u, 90'000u, 90'000u, 90'000u})
            x.push_back(samples(w.rank(), size));
        collx::group g(w);
        for (auto& v : x) g.all_reduce(v);
        g.launch();
        for (auto& v : x)
            for (std::size_t i = 0; i < v.size(); ++i) EXPECT_AT(i, v[i] == folded(i, 0, 3));
    });
}

TEST_CASE("a group may hold types that need more alignment than others") {
    struct alignas(32) wide {
        double a[4];
    };
    on_ranks(2, [](collx::communicator& w) {
        std::vector<wide> x(3, wide{{1, 2, 3, 4}});
        std::vector<char> odd(3, 1);
        double y = 2;
        collx::group g(w);
        g.all_reduce(odd);
        g.all_reduce(x, [](const wide& a, const wide& b) { return wide{{a.a[0] + b.a[0], b.a[1], a.a[2], a.a[3]}}; });
        g.all_reduce(collx::value(y));
        g.launch();
        EXPECT(x[2].a[0] == 2 && x[2].a[3] == 4 && odd[2] == 2 && y == 4);
    });
}

TEST_CASE("operators that do not commute keep their order, strided buffers their gaps, empty groups do nothing") {
    on_ranks(4, [](collx::communicator& w) {
        long digits = w.rank() + 1;
        std::vector<int> x(10, -1);
        for (std::size_t i = 0; i < 10; i += 2) x[i] = 1;
        collx::group g(w);
        g.launch();
        g.all_reduce(collx::value(digits), [](long a, long b) { return a * 10 + b; });
        g.all_reduce(collx::strided(x.data(), 5, 2));
        g.launch();
        g.launch();
        EXPECT(digits == 1234 && x[8] == 4 && x[9] == -1);
    });
}

TEST_CASE("groups and other calls follow each other") {
    on_ranks(4, [](collx::communicator& w) {
        for (int i = 0; i < 200; ++i) {
            int a = i, b = 1, c = w.rank();
            collx::group g(w);
            g.all_reduce(collx::value(a));
            g.all_reduce(collx::value(b));
            collx::broadcast(w, collx::value(c), {.root = i % 4}); // a call between collecting and launching
            g.launch();
            EXPECT(a == 4 * i && b == 4 && c == i % 4);
        }
    });
}

namespace {

// The data from rank `from` to rank `to`: ten short vectors, three letters, two strided numbers.
struct parcel {
    parcel() = default;
    parcel(int from, int to) {
        for (int i = 0; i < 10; ++i) ints.push_back(samples(from * 3 + to + i, static_cast<std::size_t>(i)));
        for (std::size_t i = 0; i < 3; ++i) letters[i] = static_cast<char>('a' + from + to);
        numbers[0] = from;
        numbers[2] = to;
    }
    static parcel empty() {
        parcel p;
        for (std::size_t i = 0; i < 10; ++i) p.ints.emplace_back(i, -1);
        return p;
    }
    std::vector<std::vector<int>> ints;
    char letters[3] = {};
    double numbers[3] = {0, -1, 0};
    bool operator==(const parcel&) const = default;
};

} // namespace

TEST_CASE("all that goes to one peer in a group leaves as one message") {
    for (const spread& hosts : {spread{}, spread{1}, spread{2}, spread{2, true}})
        on_hosts(4, hosts, [](collx::communicator& w) {
            w.set_checked(false);
            const int n = w.size(), me = w.rank();
            for (int round = 0; round < 3; ++round) {
                at("round %d", round);
                std::vector<parcel> out, in;
                std::vector<std::uint64_t> sent;
                collx::group g(w);
                for (int k = 0; k < n; ++k) { // also to itself
                    out.emplace_back(me + round, k);
                    in.push_back(parcel::empty());
                    sent.push_back(w.sent_to(k).messages);
                }
                for (int k = 0; k < n; ++k) {
                    auto& o = out[static_cast<std::size_t>(k)];
                    auto& i = in[static_cast<std::size_t>(k)];
                    for (const auto& v : o.ints) g.send(v, k);
                    g.recv(i.ints[0], k);
                    g.send(o.letters, k);
                    g.send(collx::strided(o.numbers, 2, 2), k);
                    for (std::size_t j = 1; j < 10; ++j) g.recv(i.ints[j], k);
                    g.recv(i.letters, k);
                    g.recv(collx::strided(i.numbers, 2, 2), k);
                }
                EXPECT(g.size() == 24u * static_cast<unsigned>(n));
                g.launch();
                EXPECT(g.size() == 0);
                for (int k = 0; k < n; ++k) {
                    const auto u = static_cast<std::size_t>(k);
                    EXPECT_AT(k, in[u] == parcel(k + round, me));
                    EXPECT_AT(k, w.sent_to(k).messages - sent[u] == 1);
                }
            }
        });
}

TEST_CASE("transfers of a group that do not fit a slot go in their turn") {
    for (const spread& hosts : {spread{}, spread{1}})
        on_hosts(2, hosts, [](collx::communicator& w) {
            w.set_checked(false);
            const std::size_t slot = w.internals().net.slot_bytes() / sizeof(int);
            const int other = 1 - w.rank();
            std::vector<std::vector<int>> out, in;
            for (const std::size_t size : {std::size_t{5}, slot, slot + 1, slot / 2, slot / 2, slot / 2, 3 * slot,
                                           std::size_t{0}, std::size_t{1}, std::size_t{7}}) {
                out.push_back(samples(w.rank() + static_cast<int>(out.size()), size));
                in.emplace_back(size, -1);
            }
            const auto before = w.sent_to(other).messages;
            collx::group g(w);
            for (auto& v : out) g.send(v, other);
            for (auto& v : in) g.recv(v, other);
            g.launch();
            // 5 | slot | alone | half half | half | alone | 0 1 7
            if (!w.internals().net.is_one_host())
                EXPECT_AT(w.sent_to(other).messages - before, w.sent_to(other).messages - before == 5 + 2 + 3);
            for (std::size_t k = 0; k < in.size(); ++k)
                EXPECT_AT(k, in[k] == samples(other + static_cast<int>(k), in[k].size()));
        });
}

TEST_CASE("transfers of a group, its collectives, and messages before and after it") {
    for (const spread& hosts : {spread{}, spread{2}})
        on_hosts(4, hosts, [](collx::communicator& w) {
            const int next = (w.rank() + 1) % 4, last = (w.rank() + 3) % 4;
            for (int round = 0; round < 20; ++round) {
                std::vector<int> sum(500, 1), mine = samples(w.rank(), 300), got(300);
                int a = round, b = -1, c = w.rank(), d = -1, first = -1, after = -1;
                auto early = collx::async::send(w, collx::value(c), next); // keeps its place before the group
                auto here = collx::async::recv(w, collx::value(first), last);
                collx::group g(w);
                g.recv(got, last);
                g.all_reduce(sum);
                g.send(mine, next);
                g.send(collx::value(a), next);
                g.broadcast(collx::value(c), 3);
                g.recv(collx::value(b), last);
                g.launch();
                collx::sendrecv(w, collx::value(a), next, collx::value(after), last);
                early.wait();
                here.wait();
                collx::sendrecv(w, collx::value(b), last, collx::value(d), next);
                EXPECT(got == samples(last, 300) && sum[499] == 4 && b == round && c == 3 && first == last);
                EXPECT(after == round && d == round);
            }
        });
}

TEST_CASE("groups of two ranks that do not fit each other: an error that names the peer") {
    const auto refused = [](auto&& sends, auto&& receives) {
        on_ranks(2, [&](collx::communicator& w) {
            const auto e = thrown<collx::mismatch>(w, [&] {
                collx::group g(w);
                if (w.rank() == 0) sends(g);
                else receives(g);
                g.launch();
                collx::barrier(w);
            });
            EXPECT(e.peer() == 0);
        });
    };
    int x[10] = {};
    float f[10] = {};
    refused( // the same total of bytes
        [&](auto& g) {
            g.send(collx::view(x, 3), 1);
            g.send(collx::view(x, 5), 1);
        },
        [&](auto& g) {
            g.recv(collx::view(x, 5), 0);
            g.recv(collx::view(x + 5, 3), 0);
        });
    refused([&](auto& g) { g.send(x, 1); }, [&](auto& g) { g.recv(f, 0); });
    refused(
        [&](auto& g) {
            g.send(x, 1);
            g.send(f, 1);
        },
        [&](auto& g) { g.recv(x, 0); });
    on_ranks(2, [](collx::communicator& w) { // an invalid rank is found before any data moves
        collx::group g(w);
        int y = 1;
        const auto e = thrown<collx::error>(w, [&] { g.send(collx::value(y), 2); });
        EXPECT(e.code() == collx::errc::invalid_argument && g.size() == 0);
    });
}

TEST_CASE("between hosts a group returns though another call, under way, has no room at its receiver") {
    std::atomic<int> returned{0};
    on_hosts(2, spread{1}, [&](collx::communicator& w) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(40)));
        w.set_checked(false);
        auto x = samples(0, 16'000'000); // many times what the slots of a channel hold
        if (w.rank() == 1) x.assign(x.size(), 0);
        auto work = collx::async::broadcast(w, x);
        const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (std::chrono::steady_clock::now() < soon)
            if (w.rank() == 0) (void)w.progress(); // fills the slots that are free
        int mine = w.rank(), other = -1;
        collx::group g(w);
        g.send(collx::value(mine), 1 - w.rank());
        g.recv(collx::value(other), 1 - w.rank());
        g.launch();
        ++returned; // the rank that finishes first makes no other call before the other rank has returned, too
        until([&] { return returned == 2; });
        EXPECT(other == 1 - w.rank());
        work.wait();
        EXPECT(x == samples(0, x.size()));
    });
}

TEST_CASE("a group that is destroyed without launch() says so; checked, the others hear of it at once") {
    for (const spread& hosts : {spread{}, spread{1}})
        for (const bool is_checked : {false, true}) {
            caught_stderr caught;
            on_hosts(2, hosts, [&](collx::communicator& w) {
                w.set_checked(is_checked);
                int x = w.rank(), y = 1;
                if (w.rank() == 1) {
                    collx::group g(w);
                    g.broadcast(collx::value(x), 0);
                    g.send(collx::value(y), 0);
                    auto moved = std::move(g);
                }
                const auto meet = [&] {
                    for (int i = 0; i < 2; ++i) collx::barrier(w);
                };
                if (!is_checked) meet();
                EXPECT(!is_checked || thrown<collx::aborted>(w, meet).peer() == 1);
                EXPECT(x == w.rank()); // the call was not made
            });
            CHECK(caught.text() ==
                  std::string("collx: warning: rank 1: a group was destroyed without launch(): none of "
                              "its 2 calls was made, the first is broadcast (call launch()") +
                      (is_checked ? "; checked, this ends the communicator)\n" : ")\n"));
        }
}

TEST_CASE("a group that is not launched says so when another takes its place") {
    caught_stderr caught;
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        int x = 1, y = 1;
        collx::group g(w), other(w);
        if (w.rank() == 1) g.all_reduce(collx::value(x));
        other.all_reduce(collx::value(y));
        g = std::move(other);
        g.launch();
        EXPECT(x == 1 && y == 2);
    });
    CHECK(caught.text() == "collx: warning: rank 1: a group was destroyed without launch(): none of its 1 calls was "
                           "made, the first is all_reduce (call launch())\n");
}

TEST_CASE(
    "a group says nothing that was launched, is empty, is left by an exception or with a communicator that ended") {
    caught_stderr caught;
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        auto other = w.dup();
        int x = 1;
        const auto add = [&](collx::group& g) { g.all_reduce(collx::value(x)); };
        { collx::group empty(w); }
        {
            collx::group launched(w);
            add(launched);
            launched.launch();
        }
        (void)thrown<int>(w, [&] {
            collx::group left(w);
            add(left);
            throw 1;
        });
        collx::barrier(w);
        collx::group later(other);
        add(later);
        (void)thrown<collx::error>(w, [&] { later.launch({.timeout = std::chrono::nanoseconds(-1)}); });
        EXPECT(later.size() == 1 && x == 2); // can still be launched
        if (w.rank() == 0) other.abort();
        (void)thrown<collx::aborted>(w, [&] { collx::barrier(other); });
    });
    CHECK(caught.text().empty());
}

TEST_CASE("a persistent group stays what it was when its communicator object moves") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(2, {ranks_per_host}, [](collx::communicator& w) {
            auto made = std::make_unique<collx::communicator>(w.dup());
            std::vector<int> x(10, 1), big(400'000, 1); // the second goes alone
            int seed = w.rank();
            collx::persistent::group g(*made);
            g.all_reduce(x);
            g.broadcast(collx::value(seed), 1);
            g.all_reduce(big);
            auto step = g.launch();
            collx::communicator moved = std::move(*made);
            made.reset();
            step();
            step();
            EXPECT(x[9] == 4 && seed == 1 && big[399'999] == 4);
        });
}

TEST_CASE("a group whose communicator was replaced is refused: its calls name ranks that the new one may not have") {
    const auto check = [](auto make_group) {
        on_ranks(3, [&](collx::communicator& world) {
            auto w = world.dup();
            w.set_checked(false);
            std::vector<int> mine(4, w.rank()), all(12, -1);
            auto g = make_group(w);
            g.send(mine, 2);
            g.all_gather(mine, all);
            w = world.split(world.rank() == 2 ? 1 : 0); // as world = world.shrink()
            (void)refused(
                w, [&] { (void)g.launch(); }, collx::errc::invalid_argument, "for another communicator");
            EXPECT(g.size() == 0 && all == std::vector<int>(12, -1));
            g.all_reduce(mine); // it may collect others
            if constexpr (std::is_void_v<decltype(g.launch())>) g.launch();
            else g.launch()();
            EXPECT(mine[0] == (world.rank() == 2 ? 2 : 1));
            collx::barrier(world);
        });
    };
    check([](collx::communicator& c) { return collx::group(c); });
    check([](collx::communicator& c) { return collx::persistent::group(c); });
}

TEST_CASE("what a group refuses leaves none of its transfers under way") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        std::vector<int> x(w.rank() == 1 ? 5 : 4), mine(400'000, w.rank()), theirs(400'000);
        collx::group g(w);
        g.all_reduce(x);
        g.send(mine, 1 - w.rank());
        g.recv(theirs, 1 - w.rank());
        (void)thrown<collx::mismatch>(w, [&] { g.launch(); });
        collx::barrier(w);
        g.send(mine, 1 - w.rank());
        g.recv(theirs, 1 - w.rank());
        g.launch();
        EXPECT(theirs[399'999] == 1 - w.rank());
        struct block {
            char bytes[8 << 20];
        };
        auto large = std::make_unique<block>();
        const auto e = thrown<collx::error>(w, [&] {
            if (w.rank() == 0) g.send(collx::view(large.get(), 1), 1);
            else g.recv(collx::view(large.get(), 1), 0);
        });
        EXPECT(e.code() == collx::errc::unsupported && says(e, "does not fit a slot") && g.size() == 0);
        collx::barrier(w);
    });
}

TEST_CASE("calls of a group that use the same memory are refused where one writes it, whatever their order and size") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(100, 1), y(200, 2), small(1, 3);
        const int other = 1 - w.rank();
        const auto part = [](std::vector<int>& v, std::size_t first, std::size_t n) {
            return collx::view(v.data() + first, n);
        };
        collx::group g(w);
        collx::persistent::group ready(w);
        const auto is_refused = [&](const char* what, auto&& add) {
            at("%s", what);
            add(g);
            add(ready);
            for (const auto& e :
                 {thrown<collx::error>(w, [&] { g.launch(); }), thrown<collx::error>(w, [&] { (void)ready.launch(); })})
                EXPECT(e.code() == collx::errc::invalid_argument && says(e, what) && says(e, "have no order"));
            EXPECT(g.size() == 0 && ready.size() == 0);
        };
        is_refused("call 1 of this group (all_reduce) writes memory that call 2 (all_reduce) uses, too", [&](auto& to) {
            to.all_reduce(x);
            to.all_reduce(x, collx::max{});
        });
        is_refused("call 2 of this group (all_reduce) writes memory that call 3 (scan) uses, too", [&](auto& to) {
            to.all_reduce(small);
            to.all_reduce(part(x, 50, 50));
            to.scan(part(x, 99, 1));
        });
        is_refused("call 1 of this group (all_gather) writes memory that call 2 (send) uses, too", [&](auto& to) {
            to.all_gather(x, y);
            to.send(part(y, 199, 1), other);
            to.recv(small, other);
        });
        is_refused("call 3 of this group (recv) writes memory that call 1 (all_gather) uses, too", [&](auto& to) {
            to.all_gather(x, y);
            to.send(small, other);
            to.recv(part(x, 0, 1), other);
        });
        // The inputs of several calls, added from the last address to the first.
        is_refused("call 9 of this group (recv) writes memory that call 5 (send) uses, too", [&](auto& to) {
            for (std::size_t k = 8; k-- > 0;) to.send(part(x, 10 * k, 10), other);
            to.recv(part(x, 39, 1), other);
        });
    });
}

TEST_CASE("calls of a group may read the same memory, and their buffers may touch") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(90, w.rank()), all(270), parts(90), y(30, 1);
        collx::group g(w);
        g.all_gather(x, all);
        g.all_to_all(x, parts);
        for (std::size_t k = 3; k-- > 0;)
            g.all_reduce(collx::view(y.data() + 10 * k, 10)); // from the last to the first
        g.reduce(collx::view(x.data(), 0), 0);
        g.all_reduce(collx::view(x.data(), 0));
        std::vector<int> seed(4, w.rank());
        g.broadcast(seed, w.size() - 1);
        if (w.rank() == 0) { // a root only reads what it sends
            g.send(x, 1);
            g.send(x, 2);
        }
        std::vector<int> from(90);
        if (w.rank() != 0) g.recv(from, 0);
        g.launch();
        EXPECT(all[269] == 2 && parts[89] == 2 && y[0] == 3 && y[29] == 3 && seed[3] == 2 && from[89] == 0);
        // The root's buffer is an input, so other calls may read it there.
        collx::group h(w);
        std::vector<int> whole(12, w.rank() + 1), copy(36);
        std::vector<int> theirs(12);
        h.broadcast(w.rank() == 0 ? whole : theirs, 0);
        h.all_gather(whole, copy);
        h.launch();
        EXPECT(copy[0] == 1 && copy[35] == 3 && (w.rank() == 0 || theirs[11] == 1));
    });
}

TEST_CASE("what no algorithm can make is refused when it is added, before anything is under way") {
    for (const int per_host : {0, 1})
        on_hosts(2, {per_host}, [per_host](collx::communicator& w) {
            const int other = 1 - w.rank();
            std::vector<int> mine(400'000, w.rank()), theirs(400'000), sum{1}, long_scan(300'000, 1), short_scan{1};
            struct block {
                char bytes[8 << 20];
            };
            const auto large = std::make_unique<block>();
            const auto shifted = collx::with_post(collx::plus{}, [](int v) { return v + 1; });
            collx::group g(w);
            g.send(mine, other);
            g.recv(theirs, other);
            g.all_reduce(sum);
            const auto e = thrown<collx::error>(w, [&] { g.broadcast(collx::value(*large), 0); });
            EXPECT(e.code() == collx::errc::unsupported && says(e, "does not fit a slot"));
            if (per_host == 0) g.scan(long_scan, shifted);
            else EXPECT(says(thrown<collx::error>(w, [&] { g.scan(long_scan, shifted); }), "no post hook"));
            collx::barrier(w);
            EXPECT(sum[0] == 1 && theirs[0] == 0);
            g.launch();
            EXPECT(sum[0] == 2 && theirs[399'999] == other);
            collx::group(w).scan(short_scan, shifted).launch(); // goes with what all publish, also across hosts
            EXPECT(short_scan[0] == w.rank() + 2);
        });
}

TEST_CASE("the time limit of a group is for all its parts together") {
    expect_one_limit(false, [](collx::communicator& w, const auto& in, const collx::call_options& o) {
        std::vector<int> large(300'000, 1), all(2000);
        collx::group(w).all_reduce(large).all_gather(in, all).launch(o); // the large one goes alone, first
    });
    expect_one_limit(false, [](collx::communicator& w, const auto& in, const collx::call_options& o) {
        std::vector<int> x(10), y(1000);
        collx::group g(w);
        g.all_reduce(x);
        if (w.rank() == 0) g.recv(y, 1);
        g.launch(o);
        if (w.rank() == 1) collx::send(w, in, 0);
    });
}
