// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From what the environment says to the name of the job: given by the launcher, or agreed on through the store that
// COLLX_STORE names.
#pragma once

#include <string>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/file_store.hpp>
#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Calls f(store) with the store that the description names; rank 0 of a tcp store runs the server meanwhile.
template <class F>
[[gnu::cold]] auto with_store(const job_description& d, const deadline& until, F&& f) {
    if (d.store.compare(0, 5, "file:") == 0) {
        file_store store(d.store.substr(5));
        return f(store);
    }
    const std::size_t colon = d.store.rfind(':');
    if (d.store.compare(0, 4, "tcp:") != 0 || colon <= 4)
        fail(errc::environment, d.rank, -1, "set COLLX_JOB or COLLX_STORE",
             "nothing says how the %d ranks find each other", d.size);
    const std::string host = d.store.substr(4, colon - 4);
    const char* at = d.store.c_str() + colon + 1;
    const int port = static_cast<int>(detail::read_digits(at, 65535));
    sole_ptr<tcp_server> server;
    if (d.rank == 0) server = make_sole<tcp_server>(host, port);
    tcp_store store(host, port, until);
    auto met = f(store);
    if (d.rank != 0) store.wait_for_end(until); // else the next meeting might knock at this one's server
    return met;
}

} // namespace detail

// Empty for a process that is alone. Collective among the ranks of a job with a store. Errors: those of the stores and
// of rendezvous().
[[gnu::cold]] inline std::string agree_on_job(const job_description& d, const deadline& until) {
    if (!d.job.empty() || d.size == 1) return d.job;
    return detail::with_store(d, until, [&](auto& store) { return rendezvous(store, d.rank, d.size, until); });
}

// The same, and who is on which host. A job that its launcher named is on one. See meet_at().
template <class Listen>
[[gnu::cold]] meeting agree_on_places(const job_description& d, const deadline& until, const host_description& h,
                                      Listen&& listen) {
    if (!d.job.empty() || d.size == 1) {
        if (d.size > 1 && h.id != h.machine)
            fail(errc::environment, d.rank, -1, "name a store in COLLX_STORE instead of COLLX_JOB",
                 "COLLX_HOST_ID says that ranks may be on several hosts, and COLLX_JOB is for one");
        return {d.job, {}, {}};
    }
    return detail::with_store(d, until, [&](auto& store) { return meet_at(store, d.rank, d.size, until, h, listen); });
}

COLLX_END_NAMESPACE
