// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins a job whose ranks are known and all on one host, over shared memory.
#pragma once

#include <cstdint>
#include <utility>

#include <collx/bootstrap/description.hpp>
#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/variables.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/job.hpp>
#include <collx/job/parts.hpp>
#include <collx/transport/memory.hpp>
#include <collx/transport/shm.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Errors: unsupported, where the program was compiled without the code that reads the file.
[[gnu::cold]] inline bool has_topology() {
    if (environment().get("COLLX_TOPOLOGY") == nullptr) return false;
    if (topology == nullptr)
        fail(errc::unsupported, -1, -1,
             "include <collx/topology.hpp> in one source of the program, or link CMake's collx::collx",
             "COLLX_TOPOLOGY is set, and this program was compiled without what reads it");
    return true;
}

inline job_settings settings_for(int local_ranks) {
    job_settings s;
    const int cores = usable_cores();
    s.sharing = local_ranks;
    s.share_among(cores); // as far as this rank knows, see job::settle_cores()
    s.waiting = wait_policy::for_ranks(local_ranks, cores);
    s.has_topology = has_topology();
    return s;
}

// The ranks of this rank's host. host_of: by rank.
[[gnu::cold]] inline host_map map_of_host(const detail::growing_array<int>& host_of, int rank) {
    host_map m;
    m.host_of = host_of;
    for (std::size_t r = 0; r < host_of.size(); ++r) {
        const bool is_here = host_of[r] == host_of[rank];
        m.place_of.push_back(is_here ? static_cast<int>(m.rank_at.size()) : -1);
        if (is_here) m.rank_at.push_back(static_cast<int>(r));
    }
    return m;
}

inline job_settings settings_across_hosts(job_settings s) {
    s.waiting = s.waiting.across_hosts();
    return s;
}

// Takes the settings that the environment has for all communicators.
inline void settings_from(const job_description& d, job_settings& s) {
    s.timeout_ns = d.timeout_ns;
    if (d.checked >= 0) s.checked = d.checked == 1;
    s.single_copy = d.single_copy;
    s.record = d.record;
    s.record_directory = d.record_directory;
    s.is_talkative = d.debug == debug_level::info;
    s.has_topology = has_topology();
}
// Decides how waits go, once the number of ranks that share this machine's cores is known.
inline void settle_waiting(const job_description& d, int local_ranks, job_settings& s) {
    const job_settings here = settings_for(local_ranks);
    s.waiting = here.waiting;
    s.ranks_per_core = here.ranks_per_core;
    s.sharing = here.sharing;
    s.waits_as_told = d.waiting != wait_choice::automatic;
    if (d.waiting == wait_choice::spin) s.waiting.spins = UINT32_MAX;
    if (d.waiting == wait_choice::yield) s.waiting.spins = 0;
}

// The settings of a job whose ranks the program brings together itself. arena_bytes: 0 where they do not say it.
[[gnu::cold]] inline job_settings settings_by_variables(int local_ranks, std::int64_t timeout_ns,
                                                        std::size_t& arena_bytes) {
    job_description d;
    read_settings(environment(), d);
    d.timeout_ns = timeout_ns;
    job_settings s;
    settings_from(d, s);
    settle_waiting(d, local_ranks, s);
    arena_bytes = d.arena_bytes;
    return s;
}

// Settings that must be the same on all ranks, since ranks would otherwise wait for each other in different calls.
// Compared when the ranks connect.
[[gnu::cold]] inline kept_text settings_text(const job_settings& s) {
    return joined({"version=" COLLX_VERSION_STRING " COLLX_CHECKED=",
                   s.checked < 0    ? "unset"
                   : s.checked == 0 ? "0"
                                    : "1",
                   " COLLX_SINGLE_COPY=",
                   s.single_copy == single_copy_mode::automatic ? "auto"
                   : s.single_copy == single_copy_mode::never   ? "never"
                                                                : "always",
                   " COLLX_TOPOLOGY=", s.has_topology ? "set" : "unset", " per_peer=", s.over.text});
}

// until: time limit of the whole start, from the first word in the store to the first communicator. check: tells
// whether the start has ended otherwise; null: unknown.
[[gnu::cold]] inline counted_ptr<job> join_processes(const char* token, int rank, int size, const job_settings& s,
                                                     std::size_t arena_bytes, const char* found_by,
                                                     const deadline& until, const kept_text& more_settings = {},
                                                     start_check* check = nullptr) {
    if (arena_bytes == 0) arena_bytes = arena_bytes_for(size);
    auto memory =
        size == 1 ? make_memory_arena(1, arena_bytes)
                  : join_shm(token, rank, size, until, arena_bytes, (settings_text(s) + more_settings).c_str(), check);
    auto j = make_counted<job>(std::move(memory), rank, size, s, size == 1);
    j->start_until = until;
    j->found_by = found_by;
    return j;
}

} // namespace detail

COLLX_END_NAMESPACE
