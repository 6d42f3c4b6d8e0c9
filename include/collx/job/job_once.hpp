// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of job.hpp: making communicators in a job. Part of every program, or compiled once in collx::collx.
#pragma once

#include <bit>
#include <cstdio>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/job/job.hpp>

COLLX_BEGIN_NAMESPACE

[[gnu::cold]] COLLX_ONCE links job::make_links(std::uint64_t at, int my_rank, int n,
                                               const detail::growing_array<int>& members, std::uint64_t& id) const try {
    if (id == 0)
        id =
            remote_members::id_of(detail::hash_bytes(reinterpret_cast<const char*>(&communicators_made), 8, 11), false);
    if (hosts.rank_at.empty()) return links(*memory, at, my_rank, n);
    const auto here = places_among(members);
    if (here.count == n) return links(*memory, at, my_rank, n);
    detail::growing_array<int> ranks = members;
    for (int r = 0; members.empty() && r < n; ++r) ranks.push_back(r);
    const auto layout = links_layout::across_hosts(here.count, n, here.is_crowded);
    detail::growing_array<int> host_of;
    for (const int r : ranks) host_of.push_back(hosts.host_of[r]);
    return links(*memory, at, my_rank, n, layout, here.place_of, node_map(host_of),
                 connector->open({id, my_rank, std::move(ranks), layout.channel, port::count, settings.single_copy}));
} catch (...) { // ranks that did attach must not wait for this rank
    report_in(reinterpret_cast<links_control*>(memory->at(at))->failed, failure(errc::aborted, my_rank));
    throw;
}

[[gnu::cold]] COLLX_ONCE links_layout job::layout_of(const detail::growing_array<int>& members) const {
    const auto here = places_among(members);
    const int n = members.empty() ? size : static_cast<int>(members.size());
    if (here.count == n) return links_layout::for_ranks(n);
    return links_layout::across_hosts(here.count, n, here.is_crowded);
}

// A rank that gave up before the leader made a communicator still has a share of what the leader has made since.
[[gnu::cold]] COLLX_ONCE void job::settle_given_up() {
    std::size_t kept = 0;
    for (const std::uint64_t number : given_up_) {
        const auto& line = board().at[number % detail::notice_board::lines];
        const std::uint64_t there = line.number.load(memory_order::acquire);
        if (there < number + 1) given_up_[kept++] = number; // not made yet
        if (there != number + 1 || line.offset == no_place) continue;
        auto here = places_among({});
        links left(*memory, line.offset, rank, size, layout_of({}), std::move(here.place_of), node_map(nullptr, 0),
                   nullptr);
        if (left.give_up_share(rank)) left.give_back_memory();
    }
    given_up_.resize(kept);
}

[[gnu::cold]] COLLX_ONCE std::uint64_t job::agree_on_world(const deadline& until) {
    if (!given_up_.empty()) settle_given_up();
    const std::uint64_t number = communicators_made++;
    auto& line = board().at[number % detail::notice_board::lines];
    const int leader = hosts.rank_at.empty() ? 0 : hosts.rank_at[0];
    if (rank == leader) {
        line.offset = no_place;
        try {
            line.offset = take_links(*memory, layout_of({}), rank);
        } catch (...) {
            line.number.store(number + 1, memory_order::release);
            throw;
        }
        line.number.store(number + 1, memory_order::release);
        return line.offset;
    }
    int looks_at_the_dead = 0;
    for (backoff b(settings.waiting); line.number.load(memory_order::acquire) != number + 1;) {
        if (!b.pause()) continue;
        // Look twice: the number may have come after the last look.
        if (is_gone(leader) && ++looks_at_the_dead == 2)
            fail(errc::peer_failed, rank, leader, "see its output", "rank %d ended before it made communicator %llu",
                 leader, static_cast<unsigned long long>(number));
        if (until.passed()) {
            given_up_.push_back(number);
            fail(errc::timeout, rank, leader,
                 "is that rank alive, and do all ranks make the same communicators in the same order?",
                 "rank %d did not make communicator %llu", leader, static_cast<unsigned long long>(number));
        }
    }
    if (line.offset == no_place) fail_no_place(rank, leader);
    return line.offset;
}

