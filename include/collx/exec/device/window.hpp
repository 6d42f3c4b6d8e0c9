// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a block of a program's kernel does with a window on devices: it puts and gets, signals and waits. Written for an
// environment, like the executor (cuda_env.cuh on a device, testing/twin_env.hpp on the host).
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/copy_run.hpp>
#include <collx/exec/device/window_memory.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The part that does not depend on the element type.
template <class Env>
class window_worker {
public:
    COLLX_HD window_worker(const Env& env, const window_table* t, unsigned line) : env_(env), t_(t), line_(line) {
        if (line_ >= t_->lines) stop(window_end::no_line, -1);
        else if (const std::uint64_t w = Env::load_relaxed(&t_->control(t_->rank)->ended); w != 0)
            stop(window_end::by_peer, -1, w);
    }

    // This rank.
    COLLX_HD int rank() const { return t_->rank; }
    // How many ranks have a part.
    COLLX_HD int ranks() const { return t_->ranks; }
    // Whether a call of this block, or of another rank, has ended the window. All further calls do nothing.
    COLLX_HD bool has_ended() const { return has_ended_; }

    // Gives a peer one signal more on this block's line. A peer that waits for it sees what the block's threads have
    // put there before. All threads of the block call it. Cost: a barrier and a store.
    COLLX_HD void signal(int peer) {
        has_ended_ = env_.any_of_block(has_ended_ || !is_peer(peer));
        if (has_ended_ || env_.index_in_block() != 0) return;
        std::uint64_t& given = t_->line(t_->rank, line_)->given[peer];
        Env::store_release(&t_->line(peer, line_)->signals[t_->rank], ++given);
    }
    // Waits until `count` more signals of a peer have come on this line than were waited for so far. False: the window
    // has ended (the deadline, another rank, a place that does not exist), and the host's check() says why. All threads
    // of the block call it and get the same answer. Cost: one thread polls this device's memory, and a barrier.
    COLLX_HD bool wait(int peer, std::uint64_t count = 1) {
        bool failed = has_ended_ || !is_peer(peer);
        if (!failed && env_.index_in_block() == 0) {
            window_line& l = *t_->line(t_->rank, line_);
            const std::uint64_t want = l.taken[peer] + count;
            if (Env::load_relaxed(&l.signals[peer]) < want) failed = !run_wait(t_, line_, peer, want);
            if (!failed) {
                (void)Env::load_acquire(&l.signals[peer]);
                l.taken[peer] = want;
            }
        }
        has_ended_ = env_.any_of_block(failed);
        return !has_ended_;
    }

protected:
    COLLX_HD std::byte* own_part() const { return t_->part(t_->rank); }
    // A place in a peer's part; null: it does not exist, and the window has ended. block: called by a whole block.
    COLLX_HD std::byte* place(int peer, std::uint64_t at, std::uint64_t bytes, bool block = true) {
        if (has_ended_ || !is_peer(peer)) return nullptr;
        const std::uint64_t all = t_->bytes[peer];
        if (at <= all && bytes <= all - at) return t_->part(peer) + at;
        if (!block || env_.index_in_block() == 0) report(t_, line_, window_end::outside, peer, at, bytes, 0, all);
        has_ended_ = true;
        return nullptr;
    }
    COLLX_HD bool adds_atomically(int peer) {
        if ((t_->has_atomics >> peer & 1) != 0) return true;
        stop(window_end::no_atomics, peer);
        return false;
    }

