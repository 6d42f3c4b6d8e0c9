// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's part of a random program: several communicators are alive at once, blocking, async, persistent and grouped
// calls are under way together, and each rank waits for them in another order. From the seed every rank computes what
// it must get.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <collx/comm/progress.hpp>
#include <collx/comm/wait_several.hpp>
#include <collx/comm/window.hpp>

#include "comm/planned_call.hpp"

namespace collx_test {

using planned = std::unique_ptr<planned_call>;

// A communicator of the program. Also known to the ranks that are not in it.
struct place {
    struct flying {
        planned call;
        collx::work<void> work;
    };
    struct repeated {
        std::vector<planned> calls; // several of a group
        collx::persistent_call ready;
        bool is_started = false;
    };
    std::vector<int> members; // ranks of the world
    std::unique_ptr<collx::communicator> comm;
    std::vector<flying> under_way;
    std::vector<repeated> kept;
    int made_ready = 0;
};

class random_program {
public:
    random_program(collx::communicator& world, std::uint64_t seed)
        : w(world), all_{seed}, own_{mixed(seed, 77, static_cast<unsigned>(world.rank()))} {}

    void run(int steps) {
        place world;
        world.members.resize(static_cast<std::size_t>(w.size()));
        std::iota(world.members.begin(), world.members.end(), 0);
        world.comm = std::make_unique<collx::communicator>(w.dup());
        places_.push_back(std::move(world));
        for (step_ = 0; step_ < steps; ++step_) step();
        wait_for_all();
        for (auto& p : places_) p.kept.clear();
        while (!places_.empty()) places_.pop_back();
        EXPECT(true);
    }

private:
    static constexpr std::size_t no_limit = ~std::size_t{0}, most_places = 12;
    static constexpr int most_ready = 6;

    void say(const char* what, const std::string& which = "") { at("step %d: %s %s", step_, what, which.c_str()); }
    static planned plan(const place& p, std::uint64_t s, std::size_t most = no_limit) {
        return plan_call(p.comm->size(), p.comm->rank(), s, most);
    }

    // What all ranks decide alike comes from all_. Ranks that are not in the communicator do no more.
    void step() {
        const std::uint64_t s = mixed(all_.seed, 1000, static_cast<unsigned>(step_));
        const std::size_t which = all_.below(places_.size()), what = all_.below(20), detail = all_.below(6);
        place& p = places_[which];
        const bool is_in = p.comm != nullptr;
        if (what < 6) {
            if (is_in) make_call(p, s, detail);
        } else if (what < 11) {
            if (is_in) start_call(p, s);
        } else if (what < 14) {
            const bool is_kept = what == 13 || detail < 2;
            if (is_kept && p.made_ready++ >= most_ready) return;
            if (!is_in) return;
            if (what == 13) keep_call(p, s);
            else make_group(p, s, is_kept);
        } else if (what < 16) {
            if (is_in) run_kept(p, s, detail < 3);
        } else if (what == 16) {
            if (is_in) wait_in(p);
        } else if (what == 17) {
            wait_for_all();
        } else if (what == 18) {
            if (places_.size() < most_places) split(which, s);
            else end(1 + s % (places_.size() - 1));
        } else if (is_in) {
            use_window(p, s);
        }
    }

