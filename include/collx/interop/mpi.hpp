// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a communicator of the ranks of an MPI communicator, so that an MPI program can move one collective after the
// other to collx. Needs mpi.h: link collx::mpi, or compile with mpicxx. collx uses MPI only to agree on a name and to
// exchange addresses.
// collx-header: needs=mpi
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <collx/bootstrap/unique_id.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/job/join_hosts.hpp>
#include <collx/net.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// MPI's default error handler ends the program; a program that has set another one gets an exception.
inline void check_mpi(int code, int rank, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
    fail(errc::environment, rank, -1, "see MPI's own messages", "%s failed: %.200s", call, text);
}

// The card that each rank shows the other ranks through MPI, on several hosts.
struct mpi_card {
    unsigned long long host = 0, machine = 0, settings = 0;
    int has_address = 0;
    int has_failed = 0;
    char address[80] = {};
};

// All ranks see all cards, so all reach the same verdict.
inline void check_cards(const std::vector<mpi_card>& cards, int rank) {
    int lonely = -1;
    bool is_remote = false;
    for (std::size_t i = 0; i < cards.size(); ++i) {
        const int r = static_cast<int>(i);
        if (cards[i].has_failed != 0)
            fail(errc::peer_failed, rank, r, "see its output", "MPI rank %d cannot talk to other hosts", r);
        if (cards[i].settings != cards[0].settings)
            fail(errc::mismatch, rank, r,
                 "give all ranks the same COLLX_ variables, key, transports and build of collx",
                 "MPI ranks 0 and %d have other settings, keys or transports", r);
        is_remote = is_remote || cards[i].machine != cards[0].machine;
        if (lonely < 0 && cards[i].has_address == 0) lonely = r;
    }
    if (is_remote && lonely >= 0)
        fail(errc::environment, rank, lonely,
             "set COLLX_ADDRESS on every host to its own address, and give the job a key, see docs/security.md",
             "the ranks are on several machines, and rank %d has only an address within its own", lonely);
}

// MPI_Init() without MPI's launcher makes a job of one process, also where another launcher has started many.
inline void require_launcher() {
    int processes = 0;
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &processes), -1, "MPI_Comm_size");
    if (processes != 1) return;
    job_description d;
    try {
        d = describe_job();
    } catch (const error&) { // of Open MPI, which sets variables of a PMIx launcher in a process without a launcher
    }
    if (d.size > 1)
        fail(errc::environment, d.rank, -1, "start it by the launcher of its MPI, or use collx without from_mpi",
             "MPI_COMM_WORLD is this process alone, and this is rank %d of %d ranks (found by: %s)", d.rank, d.size,
             d.found_by);
}

// Throws unless MPI runs, and `mpi` is one group of ranks.
inline void require_group(MPI_Comm mpi) {
    int is_ready = 0, is_over = 0, has_two_groups = 0;
    if (MPI_Initialized(&is_ready) != MPI_SUCCESS || MPI_Finalized(&is_over) != MPI_SUCCESS || is_ready == 0 ||
        is_over != 0)
        fail(errc::environment, -1, -1, "call from_mpi between MPI_Init and MPI_Finalize", "MPI is not running");
    if (mpi == MPI_COMM_NULL) fail(errc::invalid_argument, -1, -1, "", "from_mpi of MPI_COMM_NULL");
    check_mpi(MPI_Comm_test_inter(mpi, &has_two_groups), -1, "MPI_Comm_test_inter");
    if (has_two_groups != 0)
        fail(errc::invalid_argument, -1, -1, "merge its groups with MPI_Intercomm_merge first",
             "from_mpi of an inter-communicator");
}

inline unsigned long long hash_of(const std::string& text) { return hash_bytes(text.data(), text.size(), 5); }

