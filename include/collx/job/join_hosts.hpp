// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins a job whose ranks are known and on several hosts: over shared memory with the ranks of this host, and over a
// listener with the others.
#pragma once

#include <cstring>
#include <utility>

#include <collx/bootstrap/host.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/job/exchange_or_fail.hpp>
#include <collx/job/join.hpp>
#include <collx/job/listener.hpp>
#include <collx/job/open_verbs.hpp>
#include <collx/transport/socket_connector.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Joins the memory of this host. Its transport counts ranks from 0; errors from here name the rank of the job.
[[gnu::cold]] inline counted_ptr<arena> join_memory_of_host(const char* name, const host_map& here, int rank,
                                                            const deadline& until, std::size_t bytes,
                                                            start_check* check) {
    const int n = static_cast<int>(here.rank_at.size()), place = here.place_of[rank];
    try {
        return join_shm(name, place, n, until, bytes, "", check);
    } catch (const error& e) {
        const bool has_peer = e.peer() >= 0 && e.peer() < n,
                   is_known = e.code() == errc::peer_failed || e.code() == errc::timeout;
        if ((check != nullptr && check->has_ended()) || !has_peer || !is_known) throw;
        const int who = here.rank_at[e.peer()];
        if (e.code() == errc::timeout)
            fail(e.code(), rank, who, remedy_of_join(e.code()), "rank %d did not come to the memory of its host", who);
        fail(e.code(), rank, who, remedy_of_join(e.code()), "rank %d ended while the ranks of its host came together",
             who);
    }
}

[[gnu::cold]] inline counted_ptr<job> join_hosts(const meeting& m, listener&& d, int rank, int size, job_settings s,
                                                 std::size_t arena_bytes, const char* found_by, const deadline& until,
                                                 start_check* check = nullptr) {
    host_map here = map_of_host(m.host_of, rank);
    const int n = static_cast<int>(here.rank_at.size());
    const kept_text name = joined({m.token, "-", m.host_of[rank]});
    if (arena_bytes == 0) arena_bytes = arena_bytes_for(n);
    auto memory = n == 1 ? make_memory_arena(1, arena_bytes)
                         : join_memory_of_host(name.c_str(), here, rank, until, arena_bytes, check);
    d.hub->set_most_own(most_own_communicators());
    d.hub->set_near(here.rank_at);
    d.hub->use_verbs(open_verbs(s.over, d.hub->protected_by().level, d.hub->own_address(), rank, environment(),
                                here.place_of[rank], n));
    auto j = make_counted<job>(std::move(memory), rank, size, settings_across_hosts(s), n == 1, std::move(here),
                               make_counted<socket_connector>(std::move(d.hub)));
    j->start_until = until;
    j->found_by = found_by;
    return j;
}

// Without shared memory each rank counts as a separate host.
inline host_description separated(host_description h, const transports& over, int rank) {
    if (!over.use_memory) h.id = joined({h.id, "#", rank});
    return h;
}
// All ranks know the hosts, so all come to the same verdict.
[[gnu::cold]] inline void require_transport(const meeting& m, const transports& over, int rank) {
    if (over.cross_hosts || m.is_one_host()) return;
    for (std::size_t r = 0; r < m.host_of.size(); ++r)
        if (m.host_of[r] != m.host_of[rank])
            fail(errc::unsupported, rank, static_cast<int>(r),
                 "add sockets{} to per_peer, or start all ranks on one host",
                 "rank %zu is on another host, and this program's per_peer has no transport that goes there", r);
}

// For ranks on one host that are not to use its memory: they use it once, to exchange the addresses where they
// listen.
[[gnu::cold]] inline counted_ptr<job> join_by_channels(const counted_ptr<job>& near, const host_description& h,
                                                       listener&& d) {
    struct line {
        char token[32] = {}, address[120] = {};
    };
    const int rank = near->rank, size = near->size;
    meeting m;
    detail::growing_array<kept_text> addresses;
    int failed = -1;
    {
        communicator_core all(near);
        failed = exchange_or_fail<line>(
            all, near->settings.timeout_ns,
            [&](line& mine) {
                const kept_text token = random_token(), at = d.open(h);
                if (at.size() >= sizeof mine.address)
                    fail(errc::environment, rank, -1, "give COLLX_ADDRESS a shorter form",
                         "the address '%s' is too long", at.c_str());
                std::memcpy(mine.token, token.data(), sizeof mine.token);
                std::memcpy(mine.address, at.data(), at.size());
            },
            [&](int r, const line& theirs) {
                if (r == 0) m.token = {theirs.token, sizeof theirs.token};
                addresses.emplace_back(theirs.address);
                m.host_of.push_back(r);
            });
    }
    if (failed >= 0) fail(errc::peer_failed, rank, failed, "see its output", "rank %d cannot listen", failed);
    d.learn(m.token, addresses);
    return join_hosts(m, std::move(d), rank, size, near->settings, 0, near->found_by, near->start_until);
}

// Hosts cannot exchange addresses without a store.
inline void require_one_host(const job_description& d) {
    if (d.local_size < d.size && d.store.empty())
        fail(errc::unsupported, d.rank, -1, d.remedy, "%s says that only %d of %d ranks are on this host", d.found_by,
             d.local_size, d.size);
}

} // namespace detail

COLLX_END_NAMESPACE