    void make_call(place& p, std::uint64_t s, std::size_t detail) {
        const bool is_bound = detail < 2;
        const auto c = plan(p, s, is_bound ? 5000 : no_limit); // not too many pieces
        say("make", c->text);
        c->fill(s);
        if (is_bound) {
            auto bound = p.comm->with(collx::piece{64 + detail * 500});
            c->make(bound);
        } else {
            c->make(*p.comm);
        }
        c->check(*p.comm);
    }
    void start_call(place& p, std::uint64_t s) {
        auto c = plan(p, s);
        say("start", c->text);
        c->fill(s);
        auto work = c->start(*p.comm);
        p.under_way.push_back({std::move(c), std::move(work)});
    }
    void keep_call(place& p, std::uint64_t s) {
        auto c = plan(p, s);
        say("make persistent", c->text);
        auto ready = c->make_ready(*p.comm);
        std::vector<planned> calls;
        calls.push_back(std::move(c));
        p.kept.push_back({std::move(calls), std::move(ready)});
    }
    void make_group(place& p, std::uint64_t s, bool is_kept) {
        std::vector<planned> calls;
        collx::group once(*p.comm);
        collx::persistent::group again(*p.comm);
        for (std::uint64_t k = 0; k < 1 + s % 5; ++k) {
            auto c = plan(p, mixed(s, k), 20'000);
            if (!(is_kept ? c->add_to(again) : c->add_to(once))) continue;
            c->fill(mixed(s, k));
            calls.push_back(std::move(c));
        }
        if (calls.empty()) return;
        say(is_kept ? "make a persistent group, first" : "make a group, first", calls.front()->text);
        if (is_kept) {
            auto ready = again.launch();
            p.kept.push_back({std::move(calls), std::move(ready)});
        } else {
            once.launch();
            for (const auto& c : calls) c->check(*p.comm);
        }
    }
    void run_kept(place& p, std::uint64_t s, bool at_once) {
        for (auto& k : p.kept) {
            if (k.is_started) continue;
            for (std::size_t i = 0; i < k.calls.size(); ++i) k.calls[i]->fill(mixed(s, i));
            say(at_once ? "run persistent" : "start persistent", k.calls.front()->text);
            if (at_once) {
                k.ready();
                check(p, k);
            } else {
                k.ready.start();
                k.is_started = true;
            }
        }
    }
    static void check(const place& p, const place::repeated& k) {
        for (const auto& c : k.calls) c->check(*p.comm);
    }

    // Waits for the calls of one communicator, on each rank in another order.
    void wait_in(place& p) {
        shuffle(p.under_way);
        for (auto& f : p.under_way) {
            say("wait for", f.call->text);
            for (int k = 0; own_.one_in(2) && k < 50 && !f.work.test(); ++k) {
            }
            f.work.wait();
            f.call->check(*p.comm);
        }
        p.under_way.clear();
        for (auto& k : p.kept) {
            if (!k.is_started) continue;
            say("wait for persistent", k.calls.front()->text);
            k.ready.wait();
            k.is_started = false;
            check(p, k);
        }
    }
    // Waits for all calls of all communicators together.
    void wait_for_all() {
        std::vector<place::flying> flying;
        std::vector<std::pair<place*, place::repeated*>> started;
        for (auto& p : places_) {
            for (auto& f : p.under_way) flying.push_back(std::move(f));
            p.under_way.clear();
            for (auto& k : p.kept)
                if (k.is_started) started.emplace_back(&p, &k);
        }
        shuffle(flying);
        shuffle(started);
        std::vector<collx::work<void>> works;
        for (auto& f : flying) works.push_back(std::move(f.work));
        wait_for(works);
        for (const auto& f : flying) f.call->check(w);
        std::vector<collx::persistent_call> calls;
        for (const auto& [p, k] : started) calls.push_back(std::move(k->ready));
        wait_for(calls);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const auto& [p, k] = started[i];
            k->ready = std::move(calls[i]);
            k->is_started = false;
            check(*p, *k);
        }
    }
    template <class Handle>
    void wait_for(std::vector<Handle>& handles) {
        say("wait for all communicators,", std::to_string(handles.size()));
        switch (own_.below(3)) {
            case 0: collx::wait_all(handles); break;
            case 1:
                while (collx::wait_any(handles) != collx::no_work) {
                }
                break;
            default:
                while (!collx::wait_some(handles).empty()) {
                }
        }
    }
    template <class X>
    void shuffle(std::vector<X>& v) {
        for (std::size_t i = v.size(); i > 1; --i)
            if (const std::size_t k = own_.below(i); k != i - 1) std::swap(v[i - 1], v[k]);
    }

