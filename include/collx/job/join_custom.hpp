// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Starts a program's own transport (transport/transport_concept.hpp). The job is already there, over shared memory or
// sockets. Over one of its communicators the ranks exchange the addresses of their endpoints. The endpoints' channels
// then replace sockets between ranks that share no memory. Only for custom_transport.hpp.
#pragma once

#include <cstring>
#include <exception>
#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/job/join.hpp>
#include <collx/job/world.hpp>
#include <collx/transport/custom_connector.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Opens this rank's endpoint and connects it to those of all ranks for which is_remote(rank) holds. Collective.
template <class IsRemote>
[[gnu::cold]] counted_ptr<custom_connector> open_custom(const counted_ptr<job>& near, IsRemote&& is_remote) {
    struct {
        endpoint_address at;
        bool has_failed = false;
    } mine;
    const int rank = near->rank, size = near->size;
    std::exception_ptr trouble;
    counted_ptr<custom_connector> connector;
    growing_array<endpoint_address> addresses;
    // Tells all ranks whose endpoint has failed. Called twice: the second call tells whether all are connected.
    const auto compare = [&](communicator_core& all, const char* what) {
        int failed = -1;
        exchange_by_channels(
            all, &mine, sizeof mine,
            [&](int r, const std::byte* line) {
                auto theirs = mine;
                std::memcpy(&theirs, line, sizeof theirs);
                if (theirs.has_failed && failed < 0) failed = r;
                addresses.push_back(theirs.at);
            },
            near->settings.timeout_ns);
        if (trouble) std::rethrow_exception(trouble);
        if (failed >= 0)
            fail(errc::peer_failed, rank, failed, "see its output", "the transport %s of rank %d %s",
                 near->settings.over.custom->name, failed, what);
    };
    const auto attempt = [&](auto&& f) {
        try {
            f();
        } catch (...) { // the other ranks wait
            trouble = std::current_exception();
            mine.has_failed = true;
        }
    };
    communicator_core all(near);
    attempt([&] {
        connector = near->settings.over.custom->open(rank, size);
        mine.at = connector->address();
        if (mine.at.bytes > endpoint_address::most_bytes)
            fail(errc::invalid_argument, rank, -1, "use a shorter address", "an address of %u bytes in transport %s",
                 mine.at.bytes, near->settings.over.custom->name);
    });
    compare(all, "cannot start");
    attempt([&] {
        for (int r = 0; r < size; ++r)
            if (r != rank && is_remote(r)) connector->connect(r, addresses[static_cast<std::size_t>(r)]);
    });
    compare(all, "cannot reach its peers");
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
    if (net != nullptr) jobs = net->threads_on_hosts(host_of, over);
    growing_array<counted_ptr<arena>> memory(static_cast<std::size_t>(n));
    job_settings s = settings_across_hosts(settings_for(n));
    s.over = over;
    for (int r = 0; r < n; ++r) {
        auto& connector = connectors[static_cast<std::size_t>(r)];
        for (int p = 0; p < n; ++p)
            if (host_of[static_cast<std::size_t>(p)] != host_of[static_cast<std::size_t>(r)])
                connector->connect(p, addresses[static_cast<std::size_t>(p)]);
        if (net != nullptr) {
            connector->stand_before(jobs[static_cast<std::size_t>(r)]->connector);
            jobs[static_cast<std::size_t>(r)]->connector = connector;
            continue;
        }
        host_map here = map_of_host(host_of, r);
        auto& first = memory[static_cast<std::size_t>(here.rank_at[0])];
        if (!first) first = make_memory_arena(static_cast<int>(here.rank_at.size()));
        jobs.push_back(make_counted<job>(first, r, n, s, true, std::move(here), connector));
    }
    return jobs;
}

} // namespace detail

COLLX_END_NAMESPACE
