// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The proxy: a thread of the host that serves the kernels of one communicator. It runs collectives on the pieces that
// kernels have staged in pinned memory, over its own communicator, and so over any transport (shared memory, sockets).
// It also checks for ranks that died or aborted, and then ends kernels that would wait for them for ever. Knows no
// GPU: it reads and writes words.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include <collx/comm/communicator.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/locked_mutex.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/start_thread.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/exec/device/staging.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// What the proxy does with a staged piece.
class proxy_order {
public:
    virtual ~proxy_order() = default;
    // Runs collectives over `side` on the piece at `in`, and leaves the result at `out`.
    virtual void run(communicator& side, const std::byte* in, std::byte* out) = 0;
};
// An order that calls f(side, in, out).
template <class F>
sole_ptr<proxy_order> make_order(F f) {
    struct calls final : proxy_order {
        explicit calls(F&& g) : f(std::move(g)) {}
        void run(communicator& side, const std::byte* in, std::byte* out) override { f(side, in, out); }
        F f;
    };
    return make_sole<calls>(std::move(f));
}

// Which ranks have said that they make no more calls: bit k for rank_of(k), with k below `ranks`.
template <class RankOf>
std::uint64_t find_left(const links& net, int ranks, RankOf rank_of) {
    std::uint64_t left = 0;
    for (int k = 0; k < ranks; ++k)
        if (net.has_said_end(rank_of(k))) left |= std::uint64_t{1} << k;
    return left;
}

class gpu_proxy {
public:
    using order = sole_ptr<proxy_order>;

    // The kernels of a group.
    struct served_kernels {
        void* group;
        void (*stop)(void* group); // ends them
        // Tells them which ranks have left; called about every look_every_ns.
        void (*note_left)(void* group, const links& net);
        // A failure that ends them and is not seen on the proxy's communicator or its parent; null: there is none.
        failure (*find_failure)(void* group) = nullptr;
    };
    struct buffers {
        device::staging_words* words = nullptr; // null: nothing is staged, the thread only checks for failures
        int lanes = 0;
        std::byte *in = nullptr, *out = nullptr; // staging_turns of each
        std::size_t bytes = 0;                   // of one buffer
    };

    // parent: its failures end the kernels. kernels: stopped once, by the first end().
    // Errors: resource when there is no descriptor or no thread.
    gpu_proxy(communicator_core& parent, communicator& side, buffers b, served_kernels kernels)
        : parent_(parent), side_(side), with_(b), kernels_(kernels), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        if (!bell_.is_open())
            fail(errc::resource, side.rank(), -1, remedy_for_descriptor(errno), "cannot make an eventfd: %s",
                 std::strerror(errno));
        side.internals().failure_parent = &parent;
        try {
            thread_ = start_thread<&gpu_proxy::run>(this, "collx-proxy", "that serves kernels", side.rank());
        } catch (...) {
            side.internals().failure_parent = nullptr;
            throw;
        }
    }
    gpu_proxy(const gpu_proxy&) = delete;
    ~gpu_proxy() {
        stops_.store(true, memory_order::release);
        ring();
        ::pthread_join(thread_, nullptr);
        side_.internals().failure_parent = nullptr;
    }

    // Returns the number that a kernel stages with its piece. The order of a kernel in a graph is kept for ever,
    // because CUDA does not report the end of a graph; any other is kept until it has been carried out.
    std::uint64_t add(order f, bool is_in_graph) {
        const std::uint64_t id = ++orders_made_;
        const locked_mutex here(mutex_);
        orders_.emplace_back(std::move(f), id, is_in_graph);
        if (is_in_graph) has_graphs_.store(true, memory_order::relaxed);
        else issued_.fetch_add(1, memory_order::relaxed);
        return id;
    }
    // Wakes the thread: the kernels of added orders are in their stream.
    void ring() {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto n = ::write(bell_.get(), &one, sizeof one);
    }
    // Removes an order whose kernel was refused.
    void drop(std::uint64_t id) {
        const locked_mutex here(mutex_);
        const entry* const e = find(id);
        if (e == nullptr) return;
        if (!e->is_in_graph) issued_.fetch_sub(1, memory_order::relaxed);
        orders_.erase(e);
    }

    // Throws the error that ended the calls on device memory of this communicator.
    void check() const {
        if (is_ended_.load(memory_order::acquire)) raise(*cause_);
    }
    bool has_ended() const { return is_ended_.load(memory_order::acquire); }
    // Ends the calls with an error; the first one stays. From any thread.
    void end(const error& e) {
        {
            const locked_mutex here(mutex_);
            if (cause_ != nullptr) return;
            cause_ = make_sole<error>(e);
        }
        // Other ranks may wait elsewhere for data that this rank will not send any more.
        const bool may_be_own = e.peer() < 0 && e.code() != errc::timeout && e.code() != errc::mismatch;
        side_.internals().net.report(failure(e.code(), may_be_own ? side_.rank() : e.peer()));
        is_ended_.store(true, memory_order::release);
        kernels_.stop(kernels_.group);
    }

