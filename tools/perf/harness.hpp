// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the ranks of a measurement share, separate from what is measured: a barrier, the time stamps of each sample, the
// plan that rank 0 makes for all, a measurement of how far apart the ranks' cores are, and the notification that a rank
// gave up. One block of memory that all ranks see. Independent of collectives. Calls nothing of the library but its
// clock, so that a wait here moves no operation on.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "line_time.hpp"

namespace collx::tools::perf {

class harness {
    static constexpr int most_partners = 4;
    struct block {
        alignas(64) std::atomic<std::uint32_t> arrived;
        alignas(64) std::atomic<std::uint32_t> generation;
        std::atomic<std::uint32_t> sleepers, gave_up;
        alignas(64) std::int64_t plan[8]; // written by rank 0 between two barriers
        std::atomic<std::uint64_t> wrong;
        line_look looks[most_partners];
    };
    struct stamp_pair {
        std::int64_t start, end;
    };

public:
    static constexpr int sample_limit = 4096;
    static std::size_t bytes(int ranks) {
        return sizeof(block) + static_cast<std::size_t>(ranks) *
                                   (sizeof(stamp_pair) * sample_limit + sizeof(std::uint64_t) + sizeof(int));
    }

    // `memory`: bytes(ranks) of zeros that every rank sees, 64-byte aligned. `cores`: how many cores the ranks may use.
    harness(void* memory, int rank, int ranks, int cores)
        : block_(static_cast<block*>(memory)), stamps_(reinterpret_cast<stamp_pair*>(block_ + 1)),
          hashes_(reinterpret_cast<std::uint64_t*>(stamps_ + static_cast<std::size_t>(ranks) * sample_limit)),
          processors_(reinterpret_cast<int*>(hashes_ + ranks)), rank_(rank), ranks_(ranks), spins_(ranks <= cores) {}

    // Spins if each rank has its own core, else sleeps. Errors: std::runtime_error if another rank gave up or does not
    // arrive for minutes.
    void barrier() {
        barrier([] {}, 500'000'000);
    }
    // The same, but calls `progress` now and then. A library whose sends progress only inside its own calls would hold
    // back ranks that still wait for its data.
    template <class Progress>
    void barrier(Progress&& progress, long nap_ns) {
        const auto generation = block_->generation.load(std::memory_order_acquire);
        if (block_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<unsigned>(ranks_)) {
            block_->arrived.store(0, std::memory_order_relaxed);
            block_->generation.store(generation + 1, std::memory_order_seq_cst);
            if (block_->sleepers.load(std::memory_order_seq_cst) != 0) futex(FUTEX_WAKE, 1 << 30, nullptr);
            return;
        }
        const auto passed = [&] { return block_->generation.load(std::memory_order_acquire) != generation; };
        for (int i = 1; spins_ && i <= 40'000; ++i) {
            if (passed()) return;
            if (i % 64 == 0) progress();
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        constexpr std::int64_t patience_ns = 300'000'000'000;
        for (std::int64_t napped_ns = 0; !passed();) {
            progress();
            const timespec t{0, nap_ns};
            block_->sleepers.fetch_add(1, std::memory_order_seq_cst);
            const long woken = futex(FUTEX_WAIT, static_cast<int>(generation), &t);
            block_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
            if (!passed() && block_->gave_up.load(std::memory_order_acquire) != 0)
                throw std::runtime_error("Another rank gave up.");
            if (woken != 0 && (napped_ns += nap_ns) > patience_ns)
                throw std::runtime_error("The other ranks did not come within five minutes.");
        }
    }
    // Ends the waits of all ranks, present and future.
    void give_up() {
        block_->gave_up.store(1, std::memory_order_release);
        futex(FUTEX_WAKE, 1 << 30, nullptr);
    }

    void stamp(int sample, std::int64_t start, std::int64_t end) { stamps_[at(rank_, sample)] = {start, end}; }
    // Returns the latest end minus the earliest start over all ranks.
    [[nodiscard]] double span_ns(int sample) const {
        auto first = stamps_[at(0, sample)].start, last = stamps_[at(0, sample)].end;
        for (int r = 1; r < ranks_; ++r) {
            first = std::min(first, stamps_[at(r, sample)].start);
            last = std::max(last, stamps_[at(r, sample)].end);
        }
        return static_cast<double>(last - first);
    }

    /// Called by all ranks together. Measures how long a cache line takes just now from rank 0's core to that of
    /// another rank, one way, in ns: the slowest of up to four other ranks, no two of them on one core. No rank is
    /// moved. Ensures: rank 0 has the answer. The others have NaN, and so has rank 0 if all are on its core or the
    /// other did not answer in time. Cost: two barriers (`wait`), at most 0.3 ms a pair on an idle machine, never more
    /// than 2 ms for all.
    template <class Wait>
    double line_ns(Wait&& wait) {
        processors_[rank_] = ::sched_getcpu();
        if (rank_ == 0)
            for (auto& look : block_->looks) look.begin();
        wait();
        const std::vector<int> others = partners({processors_, static_cast<std::size_t>(ranks_)});
        double slowest = std::numeric_limits<double>::quiet_NaN();
        const std::int64_t begun_ns = now_ns();
        for (std::size_t k = 0; k < others.size(); ++k) {
            if (rank_ != 0 && rank_ != others[k]) continue;
            if (rank_ == 0) slowest = std::fmax(slowest, block_->looks[k].lead(begun_ns + 2'000'000));
            else block_->looks[k].follow(begun_ns + 100'000'000); // rank 0 says when it is over
        }
        wait();
        return slowest;
    }

    /// Returns the ranks to which rank 0 measures, given each rank's core. No two ranks share a core: a rank that waits
    /// for its core could not answer.
    [[nodiscard]] static std::vector<int> partners(std::span<const int> cores) {
        std::vector<int> out, taken{cores[0]};
        for (int r = 1; r < static_cast<int>(cores.size()) && static_cast<int>(out.size()) < most_partners; ++r) {
            const int core = cores[static_cast<std::size_t>(r)];
            if (std::find(taken.begin(), taken.end(), core) != taken.end()) continue;
            taken.push_back(core);
            out.push_back(r);
        }
        return out;
    }

    std::int64_t& plan(int i) { return block_->plan[i]; }
    std::uint64_t& hash(int rank) { return hashes_[rank]; }
    std::atomic<std::uint64_t>& wrong() { return block_->wrong; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return ranks_; }

private:
    static std::size_t at(int rank, int sample) {
        return static_cast<std::size_t>(rank) * sample_limit + static_cast<std::size_t>(sample);
    }
    long futex(int what, int value, const timespec* limit) {
        return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&block_->generation), what, value, limit, nullptr,
                       0);
    }

    block* block_;
    stamp_pair* stamps_;
    std::uint64_t* hashes_;
    int* processors_; // of each rank, when it came to the last measurement
    int rank_, ranks_;
    bool spins_;
};

} // namespace collx::tools::perf
