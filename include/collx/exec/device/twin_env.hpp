// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The environment of a block on the host: what a kernel asks of the machine, answered with threads and std::atomic_ref.
// One host thread per block is enough for all orders between blocks; more than one per block show a missing barrier
// inside it, too. ThreadSanitizer sees every word that is shared. The twin of cuda_env.cuh.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/device/units.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A barrier that also answers whether anybody said yes. The last to come opens it for this turn's number.
class twin_barrier {
public:
    explicit twin_barrier(unsigned threads) : threads_(threads) {}

    bool arrive_and_wait(bool mine) {
        if (threads_ == 1) return mine;
        const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
        std::atomic<bool>& said = said_[turn & 1];
        if (mine) said.store(true, std::memory_order_relaxed);
        if (come_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
            said_[(turn + 1) & 1].store(false, std::memory_order_relaxed);
            come_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
        } else {
            while (turn_.load(std::memory_order_acquire) == turn) sched_yield();
        }
        return said.load(std::memory_order_relaxed);
    }

private:
    unsigned threads_;
    std::atomic<unsigned> come_{0};
    std::atomic<std::uint32_t> turn_{0};
    std::atomic<bool> said_[2] = {false, false};
};

class twin_env {
public:
    // `index` of `threads` threads in group `group`; barriers of the group and of all groups of the block.
    twin_env(unsigned index, unsigned threads, int group, unsigned groups, twin_barrier& mine, twin_barrier& block)
        : index_(index), threads_(threads), group_(group), groups_(groups), barrier_(mine), block_(block) {}

    unsigned index() const { return index_; }
    unsigned threads() const { return threads_; }
    int group() const { return group_; }
    unsigned index_in_block() const { return static_cast<unsigned>(group_) * threads_ + index_; }
    unsigned threads_in_block() const { return groups_ * threads_; }

    template <class Unit>
    static Unit load(const Unit* p) {
        return *p;
    }
    template <class Unit>
    static void store(Unit* p, Unit x) {
        *p = x;
    }
    static unit16 load_line(const unit16* p) { return {load_relaxed(&p->low), load_relaxed(&p->high)}; }
    static void store_line(unit16* p, unit16 x) {
        store_relaxed(&p->low, x.low);
        store_relaxed(&p->high, x.high);
    }

    static std::uint64_t load_relaxed(const std::uint64_t* p) { return word(p).load(std::memory_order_relaxed); }
    static std::uint64_t load_acquire(const std::uint64_t* p) { return word(p).load(std::memory_order_acquire); }
    static void store_relaxed(std::uint64_t* p, std::uint64_t x) { word(p).store(x, std::memory_order_relaxed); }
    static void store_release(std::uint64_t* p, std::uint64_t x) { word(p).store(x, std::memory_order_release); }

    void sync() { barrier_.arrive_and_wait(false); }
    bool any(bool mine) { return barrier_.arrive_and_wait(mine); }
    void sync_block() { block_.arrive_and_wait(false); }

    static void pause() { sched_yield(); }
    static std::uint64_t now_ns() { return static_cast<std::uint64_t>(collx::now_ns()); }

private:
    static std::atomic_ref<std::uint64_t> word(const std::uint64_t* p) {
        return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(p));
    }
    unsigned index_, threads_;
    int group_;
    unsigned groups_;
    twin_barrier& barrier_;
    twin_barrier& block_;
};

} // namespace device
COLLX_END_NAMESPACE