private:
    struct entry {
        entry(order o, std::uint64_t number, bool in_graph) : what(std::move(o)), id(number), is_in_graph(in_graph) {}
        order what;
        std::uint64_t id;
        bool is_in_graph;
    };
    static constexpr std::int64_t look_every_ns = 5'000'000;

    // Null if there is none. Requires: the mutex is held.
    entry* find(std::uint64_t id) {
        std::size_t begin = 0, end = orders_.size(); // sorted, because ids grow
        while (begin < end) {
            const std::size_t middle = begin + (end - begin) / 2;
            if (orders_[middle].id < id) begin = middle + 1;
            else end = middle;
        }
        return begin < orders_.size() && orders_[begin].id == id ? &orders_[begin] : nullptr;
    }
    void run() {
        for (backoff idle(side_.internals().settings.waiting); !stops_.load(memory_order::acquire);) {
            if (!has_ended() && is_staged(next_)) {
                carry_out();
                idle.reset();
            } else if (!has_ended() && issued_.load(memory_order::relaxed) != 0) {
                (void)idle.pause(); // a kernel will stage a piece soon
            } else {
                rest(has_graphs_.load(memory_order::relaxed) && !has_ended() ? 50'000 : look_every_ns);
            }
            look();
        }
    }
    void rest(std::int64_t ns) {
        pollfd p{bell_.get(), POLLIN, 0};
        const timespec limit{0, static_cast<long>(ns)};
        if (::ppoll(&p, 1, &limit, nullptr) <= 0) return;
        std::uint64_t n = 0;
        [[maybe_unused]] const auto got = ::read(bell_.get(), &n, sizeof n);
    }
    static std::uint64_t load(const std::uint64_t& w) { return __atomic_load_n(&w, __ATOMIC_ACQUIRE); }
    bool is_staged(std::uint64_t number) const {
        if (with_.words == nullptr) return false;
        for (int l = 0; l < with_.lanes; ++l)
            if (load(with_.words->staged[l]) <= number) return false;
        return true;
    }
    void carry_out() {
        const std::uint64_t id = load(with_.words->order[next_ % device::staging_orders]);
        const std::size_t at = next_ % device::staging_turns * with_.bytes;
        order once;
        proxy_order* what = nullptr;
        {
            const locked_mutex here(mutex_);
            if (entry* const e = find(id)) {
                what = e->what.get();
                if (!e->is_in_graph) {
                    once = std::move(e->what);
                    orders_.erase(e);
                    issued_.fetch_sub(1, memory_order::relaxed);
                }
            }
        }
        if (what == nullptr) return end(lost(id));
        try {
            what->run(side_, with_.in + at, with_.out + at);
        } catch (const error& e) {
            return end(e);
        } catch (const std::exception& e) {
            side_.internals().net.report(failure(errc::aborted, side_.rank()));
            return end(error(errc::aborted, side_.rank(), -1, e.what(), "the operator threw on the host"));
        } catch (...) {
            side_.internals().net.report(failure(errc::aborted, side_.rank()));
            return end(error(errc::aborted, side_.rank(), -1, "no std::exception", "the operator threw on the host"));
        }
        __atomic_store_n(&with_.words->done, ++next_, __ATOMIC_RELEASE);
    }
    error lost(std::uint64_t id) const {
        char text[100];
        std::snprintf(text, sizeof text, "a kernel staged a piece for call %llu, which does not exist",
                      static_cast<unsigned long long>(id));
        return error(errc::protocol, side_.rank(), -1, text, "is device memory overwritten? compute-sanitizer says");
    }

    void look() {
        const std::int64_t now = now_ns();
        if (now < next_look_ns_) return;
        next_look_ns_ = now + look_every_ns;
        auto& mine = side_.internals();
        // Moves failure notifications between hosts: while kernels wait for each other there may be no other thread
        // that does, and after the end other ranks must still be notified.
        (void)parent_.net.move_remote();
        (void)mine.net.move_remote();
        if (has_ended()) return;
        failure f = parent_.net.failed();
        if (!f) f = mine.net.failed();
        if (!f && kernels_.find_failure != nullptr) f = kernels_.find_failure(kernels_.group);
        if (!f)
            if (const int dead = find_dead(mine); dead >= 0) f = failure(errc::peer_failed, dead);
        if (!f) return kernels_.note_left(kernels_.group, mine.net);
        mine.net.report(f);
        try {
            mine.explain(f, -1);
        } catch (const error& e) {
            end(e);
        }
    }
    // A rank that ended without leaving the job, or -1. It will not stage, send or signal anything any more.
    static int find_dead(communicator_core& c) {
        job& home = *c.home;
        if (home.is_threads) return c.watch.find_failed_thread();
        int found = -1;
        home.watch.find_dead([&](int world_rank) {
            const int r = c.rank_of(world_rank);
            if (r < 0 || home.has_left(world_rank)) return false;
            found = r;
            return true;
        });
        return found;
    }

    communicator_core& parent_;
    communicator& side_;
    buffers with_;
    served_kernels kernels_;
    descriptor bell_;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER; // of orders_ and cause_
    growing_array<entry> orders_;                       // in the order of their ids
    sole_ptr<error> cause_;
    atomic<bool> is_ended_{false}, stops_{false}, has_graphs_{false};
    atomic<long> issued_{0}; // orders that are not part of a graph and not carried out
    std::uint64_t orders_made_ = 0, next_ = 0;
    std::int64_t next_look_ns_ = 0;
    pthread_t thread_{}; // the last member, because it uses the others
};

} // namespace detail
COLLX_END_NAMESPACE
