// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The GPU's part of a call that goes by way of the host. One kernel copies the input into pinned memory and signals it;
// a later one waits for the result and copies it back. In between a thread of the host runs the collective
// (gpu/proxy.hpp). All numbers live in memory and not in the kernels' arguments, so a captured call may be replayed.
// Written for an environment, like the executor: a GPU's blocks or the host's threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/views.hpp>
#include <collx/exec/device/call_words.hpp>
#include <collx/exec/device/copy_run.hpp>
#include <collx/exec/device/operands.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

inline constexpr int max_staging_lanes = 16;   // of a kernel
inline constexpr unsigned staging_turns = 2;   // buffers: one is filled while the other is on its way
inline constexpr unsigned staging_orders = 16; // more than can be under way: a stream has two turns at most

// Pinned memory of the host that kernels map. All words only grow.
struct alignas(line_bytes) staging_words {
    // Pieces that lane l has copied in. Written by its block: release, system. Read by the host: acquire.
    std::uint64_t staged[max_staging_lanes];
    // What to do with piece k, at k modulo staging_orders. Written by the block of lane 0 before staged[0].
    std::uint64_t order[staging_orders];
    // Pieces whose result has arrived. Written by the host: release. Read by all blocks: acquire, system.
    alignas(line_bytes) std::uint64_t done;
    // Nonzero once the host gave up: no more results will come. Written by the host, release.
    std::uint64_t abort;
    // Why kernels gave up, if they did: a staging_end. Written by any block: relaxed. Read by the host.
    alignas(line_bytes) std::uint64_t gave_up;
};
// Why a kernel gave up.
struct staging_end {
    static constexpr std::uint64_t waited_too_long = 1;
    static constexpr std::uint64_t peer_gave_up = 2; // another rank's kernel, so that data is missing
};
// Leaves that reason, unless there is one.
template <class Env>
COLLX_HD inline void say_peer_gave_up(staging_words* words) {
    if (Env::load_relaxed(&words->gave_up) == 0) Env::store_relaxed(&words->gave_up, staging_end::peer_gave_up);
}

// A lane's own counts, in device memory: only its block reads and writes them, one kernel after the other. has_failed:
// a result did not arrive, so buffers may be in use and data is missing. Nothing is staged any more.
struct alignas(line_bytes) staging_counts {
    std::uint64_t staged, taken, has_failed;
};

// The words that end kernels of this rank and of the ranks that its kernels reach: `abort` of their exchange memories.
// A kernel stages nothing after one before it was ended, and sends peers nothing that did not arrive.
struct staging_peers {
    std::uint64_t* abort[max_ranks] = {};
    int count = 0, me = 0;

    template <class Env>
    COLLX_HD bool are_ended() const {
        return count != 0 && Env::load_relaxed(abort[me]) != 0;
    }
    template <class Env>
    COLLX_HD void end() const {
        for (int k = 0; k < count; ++k) Env::store_relaxed(abort[k], stop_word::ended);
    }
};

// Elements side by side in the user's buffer, from `at` on, and in the staging buffer, from `staged_at` on.
struct staging_run {
    std::size_t at, staged_at, count;
};

// `blocks` runs of `count` elements, the first at `at`, one every `pitch`: a piece of each part of a buffer.
struct staging_range {
    std::size_t at = 0, count = 0, pitch = 0;
    unsigned blocks = 1;

    COLLX_HD std::size_t size() const { return count * blocks; }
    // Where element i of the staging buffer lies in the user's.
    COLLX_HD std::size_t index(std::size_t i) const {
        return blocks == 1 ? at + i : at + i / count * pitch + i % count;
    }
    COLLX_HD unsigned runs() const { return blocks; }
    COLLX_HD staging_run run(unsigned k) const { return {at + k * pitch, k * count, count}; }
};

// Runs of any length, one after the other in a staging buffer: parts of several ranks.
struct staging_runs {
    static constexpr unsigned most = 16;
    unsigned count = 0;
    std::size_t at[most] = {}, ends[most] = {}; // where run k begins in the user's buffer, and ends in the staging one

    void add(std::size_t begin, std::size_t elems) {
        ends[count] = size() + elems;
        at[count++] = begin;
    }
    COLLX_HD std::size_t size() const { return count == 0 ? 0 : ends[count - 1]; }
    COLLX_HD std::size_t index(std::size_t i) const {
        unsigned k = 0;
        while (i >= ends[k]) ++k;
        return at[k] + (k == 0 ? i : i - ends[k - 1]);
    }
    COLLX_HD unsigned runs() const { return count; }
    COLLX_HD staging_run run(unsigned k) const {
        const std::size_t first = k == 0 ? 0 : ends[k - 1];
        return {at[k], first, ends[k] - first};
    }
};

namespace detail {

// Calls body(run, me, step) for each run; all threads of all lanes share each run. Contiguous runs of one type go by
// copy_run, others element by element, several of them under way.
template <class Env, class Range, class Body>
COLLX_HD inline void for_runs(const Env& env, const Range& range, int lane, int lanes, Body&& body) {
    const auto step = static_cast<std::size_t>(env.threads()) * static_cast<unsigned>(lanes);
    const std::size_t me = static_cast<std::size_t>(lane) * env.threads() + env.index();
    COLLX_ROLLED
    for (unsigned k = 0; k < range.runs(); ++k) body(range.run(k), me, step);
}
// Stores by store(i, x) what load(i) gives.
template <class T, class Load, class Store>
COLLX_HD inline void for_elements(std::size_t n, std::size_t me, std::size_t step, Load&& load, Store&& store) {
    constexpr int U = narrow_unroll(sizeof(T)) < 4 ? narrow_unroll(sizeof(T)) : 4;
    COLLX_ROLLED
    for (std::size_t i = me; i < n; i += U * step) {
        T x[U];
        COLLX_UNROLL
        for (int u = 0; u < U; ++u)
            if (i + static_cast<unsigned>(u) * step < n) x[u] = load(i + static_cast<unsigned>(u) * step);
        COLLX_UNROLL
        for (int u = 0; u < U; ++u)
            if (i + static_cast<unsigned>(u) * step < n) store(i + static_cast<unsigned>(u) * step, x[u]);
    }
}

} // namespace detail

