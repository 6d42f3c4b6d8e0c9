// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The thread of a process that advances outstanding operations while the program computes. Communicators join and leave
// it; it ends with the last one. It sleeps while none of them has anything under way. docs/design/progress.md says who
// owns a communicator at which time, and what happens to errors.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/locked_mutex.hpp>
#include <collx/core/monotonic_condition.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/start_thread.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class progress_engine;

// A communicator that the thread serves.
class progress_member final : public progress_link {
public:
    explicit progress_member(communicator_core& c) : core(c) {}
    ~progress_member() override { leave(); }
    // cpu: the core for the thread, -1: any.
    void join(int cpu);
    void pin(int cpu);
    void leave() noexcept override;
    void wake() override;
    void keep_exception(const operation& op) override {
        const kept_exception e{&op, std::current_exception()};
        if (!first_.what) first_ = e; // also where there is no memory for a list
        else thrown_.push_back(e);
    }
    bool has_left() const { return engine_ == nullptr; }
    bool has_exceptions() const { return first_.what != nullptr || !thrown_.empty(); }
    void rethrow(const operation& op) override {
        rethrow(first_, op);
        for (auto& t : thrown_) rethrow(t, op);
    }

    // True if anything moved. Requires: in a turn of the thread.
    bool take_turn() {
        const std::uint64_t before = core.pending.moves();
        core.pending.advance();
        const bool is_busy = !core.pending.empty();
        const bool carried = (is_busy || !core.net.is_one_host()) && core.net.move();
        if (is_busy || carried) rest_at_ns_ = later_ns();
        if (!has_told_ && core.net.failed()) {
            has_told_ = true;
            core.net.announce_failure();
        }
        if (!is_busy && (core.net.is_one_host() || now_ns() >= rest_at_ns_)) has_work.store(false);
        return carried || core.pending.moves() != before;
    }
    // Abandons the communicator after its turn threw.
    void give_up() noexcept {
        core.abandon();
        has_work.store(false);
    }

    communicator_core& core;
    atomic<bool> has_work{false}; // set by calls, cleared in turns

private:
    // The system may not yet have taken what a call has committed, so the thread looks a little longer.
    static std::int64_t later_ns() { return now_ns() + 5'000'000; }
    struct kept_exception {
        const operation* of = nullptr;
        std::exception_ptr what;
    };
    static void rethrow(kept_exception& t, const operation& op) {
        if (t.what && (t.of == &op || op.has_part(t.of))) std::rethrow_exception(std::exchange(t.what, nullptr));
    }
    kept_exception first_;
    growing_array<kept_exception> thrown_;
    progress_engine* engine_ = nullptr; // null: it has left
    std::int64_t rest_at_ns_ = 0;
    bool has_told_ = false;
};

class progress_engine {
public:
    progress_engine() : spins_(usable_cores() > 1 ? 1000 : 0) {
        thread_ = start_thread<&progress_engine::run>(this, "collx-progress", "that makes progress");
    }
    progress_engine(const progress_engine&) = delete;
    // Called after the last member has left, by that member's thread.
    void stop() {
        {
            const locked_mutex here(lock_);
            stops_ = true;
            ring();
        }
        ::pthread_join(thread_, nullptr);
    }

    // Errors: invalid_argument (a core that is not there, or another one than before).
    void pin(int cpu, int rank) {
        if (cpu < 0 || cpu == cpu_) return;
        if (cpu_ >= 0)
            fail(errc::invalid_argument, rank, -1, "name the same core everywhere, or none",
                 "the process's progress thread is on core %d already and cannot be on core %d, too", cpu_, cpu);
        cpu_set_t one;
        CPU_ZERO(&one);
        if (cpu < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(cpu), &one);
        if (const int reason = ::pthread_setaffinity_np(thread_, sizeof one, &one); reason != 0)
            fail(errc::invalid_argument, rank, -1,
                 "name a core that this process may run on (taskset, cpuset), or none",
                 "cannot put the progress thread on core %d: %s", cpu, std::strerror(reason));
        cpu_ = cpu;
    }
    void add(progress_member* m) {
        const locked_mutex here(lock_);
        const int sharing = m->core.settings.sharing;
        if (2 * sharing > usable_cores()) spins_.store(0); // no core to spare
        all_.push_back(m);
    }
    // Returns whether it was the last.
    bool remove(progress_member* m) {
        const locked_mutex here(lock_);
        erase_if(all_, [&](progress_member* other) { return other == m; });
        return all_.empty();
    }
    // Wakes the thread after a member has set has_work.
    void wake() {
        if (!sleeps_.load()) return;
        const locked_mutex here(lock_);
        ring();
    }

private:
    struct round {
        bool stops = false, has_work = false, moved = false;
    };