    // Colours -1 to 2, keys that repeat.
    void split(std::size_t which, std::uint64_t s) {
        const auto colour = [s](int r) { return static_cast<int>(mixed(s, 1, static_cast<unsigned>(r)) % 4) - 1; };
        const auto key = [s](int r) { return static_cast<int>(mixed(s, 2, static_cast<unsigned>(r)) % 4); };
        const std::vector<int> members = places_[which].members;
        std::unique_ptr<collx::communicator> made;
        if (auto* const from = places_[which].comm.get()) {
            say("split");
            made = std::make_unique<collx::communicator>(from->split(colour(from->rank()), key(from->rank())));
            EXPECT(made->is_empty() == (colour(from->rank()) < 0));
        }
        for (int c = 0; c < 3; ++c) {
            std::vector<int> ranks;
            for (int r = 0; r < static_cast<int>(members.size()); ++r)
                if (colour(r) == c) ranks.push_back(r);
            if (ranks.empty()) continue;
            std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return key(a) < key(b); });
            place p;
            for (const int r : ranks) p.members.push_back(members[static_cast<std::size_t>(r)]);
            if (std::find(p.members.begin(), p.members.end(), w.rank()) != p.members.end()) {
                EXPECT(made->size() == static_cast<int>(p.members.size()));
                EXPECT(p.members[static_cast<std::size_t>(made->rank())] == w.rank());
                if (s % 6 == 0 && own_.one_in(2)) made->with(collx::progress::thread{});
                p.comm = std::move(made);
            }
            places_.push_back(std::move(p));
        }
    }
    void end(std::size_t which) {
        place& p = places_[which];
        if (p.comm != nullptr) wait_in(p);
        p.kept.clear();
        places_.erase(places_.begin() + static_cast<std::ptrdiff_t>(which));
    }

    void use_window(place& p, std::uint64_t s) {
        const auto& c = *p.comm;
        const std::size_t n = 1 + s % (s % 4 == 0 ? 40'000 : 300);
        say("window of", std::to_string(n));
        collx::window<int> x(*p.comm, n * static_cast<std::size_t>(c.size()));
        const auto value = [&](int from, int to, std::size_t i) { return number<int>(s, from * 100 + to, i); };
        std::vector<int> part(n);
        for (int k = 0; k < c.size(); ++k) {
            const int peer = (c.rank() + k) % c.size();
            for (std::size_t i = 0; i < n; ++i) part[i] = value(c.rank(), peer, i);
            x.put(peer, static_cast<std::size_t>(c.rank()) * n, part);
        }
        x.fence();
        for (int r = 0; r < c.size(); ++r)
            for (std::size_t i = 0; i < n; ++i)
                EXPECT_AT(i, x.local()[static_cast<std::size_t>(r) * n + i] == value(r, c.rank(), i));
        const int peer = static_cast<int>(own_.below(static_cast<std::size_t>(c.size())));
        x.get(peer, 0, part);
        for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, part[i] == value(0, peer, i));
        x.fence();
    }

    collx::communicator& w;
    dice all_, own_; // thrown alike on all ranks, and by this rank alone
    std::vector<place> places_;
    int step_ = 0;
};

// One to seven ranks on one to three hosts, in any order.
inline std::vector<int> any_hosts(dice& d) {
    std::vector<int> hosts(1 + d.below(7)), seen;
    const std::size_t many = d.one_in(2) ? 1 : 1 + d.below(3);
    for (int& h : hosts) {
        const int drawn = static_cast<int>(d.below(many));
        const auto it = std::find(seen.begin(), seen.end(), drawn);
        h = static_cast<int>(it - seen.begin()); // hosts are numbered as they come
        if (it == seen.end()) seen.push_back(drawn);
    }
    return hosts;
}

} // namespace collx_test
