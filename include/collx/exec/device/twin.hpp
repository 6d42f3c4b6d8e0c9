// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine of the host twin: the kernels' own code on host threads, one thread (or more) per block, all blocks of a
// launch at once. What runs on a GPU is thereby what the sanitizers see; only cuda_env.cuh is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <collx/exec/device/team.hpp>
#include <collx/exec/device/twin_env.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

class twin_machine {
public:
    // threads: of a block's group. separate: each rank has a launch of its own, as on several devices; launches then
    // wait in a queue per rank until synchronize(), and the ranks' queues run beside each other.
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
    std::uint64_t load_host(const std::uint64_t* p) const { return twin_env::load_relaxed(p); }
    void store_host(std::uint64_t* p, std::uint64_t x) const { twin_env::store_release(p, x); }
    int lanes(const exchange_shape& s) const { return s.lanes; }
    bool is_one_launch() const { return !separate_; }

    void require_memory(int rank, const void* p, const char* which) const {
        if (p == nullptr)
            fail(errc::invalid_argument, rank, -1, "pass memory, or a size of 0", "the %s buffer is null", which);
    }

    // A rank whose blocks never start, as if it had not made the call: for tests of deadlines.
    void leave_out(int rank) { missing_ = rank; }

    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch(const fused_args<Algorithm, Types>& a, const fused_options&) {
        if (!separate_) return run<Protocol, Groups>(a, 0, a.shape.ranks);
        queues_.resize(static_cast<unsigned>(a.shape.ranks));
        for (int r = 0; r < a.shape.ranks; ++r)
            queues_[static_cast<unsigned>(r)].push_back([this, a, r] { run<Protocol, Groups>(a, r, 1); });
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
    template <class Protocol, int Groups, class Algorithm, class Types>
    void run(const fused_args<Algorithm, Types>& a, int first, int count) const {
        std::vector<std::thread> threads;
        std::vector<std::unique_ptr<block>> blocks;
        for (int rank = first; rank < first + count; ++rank)
            for (int lane = 0; lane < a.lanes; ++lane) {
                if (rank == missing_) continue;
                blocks.push_back(std::make_unique<block>(threads_, Groups));
                block& b = *blocks.back();
                for (int group = 0; group < Groups; ++group)
                    for (unsigned t = 0; t < threads_; ++t)
                        threads.emplace_back([&a, &b, rank, lane, group, t, n = threads_] {
                            twin_env env(t, n, group, Groups, b.groups[static_cast<unsigned>(group)], b.all);
                            executor<twin_env, Algorithm, Types, Protocol, Groups>(env, a, b.state, rank, lane).run();
                        });
            }
        for (auto& t : threads) t.join();
    }

    unsigned threads_;
    bool separate_;
    int missing_ = -1;
    std::vector<std::vector<std::function<void()>>> queues_; // by rank
};

} // namespace device
COLLX_END_NAMESPACE
