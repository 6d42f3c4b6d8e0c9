// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A random program of one rank, with failures: from one seed all ranks derive the same steps, on the world and on
// communicators split from it. A rank fails at a random step; the others check the errors that they get, shrink,
// destroy what they had in random order, and go on.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include <collx/comm/by_value.hpp>
#include <collx/comm/progress.hpp>
#include <collx/net.hpp>

#include "faults/random_programs.hpp"
#include "support/night.hpp"
#include "support/open_files.hpp"

namespace collx_test {

struct of_program : std::runtime_error {
    using runtime_error::runtime_error;
};
struct leaving {};
struct place { // a communicator, or one that others have
    std::unique_ptr<collx::communicator> comm;
    std::vector<int> ids; // its ranks, as numbered in the first world
    std::vector<std::unique_ptr<open_thing>> open;
};

// What one rank does. The calls themselves are those of a derived class.
class rank_program {
public:
    rank_program(const setting& s, confessions& said, collx::communicator& world)
        : s_(s), said_(said), world_(world), me_(world.rank()) {}
    rank_program(const rank_program&) = delete;
    virtual ~rank_program() = default;

    void run() {
        said_.begun.fetch_add(1);
        for (round_ = 0;; ++round_) {
            begin_round();
            try {
                for (step_ = 0; step_ < steps_; ++step_) do_step();
                at_ = 0;
                if (round_ >= rounds_with_faults) {
                    end();
                    ++said_.rounds[me_];
                    return;
                }
                const std::int64_t until = collx::now_ns() + patient(30'000 * ms);
                while (collx::now_ns() < until) collx::barrier(world_);
                expect_in_program(false, "no failure came");
            } catch (const collx::error& e) {
                judge(e);
            } catch (const of_program&) {
                if (said_.dies[me_]) throw;
            }
            go_on();
        }
    }

protected:
    const setting& s_;
    confessions& said_;
    collx::communicator& world_;
    const int me_; // in the first world
    std::vector<place> places_;
    std::size_t at_ = 0;
    fault fault_ = fault::count;

    collx::communicator& here() { return at_ == 0 ? world_ : *places_[at_].comm; }
    // At the beginning of each round, on all ranks. May change the fault.
    virtual void set_up() {}
    // Makes a call on this place, uses what is open there, or opens something. draws: the same on all its ranks.
    virtual void do_call(place& p, const unsigned* draws) { call_on_host(p, draws); }
    void call_on_host(place& p, const unsigned* draws) {
        auto& open = p.open;
        const std::size_t m = std::array<std::size_t, 5>{1, 3, 300, 5000, 40'000}[draws[2] % 5];
        const int salt = static_cast<int>(draws[3] % 1000);
        const unsigned kind = draws[5] / 256;
        const std::uint64_t seed = mixed(draws[2], draws[3]);
        switch (draws[1] % 8) {
            case 1: return open.push_back(work_of(kind, m, salt, seed));
            case 2: return open.push_back(ready_of(kind, m % 5001, seed));
            case 3: return open.push_back(window_of(kind, m));
            case 4:
            case 5:
                if (!open.empty()) return open[draws[4] % open.size()]->use(salt);
                [[fallthrough]];
            case 6: {
                if (kind % 3 == 0 && may_end_here()) return end(p, draws[4]);
                const ints all =
                    collx::by_value::all_gather(here(), ints(static_cast<std::size_t>(here().rank()), salt));
                const auto n = static_cast<std::size_t>(here().size());
                return expect_in_program(all == ints(n * (n - 1) / 2, salt), "wrong data by value");
            }
            default: {
                if (kind % 2 == 0) return make_planned(seed, m);
                // A ring of sends never ends for one rank alone.
                const auto v = static_cast<verb>(draws[4] % (static_cast<unsigned>(verb::count) - 1));
                caller(here(), m).call(v, salt);
            }
        }
    }
    // Whether the end of a communicator or of what is open there waits for those of the peers.
    virtual bool ends_wait_for_peers() const { return false; }

private:
    using thing = std::unique_ptr<open_thing>;
    using shared = collx::shared_vector<int>;
    thing work_of(unsigned kind, std::size_t m, int salt, std::uint64_t seed) {
        switch (kind % 4) {
            case 0: return std::make_unique<open_work<ints>>(here(), ints(m), salt, kind % 8 == 0);
            case 1: return std::make_unique<open_calls>(here(), open_calls::kind::once, seed, m);
            default:
                return std::make_unique<open_work<shared>>(here(), collx::make_shared_vector<int>(world_, m), salt);
        }
    }
    thing ready_of(unsigned kind, std::size_t m, std::uint64_t seed) {
        if (kind % 3 == 0) return std::make_unique<open_group>(here(), m);
        return std::make_unique<open_calls>(
            here(), kind % 3 == 1 ? open_calls::kind::ready : open_calls::kind::ready_group, seed, m);
    }
    thing window_of(unsigned kind, std::size_t m) {
        switch (kind % 4) {
            case 0: return std::make_unique<open_window<three>>(here(), m, kind % 8 == 0);
            case 1: return std::make_unique<open_window<three>>(here(), m);
            default: return std::make_unique<open_window<int>>(here(), m, kind % 8 == 2);
        }
    }
    void make_planned(std::uint64_t seed, std::size_t m) {
        const auto call = plan_call(here().size(), here().rank(), seed, m);
        call->fill(seed);
        if (seed % 4 == 0) {
            auto bound = here().with(collx::piece{500});
            call->make(bound);
        } else {
            call->make(here());
        }
        call->check(here());
    }
    bool may_end_here() const { return at_ != 0 && !ends_wait_for_peers(); }
    // Ends what is open on a communicator, or all of it, in another order on each rank.
    void end(place& p, unsigned draw) {
        for (auto& t : p.open) t->finish();
        destroy(p, draw % 2 == 0);
        if (draw % 2 == 0) p.ids.clear();
    }
    std::mt19937 random_of(int step) const {
        std::seed_seq all{s_.seed, static_cast<unsigned>(round_), static_cast<unsigned>(step)};
        return std::mt19937(all);
    }
    void begin_round() {
        places_ = std::vector<place>(1);
        for (const int id : world_.internals().members) places_[0].ids.push_back(id);
        expect_in_program(places_[0].ids[static_cast<std::size_t>(world_.rank())] == me_, "another order of ranks");
        world_.set_timeout(patient(std::chrono::seconds(20)));
        world_.set_checked(s_.is_checked);
        if (s_.has_thread) (void)world_.with(collx::progress::thread{});
        auto random = random_of(-1);
        steps_ = 4 + static_cast<int>(random() % 14);
        strikes_at_ = static_cast<int>(random() % static_cast<unsigned>(steps_));
        victim_ = round_ < rounds_with_faults ? places_[0].ids[random() % places_[0].ids.size()] : -1;
        fault_ = static_cast<fault>(random() % static_cast<unsigned>(fault::count));
        if (s_.are_threads && fault_ < fault::leaves) fault_ = fault::throws;
        if (world_.size() == 1 && !survives(fault_)) fault_ = fault::aborts;
        set_up();
    }

    void do_step() {
        auto random = random_of(step_);
        unsigned draws[6];
        for (unsigned& d : draws) d = random();
        at_ = draws[0] % 3 == 0 ? 0 : draws[0] % places_.size();
        if (step_ == strikes_at_ && victim_ >= 0) strike();
        if (draws[1] % 8 == 0 && places_.size() < 5) return split(draws);
        if (places_[at_].ids.empty()) return;
        do_call(places_[at_], draws);
    }
    // Each rank of `from` has a colour, which all know.
    void split(const unsigned* draws) {
        const std::size_t from = at_;
        const auto color = [&](int id) { return static_cast<int>((draws[2] >> (2 * id)) % 3) - 1; };
        places_.emplace_back();
        if (places_[from].ids.empty()) return;
        std::vector<int> ids;
        for (const int id : places_[from].ids)
            if (color(id) == color(me_) && color(me_) >= 0) ids.push_back(id);
        auto made = here().split(color(me_));
        expect_in_program(made.is_empty() == ids.empty(), "split() gave another communicator");
        if (ids.empty()) return;
        expect_in_program(ids[static_cast<std::size_t>(made.rank())] == me_, "split() has another order");
        places_.back().comm = std::make_unique<collx::communicator>(std::move(made));
        places_.back().ids = std::move(ids);
    }
    void strike() {
        const bool is_here = !places_[at_].ids.empty();
        if (me_ == victim_) expect_in_program(wait_until(said_.begun, s_.hosts.n), "not all ranks begin");
        if (fault_ == fault::operator_throws && is_here) return trip();
        if (me_ != victim_) return;
        (survives(fault_) ? said_.aborts : said_.dies)[me_] = true;
        if (fault_ == fault::leaves || fault_ == fault::throws) said_.aborts[me_] = true; // what is open ends with it
        if (fault_ == fault::killed) ::kill(::getpid(), SIGKILL);
        if (fault_ == fault::killed_in_a_send) {
            harm::plan(harm::kind::die, 1 + strikes_at_ % 5);
            ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); }); // where nothing is sent
            ::ualarm(50'000, 0);
            return;
        }
        if (fault_ == fault::leaves) throw leaving{};
        if (fault_ == fault::throws) throw of_program("ends");
        (is_here ? here() : world_).abort();
        throw of_program("has aborted");
    }
    void trip() {
        if (me_ == victim_) said_.aborts[me_] = true;
        ints x(10, 1);
        collx::all_reduce(here(), x, [&](int a, int b) {
            if (me_ == victim_) throw of_program("of an operator");
            return a + b;
        });
        if (me_ == victim_) throw of_program("nothing to combine");
    }
    // A rank that is named has failed, or has gone on before this one and left its communicators.
    void judge(const collx::error& e) {
        const auto& ids = places_[at_].ids.empty() ? places_[0].ids : places_[at_].ids;
        const std::string text =
            "round " + std::to_string(round_) + ", step " + std::to_string(step_) + ": " + e.what();
        expect_in_program(e.peer() >= 0 && e.peer() < static_cast<int>(ids.size()), text + ": names no rank");
        const int id = ids[static_cast<std::size_t>(e.peer())];
        const bool is_windows = text.find("window") != std::string::npos;
        const bool may_have_left = (at_ != 0 || is_windows) && said_.leaves[id];
        const bool has_aborted = e.code() == collx::errc::aborted && (said_.aborts[id] || may_have_left);
        const bool has_died = e.code() == collx::errc::peer_failed && (said_.dies[id] || may_have_left);
        expect_in_program(has_aborted || has_died, text + ": that rank has done nothing of this");
    }
    // ------------------------------------------------------------------ after a failure
    void go_on() {
        if (said_.dies[me_]) ::pause();
        said_.leaves[me_] = true;
        if (survives(fault_) || s_.destroys_first) said_.aborts[me_] = true; // a dropped call ends its communicator
        for (auto& p : places_)
            if (p.comm) p.comm->abort(); // no rank waits there for one that has gone on
        if (survives(fault_)) world_.abort();
        const std::vector<int> before = places_[0].ids;
        if (s_.destroys_first) destroy(s_.destroys_communicators_first);
        world_ = world_.shrink();
        destroy(true);
        ++said_.rounds[me_];
        const auto& members = world_.internals().members;
        for (const int id : before)
            expect_in_program(said_.dies[id] || std::find(members.begin(), members.end(), id) != members.end(),
                              "shrink() left a living rank out");
    }
    // Ends what is open, and the communicators beside the world, in random order.
    void destroy(bool with_communicators) {
        for (auto& p : places_) collect(p, with_communicators);
        destroy_collected();
    }
    void destroy(place& p, bool with_communicator) {
        collect(p, with_communicator);
        destroy_collected();
    }
    void collect(place& p, bool with_communicator) {
        for (auto& t : p.open)
            if (!t->waits_for_peers()) things_.push_back(std::move(t));
        p.open.clear();
        if (with_communicator && p.comm) comms_.push_back(std::move(p.comm));
    }
    void destroy_collected() {
        auto random = random_of(1000 + me_);
        std::shuffle(things_.begin(), things_.end(), random);
        while (!things_.empty() || !comms_.empty()) {
            if (comms_.empty() || (!things_.empty() && random() % 2 == 0)) things_.pop_back();
            else comms_.pop_back();
        }
    }
    void end() {
        for (at_ = 0; at_ < places_.size(); ++at_)
            for (auto& t : places_[at_].open) t->finish();
        at_ = 0;
        collx::barrier(world_);
        if (!ends_wait_for_peers()) return destroy(true);
        for (auto& p : places_) { // in one order
            p.open.clear();
            p.comm.reset();
        }
    }

