// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins jobs that need more than a name and shared memory: their ranks meet through a store or a process manager, are
// on several hosts, or want sockets inside a host. Part of a program that includes collx/net.hpp, or compiled once in
// collx::collx.
#pragma once

#include <cstdint>
#include <utility>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/id_server.hpp>
#include <collx/bootstrap/meet.hpp>
#include <collx/bootstrap/names.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/provided.hpp>
#include <collx/job/join_hosts.hpp>
#include <collx/job/remote_calls.hpp>
#include <collx/job/remote_survivors.hpp>
#include <collx/job/start.hpp>
#include <collx/plan/channel_selector.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

[[gnu::cold]] inline host_description describe_protected_host(int size, const kept_text& root = {}) {
    return size > 1 ? describe_host(environment(), process_protection(), root) : describe_host_of_one();
}

// Joins the process's job, like join_near() but on any number of hosts.
[[gnu::cold]] inline counted_ptr<job> join_remote(job_description& d, const transports* over) {
    require_one_host(d);
    const deadline until = deadline::in_ns(d.timeout_ns);
    look_up_store(d, until);
    job_settings s;
    if (over != nullptr) s.over = *over;
    const host_description near = describe_protected_host(d.size, address_of_store(d.store)),
                           h = d.job.empty() ? separated(near, s.over, d.rank) : near;
    if (d.job.empty() && d.size > 1) require_protection_of_store(d, h.by.key);
    settings_from(d, s);
    listener to_others(d.timeout_ns, h.by, system_socket_calls, h.lanes);
    return meet_and_join(d, until, h, settings_text(s), to_others, [&](const meeting& m, start_watch* all) {
        require_transport(m, s.over, d.rank);
        // Only now the number of ranks here is known. Hosts that can be reached by loopback or unix sockets share this
        // machine's cores.
        const bool is_elsewhere = h.has_address && !is_unix_address(h.address);
        settle_waiting(d, m.is_one_host() || is_elsewhere ? d.local_size : d.size, s);
        auto j = m.is_one_host()
                     ? join_processes(m.token.c_str(), d.rank, d.size, s, d.arena_bytes, d.found_by, until,
                                      connection_words(h), all)
                     : join_hosts(m, std::move(to_others), d.rank, d.size, s, d.arena_bytes, d.found_by, until, all);
        if (!s.over.use_memory && m.is_one_host() && d.size > 1) j = join_by_channels(j, near, std::move(to_others));
        return j;
    });
}

[[gnu::cold]] inline counted_ptr<job> join_at(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                              const host_description& near,
                                              const socket_calls& calls = system_socket_calls,
                                              const transports& over = {}) {
    std::size_t arena_bytes = 0;
    job_settings s = settings_by_variables(size, timeout_ns, arena_bytes);
    s.over = over;
    const host_description h = separated(near, over, rank);
    const deadline until = deadline::in_ns(timeout_ns);
    listener to_others(timeout_ns, h.by, calls, h.lanes);
    start_watch all(store.alarm(), rank, size, until);
    to_others.tell(&all);
    return all.guard([&] {
        const meeting m = meet_at(store, rank, size, until, h, settings_text(s), to_others, &all);
        require_transport(m, over, rank);
        auto j =
            m.is_one_host()
                ? join_processes(m.token.c_str(), rank, size, s, arena_bytes, "store", until, connection_words(h), &all)
                : join_hosts(m, std::move(to_others), rank, size, s, arena_bytes, "store", until, &all);
        all.finish();
        return j;
    });
}
[[gnu::cold]] inline counted_ptr<job> join_with(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                                const transports& over) {
    return join_at(rank, size, store, timeout_ns, describe_protected_host(size), system_socket_calls, over);
}

[[gnu::cold]] COLLX_ONCE counted_ptr<job> join_by_store(int rank, int size, any_store& store, std::int64_t timeout_ns,
                                                        const host_description& h, const socket_calls& calls) {
    return join_at(rank, size, store, timeout_ns, h, calls);
}

[[gnu::cold]] inline counted_ptr<job> join_with_id(const unique_id& id, int rank, int size, std::int64_t timeout_ns,
                                                   const transports& over) {
    if (size < 1 || rank < 0 || rank >= size)
        fail(errc::invalid_argument, rank, -1, "ranks are 0 to size - 1", "rank %d of %d ranks", rank, size);
    if (const kept_text address(id.address()); !address.empty()) {
        const host_description h = describe_protected_host(size, address);
        tcp_store store(address, id.port(), deadline::in_ns(timeout_ns), rank, h.by.key);
        store_face<tcp_store> face(store);
        auto j = join_at(rank, size, face, timeout_ns, h, system_socket_calls, over);
        j->found_by = "unique id";
        return j;
    }
    std::size_t arena_bytes = 0;
    job_settings s = settings_by_variables(size, timeout_ns, arena_bytes);
    s.over = over;
    const kept_text name(id.job(rank));
    auto j = join_processes(name.c_str(), rank, size, s, arena_bytes, "unique id", deadline::in_ns(timeout_ns));
    if (over.use_memory || size == 1) return j;
    const host_description h = describe_protected_host(size);
    return join_by_channels(j, h, listener(timeout_ns, h.by));
}

[[gnu::cold]] COLLX_ONCE growing_array<counted_ptr<job>> thread_jobs(const detail::growing_array<int>& host_of,
                                                                     const socket_calls& calls,
                                                                     const job_protection* by, const char* at,
                                                                     int lanes, const transports& over) {
    const int n = static_cast<int>(host_of.size());
    job_settings s = settings_across_hosts(settings_for(n));
    s.over = over;
    growing_array<descriptor> listeners;
    growing_array<socket_address> addresses;
    for (int r = 0; r < n; ++r) {
        addresses.push_back(listener::address_to_listen(at));
        listeners.push_back(socket_hub::listen_on(addresses.back()));
    }
    const kept_text token = random_token();
    growing_array<counted_ptr<arena>> memory(static_cast<std::size_t>(n));
    growing_array<counted_ptr<job>> jobs;
    for (int r = 0; r < n; ++r) {
        host_map here = map_of_host(host_of, r);
        auto& first = memory[here.rank_at[0]];
        if (!first) first = make_memory_arena(static_cast<int>(here.rank_at.size()));
        auto hub = make_counted<socket_hub>(std::move(listeners[r]), token, addresses, s.timeout_ns, calls,
                                            by != nullptr ? by[r] : job_protection());
        hub->set_lanes(lanes);
        hub->set_most_own(most_own_communicators());
        hub->use_verbs(open_verbs(over, hub->protected_by().level, hub->own_address(), r, environment(),
                                  here.place_of[r], static_cast<int>(here.rank_at.size())));
        jobs.push_back(
            make_counted<job>(first, r, n, s, true, std::move(here), make_counted<socket_connector>(std::move(hub))));
    }
    return jobs;
}

inline constexpr net_component net_of_sockets{join_remote, join_with, join_with_id,
                                              [](const growing_array<int>& host_of, const transports& over) {
                                                  return thread_jobs(host_of, system_socket_calls, nullptr, "127.0.0.1",
                                                                     1, over);
                                              },
                                              agree_on_survivors};
inline const bool has_net = provided(net_starter, &net_of_sockets);
// Its definition tells a basic_communicator that the program has the net component.
template <class T>
struct net_of {};

} // namespace detail

COLLX_END_NAMESPACE
