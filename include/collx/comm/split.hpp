// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// communicator::split: makes several communicators of one, by colour or by host.
#pragma once

#include <exception>

#include <collx/call/signature.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct split_request {
    std::int32_t color, key;
};
struct split_place {
    std::uint64_t offset;
    std::uint32_t has_failed; // the first rank of a group on a host found no place
    std::uint32_t is_full;    // no more communicators may have their own connections here
};

// Ranks of c with this color, in the order of (key, rank).
inline growing_array<int> ranks_of_color(int color, const growing_array<split_request>& all) {
    growing_array<int> group;
    const auto key_of = [&](int r) { return all[r].key; };
    for (int r = 0; r < static_cast<int>(all.size()); ++r) {
        if (all[r].color != color) continue;
        auto at = group.end();
        while (at != group.begin() && key_of(at[-1]) > key_of(r)) --at;
        group.insert(at, r);
    }
    return group;
}

// The id of a group's communicator: the same on each of its ranks, and of no other communicator. (Not made of the
// number of calls so far: a call that failed on a rank, before the other ranks learned of it, may count there alone.)
inline std::uint64_t id_of_split(const communicator_core& c, int color, bool shares) {
    const std::uint64_t origin[] = {c.id, c.splits, static_cast<std::uint64_t>(color)};
    return remote_members::id_of(hash_bytes(reinterpret_cast<const char*>(origin), sizeof origin, 12), shares);
}

// The first rank of the group on this host, or -1, and the ranks of the job that are its members.
inline int leader_on_host(const communicator_core& c, const growing_array<int>& group, growing_array<int>& members) {
    int leader = -1;
    for (int r : group) {
        members.push_back(c.members[r]);
        if (leader < 0 && c.home->place(members.back()) >= 0) leader = r;
    }
    return leader;
}

// What split() has found for this rank's group on this host. (Between hosts, other ranks have passed the offset on.)
// trouble: why this rank found no place.
inline void check_place(communicator_core& c, const links_layout& layout, std::uint64_t taken, std::uint64_t offset,
                        int leader, int failed, const std::exception_ptr& trouble) {
    if (failed < 0 && offset != job::no_place && !c.home->memory->has(offset, layout.bytes()))
        c.give_up(failure(errc::protocol, leader), leader);
    if (failed < 0) return;
    if (taken != job::no_place) c.home->memory->give_back(taken, layout.bytes());
    if (trouble) std::rethrow_exception(trouble);
    job::fail_no_place(c.net.rank(), failed); // on any host
}

inline sole_ptr<communicator_core> split(communicator_core& c, int color, int key, const char* made_for) {
    const int n = c.net.size(), me = c.net.rank();
    growing_array<split_request> all(static_cast<std::size_t>(n));
    const split_request mine{color, key};
    c.exchange_each(mine, [&](int r, const split_request& its) { all[r] = its; });
    const growing_array<int> group = ranks_of_color(color, all);
    int rank_there = 0;
    while (rank_there < static_cast<int>(group.size()) && group[rank_there] != me) ++rank_there;
    growing_array<int> members;
    const int leader = leader_on_host(c, group, members);
    // The first rank of each group on a host takes the place and shows it to all.
    const bool leads = color >= 0 && leader == me;
    split_place place{job::no_place, 0, c.home->connector && c.home->connector->is_full()};
    std::uint64_t offset = job::no_place;
    int failed = -1;
    bool shares = false;
    std::exception_ptr trouble;
    try {
        if (leads) place.offset = job::take_links(*c.home->memory, c.home->layout_of(members), me);
    } catch (const error&) { // all ranks of the group learn of it below
        trouble = std::current_exception();
        place.has_failed = 1;
    } catch (...) {
        place.has_failed = 1;
    }
    try {
        c.exchange_each(place, [&](int r, const split_place& theirs) {
            if (r == leader) offset = theirs.offset;
            if (all[r].color != color) return;
            if (theirs.has_failed != 0 && failed < 0) failed = r;
            shares = shares || theirs.is_full != 0;
        });
    } catch (...) { // another rank has ended this communicator after its exchange; a shared place may be in use
        const links_layout layout = c.home->layout_of(members);
        if (place.offset != job::no_place && layout.ranks == 1) c.home->memory->give_back(place.offset, layout.bytes());
        throw;
    }
    if (color < 0) return {};
    check_place(c, c.home->layout_of(members), place.offset, offset, leader, failed, trouble);
    auto made = make_sole<communicator_core>(c.home, offset, rank_there, static_cast<int>(group.size()),
                                             std::move(members), &c, true, id_of_split(c, color, shares));
    made->made_for = made_for;
    made->take_settings(c);
    if (c.home->machine) topology->look_up(*made, true);
    return made;
}

// The call split(), counted and recorded. made_for: null, or what needs a communicator of its own.
inline sole_ptr<communicator_core> call_split(communicator_core& c, int color, int key, const char* made_for) {
    const one_caller::call here(c.caller, c.net.rank()); // before the call counts
    c.begin_collective();
    return c.or_abandon([&] {
        ++c.splits;
        return recorded(c.recorder.get(), {made_for != nullptr ? made_for : "split"}, [&] {
            if (c.settings.checked != 0)
                compare_signatures(c, {.made_by = made_for != nullptr ? signature::window : signature::split}, 0);
            return split(c, color, key, made_for);
        });
    });
}
// dup() for a part of collx. what: its name, for errors and the flight recorder.
inline communicator dup_for(const char* what, communicator& base) {
    return communicator(call_split(base.internals(), 0, 0, what));
}

} // namespace detail

inline communicator communicator::split(int color, int key) {
    return communicator(detail::call_split(live(), color, key, nullptr));
}

inline communicator communicator::split_by_host(int key) {
    const core& c = live();
    int lowest = 0;                                        // of this rank's host
    while (c.home->place(c.members[lowest]) < 0) ++lowest; // ends at this rank itself at the latest
    return split(lowest, key);
}

COLLX_END_NAMESPACE
