// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the calls of a group are run, whatever their types: what group.hpp declares. Compiled in every program, or once
// in collx::compiled.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <collx/algo/one_shot.hpp>
#include <collx/comm/group.hpp>
#include <collx/comm/grouped_messages.hpp>
#include <collx/core/config.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What one_shot moves when it moves a group: bytes.
class group_mover {
public:
    using wire_type = std::byte;
    using acc_type = std::byte;
    static constexpr bool plain = false;
    static constexpr bool reduces = true;
    using calls = std::vector<sole_ptr<grouped_call>>;

    group_mover(calls& c, std::size_t first, std::size_t last) : calls_(&c), first_(first), last_(last) {}
    void set_tmp(std::byte*) {}
    void load(std::byte* to, sched::place, std::size_t, std::size_t) const {
        std::size_t at = 0;
        for (std::size_t i = first_; i < last_; ++i) {
            (*calls_)[i]->publish(to + at);
            at += round_up((*calls_)[i]->bytes(), 8);
        }
    }
    void fold_ranks(const std::byte** ranks, int n, int me, sched::place, std::size_t, sched::place, std::size_t,
                    std::byte*, std::size_t) {
        std::size_t at = 0;
        for (std::size_t i = first_; i < last_; ++i) {
            (*calls_)[i]->finish(ranks, at, n, me);
            at += round_up((*calls_)[i]->bytes(), 8);
        }
    }
    void store(sched::place, std::size_t, const std::byte*, std::size_t) {}
    void move(sched::place, std::size_t, sched::place, std::size_t, std::size_t) {}
    void combine(const std::byte*, bool, sched::place, std::size_t, sched::place, std::size_t, std::byte*,
                 std::size_t) {}

private:
    calls* calls_;
    std::size_t first_, last_;
};

} // namespace detail

COLLX_ONCE void group::launch(const call_options& o) {
    auto collected = std::move(calls_);
    calls_.clear();
    auto transfers = std::move(transfers_);
    transfers_.clear();
    auto under_way = detail::transfer_packer(*comm_, o).start(std::move(transfers));
    const std::size_t room = schedule_cache::stage_bytes(1, algo::one_shot_all_reduce{}.depth);
    for (std::size_t first = 0; first < collected.size();) {
        std::size_t last = first, bytes = 0;
        while (last < collected.size() && bytes + round_up(collected[last]->bytes(), 8) <= room)
            bytes += round_up(collected[last++]->bytes(), 8);
        if (!comm_->internals().net.is_one_host()) last = first; // there is no memory to see all operands in
        if (last == first) collected[last++]->run_alone(o);
        else exchange(collected, first, last, bytes, o);
        first = last;
    }
    for (auto& w : under_way) w.wait();
}

COLLX_ONCE void group::exchange(calls& all, std::size_t first, std::size_t last, std::size_t bytes,
                                const call_options& o) {
    auto& c = comm_->internals();
    c.begin_collective();
    if (c.settings.checked != 0) {
        signature s{.count = bytes, .counts_hash = last - first, .what = collective::all_reduce, .zero_copy = 2};
        for (std::size_t i = first; i < last; ++i) all[i]->sign(s);
        detail::compare_signatures(c, s, o.timeout.count());
    }
    auto& plan = c.schedules.bind(algo::one_shot_all_reduce{}, port::blocking);
    const auto l = chunk_layout::even(bytes, 1);
    task<links, detail::group_mover> t(c.net, plan, detail::group_mover(all, first, last), l, l, bytes);
    c.run(t, o.timeout.count());
}

COLLX_END_NAMESPACE
