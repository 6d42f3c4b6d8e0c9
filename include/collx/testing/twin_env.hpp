// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The environment of a block on the host: what a kernel needs of the machine, made of threads and atomic words. One
// host thread per block is enough for all orders between blocks; several per block also show a missing barrier inside
// it. ThreadSanitizer sees every word that is shared. The counterpart of cuda_env.cuh.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/device/units.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A barrier that also returns whether any thread passed true. The last thread to arrive starts the next turn.
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
    // Thread `index` of `threads` in group `group`, with the barriers of its group and of the block.
    twin_env(unsigned index, unsigned threads, int group, unsigned groups, twin_barrier& mine, twin_barrier& block)
        : index_(index), threads_(threads), group_(group), groups_(groups), barrier_(mine), block_(block) {}

    using block_env = twin_env;
    using handle = twin_env*;
    handle hand_over() { return this; }
    static twin_env& take_over(handle h) { return *h; }

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
    template <class Unit>
    static Unit load_anywhere(const Unit* p) {
        return *p;
    }
    template <class Unit>
    static void store_anywhere(Unit* p, Unit x) {
        *p = x;
    }
    static unit16 load_line(const unit16* p) { return {load_relaxed(&p->low), load_relaxed(&p->high)}; }
    static void store_line(unit16* p, unit16 x) {
        store_relaxed(&p->low, x.low);
        store_relaxed(&p->high, x.high);
    }

    // A line of 128 bytes. No store of a processor is that wide, so one thread moves it, and its flag is a lock: it is
    // stored last (release) and loaded first (acquire). The data are plain words, so ThreadSanitizer finds a thread
    // that touches a line before its flag, or writes one that is still being read.
    static constexpr unsigned line_threads = 1;
    static bool any_of_line(bool mine) { return mine; }
    static bool try_load_lines(const unit16* pair, std::uint64_t flag, unit16 (&cells)[2][line_cells]) {
        for (unsigned l = 0; l < 2; ++l)
            if (load_acquire(&pair[l * line_cells + line_cells - 1].high) != flag) return false;
        for (unsigned l = 0; l < 2; ++l)
            for (unsigned c = 0; c < line_cells; ++c) {
                const unit16& from = pair[l * line_cells + c];
                cells[l][c].low = from.low;
                if (c + 1 < line_cells) cells[l][c].high = from.high;
            }
        return true;
    }
    static void store_lines(unit16* pair, const unit16 (&cells)[2][line_cells]) {
        for (unsigned l = 0; l < 2; ++l) {
            unit16* to = pair + l * line_cells;
            for (unsigned c = 0; c + 1 < line_cells; ++c) to[c] = cells[l][c];
            to[line_cells - 1].low = cells[l][line_cells - 1].low;
            store_release(&to[line_cells - 1].high, cells[l][line_cells - 1].high);
        }
    }

    // Reduces as a switch does, in another order than the ranks': the reference for multicast.cuh.
    template <class Types, class Args>
    static typename Types::wire_pack reduce_all(const Args& a, const typename Types::op_type& op, std::size_t at) {
        using acc = typename Types::acc_type;
        typename Types::wire_pack w{};
        for (int k = 0; k < Types::elems; ++k) {
            const std::size_t i = at + static_cast<unsigned>(k);
            acc x = static_cast<acc>(a.rank(a.shape.ranks - 1).in.data()[i]);
            if constexpr (Types::reduces)
                for (int r = 0; r < a.shape.ranks - 1; ++r)
                    x = static_cast<acc>(op(x, static_cast<acc>(a.rank(r).in.data()[i])));
            w.v[k] = static_cast<typename Types::wire_type>(x);
        }
        return w;
    }
    template <class Types, class Args>
    static void store_all(const Args& a, std::size_t at, const typename Types::wire_pack& w) {
        for (int r = 0; r < a.shape.ranks; ++r)
            for (int k = 0; k < Types::elems; ++k) a.rank(r).out.data()[at + static_cast<unsigned>(k)] = w.v[k];
    }
    // The same for memories with one layout on all ranks: `at` bytes behind the beginning of each.
    template <class Op, class T, int V>
    static pack<T, V> reduce_at(std::byte* const* memories, int ranks, const std::byte*, std::size_t at) {
        pack<T, V> w = load_pack<twin_env, T, V>(memories[ranks - 1] + at);
        for (int r = 0; r < ranks - 1; ++r) {
            const pack<T, V> next = load_pack<twin_env, T, V>(memories[r] + at);
            for (int k = 0; k < V; ++k) w.v[k] = static_cast<T>(Op{}(w.v[k], next.v[k]));
        }
        return w;
    }
    template <class T, int V>
    static void store_at(std::byte* const* memories, int ranks, std::byte*, std::size_t at, const pack<T, V>& w) {
        for (int r = 0; r < ranks; ++r) store_pack<twin_env>(memories[r] + at, w);
    }
    static void fence_alias() {}

    // Not std::atomic_ref, which libc++ has since its version 19 only.
    static std::uint64_t load_relaxed(const std::uint64_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static std::uint64_t load_acquire(const std::uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static void store_relaxed(std::uint64_t* p, std::uint64_t x) { __atomic_store_n(p, x, __ATOMIC_RELAXED); }
    static void store_release(std::uint64_t* p, std::uint64_t x) { __atomic_store_n(p, x, __ATOMIC_RELEASE); }

    void sync() { barrier_.arrive_and_wait(false); }
    bool any(bool mine) { return barrier_.arrive_and_wait(mine); }
    void sync_block() { block_.arrive_and_wait(false); }
    bool any_of_block(bool mine) { return block_.arrive_and_wait(mine); }

    template <class T>
    static T add_atomically(T* p, T x) {
        T seen, sum;
        __atomic_load(p, &seen, __ATOMIC_RELAXED);
        do sum = static_cast<T>(seen + x);
        while (!__atomic_compare_exchange(p, &seen, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        return seen;
    }

    static void pause() { sched_yield(); }
    static std::uint64_t now_ns() { return static_cast<std::uint64_t>(collx::now_ns()); }

private:
    unsigned index_, threads_;
    int group_;
    unsigned groups_;
    twin_barrier& barrier_;
    twin_barrier& block_;
};

} // namespace device
COLLX_END_NAMESPACE
