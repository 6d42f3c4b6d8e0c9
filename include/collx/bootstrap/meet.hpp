// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From what the environment says to the name of the job: given or derived, or agreed on through what the launcher or
// the user offers: a store, the process manager's sockets.
#pragma once

#include <string>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/file_store.hpp>
#include <collx/bootstrap/pmi_store.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline std::string agree_by_tcp(const job_description& d, const deadline& until) {
    const std::size_t colon = d.store.rfind(':');
    const std::string host = d.store.substr(4, colon - 4);
    const char* at = d.store.c_str() + colon + 1;
    const int port = static_cast<int>(read_digits(at, 65535));
    sole_ptr<tcp_server> server;
    if (d.rank == 0) server = make_sole<tcp_server>(host, port);
    tcp_store store(host, port, until);
    std::string name = rendezvous(store, d.rank, d.size, until);
    if (d.rank != 0) store.wait_for_end(until); // else the next meeting might knock at this one's server
    return name;
}

// The process's end of PMI. It lives until the program ends: an MPI library may come and use the same socket, and the
// manager takes a rank that has said goodbye for done, one that leaves without for failed.
inline pmi_store& process_pmi(int fd, int rank, int size, const deadline& until) {
    static pmi_store store(fd, rank, size, until);
    return store;
}

// Who else is on this rank's host, by the manager's own mapping. Leaves alone what it does not say.
inline void read_pmi_locals(pmi_store& store, job_description& d) {
    pmi_mapping mapping;
    if (!mapping.read(store.of_manager("PMI_process_mapping"))) return;
    const int node = mapping.node_of(d.rank);
    d.local_rank = d.local_size = 0;
    for (int r = 0; r < d.size; ++r) {
        if (mapping.node_of(r) != node) continue;
        ++d.local_size;
        d.local_rank += r < d.rank ? 1 : 0;
    }
}

} // namespace detail

// Fills in the job's name, and the place on the host where only the meeting tells it. Collective among the ranks of a
// job without a name; rank 0 of a tcp store runs the server meanwhile. A process that is alone needs none. Errors:
// those of the stores and of rendezvous() · environment when nothing says how to meet.
inline void meet(job_description& d, const deadline& until) {
    if (!d.job.empty() || d.size == 1) return;
    const auto is_scheme = [&](const char* scheme) { return d.store.compare(0, std::strlen(scheme), scheme) == 0; };
    if (is_scheme("file:")) {
        file_store store(d.store.substr(5));
        d.job = rendezvous(store, d.rank, d.size, until);
    } else if (is_scheme("tcp:") && d.store.rfind(':') > 4) {
        d.job = detail::agree_by_tcp(d, until);
    } else if (is_scheme("pmi:")) {
        const char* at = d.store.c_str() + 4;
        auto& store = detail::process_pmi(static_cast<int>(detail::read_digits(at, INT32_MAX)), d.rank, d.size, until);
        detail::read_pmi_locals(store, d);
        d.job = rendezvous(store, d.rank, d.size, until);
    } else if (is_scheme("pmix:") && detail::pmix != nullptr) {
        d.job = detail::pmix->agree(d, until);
    } else {
        fail(errc::environment, d.rank, -1, d.remedy, "nothing says how the %d ranks find each other", d.size);
    }
}

// The name alone.
inline std::string agree_on_job(job_description d, const deadline& until) {
    meet(d, until);
    return d.job;
}

COLLX_END_NAMESPACE