[[gnu::cold]] COLLX_ONCE void job::fail_no_place(int rank, int leader) {
    fail(errc::resource, rank, leader,
         "its own error says what is short; destroying communicators or shared buffers makes room",
         "rank %d of the job found no room for the communicator", leader);
}

[[gnu::cold]] COLLX_ONCE std::uint64_t job::take_links(arena& a, const links_layout& layout, int me) {
    const std::size_t bytes = layout.bytes();
    const std::uint64_t offset = a.take(bytes, me);
    try {
        a.reserve(offset, page_bytes, me);
    } catch (const error&) {
        a.give_back(offset, bytes);
        throw;
    }
    reinterpret_cast<links_control*>(a.at(offset))->users.store(layout.ranks, memory_order::relaxed);
    return offset;
}

[[gnu::cold]] COLLX_ONCE job::places job::places_among(const detail::growing_array<int>& members) const {
    places p;
    detail::growing_array<char> seen; // hosts
    const int n = members.empty() ? size : static_cast<int>(members.size());
    for (int r = 0; r < n; ++r) {
        const int member = members.empty() ? r : members[r];
        p.place_of.push_back(place(member) >= 0 ? p.count++ : -1);
        if (hosts.host_of.empty()) continue;
        const int host = hosts.host_of[member];
        seen.resize(seen.size() > static_cast<std::size_t>(host) ? seen.size() : static_cast<std::size_t>(host) + 1);
        p.is_crowded |= seen[host] != 0;
        seen[host] = 1;
    }
    return p;
}

[[gnu::cold]] COLLX_ONCE void job::say_cores() {
    const cpu_set_t mine = core_set();
    for (std::size_t c = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(c, &mine))
            memory->header().cores[c / 64].fetch_or(std::uint64_t{1} << c % 64, memory_order::acq_rel);
}

[[gnu::cold]] COLLX_ONCE void job::settle_cores() {
    if (settings.sharing == 0) return;
    int cores = 0;
    for (const auto& word : memory->header().cores) cores += std::popcount(word.load(memory_order::acquire));
    settings.share_among(cores);
    if (settings.waits_as_told) return;
    settings.waiting = wait_policy::for_ranks(settings.sharing, cores);
    if (connector) settings.waiting = settings.waiting.across_hosts();
}

[[gnu::cold]] COLLX_ONCE void job::note_made(const links& net, const detail::growing_array<int>& members,
                                             bool is_world) const {
    if (net.rank() != 0) return;
    int nodes = 0; // hosts of these ranks
    for (std::size_t i = 0; i < members.size(); ++i) {
        const auto host = [&](std::size_t at) { return hosts.host_of.empty() ? 0 : hosts.host_of[members[at]]; };
        std::size_t first = 0;
        while (host(first) != host(i)) ++first;
        nodes += first == i;
    }
    const char* const many = nodes == 1 ? "" : "s";
    if (is_world)
        std::fprintf(stderr,
                     "collx: info: collx " COLLX_VERSION_STRING ": %d rank%s (found by: %s) on %d host%s, over %s; %d "
                     "per core; time limit %.3g s\n",
                     net.size(), net.size() == 1 ? "" : "s", found_by, nodes, many,
                     nodes == 1 ? "shm" : settings.over.text, settings.ranks_per_core,
                     static_cast<double>(settings.timeout_ns) * 1e-9);
    else
        std::fprintf(stderr, "collx: info: a communicator of %d of %d ranks, the first is rank %d, on %d host%s\n",
                     net.size(), size, members[0], nodes, many);
}

COLLX_END_NAMESPACE
