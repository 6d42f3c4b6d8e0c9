// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What random programs with failures are made of: their settings, the ways in which a rank fails, and what a program
// leaves open on a communicator while it goes on (a call under way, a persistent group, a window).
#pragma once

#include <array>
#include <atomic>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <collx/collx.hpp>
#include <collx/comm/window.hpp>

#include "faults/hosts.hpp"

namespace collx_test {

using ints = std::vector<int>;
inline constexpr int most_ranks = 6, rounds_with_faults = 2;

enum class fault { killed, killed_in_a_send, leaves, throws, aborts, operator_throws, count };
inline bool survives(fault f) { return f == fault::aborts || f == fault::operator_throws; }

// What ranks say of themselves before they do it; by the number of the rank in the first world.
struct confessions {
    std::atomic<bool> dies[most_ranks], aborts[most_ranks], leaves[most_ranks];
};

struct setting {
    unsigned seed;
    bool are_threads, is_checked, has_thread, destroys_first, destroys_communicators_first;
    cell hosts;
};
inline setting setting_of(unsigned seed, bool are_threads) {
    std::mt19937 random(seed);
    setting s{seed, are_threads, random() % 2 == 0, random() % 4 == 0, random() % 2 == 0, false, {}};
    s.hosts.n = 2 + static_cast<int>(random() % (most_ranks - 1));
    s.hosts.ranks_per_host = std::array{s.hosts.n, 3, 2, 1}[random() % 4];
    s.hosts.is_unix = random() % 3 == 0;
    s.hosts.is_shared = random() % 3 == 0;
    s.destroys_communicators_first = random() % 2 == 0;
    return s;
}

inline void expect_in_program(bool holds, const std::string& what) {
    if (!holds) throw std::logic_error(what);
}

// A call under way, a persistent call or a window. All ranks of its communicator use it at the same steps.
struct open_thing {
    virtual ~open_thing() = default;
    virtual void use(int salt) = 0;
    virtual void finish() = 0;
    // Whether its end waits for those of the peers: then all ranks destroy it in one order.
    virtual bool waits_for_peers() const { return false; }
};
struct open_work final : open_thing {
    open_work(collx::communicator& c, std::size_t m, int salt)
        : x(m, salt + c.rank()), want(c.size() * salt + c.size() * (c.size() - 1) / 2),
          sum(collx::async::all_reduce(c, x)) {}
    void use(int) override { (void)sum.test(); }
    void finish() override {
        sum.wait();
        expect_in_program(x == ints(x.size(), want), "wrong data of an async call");
    }
    ints x;
    int want;
    collx::work<void> sum;
};
struct open_group final : open_thing {
    open_group(collx::communicator& c, std::size_t m)
        : me(c.rank()), n(c.size()), x(m), from_left(3), mine(3, me), all(make(c)) {}
    collx::persistent_call make(collx::communicator& c) {
        collx::persistent::group g(c);
        g.all_reduce(x).send(mine, (me + 1) % n).recv(from_left, (me + n - 1) % n);
        return g.launch();
    }
    void use(int salt) override {
        if (is_under_way) return finish();
        x.assign(x.size(), salt + me);
        want = n * salt + n * (n - 1) / 2;
        all.start();
        is_under_way = true;
    }
    void finish() override {
        if (!std::exchange(is_under_way, false)) return;
        all.wait();
        expect_in_program(x == ints(x.size(), want) && from_left == ints(3, (me + n - 1) % n),
                          "wrong data of a persistent group");
    }
    int me, n, want = 0;
    ints x, from_left, mine;
    bool is_under_way = false;
    collx::persistent_call all;
};
struct open_window final : open_thing {
    open_window(collx::communicator& c, std::size_t m) : me(c.rank()), n(c.size()), x(c, m + 1), counter(c, 1) {}
    void use(int salt) override {
        const int next = (me + 1) % n, previous = (me + n - 1) % n;
        x.put(next, 1, ints(x.size(me) - 1, salt + me));
        x.put_signal(next, 0, salt);
        x.wait(previous);
        counter.accumulate(0, 0, 1);
        for (std::size_t i = 0; i < x.size(me); ++i)
            expect_in_program(x.local()[i] == (i == 0 ? salt : salt + previous), "wrong data in a window");
        counter.fence();
        expect_in_program(counter.get(0, 0) == ++uses * n, "a window has counted wrong");
        finish();
    }
    void finish() override {
        x.fence();
        counter.fence();
    }
    int me, n, uses = 0;
    collx::window<int> x, counter;
};

} // namespace collx_test