    std::vector<thing> things_; // to be destroyed
    std::vector<std::unique_ptr<collx::communicator>> comms_;
    int round_ = 0, step_ = 0, steps_ = 0, strikes_at_ = 0, victim_ = -1;
};

inline std::string name_of(const setting& s) {
    const cell& h = s.hosts;
    return "seed " + std::to_string(s.seed) + (s.are_threads ? " of threads, " : " of processes, ") +
           std::to_string(h.n) + " ranks, " + std::to_string(h.ranks_per_host) + " per host, " +
           (h.over.custom != nullptr ? h.over.text
            : h.is_unix              ? "unix"
                                     : "tcp") +
           ", " + std::to_string(h.lanes) + " lanes" + (h.bad_day ? ", bad day" : "") +
           (h.is_shared ? ", shared" : "") + (s.has_key && s.are_threads ? ", key" : "") +
           (s.has_thread ? ", progress thread" : "") + (s.is_checked ? ", checked" : "");
}
inline void run_job(const setting& s, thread_body f) {
    const cell& h = s.hosts;
    const spread as{.ranks_per_host = h.ranks_per_host,
                    .bad_day = h.bad_day,
                    .has_key = s.has_key,
                    .is_unix = h.is_unix,
                    .lanes = h.lanes,
                    .is_shared = h.is_shared};
    if (h.over.custom == nullptr) return run_spread(h.n, as, f);
    if (!h.over.use_memory) return collx::run_threads(h.over, h.n, f);
    collx::detail::run_thread_jobs(collx::detail::thread_jobs(as.host_of(h.n), h.over), f);
}
// Of a rank that has ended in a process of its own. The others may be in a round with it still.
inline void wait_for_the_windows_of_others(const confessions& said, int me, int n) {
    const int least = std::min(said.rounds[me] + 1, rounds_with_faults + 1);
    const std::int64_t until = collx::now_ns() + patient(30'000 * ms);
    for (int r = 0; r < n; ++r)
        while (r != me && !said.dies[r] && said.rounds[r] < least) {
            expect_in_program(collx::now_ns() < until, "a rank does not end its windows");
            ::usleep(500);
        }
}
inline void clear_memory_of_windows() {
    memory_of_windows<int>::clear();
    memory_of_windows<three>::clear();
}
// make(setting, confessions, world): the program of a rank.
template <class Make>
void run_as_threads(const setting& s, Make&& make) {
    confessions said{};
    std::array<std::string, most_ranks> ends;
    try {
        run_job(s, [&](collx::communicator& world) {
            const int me = world.rank();
            try {
                make(s, said, world)->run();
            } catch (const leaving&) {
            } catch (const std::exception& e) {
                if (dynamic_cast<const of_program*>(&e) == nullptr) ends[static_cast<std::size_t>(me)] = e.what();
                throw;
            }
        });
    } catch (const std::exception&) { // in `ends`, unless planned
    }
    clear_memory_of_windows();
    for (const std::string& end : ends) {
        INFO(name_of(s) << ": " << end);
        CHECK(end.empty());
    }
}

// Runs f, which must leave no files open.
template <class F>
void leaving_no_files(F&& f) {
    const int before = open_files();
    f();
    CHECK(open_files() == before);
}

// By night more seeds than by day.
template <class Run>
void each_seed(int by_day, bool are_threads, Run&& run) {
    const char* const one = std::getenv("RANDOM_PROGRAM_SEED");
    if (one != nullptr) return run(setting_of(static_cast<unsigned>(std::atoi(one)), are_threads));
    for (int seed = 1; seed <= (is_night() ? 16 : 1) * by_day; ++seed)
        run(setting_of(static_cast<unsigned>(seed), are_threads));
}

} // namespace collx_test
