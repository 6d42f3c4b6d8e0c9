// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a point (operation, size, place) is measured. The harness that measures other libraries uses the same method, so
// that numbers can be compared:
//   1. verified calls on known patterns;
//   2. at least four untimed batches and 2 ms, which also estimate one call;
//   3. samples: a barrier, then `batch` calls; the value is (latest end - earliest start over all ranks) / batch.
// Buffers are ordinary pages, touched before, the same for all points. Rooted operations have another root in each
// call, so that a root cannot run ahead of the others.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <collx/comm/communicator.hpp>
#include <collx/comm/shared_memory.hpp>

#include "calls.hpp"
#include "harness.hpp"
#include "options.hpp"
#include "pattern.hpp"
#include "sampling.hpp"
#include "support/stats.hpp"

namespace collx::tools::perf {

struct result {
    operation op = operation::all_reduce;
    std::size_t bytes = 0, count = 0;
    bool in_place = false;
    std::string algorithm; // empty: as the options say
    double scale = 1;      // pingpong: half a round trip
    double predicted_us = std::numeric_limits<double>::quiet_NaN();
    timing t = {};
    double algbw = 0, busbw = 0; // GB/s
    std::uint64_t wrong = 0;
    bool checked = false;
};

// The data of a point: ordinary pages, or memory of collx's allocator.
class buffers {
public:
    buffers(communicator& world, bool shared, std::size_t top_bytes)
        : shared_(shared), allocator_(world), bytes_{top_bytes + 4096, 2 * top_bytes + 4096} {
        for (int k = 0; k < 2; ++k) {
            bytes_[k] = (bytes_[k] + 4095) / 4096 * 4096 + 4096;
            if (shared_) at_[k] = allocator_.allocate(bytes_[k]);
            else {
                void* p = ::mmap(nullptr, bytes_[k], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (p == MAP_FAILED)
                    throw std::runtime_error("There is not enough memory for buffers of " + std::to_string(bytes_[k]) +
                                             " bytes.");
                at_[k] = static_cast<std::byte*>(p);
            }
            std::memset(at_[k], 0, bytes_[k]);
        }
    }
    buffers(const buffers&) = delete;
    ~buffers() {
        for (int k = 0; k < 2; ++k)
            if (shared_) allocator_.deallocate(at_[k], bytes_[k]);
            else ::munmap(at_[k], bytes_[k]);
    }
    [[nodiscard]] std::byte* send() const { return at_[0]; }
    [[nodiscard]] std::byte* recv() const { return at_[1]; }
    [[nodiscard]] std::size_t recv_bytes() const { return bytes_[1]; }

private:
    bool shared_;
    shared_allocator<std::byte> allocator_;
    std::size_t bytes_[2];
    std::byte* at_[2] = {};
};

class meter {
public:
    meter(communicator& world, harness& meeting, buffers& memory, const options& o)
        : world_(world), meeting_(meeting), memory_(memory), o_(o) {}

    /// Called by all ranks together; the result is rank 0's. Requires: a size of rounded_sizes().
    result measure(operation op, std::size_t bytes, bool in_place) {
        return measure_in_turn(op, bytes, in_place, {o_.algorithm}).front();
    }

    /// Measures each algorithm (empty: the library's choice), one sample of each in turn.
    std::vector<result> measure_in_turn(operation op, std::size_t bytes, bool in_place,
                                        const std::vector<std::string>& algorithms) {
        std::vector<std::unique_ptr<timed_calls>> calls;
        std::vector<result> all;
        for (const std::string& name : algorithms) {
            call_request r = request(op, bytes, in_place);
            r.algorithm = name;
            calls.push_back(make_calls(o_.type, r));
            all.push_back({.op = op,
                           .bytes = op == operation::barrier ? 0 : bytes,
                           .count = r.count,
                           .in_place = in_place,
                           .algorithm = name,
                           .scale = op == operation::pingpong ? 0.5 : 1});
            if (o_.check && op != operation::barrier) check(r, *calls.back(), all.back());
        }
        world_.set_checked(false);
        // Sums in place must not grow without bound.
        std::memset(memory_.send(), 0, bytes);
        std::memset(memory_.recv(), 0, std::min(2 * bytes, memory_.recv_bytes()));
        const auto run_of = [](timed_calls& c) { return [&c](int count) { c.run(count); }; };
        std::vector<decltype(run_of(*calls.front()))> runs;
        for (const auto& c : calls) runs.push_back(run_of(*c));
        sampler samples(meeting_, rules_of(o_), [this] { meeting_.barrier(); });
        const std::vector<timing> times = samples.measure_in_turn(std::span(runs), all.front().scale);
        if (meeting_.rank() == 0)
            for (std::size_t k = 0; k < all.size(); ++k) evaluate(times[k], all[k]);
        return all;
    }

private:
    call_request request(operation op, std::size_t bytes, bool in_place) const {
        const int n = meeting_.size(), me = meeting_.rank();
        call_request r{.world = &world_,
                       .op = op,
                       .how = o_.how,
                       .in_place = in_place,
                       .shared = o_.shared,
                       .attach = o_.attach,
                       .piece_bytes = o_.piece_bytes,
                       .algorithm = {},
                       .whole = bytes / bytes_of(o_.type),
                       .count = count_of(op, bytes, bytes_of(o_.type), n),
                       .rank = me,
                       .ranks = n,
                       .root = o_.root,
                       .send = memory_.send(),
                       .recv = memory_.recv()};
        if (op == operation::broadcast) r.recv = r.send;
        if (in_place && op != operation::all_gather) r.recv = r.send;
        return r;
    }