// Whether bytes are copied: a contiguous view of the type that is staged.
template <class View, class T>
inline constexpr bool is_as_it_lies = [] {
    if constexpr (View::is_contiguous) return std::is_same_v<std::remove_cv_t<typename View::value_type>, T>;
    else return false;
}();

// Copies a piece of `in` to the host. Host memory is reached over the bus: each element is written once, in order.
template <class In, class Wire = std::remove_cv_t<typename In::value_type>, class Range = staging_range>
struct stage_out {
    using value_type = Wire;
    In in;
    Range range;
    staging_words* words;
    staging_counts* counts;
    std::byte* buffers; // staging_turns of them
    std::size_t buffer_bytes;
    std::uint64_t order;
    staging_peers peers;

    template <class Env>
    COLLX_HD void operator()(Env& env, int lane, int lanes) const {
        const bool has_failed = counts[lane].has_failed != 0 || (env.index() == 0 && peers.are_ended<Env>());
        if (env.any(has_failed)) {
            if (env.index() != 0) return;
            counts[lane].has_failed = 1;
            return say_peer_gave_up<Env>(words); // a message to another domain has no other kernel that would say it
        }
        const std::uint64_t number = counts[lane].staged;
        auto* to = reinterpret_cast<value_type*>(buffers + number % staging_turns * buffer_bytes);
        detail::for_runs(env, range, lane, lanes, [&](const staging_run& r, std::size_t me, std::size_t step) {
            if constexpr (is_as_it_lies<In, Wire>) {
                copy_run<Env>(to + r.staged_at, in.data() + r.at, r.count, me, step);
            } else {
                detail::for_elements<Wire>(
                    r.count, me, step, [&](std::size_t i) { return static_cast<Wire>(detail::element(in, r.at + i)); },
                    [&](std::size_t i, const Wire& x) { to[r.staged_at + i] = x; });
            }
        });
        env.sync();
        if (env.index() != 0) return;
        counts[lane].staged = number + 1;
        if (lane == 0) Env::store_relaxed(&words->order[number % staging_orders], order);
        Env::store_release(&words->staged[lane], number + 1);
    }
};

// Waits for the result of the oldest piece that has not been taken, and copies it to `out`.
template <class Out, class Range = staging_range>
struct stage_in {
    using value_type = std::remove_cv_t<typename Out::value_type>;
    Out out;
    Range range;
    staging_words* words;
    staging_counts* counts;
    const std::byte* buffers;
    std::size_t buffer_bytes;
    std::uint64_t timeout_ns;
    staging_peers peers;

    template <class Env>
    COLLX_HD void operator()(Env& env, int lane, int lanes) const {
        const std::uint64_t number = counts[lane].taken;
        const bool failed = env.any(env.index() == 0 && (counts[lane].has_failed != 0 || !wait<Env>(number + 1)));
        if (env.index() == 0) counts[lane].taken = number + 1;
        if (failed) {
            if (env.index() != 0) return;
            counts[lane].has_failed = 1;
            return peers.end<Env>();
        }
        const auto* from = reinterpret_cast<const value_type*>(buffers + number % staging_turns * buffer_bytes);
        detail::for_runs(env, range, lane, lanes, [&](const staging_run& r, std::size_t me, std::size_t step) {
            if constexpr (is_as_it_lies<Out, value_type>) {
                copy_run<Env>(out.data() + r.at, from + r.staged_at, r.count, me, step);
            } else {
                detail::for_elements<value_type>(
                    r.count, me, step, [&](std::size_t i) { return from[r.staged_at + i]; },
                    [&](std::size_t i, const value_type& x) { out[r.at + i] = x; });
            }
        });
    }

private:
    static constexpr unsigned polls_per_look = 64;

    template <class Env>
    COLLX_HD bool wait(std::uint64_t least) const {
        std::uint64_t began = 0;
        for (unsigned polls = 1; Env::load_relaxed(&words->done) < least; ++polls) {
            Env::pause();
            if (polls % polls_per_look != 0) continue;
            if (Env::load_relaxed(&words->abort) != 0) return false;
            // Kernels may have been ended when only some lanes of stage_out had begun. The host waits for the others to
            // stage, and so there will be no result.
            if (Env::load_relaxed(&words->gave_up) != 0) return false;
            if (peers.are_ended<Env>()) {
                say_peer_gave_up<Env>(words);
                return false;
            }
            const std::uint64_t now = Env::now_ns();
            if (began == 0) began = now;
            if (now - began > timeout_ns) {
                Env::store_relaxed(&words->gave_up, staging_end::waited_too_long);
                return false;
            }
        }
        Env::load_acquire(&words->done);
        return true;
    }
};

// After a call whose data came through kernels of other ranks: tells the host if one of them was ended.
struct staging_verdict {
    staging_words* words;
    staging_peers peers;

    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        if (env.index() == 0 && peers.are_ended<Env>()) say_peer_gave_up<Env>(words);
    }
};

} // namespace device
COLLX_END_NAMESPACE
