// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// communicator::shrink: after a failure, makes a communicator of the ranks that live. job/survivors.hpp has how they
// agree on these.
#pragma once

#include <utility>

#include <collx/comm/communicator.hpp>
#include <collx/job/survivors.hpp>

COLLX_BEGIN_NAMESPACE

inline communicator communicator::shrink() {
    auto& c = live();
    if (c.home->mark.is_child()) c.require_alive(); // throws forked
    const detail::one_caller::call here(c.caller, c.net.rank());
    detail::end_for_the_dead(c);
    sole_ptr<communicator_core> made;
    if (c.net.is_one_host()) {
        const survival_note& chosen = detail::survivors(c).agree();
        int rank_there = -1;
        detail::growing_array<int> members = detail::chosen_members(c, chosen.members, rank_there);
        if (chosen.place == job::no_place) job::fail_no_place(rank(), rank());
        if (rank_there < 0) detail::fail_left_out(rank());
        const int n = static_cast<int>(members.size());
        // There is no wait for the other ranks here: a rank that dies now must not divide the ranks that have seen all
        // others from those that have not.
        made = make_sole<communicator_core>(c.home, chosen.place, rank_there, n, std::move(members), nullptr, false,
                                            detail::id_of_shrunk(c));
    } else {
        made = detail::shrink_across_hosts(c);
    }
    made->take_settings(c);
    return communicator(std::move(made));
}

COLLX_END_NAMESPACE