    Env env_;

private:
    COLLX_HD bool is_peer(int peer) {
        if (peer >= 0 && peer < t_->ranks) return true;
        if (!has_ended_) stop(window_end::no_peer, peer);
        return false;
    }
    COLLX_HD void stop(window_end why, int peer, std::uint64_t ended = 0) {
        if (env_.index_in_block() == 0 || why == window_end::no_atomics)
            report(t_, line_ < t_->lines ? line_ : t_->lines, why, peer, line_, 0, 0, ended);
        has_ended_ = true;
    }
    // By one thread. Not inlined: the loop of a wait whose signals are not there yet.
    COLLX_NOINLINE COLLX_HD static bool run_wait(const window_table* t, unsigned line, int peer, std::uint64_t want) {
        constexpr unsigned polls_per_look = 64, looks_per_question = 16;
        const std::uint64_t* word = &t->line(t->rank, line)->signals[peer];
        std::uint64_t began = 0, left = 0;
        for (unsigned polls = 1; Env::load_relaxed(word) < want; ++polls) {
            Env::pause();
            if (polls % polls_per_look != 0) continue;
            window_end why = window_end::none;
            const std::uint64_t now = Env::now_ns();
            if (began == 0) began = now;
            const std::uint64_t ended = Env::load_relaxed(&t->control(t->rank)->ended);
            if (ended != 0) why = window_end::by_peer;
            else if (now - began > t->timeout_ns) why = window_end::timed_out;
            // A load of the host's memory goes over the bus.
            else if (polls % (polls_per_look * looks_per_question) == 0) {
                if (Env::load_relaxed(&t->host->abort) != 0) why = window_end::aborted;
                // The signals that a rank gave before it left are there by the next time, and end this wait.
                else if ((left >> peer & 1) != 0) why = window_end::peer_left;
                left = Env::load_acquire(&t->host->left);
            }
            if (why == window_end::none) continue;
            report(t, line, why, peer, 0, 0, want, ended != 0 ? ended : Env::load_relaxed(word));
            return false;
        }
        return true;
    }
    // Tells the host why, and the blocks of all ranks that the window has ended.
    COLLX_NOINLINE COLLX_HD static void report(const window_table* t, unsigned line, window_end why, int peer,
                                               std::uint64_t at, std::uint64_t bytes, std::uint64_t want,
                                               std::uint64_t have) {
        window_report& r = *t->report(line);
        if (Env::load_relaxed(&r.why) == 0) {
            Env::store_relaxed(&r.peer, static_cast<std::uint64_t>(static_cast<std::int64_t>(peer)));
            Env::store_relaxed(&r.line, line);
            Env::store_relaxed(&r.at, at);
            Env::store_relaxed(&r.bytes, bytes);
            Env::store_relaxed(&r.want, want);
            Env::store_relaxed(&r.have, have);
            Env::store_release(&r.why, static_cast<std::uint64_t>(why));
        }
        Env::store_release(&t->host->gave_up, 1);
        if (why == window_end::by_peer) return;
        COLLX_ROLLED
        for (int k = 0; k < t->ranks; ++k)
            if (Env::load_relaxed(&t->control(k)->ended) == 0)
                Env::store_relaxed(&t->control(k)->ended, ended_word::of(t->rank, why, peer));
    }

    const window_table* t_;
    unsigned line_;
    bool has_ended_ = false; // of this thread; the whole block learns it at the next signal() or wait()
};

// One block of a kernel, and its line of the window. Places count elements of the peer's part.
template <class Env, class T>
class window_block : public window_worker<Env> {
    using worker = window_worker<Env>;
    using worker::env_;

public:
    using worker::worker;

    // This rank's part. What others put there may be read once a wait() for them has returned true.
    COLLX_HD T* local() const { return reinterpret_cast<T*>(worker::own_part()); }

    // Writes n elements of this device's memory, or of the block's shared memory, into the peer's part, by all threads
    // of the block. `from` may be written again after the block's next barrier (signal() is one). Cost: each byte is
    // loaded and stored once, 16 at a time where both ends agree modulo 16.
    COLLX_HD void put(int peer, std::size_t place, const T* from, std::size_t n) {
        if (std::byte* const to = at(peer, place, n))
            copy_run<Env, anywhere::source>(reinterpret_cast<T*>(to), from, n, env_.index_in_block(),
                                            env_.threads_in_block());
    }
    // The same, then signal(peer).
    COLLX_HD void put_signal(int peer, std::size_t place, const T* from, std::size_t n) {
        put(peer, place, from, n);
        worker::signal(peer);
    }
    // Reads n elements of the peer's part, by all threads of the block; all may use them when it returns. `to` may lie
    // in the block's shared memory.
    COLLX_HD void get(int peer, std::size_t place, T* to, std::size_t n) {
        if (const std::byte* const from = at(peer, place, n))
            copy_run<Env, anywhere::target>(to, reinterpret_cast<const T*>(from), n, env_.index_in_block(),
                                            env_.threads_in_block());
        env_.sync_block();
    }
    // Adds n elements to those of the peer's part, by all threads of the block. Each element is added atomically with
    // respect to other additions. T: int, unsigned, unsigned long long, float, double.
    COLLX_HD void add(int peer, std::size_t place, const T* from, std::size_t n) {
        std::byte* const to = at(peer, place, n);
        if (to == nullptr || !worker::adds_atomically(peer)) return;
        COLLX_ROLLED
        for (std::size_t i = env_.index_in_block(); i < n; i += env_.threads_in_block())
            (void)Env::add_atomically(reinterpret_cast<T*>(to) + i, from[i]);
    }
    // Adds one element, by this thread alone, and gets the value that was there: a shared counter. False: the window
    // has ended, and nothing was added.
    COLLX_HD bool fetch_add(int peer, std::size_t place, T x, T& old) {
        std::byte* const to = worker::place(peer, offset(place), sizeof(T), false);
        if (to == nullptr || !worker::adds_atomically(peer)) return false;
        old = Env::add_atomically(reinterpret_cast<T*>(to), x);
        return true;
    }

private:
    COLLX_HD std::byte* at(int peer, std::size_t place, std::size_t n) {
        return worker::place(peer, offset(place), n <= SIZE_MAX / sizeof(T) ? n * sizeof(T) : SIZE_MAX);
    }
    // Beyond any part where it would overflow.
    COLLX_HD static std::size_t offset(std::size_t place) {
        return place <= SIZE_MAX / sizeof(T) ? place * sizeof(T) : SIZE_MAX;
    }
};

} // namespace device
COLLX_END_NAMESPACE