// Joins ranks on several hosts: MPI exchanges addresses, everything else goes over collx's own connections.
inline counted_ptr<job> join_by_mpi(MPI_Comm mpi, int rank, int size, std::int64_t timeout_ns,
                                    const host_description& h, const std::vector<unsigned long long>& hosts,
                                    const transports& over) {
    const deadline until = deadline::in_ns(timeout_ns);
    meeting m;
    for (const int host : number_hosts(std::vector<std::uint64_t>(hosts.begin(), hosts.end())))
        m.host_of.push_back(host);
    mpi_card mine{.host = hosts[static_cast<std::size_t>(rank)], .machine = hash_of(h.machine)};
    job_settings s;
    std::size_t arena_bytes = 0;
    std::optional<listener> to_others;
    std::exception_ptr trouble;
    char token[32] = {};
    try {
        if (rank == 0) std::memcpy(token, random_token().data(), sizeof token);
        s = settings_by_variables(static_cast<int>(map_of_host(m.host_of, rank).rank_at.size()), timeout_ns,
                                  arena_bytes);
        s.over = over;
        to_others.emplace(timeout_ns, h.by, system_socket_calls, h.lanes);
        mine.settings = hash_of(settings_text(s) + connection_words(h));
        mine.has_address = h.has_address;
        const std::string at = to_others->open(h);
        if (at.size() >= sizeof mine.address)
            fail(errc::environment, rank, -1, "give COLLX_ADDRESS a shorter form", "the address '%s' is too long",
                 at.c_str());
        std::memcpy(mine.address, at.data(), at.size());
    } catch (...) { // the other ranks wait in MPI
        trouble = std::current_exception();
        mine.has_failed = 1;
    }
    std::vector<mpi_card> cards(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards.data(), sizeof mine, MPI_BYTE, mpi), rank,
              "MPI_Allgather");
    check_mpi(MPI_Bcast(token, sizeof token, MPI_BYTE, 0, mpi), rank, "MPI_Bcast");
    if (trouble) std::rethrow_exception(trouble);
    check_cards(cards, rank);
    require_transport(m, over, rank); // the same verdict on all ranks: their lists are the same
    std::vector<std::string> addresses;
    for (mpi_card& c : cards) {
        c.address[sizeof c.address - 1] = '\0';
        addresses.emplace_back(c.address);
    }
    m.token = kept_text(token, sizeof token);
    to_others->learn(m.token, addresses);
    return join_hosts(m, std::move(*to_others), rank, size, s, arena_bytes, "MPI", until);
}

} // namespace detail

// Makes a communicator of the ranks of `mpi`, with the same numbers. Collective over `mpi`, which no other thread may
// use meanwhile, and which is not needed afterwards.
// timeout: the communicator's; without it COLLX_TIMEOUT, or 60 seconds. MPI's own exchanges at the start have no time
//     limit: a rank that does not call from_mpi leaves the others waiting in MPI.
// Errors: environment when MPI is not initialised or fails, when another launcher started the ranks, so that MPI sees
//     one process, or when hosts cannot reach each other · invalid_argument for an inter-communicator · those of
//     communicator.
// Cost: an all_gather of 8 bytes per rank, and on one host a broadcast of 128 bytes; on several hosts one more
//     all_gather of 112 bytes per rank and a broadcast of 32.
inline communicator from_mpi(MPI_Comm mpi, std::optional<std::chrono::nanoseconds> timeout = {},
                             const transports& over = {}) {
    detail::require_group(mpi);
    int rank = -1, size = 0;
    detail::check_mpi(MPI_Comm_rank(mpi, &rank), -1, "MPI_Comm_rank");
    detail::check_mpi(MPI_Comm_size(mpi, &size), rank, "MPI_Comm_size");
    if (size == 1) detail::require_launcher();

    host_description h;
    std::exception_ptr trouble;
    std::int64_t limit_ns = 0;
    try {
        limit_ns =
            detail::require_some_time(rank, timeout ? timeout->count() : detail::time_limit_by_variables().count());
        h = size > 1 ? describe_host(environment(), detail::process_protection()) : describe_host_of_one();
        h = detail::separated(h, over, rank);
    } catch (...) { // the other ranks wait in MPI
        trouble = std::current_exception();
    }
    unsigned long long here = trouble ? 0 : detail::hash_of(h.id) | 1;
    std::vector<unsigned long long> hosts(static_cast<std::size_t>(size));
    detail::check_mpi(MPI_Allgather(&here, 1, MPI_UNSIGNED_LONG_LONG, hosts.data(), 1, MPI_UNSIGNED_LONG_LONG, mpi),
                      rank, "MPI_Allgather");
    if (trouble) std::rethrow_exception(trouble);
    for (int r = 0; r < size; ++r)
        if (hosts[static_cast<std::size_t>(r)] == 0)
            fail(errc::peer_failed, rank, r, "see its output", "MPI rank %d refuses its variables or arguments", r);
    for (int r = 1; r < size; ++r)
        if (hosts[static_cast<std::size_t>(r)] != hosts[0])
            return communicator(detail::join_custom(detail::join_by_mpi(mpi, rank, size, limit_ns, h, hosts, over)));

    unique_id id;
    try {
        if (rank == 0) id = unique_id::make_here();
    } catch (...) { // the other ranks wait in MPI, and will report that an id of zeros is not valid
        trouble = std::current_exception();
    }
    detail::check_mpi(MPI_Bcast(id.bytes, static_cast<int>(unique_id::most_bytes), MPI_CHAR, 0, mpi), rank,
                      "MPI_Bcast");
    if (trouble) std::rethrow_exception(trouble);
    return communicator(id, rank, size, duration::from_ns(limit_ns), over);
}

COLLX_END_NAMESPACE
