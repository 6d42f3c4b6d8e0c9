// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine of the host twin: it runs the kernels' own code on host threads, one or more per block, all blocks of a
// launch at once. So the sanitizers see the code that runs on a GPU, except cuda_env.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <collx/exec/device/team.hpp>
#include <collx/testing/twin_env.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Launches the kernels of a fused team as host threads.
class twin_machine {
public:
    // threads: of a block's group. separate: each rank has its own launch, as on several devices. Launches then wait in
    // a queue per rank until synchronize(), which runs the queues in parallel.
    explicit twin_machine(unsigned threads = 1, bool separate = false) : threads_(threads), separate_(separate) {}

    std::byte* allocate(int, std::size_t bytes) {
        auto* p = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{line_bytes}));
        __builtin_memset(p, 0, bytes);
        return p;
    }
    void free(int, std::byte* p) { ::operator delete (p, std::align_val_t{line_bytes}); }
    std::byte* allocate_host(std::size_t bytes) { return allocate(0, bytes); }
    void free_host(std::byte* p) { free(0, p); }
    std::byte* on_device(std::byte* p) const { return p; }
    std::uint64_t load_host(const std::uint64_t* p) const { return twin_env::load_acquire(p); }
    void store_host(std::uint64_t* p, std::uint64_t x) const { twin_env::store_release(p, x); }
    int lanes(const exchange_shape& s) const { return s.lanes; }
    bool is_one_launch() const { return !separate_; }
    bool has_multicast(const fused_options&) const { return true; } // it needs no addresses: it has the buffers
    bool lines_arrive_whole() const { return true; }                // their flags are locks: twin_env.hpp

    void require_memory(int rank, const void* p, const char* which) const {
        if (p == nullptr)
            fail(errc::invalid_argument, rank, -1, "pass memory, or a size of 0", "the %s buffer is null", which);
    }

    // The blocks of this rank never start, as if it had not made the call: for tests of deadlines.
    void leave_out(int rank) { missing_ = rank; }
    // Runs only these lanes, as if other ranks moved the others' pieces: for tests of counts that no memory holds.
    void run_only(std::vector<int> lanes) { only_ = std::move(lanes); }

    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch(const fused_args<Algorithm, Types>& a, const fused_options&) {
        start(a.shape.ranks, [this, a](int first, int count) {
            run(Groups, a.lanes, first, count, [&a](twin_env& env, block_state& shared, int rank, int lane) {
                executor<executor_kind<twin_env, Algorithm, Types, Protocol, Groups>>(env, a, shared, rank, lane).run();
            });
        });
    }
    template <class... Calls>
    void launch_group(const call_list<Calls...>& calls, int lanes, int ranks, const fused_options&) {
        start(ranks, [this, calls, lanes](int first, int count) {
            run(1, lanes, first, count, [&calls](twin_env& env, block_state& shared, int rank, int lane) {
                run_calls(env, calls, shared, rank, lane);
            });
        });
    }
    void synchronize(const fused_options& = {}) {
        std::vector<std::thread> streams;
        for (auto& q : queues_)
            streams.emplace_back([&q] {
                for (auto& f : q) f();
            });
        for (auto& s : streams) s.join();
        queues_.clear();
    }

private:
    struct block {
        block(unsigned threads, unsigned count)
            : all(threads * count), groups{twin_barrier(threads), twin_barrier(threads), twin_barrier(threads),
                                           twin_barrier(threads)} {}
        block_state state{};
        twin_barrier all;
        twin_barrier groups[max_groups];
    };
    template <class Run>
    void start(int ranks, const Run& f) {
        if (!separate_) return f(0, ranks);
        queues_.resize(static_cast<unsigned>(ranks));
        for (int r = 0; r < ranks; ++r) queues_[static_cast<unsigned>(r)].push_back([f, r] { f(r, 1); });
    }
    // Runs the blocks of ranks first, first + 1, …: body(env, shared, rank, lane) on each of their threads.
    template <class Body>
    void run(int group_count, int lanes, int first, int count, const Body& body) const {
        std::vector<std::thread> threads;
        std::vector<std::unique_ptr<block>> blocks;
        for (int rank = first; rank < first + count; ++rank)
            for (int lane = 0; lane < lanes; ++lane) {
                if (rank == missing_ || !wants(lane)) continue;
                blocks.push_back(std::make_unique<block>(threads_, static_cast<unsigned>(group_count)));
                block& b = *blocks.back();
                for (int group = 0; group < group_count; ++group)
                    for (unsigned t = 0; t < threads_; ++t)
                        threads.emplace_back([&body, &b, rank, lane, group, group_count, t, n = threads_] {
                            twin_env env(t, n, group, static_cast<unsigned>(group_count),
                                         b.groups[static_cast<unsigned>(group)], b.all);
                            body(env, b.state, rank, lane);
                        });
            }
        for (auto& t : threads) t.join();
    }
    bool wants(int lane) const {
        if (only_.empty()) return true;
        for (const int l : only_)
            if (l == lane) return true;
        return false;
    }

    unsigned threads_;
    bool separate_;
    int missing_ = -1;
    std::vector<int> only_;
    std::vector<std::vector<std::function<void()>>> queues_; // by rank
};

} // namespace device
COLLX_END_NAMESPACE