    // ------------------------------------------------------------------ verified calls
    void check(const call_request& r, timed_calls& calls, result& out) {
        world_.set_checked(true);
        const auto before = meeting_.wrong().load();
        meeting_.barrier();
        out.checked = true;
        check_pattern(r, calls, pattern_kind::exact);
        const bool rounds = o_.type >= element::half && reduces(r.op);
        if (rounds && !o_.is_comparison) check_pattern(r, calls, pattern_kind::rough);
        meeting_.barrier();
        out.wrong = meeting_.wrong().load() - before;
        meeting_.barrier();
    }
    void check_pattern(const call_request& r, timed_calls& calls, pattern_kind kind) {
        switch (o_.type) {
            case element::int8: return check_as<std::int8_t>(r, calls, kind);
            case element::uint8: return check_as<std::uint8_t>(r, calls, kind);
            case element::int32: return check_as<std::int32_t>(r, calls, kind);
            case element::uint32: return check_as<std::uint32_t>(r, calls, kind);
            case element::int64: return check_as<std::int64_t>(r, calls, kind);
            case element::uint64: return check_as<std::uint64_t>(r, calls, kind);
            case element::half: return check_as<f16>(r, calls, kind);
            case element::bfloat16: return check_as<bf16>(r, calls, kind);
            case element::float64: return check_as<double>(r, calls, kind);
            default: return check_as<float>(r, calls, kind);
        }
    }
    template <class T>
    void check_as(const call_request& r, timed_calls& calls, pattern_kind kind) {
        const int me = r.rank, root = o_.root >= 0 ? o_.root : r.ranks - 1;
        const pattern<T> data(kind, reduces(r.op) ? o_.how : reduction::sum, r.ranks);
        auto* send = static_cast<T*>(r.send);
        auto* recv = static_cast<T*>(r.recv);
        if (recv != send)
            std::memset(recv, 0xA5, r.op == operation::all_to_all_v ? 2 * r.whole * sizeof(T) : r.whole * sizeof(T));
        if (r.op == operation::broadcast && me != root) std::memset(send, 0xA5, r.whole * sizeof(T));
        else if (r.op == operation::all_gather)
            data.fill(r.in_place ? recv + static_cast<std::size_t>(me) * r.count : send, r.count, me);
        else data.fill(send, r.whole, me);
        meeting_.barrier();
        calls.run_once(root);
        std::uint64_t wrong = 0;
        for (const auto& part : expected_parts(r.op, r.whole, me, r.ranks, root, r.in_place))
            wrong += data.count_wrong(recv, part);
        if (wrong != 0) {
            meeting_.wrong().fetch_add(wrong);
            std::fprintf(stderr, "collx_perf: rank %d: WRONG RESULT: %s of %zu bytes%s: %llu elements\n", me,
                         long_name(r.op), r.whole * sizeof(T), r.in_place ? " in place" : "",
                         static_cast<unsigned long long>(wrong));
        }
        if (r.op == operation::all_reduce || r.op == operation::all_gather || r.op == operation::broadcast)
            check_equal(r, hash_of(recv, r.whole * sizeof(T)));
    }
    // Ranks that hold the same result must hold the same bits.
    void check_equal(const call_request& r, std::uint64_t hash) {
        meeting_.hash(r.rank) = hash;
        meeting_.barrier();
        if (r.rank != 0 && hash != meeting_.hash(0)) {
            meeting_.wrong().fetch_add(1);
            std::fprintf(stderr, "collx_perf: rank %d: WRONG RESULT: %s: its bits differ from those of rank 0\n",
                         r.rank, long_name(r.op));
        }
        meeting_.barrier();
    }

    static sampling_rules rules_of(const options& o) {
        return {.budget_ms = o.budget_ms,
                .sample_us = o.sample_us,
                .min_samples = o.min_samples,
                .max_samples = o.max_samples,
                .iterations = o.iterations,
                .warmups = o.warmups};
    }
    void evaluate(const timing& t, result& out) const {
        out.t = t;
        out.algbw = static_cast<double>(out.bytes) / t.us.median / 1e3;
        out.busbw = out.algbw * bus_factor(out.op, meeting_.size());
    }

    communicator& world_;
    harness& meeting_;
    buffers& memory_;
    const options& o_;
};

} // namespace collx::tools::perf
