// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// communicator::split: from one communicator several, by colour.
#pragma once

#include <collx/comm/communicator.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct split_request {
    std::int32_t color, key;
};
struct split_place {
    std::uint64_t offset;
};

} // namespace detail

inline communicator communicator::split(int color, int key) {
    auto& c = live();
    c.begin_collective();
    const int n = size(), me = rank();
    std::vector<detail::split_request> all(static_cast<std::size_t>(n));
    const detail::split_request mine{color, key};
    c.exchange(&mine, sizeof mine, [&](int r, const std::byte* line) {
        std::memcpy(&all[static_cast<std::size_t>(r)], line, sizeof mine);
    });

    std::vector<int> group; // ranks of this communicator, in the order of (key, rank)
    for (int r = 0; r < n; ++r) {
        if (all[static_cast<std::size_t>(r)].color != color) continue;
        auto at = group.end();
        while (at != group.begin() && all[static_cast<std::size_t>(at[-1])].key > all[static_cast<std::size_t>(r)].key)
            --at;
        group.insert(at, r);
    }
    // The first of each group takes the place and shows it to all.
    const bool leads = color >= 0 && group.front() == me;
    detail::split_place place{job::no_place};
    std::uint64_t offset = job::no_place;
    try {
        if (leads) place.offset = job::take_links(*c.home->memory, static_cast<int>(group.size()));
    } catch (const error&) { // all of the group hear of it below
    }
    c.exchange(&place, sizeof place, [&](int r, const std::byte* line) {
        if (color >= 0 && r == group.front()) std::memcpy(&offset, line, sizeof offset);
    });
    if (color < 0) return communicator(sole_ptr<communicator_core>());
    if (offset == job::no_place) job::fail_no_place(me, group.front());

    int rank_there = 0;
    std::vector<int> members;
    for (std::size_t i = 0; i < group.size(); ++i) {
        if (group[i] == me) rank_there = static_cast<int>(i);
        members.push_back(c.members[static_cast<std::size_t>(group[i])]);
    }
    auto made = make_sole<communicator_core>(c.home, offset, rank_there, static_cast<int>(members.size()),
                                             std::move(members), &c);
    made->settings = c.settings;
    return communicator(std::move(made));
}

COLLX_END_NAMESPACE
