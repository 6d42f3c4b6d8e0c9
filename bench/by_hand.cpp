// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all_reduce of shared buffers over 2 processes: the sum written by hand (plain_all_reduce.hpp), collx's persistent
// call and its blocking call, in turn within one run, so that all see the same machine. CSV: bytes, microseconds of
// each (median of the rounds), and the median of the rounds' ratios to the sum by hand.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <collx/bootstrap/unique_id.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include "forked.hpp"
#include "perf/harness.hpp"
#include "plain_all_reduce.hpp"
#include "support/stats.hpp"

namespace {

using namespace collx::bench;
using collx::now_ns;

constexpr int variants = 3; // by hand, persistent, blocking
constexpr std::size_t sizes[] = {8, 64, 256, 512, 1024, 2048, 4096, 16384, 65536};

struct shared_state {
    collx::unique_id id;
    std::atomic<int> is_made;
};

double median(numbers v) {
    std::sort(v.begin(), v.end());
    return collx::tools::median_of_sorted(v);
}

class comparison {
public:
    comparison(forked& f, std::size_t bytes, int rounds)
        : forked_(f), bytes_(bytes), rounds_(rounds), state_(pages<shared_state>(sizeof(shared_state), true)),
          memory_(pages<float>(4 * room() * sizeof(float), true)) {}
    ~comparison() {
        ::munmap(state_, sizeof(shared_state));
        ::munmap(memory_, 4 * room() * sizeof(float));
    }
    comparison(const comparison&) = delete;

    void run() {
        const auto all = forked_.run(2, [&](shared_words& w, int me) { return times(w, me); });
        numbers by[variants], ratios[variants];
        for (std::size_t i = 0; i + variants <= all[0].size(); i += variants)
            for (std::size_t k = 0; k < variants; ++k) {
                by[k].push_back(all[0][i + k]);
                ratios[k].push_back(all[0][i + k] / all[0][i]);
            }
        std::printf("%zu,%.4f,%.4f,%.4f,%.3f,%.3f\n", bytes_, median(by[0]), median(by[1]), median(by[2]),
                    median(ratios[1]), median(ratios[2]));
        std::fflush(stdout);
    }

private:
    [[nodiscard]] std::size_t elems() const { return bytes_ / sizeof(float); }
    [[nodiscard]] std::size_t room() const { return std::max<std::size_t>(elems(), 1024); }

    collx::communicator join(int me) {
        if (me == 0) {
            state_->id = collx::unique_id::make_here();
            state_->is_made.store(1, std::memory_order_release);
        }
        while (state_->is_made.load(std::memory_order_acquire) == 0) ::sched_yield();
        return collx::communicator(state_->id, me, 2);
    }
    // By round and variant.
    numbers times(shared_words& w, int me) {
        const bool own_core = forked_.cores() > 1;
        const std::size_t n = elems();
        auto world = join(me);
        shared_all_reduce by_hand{.in = {memory_, memory_ + room()},
                                  .out = {memory_ + 2 * room(), memory_ + 3 * room()},
                                  .n = n,
                                  .words = w,
                                  .me = me,
                                  .own_core = own_core};
        std::fill_n(by_hand.in[me], n, static_cast<float>(me + 1));
        const auto in = collx::make_shared_vector<float>(world, n, static_cast<float>(me + 1));
        auto out = collx::make_shared_vector<float>(world, n, 0.0f);
        auto persistent = collx::persistent::all_reduce(world, in, out);
        const auto inner = std::clamp<std::size_t>((std::size_t{2} << 20) / bytes_, 20, 2000);
        numbers all;
        const auto time = [&](auto&& call, float* result, bool is_kept) {
            std::fill_n(result, n, 0.0f); // of the call before
            w.barrier(me, 2, own_core);   // the peer may write there
            call();
            if (std::any_of(result, result + n, [](float x) { return x != 3; }))
                throw std::runtime_error("a sum is wrong.");
            w.barrier(me, 2, own_core);
            const auto start = now_ns();
            for (std::size_t k = 0; k < inner; ++k) call();
            const double ns = static_cast<double>(now_ns() - start) / static_cast<double>(inner);
            if (is_kept) all.push_back(ns / 1e3);
        };
        for (int r = 0; r <= rounds_; ++r) {
            time(by_hand, by_hand.out[me], r > 0);
            time(persistent, out.data(), r > 0);
            time([&] { collx::all_reduce(world, in, out); }, out.data(), r > 0);
        }
        return all;
    }

    forked& forked_;
    std::size_t bytes_;
    int rounds_;
    shared_state* state_;
    float* memory_;
};

} // namespace

int main(int argc, char** argv) {
    try {
        const int rounds = argc > 1 ? std::atoi(argv[1]) : 31;
        forked f;
        std::puts("bytes,by_hand_us,persistent_us,blocking_us,persistent_ratio,blocking_ratio");
        for (const std::size_t bytes : sizes) comparison(f, bytes, rounds).run();
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "by_hand: %s\n", e.what());
        return 1;
    }
}
