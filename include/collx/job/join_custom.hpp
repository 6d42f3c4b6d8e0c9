// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Starts a program's own transport (transport/transport_concept.hpp). The job is already there, over shared memory or
// sockets. Over one of its communicators the ranks exchange the addresses of their endpoints. The endpoints' channels
// then replace sockets between ranks that share no memory. Only for custom_transport.hpp.
#pragma once

#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/job/exchange_or_fail.hpp>
#include <collx/job/join.hpp>
#include <collx/job/world.hpp>
#include <collx/transport/custom_connector.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Opens this rank's endpoint and connects it to those of all ranks for which is_remote(rank) holds. Collective.
template <class IsRemote>
[[gnu::cold]] counted_ptr<custom_connector> open_custom(const counted_ptr<job>& near, IsRemote&& is_remote) {
    const int rank = near->rank, size = near->size;
    const char* const name = near->settings.over.custom->name;
    counted_ptr<custom_connector> connector;
    growing_array<endpoint_address> addresses;
    communicator_core all(near);
    const auto together = [&](const char* what, auto&& attempt, auto&& take) {
        const int failed = exchange_or_fail<endpoint_address>(all, near->settings.timeout_ns, attempt, take);
        if (failed >= 0)
            fail(errc::peer_failed, rank, failed, "see its output", "the transport %s of rank %d %s", name, failed,
                 what);
    };
    together(
        "cannot start",
        [&](endpoint_address& at) {
            connector = near->settings.over.custom->open(rank, size);
            at = connector->address();
            if (at.bytes > endpoint_address::most_bytes)
                fail(errc::invalid_argument, rank, -1, "use a shorter address",
                     "an address of %u bytes in transport %s", at.bytes, name);
        },
        [&](int, const endpoint_address& theirs) { addresses.push_back(theirs); });
    together(
        "cannot reach its peers",
        [&](endpoint_address&) {
            for (int r = 0; r < size; ++r)
                if (r != rank && is_remote(r)) connector->connect(r, addresses[r]);
        },
        [](int, const endpoint_address&) {});
    return connector;
}

[[gnu::cold]] inline counted_ptr<job> join_by_custom(const counted_ptr<job>& near) {
    if (near->size == 1 || (!near->connector && near->settings.over.use_memory)) return near;
    if (near->connector) { // on several hosts
        auto connector = open_custom(near, [&](int r) { return near->place(r) < 0; });
        connector->stand_before(near->connector);
        near->connector = std::move(connector);
        return near;
    }
    auto connector = open_custom(near, [](int) { return true; });
    growing_array<int> each;
    for (int r = 0; r < near->size; ++r) each.push_back(r);
    auto j = make_counted<job>(make_memory_arena(1, arena_bytes_for(1)), near->rank, near->size,
                               settings_across_hosts(near->settings), true, map_of_host(each, near->rank),
                               std::move(connector));
    j->start_until = near->start_until;
    j->found_by = near->found_by;
    return j;
}

// Jobs of threads. Threads with the same number in host_of share memory.
[[gnu::cold]] inline growing_array<counted_ptr<job>> custom_thread_jobs(const growing_array<int>& host_of,
                                                                        const transports& over) {
    const int n = static_cast<int>(host_of.size());
    growing_array<counted_ptr<custom_connector>> connectors;
    growing_array<endpoint_address> addresses;
    for (int r = 0; r < n; ++r) {
        connectors.push_back(over.custom->open(r, n));
        addresses.push_back(connectors.back()->address());
    }
    growing_array<counted_ptr<job>> jobs;
    if (net_starter != nullptr) jobs = net_starter->threads_on_hosts(host_of, over);
    growing_array<counted_ptr<arena>> memory(static_cast<std::size_t>(n));
    job_settings s = settings_across_hosts(settings_for(n));
    s.over = over;
    for (int r = 0; r < n; ++r) {
        auto& connector = connectors[r];
        for (int p = 0; p < n; ++p)
            if (host_of[p] != host_of[r]) connector->connect(p, addresses[p]);
        if (net_starter != nullptr) {
            connector->stand_before(jobs[r]->connector);
            jobs[r]->connector = connector;
            continue;
        }
        host_map here = map_of_host(host_of, r);
        auto& first = memory[here.rank_at[0]];
        if (!first) first = make_memory_arena(static_cast<int>(here.rank_at.size()));
        jobs.push_back(make_counted<job>(first, r, n, s, true, std::move(here), connector));
    }
    return jobs;
}

} // namespace detail

COLLX_END_NAMESPACE
