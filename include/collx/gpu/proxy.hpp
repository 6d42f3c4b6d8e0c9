// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The proxy: a thread of the host that serves the kernels of one communicator. It runs collectives on the pieces that
// kernels have staged in pinned memory, over its own communicator, and so over any transport (shared memory, sockets).
// It also checks for ranks that died or aborted, and then ends kernels that would wait for them for ever. Knows no
// GPU: it reads and writes words.
#pragma once

#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include <collx/comm/communicator.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/signals_blocked.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/exec/device/staging.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class gpu_proxy {
public:
    // Runs collectives over `side` on a staged piece at `in`, and leaves the result at `out`.
    using order = std::function<void(communicator& side, const std::byte* in, std::byte* out)>;

    struct buffers {
        device::staging_words* words = nullptr; // null: nothing is staged, the thread only checks for failures
        int lanes = 0;
        std::byte *in = nullptr, *out = nullptr; // staging_turns of each
        std::size_t bytes = 0;                   // of one buffer
    };

    // parent: its failures end the kernels. stop_kernels: called once, by the first end().
    gpu_proxy(communicator_core& parent, communicator& side, buffers b, std::function<void()> stop_kernels)
        : parent_(parent), side_(side), with_(b), stop_kernels_(std::move(stop_kernels)),
          bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        if (!bell_.is_open())
            fail(errc::resource, side.rank(), -1, remedy_for_descriptor(errno), "cannot make an eventfd: %s",
                 std::strerror(errno));
        side.internals().heeded = &parent;
        try {
            const signals_blocked here;
            thread_ = std::thread([this] { run(); });
        } catch (...) {
            side.internals().heeded = nullptr;
            throw;
        }
    }
    gpu_proxy(const gpu_proxy&) = delete;
    ~gpu_proxy() {
        stops_.store(true, memory_order::release);
        ring();
        thread_.join();
        side_.internals().heeded = nullptr;
    }

    // Returns the number that a kernel stages with its piece. The order of a kernel in a graph is kept for ever,
    // because CUDA does not report the end of a graph; any other is kept until it has been carried out.
    std::uint64_t add(order f, bool is_in_graph) {
        const std::uint64_t id = ++orders_made_;
        const std::lock_guard lock(mutex_);
        orders_.emplace(id, entry{std::move(f), is_in_graph});
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
        const std::lock_guard lock(mutex_);
        const auto at = orders_.find(id);
        if (at == orders_.end()) return;
        if (!at->second.is_in_graph) issued_.fetch_sub(1, memory_order::relaxed);
        orders_.erase(at);
    }

    // Throws the error that ended the calls on device memory of this communicator.
    void check() const {
        if (is_ended_.load(memory_order::acquire)) raise(*cause_);
    }
    bool has_ended() const { return is_ended_.load(memory_order::acquire); }
    // Ends the calls with an error; the first one stays. From any thread.
    void end(const error& e) {
        {
            const std::lock_guard lock(mutex_);
            if (cause_ != nullptr) return;
            cause_ = make_sole<error>(e);
        }
        // Other ranks may wait elsewhere for data that this rank will not send any more.
        const bool may_be_own = e.peer() < 0 && e.code() != errc::timeout && e.code() != errc::mismatch;
        side_.internals().net.report(failure(e.code(), may_be_own ? side_.rank() : e.peer()));
        is_ended_.store(true, memory_order::release);
        stop_kernels_();
    }

private:
    struct entry {
        order f;
        bool is_in_graph;
    };
    static constexpr std::int64_t look_every_ns = 5'000'000;

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
        order f;
        {
            const std::lock_guard lock(mutex_);
            const auto e = orders_.find(id);
            if (e == orders_.end()) return end(lost(id));
            if (e->second.is_in_graph) {
                f = e->second.f;
            } else {
                f = std::move(e->second.f);
                orders_.erase(e);
                issued_.fetch_sub(1, memory_order::relaxed);
            }
        }
        try {
            f(side_, with_.in + at, with_.out + at);
        } catch (const error& e) {
            return end(e);
        } catch (const std::exception& e) {
            side_.internals().net.report(failure(errc::aborted, side_.rank()));
            return end(error(errc::aborted, side_.rank(), -1, e.what(), "the operator threw on the host"));
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
        if (!f)
            if (const int dead = find_dead(mine); dead >= 0) f = failure(errc::peer_failed, dead);
        if (!f) return;
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
        if (home.is_threads) return c.find_failed_thread();
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
    std::function<void()> stop_kernels_;
    descriptor bell_;
    std::mutex mutex_; // of orders_ and cause_
    std::map<std::uint64_t, entry> orders_;
    sole_ptr<error> cause_;
    atomic<bool> is_ended_{false}, stops_{false}, has_graphs_{false};
    atomic<long> issued_{0}; // orders that are not part of a graph and not carried out
    std::uint64_t orders_made_ = 0, next_ = 0;
    std::int64_t next_look_ns_ = 0;
    std::thread thread_; // the last member, because it uses the others
};

} // namespace detail
COLLX_END_NAMESPACE
