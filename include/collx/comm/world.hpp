// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How `collx::communicator world;` finds its job: the one of run_threads in its threads, else the one of this process,
// joined at first use from what the launcher left in the environment.
#pragma once

#include <collx/core/pointers.hpp>
#include <string>
#include <utility>
#include <vector>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/meet.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/unique_id.hpp>
#include <collx/comm/job.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline job_settings settings_for(int local_ranks) {
    job_settings s;
    const int cores = usable_cores();
    s.oversubscribed = local_ranks > cores;
    s.waiting = wait_policy::for_ranks(local_ranks, cores);
    return s;
}

[[gnu::cold]] inline counted_ptr<job> join_processes(const char* token, int rank, int size, const job_settings& s,
                                                     std::size_t arena_bytes, const char* found_by) {
    if (arena_bytes == 0) arena_bytes = arena_bytes_for(size);
    auto memory = size == 1 ? make_memory_arena(1, arena_bytes)
                            : join_shm(token, rank, size, deadline::in_ns(s.timeout_ns), arena_bytes);
    auto j = make_counted<job>(std::move(memory), rank, size, s, size == 1);
    j->found_by = found_by;
    return j;
}

// A rank's door to other hosts. Opened only when there are some.
struct door {
    descriptor listener;
    socket_address address;

    [[gnu::cold]] std::string open(const host_description& h) {
        address = address_of(h.address, 0);
        listener = socket_hub::listen_on(address);
        return h.address + " " + std::to_string(address.port());
    }
    [[gnu::cold]] static socket_address address_of(const std::string& host, int port) {
        const tcp_address a = numeric_address(host, port);
        return {a.address, a.bytes};
    }
    // "ADDRESS PORT" as another rank published it.
    [[gnu::cold]] static socket_address address_of(const std::string& card) {
        const std::size_t blank = card.rfind(' ');
        const char* at = card.c_str() + (blank == std::string::npos ? 0 : blank + 1);
        return address_of(card.substr(0, blank == std::string::npos ? 0 : blank),
                          static_cast<int>(read_digits(at, 65535)));
    }
};

// The ranks of this one's host. host_of: by rank.
[[gnu::cold]] inline host_map map_of_host(const std::vector<int>& host_of, int rank) {
    host_map m;
    for (std::size_t r = 0; r < host_of.size(); ++r) {
        const bool is_here = host_of[r] == host_of[static_cast<std::size_t>(rank)];
        m.place_of.push_back(is_here ? static_cast<int>(m.rank_at.size()) : -1);
        if (is_here) m.rank_at.push_back(static_cast<int>(r));
    }
    return m;
}

// Looking at sockets is a system call: there is no point in thousands of turns before others get the core.
inline job_settings settings_across_hosts(job_settings s) {
    if (s.waiting.spins > 4 && s.waiting.spins != UINT32_MAX) s.waiting.spins = 4;
    return s;
}

[[gnu::cold]] inline counted_ptr<job> join_hosts(const meeting& m, door&& d, int rank, int size, job_settings s,
                                                 std::size_t arena_bytes, const char* found_by,
                                                 const job_protection& by) {
    host_map here = map_of_host(m.host_of, rank);
    const int n = static_cast<int>(here.rank_at.size()), place = here.place_of[static_cast<std::size_t>(rank)];
    const std::string name = m.token + "-" + std::to_string(m.host_of[static_cast<std::size_t>(rank)]);
    if (arena_bytes == 0) arena_bytes = arena_bytes_for(n);
    auto memory = n == 1 ? make_memory_arena(1, arena_bytes)
                         : join_shm(name.c_str(), place, n, deadline::in_ns(s.timeout_ns), arena_bytes);
    std::vector<socket_address> peers;
    for (const std::string& card : m.addresses) peers.push_back(door::address_of(card));
    auto hub = make_counted<socket_hub>(std::move(d.listener), m.token, std::move(peers), s.timeout_ns,
                                        system_socket_calls, by);
    auto j = make_counted<job>(std::move(memory), rank, size, settings_across_hosts(s), n == 1, std::move(here),
                               std::move(hub));
    j->found_by = found_by;
    return j;
}

// Without a store hosts cannot exchange addresses.
inline void require_one_host(const job_description& d) {
    if (d.local_size < d.size && d.store.empty())
        fail(errc::unsupported, d.rank, -1, "name a store in COLLX_STORE, so that hosts can exchange their addresses",
             "%s says that only %d of %d ranks are on this host", d.found_by, d.local_size, d.size);
}

// The process's job: joined when the first communicator is made, left when the process ends, so that communicators may
// come and go.
[[gnu::cold]] inline counted_ptr<job> this_job() {
    if (thread_job) return thread_job;
    static counted_ptr<job> process_job;
    if (process_job && process_job->mark.is_child())
        fail(errc::forked, process_job->rank, -1, "fork before the first communicator is made",
             "this process is a fork() of a rank");
    if (process_job) return process_job;
    job_description d = describe_job();
    require_one_host(d);
    const host_description h = describe_host(environment(), d.size > 1 ? process_protection() : job_protection());
    if (d.job.empty() && d.size > 1) require_protection_of_store(d, h.by.key);
    door to_others;
    const meeting m = agree_on_places(d, deadline::in_ns(d.timeout_ns), h, [&] { return to_others.open(h); });
    job_settings s = settings_for(d.local_size);
    s.timeout_ns = d.timeout_ns;
    if (d.checked >= 0) s.checked = d.checked == 1;
    if (d.waiting == wait_choice::spin) s.waiting.spins = UINT32_MAX;
    if (d.waiting == wait_choice::yield) s.waiting.spins = 0;
    s.lend = static_cast<lending>(d.lending);
    auto j = m.is_one_host() ? join_processes(m.token.c_str(), d.rank, d.size, s, d.arena_bytes, d.found_by)
                             : join_hosts(m, std::move(to_others), d.rank, d.size, s, d.arena_bytes, d.found_by, h.by);
    process_job = j;
    return j;
}

template <class Store>
[[gnu::cold]] counted_ptr<job> join_by_store(int rank, int size, Store& store, std::int64_t timeout_ns) {
    job_settings s = settings_for(size);
    s.timeout_ns = timeout_ns;
    const host_description h = describe_host(environment(), size > 1 ? process_protection() : job_protection());
    door to_others;
    const meeting m = meet_at(store, rank, size, deadline::in_ns(timeout_ns), h, [&] { return to_others.open(h); });
    return m.is_one_host() ? join_processes(m.token.c_str(), rank, size, s, 0, "store")
                           : join_hosts(m, std::move(to_others), rank, size, s, 0, "store", h.by);
}

inline counted_ptr<job> join_by_id(const unique_id& id, int rank, int size, std::int64_t timeout_ns, int local_size) {
    if (size < 1 || rank < 0 || rank >= size)
        fail(errc::invalid_argument, rank, -1, "", "rank %d of %d ranks", rank, size);
    job_settings s = settings_for(local_size);
    s.timeout_ns = timeout_ns;
    const std::string name(id.job(rank));
    return join_processes(name.c_str(), rank, size, s, 0, "unique id");
}

} // namespace detail

COLLX_END_NAMESPACE
