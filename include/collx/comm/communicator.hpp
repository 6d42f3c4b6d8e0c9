// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A group of ranks that call collectives together. Movable, not copyable; made by all its ranks together, destroyed by each alone without waiting.
//
//   collx::communicator world;                       // alone, under collx_run, under COLLX_* variables, inside run_threads
//   auto rows = world.split(world.rank() / 4);       // everybody with the same colour, ordered by rank
//
// Order: all ranks call the collectives of one communicator in the same order. Different communicators are independent. One communicator belongs to
// one thread at a time.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <collx/comm/job.hpp>
#include <collx/comm/world.hpp>
#include <collx/exec/task.hpp>
#include <collx/plan/policy.hpp>
#include <collx/plan/schedules.hpp>

COLLX_BEGIN_NAMESPACE

class communicator {
public:
    // All ranks of the job. Throws error (environment, timeout, peer_failed, …) when they do not come together.
    communicator() : communicator(detail::this_job()) {}
    explicit communicator(std::shared_ptr<job> j) : core_(std::make_unique<core>(std::move(j))) {}
    // An exchange of one's own: `store` models Store (bootstrap/store.hpp).
    template <class Store>
    communicator(int rank, int size, Store& store, std::chrono::nanoseconds timeout = std::chrono::seconds(60))
        : communicator(detail::join_by_store(rank, size, store, timeout.count())) {}

    communicator(communicator&&) noexcept = default;
    communicator& operator=(communicator&&) noexcept = default;

    int rank() const { return core_->net.rank(); }
    int size() const { return core_->net.size(); }

    // How long calls wait for peers before they throw timed_out.
    void set_timeout(std::chrono::nanoseconds t) { core_->settings.timeout_ns = t.count(); }
    // Whether every call first compares its arguments across ranks (an error that names the odd ranks instead of a hang). Collective.
    void set_checked(bool on) { core_->settings.checked = on; }
    bool is_checked() const { return core_->settings.checked; }

    // A new communicator of all ranks with the same colour, in the order of (key, rank). A negative colour takes no part and receives an empty one.
    communicator split(int color, int key = 0);
    bool is_empty() const { return core_ == nullptr; }

    // Ends the communicator for all ranks: every call under way or to come throws aborted. Local, immediate, from any thread.
    void abort() { core_->net.report(failure(errc::aborted, rank())); }

    // Moves outstanding operations on without waiting. Returns how many are left.
    std::size_t progress() { return core_->progress_pending(); }

    links::traffic sent() const { return core_->net.sent(); }
    std::uint64_t sequence() const { return core_->sequence; }
    std::shared_ptr<const job> membership() const { return core_->home; }

    // The same communicator with policies bound: all_reduce(comm.with(ring_all_reduce{}), x).
    template <class... Policies>
    auto with(Policies... p) &;

    struct core;
    core& internals() { return *core_; }

private:
    explicit communicator(std::unique_ptr<core> c) : core_(std::move(c)) {}
    std::unique_ptr<core> core_;
};

// The working parts; verbs use them, programs do not.
struct communicator::core {
    explicit core(std::shared_ptr<job> j)
        : core(j, j->agree_on_world(deadline::in_ns(j->settings.timeout_ns)), j->rank, j->size, {}) {}

    core(std::shared_ptr<job> j, std::uint64_t at, int rank, int n, std::vector<int> members_)
        : home(std::move(j)), offset(at), settings(home->settings), net(*home->memory, at, rank, n), schedules(net), members(std::move(members_)) {
        if (members.empty())
            for (int r = 0; r < n; ++r) members.push_back(r);
        exchange_window = net.make_window({.signals = 1, .segments = 0, .depth = 2, .segment_bytes = 0});
        attach();
    }
    core(const core&) = delete;
    ~core() {
        if (home->mark.is_child()) return;
        const auto bytes = links_layout::for_ranks(net.size()).bytes();
        if (net.control().users.fetch_sub(1, std::memory_order_acq_rel) == 1) home->memory->give_back(offset, bytes);
    }

