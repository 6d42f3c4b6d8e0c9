// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks that options fit a schedule and a machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <collx/sim/recording.hpp>
#include <collx/sim/result.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim::detail {

inline void check_order(const recording& s, const fabric& f, const std::vector<int>& order) {
    std::vector<char> seen(static_cast<std::size_t>(f.ranks()), 0);
    bool is_good = order.size() == static_cast<std::size_t>(s.ranks);
    for (const int r : order) is_good = is_good && r >= 0 && r < f.ranks() && seen[static_cast<std::size_t>(r)]++ == 0;
    if (!is_good)
        fail(errc::invalid_argument, -1, -1, "give each rank a place of its own",
             "an order of %zu places for %d ranks names one twice or one that the machine has not", order.size(),
             s.ranks);
}

// Errors: invalid_argument, which says what does not fit; unsupported if by_switch has no switch, or the switch no
// step.
inline void check(const recording& s, const fabric& f, const options& o) {
    const int places = o.orders.empty() ? s.ranks : f.ranks();
    const auto is_rank = [&](int r) { return r >= -1 && r < places; };
    const auto is_made_by_switch = [](const short_step& st) { return (st.what & (sched::fold | sched::to_all)) != 0; };
    if (!(o.bytes >= 0) || !std::isfinite(o.bytes) || o.pieces < 1)
        fail(errc::invalid_argument, -1, -1, "give 0 bytes or more, in at least one piece",
             "a simulation of %g bytes in %d pieces", o.bytes, o.pieces);
    if (s.ranks > f.ranks())
        fail(errc::invalid_argument, -1, -1, "take a larger machine, or fewer ranks",
             "a schedule of %d ranks on a machine for %d", s.ranks, f.ranks());
    if (!is_rank(o.slow_rank) || !is_rank(o.dead_rank) || !(o.slowdown >= 1) || !std::isfinite(o.slowdown))
        fail(errc::invalid_argument, -1, -1, "name ranks of the schedule, and a slowdown of 1 or more",
             "slow rank %d (%g times), dead rank %d of %d ranks", o.slow_rank, o.slowdown, o.dead_rank, places);
    if (!(o.dead_at_ns >= 0))
        fail(errc::invalid_argument, -1, -1, "give 0 or more", "a rank that is dead from %g ns on", o.dead_at_ns);
    for (const auto& order : o.orders) check_order(s, f, order);
    for (const auto& ways : o.ways)
        if (o.ways.size() != o.orders.size() || ways.size() != static_cast<std::size_t>(s.ranks))
            fail(errc::invalid_argument, -1, -1, "give a way for each rank of each order, empty for the best one",
                 "%zu ways of %d ranks, in %zu sets for %zu orders", ways.size(), s.ranks, o.ways.size(),
                 o.orders.size());
    if (o.by_switch && f.switch_of_all().to.empty())
        fail(errc::unsupported, -1, -1, "take a machine of one NVSwitch domain of H100 or later, or leave by_switch",
             "no switch that reduces and multicasts is linked to all %d ranks of the machine", f.ranks());
    if (o.by_switch && std::none_of(s.steps.begin(), s.steps.end(), is_made_by_switch))
        fail(errc::unsupported, -1, -1, "take an all_reduce by multicast_two_shot, or leave by_switch",
             "the switch has nothing to do: the schedule neither sums over windows nor stores to all");
}

} // namespace sim::detail
COLLX_END_NAMESPACE
