// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What random programs with failures are made of: their settings, the ways in which a rank fails, and what a program
// leaves open on a communicator while it goes on (a call under way, a persistent group, a window).
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <collx/collx.hpp>
#include <collx/comm/any.hpp>
#include <collx/comm/progress.hpp>
#include <collx/comm/window.hpp>

#include "comm/planned_call.hpp"
#include "faults/hosts.hpp"

namespace collx_test {

using ints = std::vector<int>;
inline constexpr int most_ranks = 6, rounds_with_faults = 2;

enum class fault { killed, killed_in_a_send, leaves, throws, aborts, operator_throws, count };
inline bool survives(fault f) { return f == fault::aborts || f == fault::operator_throws; }

// What ranks say of themselves before they do it; by the number of the rank in the first world.
struct confessions {
    std::atomic<bool> dies[most_ranks], aborts[most_ranks], leaves[most_ranks];
    std::atomic<int> begun;              // ranks that have made their communicator
    std::atomic<int> rounds[most_ranks]; // that a rank has ended, with its windows
};

struct setting {
    unsigned seed;
    bool are_threads, is_checked, has_thread, destroys_first, destroys_communicators_first;
    cell hosts;
    bool has_key = false, is_custom = false; // is_custom: over a transport of the test's own
};
inline setting setting_of(unsigned seed, bool are_threads) {
    std::mt19937 random(seed);
    setting s{seed, are_threads, random() % 2 == 0, random() % 4 == 0, random() % 2 == 0, false, {}};
    s.hosts.n = 2 + static_cast<int>(random() % (most_ranks - 1));
    s.hosts.ranks_per_host = std::array{s.hosts.n, 3, 2, 1}[random() % 4];
    s.hosts.is_unix = random() % 3 == 0;
    s.hosts.is_shared = random() % 3 == 0;
    s.destroys_communicators_first = random() % 2 == 0;
    s.hosts.lanes = random() % 3 == 0 ? 3 : 1;
    s.hosts.bad_day = random() % 3 == 0;
    s.hosts.single_copy = static_cast<collx::single_copy_mode>(random() % 3);
    s.has_key = random() % 4 == 0;
    s.is_custom = random() % 4 == 0;
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
// Of any kind of buffer: of a shared vector peers read and write the elements where they are.
template <class X>
struct open_work final : open_thing {
    open_work(collx::communicator& c, X buffer, int salt, bool is_any = false)
        : x(std::move(buffer)), want(c.size() * salt + c.size() * (c.size() - 1) / 2), sum(start(c, salt, is_any)) {}
    collx::work<void> start(collx::communicator& c, int salt, bool is_any) {
        std::fill(x.begin(), x.end(), salt + c.rank());
        return is_any ? collx::any::async::all_reduce(c, collx::as_any(x)) : collx::async::all_reduce(c, x);
    }
    void use(int) override { (void)sum.test(); }
    void finish() override {
        sum.wait();
        for (const int e : x) expect_in_program(e == want, "wrong data of an async call");
    }
    X x;
    int want;
    collx::work<void> sum;
};
// Calls of any verb: one, started at once; or a persistent call or group, which each second use starts, or runs.
class open_calls final : public open_thing {
public:
    enum class kind { once, ready, ready_group };
    open_calls(collx::communicator& c, kind k, std::uint64_t seed, std::size_t most) : c_(c) {
        collx::persistent::group all(c);
        for (std::uint64_t i = 0; i < (k == kind::ready_group ? 1 + seed % 5 : 1); ++i) {
            calls_.push_back(plan_call(c.size(), c.rank(), mixed(seed, i), most));
            if (k == kind::ready_group && !calls_.back()->add_to(all)) calls_.pop_back();
        }
        fill(seed);
        if (k == kind::once) once_.push_back(calls_[0]->start(c));
        else ready_.push_back(k == kind::ready ? calls_[0]->make_ready(c) : all.launch());
        is_under_way_ = k == kind::once;
    }
    void use(int salt) override {
        if (!once_.empty()) return (void)once_[0].test();
        if (is_under_way_) return finish();
        fill(static_cast<unsigned>(salt));
        is_under_way_ = true;
        if (salt % 2 == 0) return ready_[0].start();
        ready_[0]();
        check();
    }
    void finish() override {
        if (!is_under_way_) return;
        if (once_.empty()) ready_[0].wait();
        else once_[0].wait();
        check();
    }

private:
    void fill(std::uint64_t seed) {
        for (std::size_t i = 0; i < calls_.size(); ++i) calls_[i]->fill(mixed(seed, i));
    }
    void check() {
        is_under_way_ = false;
        for (const auto& call : calls_) call->check(c_);
    }
    const collx::communicator& c_;
    std::vector<std::unique_ptr<planned_call>> calls_;
    std::vector<collx::work<void>> once_; // one of these two has an element
    std::vector<collx::persistent_call> ready_;
    bool is_under_way_ = false;
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
// An element of a window that is combined under a lock.
struct three {
    three(int v = 0) : a(v), b(v), c(v) {}
    int a, b, c;
    bool operator==(const three&) const = default;
    friend three operator+(const three& x, const three& y) { return three(x.a + y.a); }
};
// Memory of the program under windows. It stays until all ranks have ended their windows.
template <class T>
struct memory_of_windows {
    static inline std::mutex lock;
    static inline std::vector<collx::shared_vector<T>> all;
    static collx::shared_vector<T>& make(collx::communicator& c, std::size_t m) {
        const std::lock_guard here(lock);
        all.reserve(1000); // places do not move
        return all.emplace_back(collx::make_shared_vector<T>(c, m));
    }
    static void clear() { all.clear(); }
};
template <class T>
struct open_window final : open_thing {
    open_window(collx::communicator& c, std::size_t m, bool has_thread)
        : me(c.rank()), n(c.size()), x(c, m + 1), counter(c, 1) {
        if (has_thread) x.with(collx::progress::thread{});
    }
    // In memory of the program.
    explicit open_window(collx::communicator& c, std::size_t m)
        : me(c.rank()), n(c.size()), x(c, memory_of_windows<T>::make(c, m + 1)), counter(c, 1) {}
    void use(int salt) override {
        const int next = (me + 1) % n, previous = (me + n - 1) % n;
        x.put(next, 1, std::vector<T>(x.size(next) - 1, T(salt + me)));
        x.put_signal(next, 0, T(salt));
        x.wait(previous);
        counter.accumulate(0, 0, T(1));
        for (std::size_t i = 0; i < x.size(me); ++i)
            expect_in_program(x.local()[i] == T(i == 0 ? salt : salt + previous), "wrong data in a window");
        counter.fence();
        expect_in_program(counter.get(0, 0) == T(++uses * n), "a window has counted wrong");
        finish();
    }
    void finish() override {
        x.fence();
        counter.fence();
    }
    int me, n, uses = 0;
    collx::window<T> x, counter;
};

} // namespace collx_test