    // ------------------------------------------------------------------ running operations
    // Runs an operation to its end. Throws what ended it.
    template <class Operation>
    void run(Operation& op, std::int64_t timeout_ns) {
        backoff wait(settings.waiting);
        std::int64_t until = 0;
        for (;;) {
            const progress p = op.advance();
            if (p == progress::done) return;
            if (p == progress::failed) give_up(op.error, op.waiting_for);
            if (!pending.empty()) progress_pending();
            if (p == progress::moved) wait.reset();
            else if (wait.pause()) check(until, timeout_ns, op.waiting_for);
        }
    }

    // The slow questions of a wait.
    void check(std::int64_t& until, std::int64_t timeout_ns, int waiting_for) {
        if (const failure f = net.failed()) give_up(f, -1);
        const std::int64_t now = now_ns(), limit = timeout_ns > 0 ? timeout_ns : settings.timeout_ns;
        if (until == 0) until = now + limit, next_watch_ns = 0;
        if (now >= next_watch_ns) {
            next_watch_ns = now + 2'000'000;
            if (const int dead = find_dead(); dead >= 0) give_up(failure(errc::peer_failed, dead), dead);
        }
        if (now >= until) give_up(failure(errc::timeout, waiting_for), waiting_for);
    }
    int find_dead() {
        const int world_rank = home->watch.find_dead();
        for (int r = 0; world_rank >= 0 && r < net.size(); ++r)
            if (members[static_cast<std::size_t>(r)] == world_rank) return r;
        return -1;
    }

    // Makes the failure known to all ranks and throws the first one that anybody reported.
    [[noreturn, gnu::cold, gnu::noinline]] void give_up(failure f, int waiting_for);

    // Before each call: a communicator that failed stays failed, and a forked child has none.
    void begin_call() {
        if (home->mark.is_child())
            fail(errc::forked, net.rank(), -1, "make a communicator in the child, or fork before the first one", "this process is a fork() of the rank");
        if (const failure f = net.failed(); f) give_up(f, -1);
        ++sequence;
    }

    // Every rank shows the others up to 56 bytes. The same window and argument as one_shot: seeing all signals of one exchange proves that the one
    // before has been read.
    template <class Visit>
    void exchange(const void* mine, std::size_t bytes, Visit&& visit) {
        const std::uint64_t i = exchanges++;
        auto& line = exchange_window.line(net.rank(), 0, i);
        std::memcpy(line.payload, mine, bytes);
        line.number.store(i + 1, std::memory_order_release);
        std::int64_t until = 0;
        for (int r = 0; r < net.size(); ++r) {
            auto& other = exchange_window.line(r, 0, i);
            for (backoff b(settings.waiting); other.number.load(std::memory_order_acquire) <= i;)
                if (b.pause()) check(until, 0, r);
            visit(r, other.payload);
        }
    }

    // ------------------------------------------------------------------ outstanding operations
    struct outstanding {
        std::shared_ptr<operation> op;
        int queue;  // operations of one queue run one after the other
    };
    std::size_t progress_pending() {
        std::uint64_t busy = 0;
        for (std::size_t i = 0; i < pending.size();) {
            auto& p = pending[i];
            const std::uint64_t bit = std::uint64_t{1} << (p.queue & 63);
            if ((busy & bit) == 0) {
                const progress s = p.op->state = p.op->advance();
                if (s == progress::done || s == progress::failed) {
                    if (s == progress::failed) net.report(p.op->error);
                    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
                    continue;
                }
            }
            busy |= bit;
            ++i;
        }
        return pending.size();
    }

    void attach() {
        net.control().attached.fetch_add(1, std::memory_order_acq_rel);
        std::int64_t until = 0;
        for (backoff b(settings.waiting); net.control().attached.load(std::memory_order_acquire) < net.size();)
            if (b.pause()) check(until, 0, -1);
    }

    std::shared_ptr<job> home;
    std::uint64_t offset;
    job_settings settings;
    links net;
    schedule_cache schedules;
    std::vector<int> members;  // rank here -> rank of the job
    std::vector<outstanding> pending;
    window_memory exchange_window;
    std::uint64_t exchanges = 0, sequence = 0, asyncs = 0;
    std::int64_t next_watch_ns = 0;
};

COLLX_END_NAMESPACE