    void run() {
        std::int64_t idle_since_ns = 0;
        for (unsigned idle = 0;;) {
            const round r = go_round();
            if (r.stops) return;
            if (r.moved) {
                idle = 0;
                idle_since_ns = 0;
            } else if (!r.has_work) {
                sleep(0);
                idle = 0;
                idle_since_ns = 0;
            } else if (++idle <= spins_.load(memory_order::relaxed)) cpu_relax();
            else pause(idle_since_ns);
        }
    }
    // Gives a turn to each member that has work and whose program is in no call.
    round go_round() {
        round r;
        for (std::size_t i = 0;; ++i) {
            progress_member* m = nullptr;
            {
                const locked_mutex here(lock_); // a member that is found here cannot leave before its turn has ended
                r.stops = stops_;
                if (stops_ || i >= all_.size()) return r;
                m = all_[i];
                if (!m->has_work.load()) continue;
                r.has_work = true;
                if (!m->core.caller.begin_turn()) continue;
            }
            try {
                r.moved = m->take_turn() || r.moved;
            } catch (...) { // out of memory
                m->give_up();
            }
            m->core.caller.end_turn(); // from here on the member may be gone
        }
    }
    // The work waits for other ranks: yields the core at first, then sleeps for an eighth of the time waited.
    void pause(std::int64_t& since_ns) {
        const std::int64_t now = now_ns();
        if (since_ns == 0) since_ns = now;
        const std::int64_t waited = now - since_ns;
        if (waited < 100'000) ::sched_yield();
        else sleep(waited / 8 < 1'000'000 ? waited / 8 + 10'000 : 1'000'000);
    }
    // Sleeps until the bell, at most for ns; 0: until there is work.
    void sleep(std::int64_t ns) {
        const locked_mutex here(lock_);
        sleeps_.store(true);
        const auto has_work = [&] { // checked after sleeps_ is set: a member that sets has_work from now on rings
            for (const progress_member* m : all_)
                if (m->has_work.load()) return true;
            return false;
        };
        if (ns != 0 && !stops_) bell_.wait(lock_, deadline::in_ns(ns));
        else
            while (sleeps_.load() && !stops_ && !has_work()) bell_.wait(lock_);
        sleeps_.store(false);
    }
    void ring() {
        sleeps_.store(false);
        bell_.signal();
    }

    pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
    monotonic_condition bell_;
    growing_array<progress_member*> all_;
    atomic<bool> sleeps_{false};
    bool stops_ = false;
    int cpu_ = -1; // -1: any
    atomic<unsigned> spins_;
    pthread_t thread_{};
};

// The engine of this process, while it has one. A forked child begins without one. Never destroyed, because
// communicators may outlive statics.
struct progress_place {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    progress_engine* engine = nullptr;
    bool watches_forks = false;

    static progress_place& of_process() {
        static constinit progress_place place;
        return place;
    }
    void watch_forks() {
        if (watches_forks) return;
        watches_forks = true;
        (void)::pthread_atfork([] { ::pthread_mutex_lock(&of_process().lock); },
                               [] { ::pthread_mutex_unlock(&of_process().lock); },
                               [] {
                                   of_process().engine = nullptr; // the parent's
                                   ::pthread_mutex_unlock(&of_process().lock);
                               });
    }
};

inline void progress_member::join(int cpu) {
    progress_place& place = progress_place::of_process();
    const locked_mutex here(place.lock);
    place.watch_forks();
    if (place.engine != nullptr) {
        place.engine->pin(cpu, core.net.rank());
    } else {
        auto made = make_sole<progress_engine>();
        try {
            made->pin(cpu, core.net.rank());
        } catch (...) {
            made->stop();
            throw;
        }
        place.engine = made.release();
    }
    engine_ = place.engine;
    engine_->add(this);
}

inline void progress_member::pin(int cpu) {
    const locked_mutex here(progress_place::of_process().lock);
    engine_->pin(cpu, core.net.rank());
}

inline void progress_member::leave() noexcept {
    progress_engine* const engine = std::exchange(engine_, nullptr);
    if (engine == nullptr || core.home->mark.is_child()) return; // in a forked child the engine is the parent's
    bool is_last = false;
    {
        const one_caller::alone none_comes(core.caller);
        progress_place& place = progress_place::of_process();
        const locked_mutex here(place.lock);
        is_last = engine->remove(this);
        if (is_last) place.engine = nullptr;
    }
    core.caller.stop_sharing();
    if (!is_last) return;
    engine->stop();
    delete engine;
}

inline void progress_member::wake() {
    has_work.store(true);
    if (!has_left()) engine_->wake();
}

} // namespace detail
COLLX_END_NAMESPACE
