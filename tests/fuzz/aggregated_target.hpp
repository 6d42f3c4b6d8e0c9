// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all_to_all_v of four ranks on two nodes, in one thread, whose messages of counts are changed in transit. Ranks
// that relay parts trust the counts. Whatever counts arrive, no part may read or write outside its memory, and no
// rank may run forever. Without changes each rank gets what was sent to it.
#pragma once

#include <collx/algo/aggregated.hpp>
#include <collx/algo/leader.hpp>
#include <collx/exec/relayed_task.hpp>
#include <collx/plan/long_parts.hpp>
#include <collx/plan/schedules.hpp>
#include <collx/transport/memory.hpp>

#include <memory>
#include <vector>

#include "fuzz/input.hpp"

namespace collx_fuzz {

struct relaying_rank {
    using view = contiguous_view<int>;
    using int_mover = mover<view, view, no_op, int>;
    using int_task = typed_operation<relayed_task, int_mover>;
    static constexpr int at_port = port::blocking;

    template <class Algorithm>
    relaying_rank(arena& memory, std::uint64_t offset, int me, int n, const Algorithm& a,
                  const std::vector<std::size_t>& counts, std::size_t piece)
        : net(memory, offset, me, n), cache(net) {
        for (int k = 0; k < n; ++k) {
            add(counts[static_cast<std::size_t>(me * n + k)], sends, send_at, in, me * n + k);
            add(counts[static_cast<std::size_t>(k * n + me)], receives, receive_at, expected, k * n + me);
        }
        out.assign(expected.size(), -1);
        auto& plan = cache.bind_for_private_counts(a, at_port);
        for (bound_schedule* b : {plan.counts, plan.expected_counts})
            if (b != nullptr)
                cache.provide_scratch(*b, (static_cast<std::size_t>(b->tmp_chunks) + 1) * sizeof(std::size_t));
        cache.provide_scratch(plan, static_cast<std::size_t>(plan.tmp_chunks) * piece * sizeof(int));
        room.resize(relayed_numbers::room_for(plan));
        const view from(in.data(), in.size()), to(out.data(), out.size());
        task = std::make_unique<int_task>(
            net, plan, int_mover(from, to, no_op{}, n), chunk_layout::table(sends.data(), send_at.data(), n),
            chunk_layout::table(receives.data(), receive_at.data(), n), piece, std::uint64_t{7},
            relayed_numbers{sends.data(), send_at.data(), receives.data(), receive_at.data(), room.data(), piece});
        heard.resize(static_cast<std::size_t>(n));
    }
    static void add(std::size_t count, std::vector<std::size_t>& counts, std::vector<std::size_t>& offsets,
                    std::vector<int>& data, int what) {
        counts.push_back(count);
        offsets.push_back(data.size());
        data.insert(data.end(), count, what);
    }
    // Changes messages that have arrived but were not read yet: one number of each, as the input says.
    bool disturb(input& from) {
        bool is_changed = false;
        for (int peer = 0; peer < net.size() && from.left != 0; ++peer) {
            auto& rx = net.rx(at_port, peer);
            auto& last = heard[static_cast<std::size_t>(peer)];
            if (!rx.has_message() || rx.next_number() == last) continue;
            last = rx.next_number();
            const unsigned how = from.take();
            if (how % 4 != 0) continue;
            std::byte* const at = const_cast<std::byte*>(rx.peek(8)) + (how / 4 % 4) * 8;
            std::uint64_t n;
            std::memcpy(&n, at, sizeof n);
            n ^= std::uint64_t{from.take()} << (from.take() % 64);
            is_changed = true;
            std::memcpy(at, &n, sizeof n);
        }
        return is_changed;
    }

    links net;
    schedule_cache cache;
    std::vector<std::size_t> sends, send_at, receives, receive_at, room;
    std::vector<int> in, out, expected;
    std::vector<std::uint64_t> heard;
    std::unique_ptr<int_task> task;
};

template <class Algorithm>
void run_aggregated(const Algorithm& a, std::size_t piece, const std::vector<std::size_t>& counts, input in) {
    constexpr int n = 4;
    const auto memory = make_memory_arena(n);
    const std::uint64_t offset = memory->take(links_layout::for_ranks(n).bytes());
    std::vector<std::unique_ptr<relaying_rank>> ranks;
    for (int r = 0; r < n; ++r)
        ranks.push_back(std::make_unique<relaying_rank>(*memory, offset, r, n, a, counts, piece));
    bool is_changed = false, moves = true;
    int done = 0;
    std::vector<bool> ended(n);
    for (int turn = 0; moves && turn < 10'000; ++turn) {
        moves = false;
        for (std::size_t r = 0; r < n; ++r) {
            if (ended[r]) continue;
            if (ranks[r]->disturb(in)) is_changed = true;
            const task_state s = ranks[r]->task->advance();
            if (s == task_state::done) ++done;
            ended[r] = s == task_state::done || s == task_state::failed;
            moves = moves || s != task_state::blocked;
        }
    }
    require(!moves, "ranks that go on without end");
    if (is_changed) return; // a rank that waits now would wait until its time limit
    require(done == n, "a sound call does not end");
    for (const auto& r : ranks) require(r->out == r->expected, "other parts than were sent");
}

inline void aggregated(input in) {
    static const node_map two{0, 0, 1, 1}, apart{0, 1, 1, 1};
    const unsigned how = in.take();
    const node_view nodes = (how & 1) != 0 ? two : apart;
    const std::size_t piece = 1 + in.take();
    std::vector<std::size_t> counts;
    for (int i = 0; i < 16; ++i) counts.push_back(in.take());
    if ((how & 2) != 0) return run_aggregated(algo::aggregated_all_to_all{nodes}, piece, counts, in);
    const algo::leader_all_to_all led{nodes};
    if ((how & 4) != 0) return run_aggregated(long_parts_directly(led, 100), piece, counts, in);
    run_aggregated(led, piece, counts, in);
}

} // namespace collx_fuzz
