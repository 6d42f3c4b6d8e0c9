// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Determines the name of the job. It is given or derived, or the ranks agree on it through what the launcher or the
// user offers: a store, or the process manager's sockets.
#pragma once

#include <type_traits>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/file_store.hpp>
#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/pmi_store.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/start_watch.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The process's PMI connection. It lives until the program ends, because an MPI library may come and use the same
// socket. The manager takes a rank that says goodbye for finished, and one that leaves without for failed.
inline pmi_store& process_pmi(int fd, const job_description& d, const deadline& until) {
    static pmi_store store =
        d.pmi_port.empty() ? pmi_store(fd, d.rank, d.size, until) : pmi_store(d.pmi_port, d.rank, until);
    return store;
}

// Asks the manager if only the manager knows how many ranks there are.
inline void ask_manager(job_description& d, const deadline& until) {
    if (d.pmi_port.empty()) return;
    const pmi_store& store = process_pmi(-1, d, until);
    d.rank = store.rank();
    d.size = store.size();
}

// Counts the ranks on this rank's host by the manager's own mapping. Changes nothing if the manager gives none.
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

// The PMIx component as a store.
struct pmix_by_component {
    static constexpr bool is_collective = true;
    void set(name_view key, name_view value) { pmix->set(key, value); }
    kept_text get(name_view key, const deadline& until) { return pmix->get(key, until); }
    std::int64_t add(name_view, std::int64_t) {
        fail(errc::unsupported, -1, -1, "use a tcp_store or a file_store", "PMIx has no sums");
    }
    void barrier(name_view name, int ranks, const deadline& until) { pmix->barrier(name, ranks, until); }
    int next_turn() { return pmix->next_turn(); }
};

// Calls f(store) with the store that the description names; rank 0 of a tcp store runs the server meanwhile. A process
// manager also says which ranks are on this host.
template <class F>
auto with_store(job_description& d, const deadline& until, const job_key& key, F&& f) {
    const auto is_scheme = [&](const char* scheme) { return d.store.starts_with(scheme); };
    const std::size_t colon = d.store.rfind(':');
    const char* after = d.store.c_str() + (colon != kept_text::npos ? colon + 1 : 0);
    if (is_scheme("file:")) {
        file_store store(d.store.substr(5));
        store_face<file_store> face(store);
        return f(static_cast<any_store&>(face));
    }
    if (is_scheme("pmi:")) {
        pmi_store& store = process_pmi(static_cast<int>(read_digits(after, INT32_MAX)), d, until);
        read_pmi_locals(store, d);
        store_face<pmi_store> face(store);
        return f(static_cast<any_store&>(face));
    }
    if (is_scheme("pmix:") && pmix != nullptr) {
        pmix_by_component store;
        store_face<pmix_by_component> face(store);
        return f(static_cast<any_store&>(face));
    }
    if (!is_scheme("tcp:") || colon <= 4)
        fail(errc::environment, d.rank, -1, d.remedy, "nothing says how the %d ranks find each other", d.size);
    const kept_text host = d.store.substr(4, colon - 4);
    const int port = static_cast<int>(read_digits(after, 65535));
    sole_ptr<tcp_server> server;
    if (d.rank == 0) server = make_sole<tcp_server>(host, port, key);
    tcp_store store(host, port, until, d.rank, key);
    store_face<tcp_store> face(store);
    auto met = [&] {
        try {
            return f(static_cast<any_store&>(face));
        } catch (const error& e) { // ranks that the server still refuses must receive the reason
            if (server && e.code() == errc::security) detail::nap_ns(1'000'000'000);
            throw;
        }
    }();
    // Otherwise the next meeting might connect to this one's server, which ends soon unless its process is stopped.
    if (d.rank != 0) store.wait_for_end(deadline::in_ns(500'000'000));
    return met;
}

// Agrees on the job's name and on the host of each rank, in the way that this store allows.
template <class Listener>
[[gnu::cold]] meeting find_places(any_store& store, job_description& d, const deadline& until,
                                  const host_description& h, const kept_text& settings, Listener& listener,
                                  start_watch& all) {
    // If the process manager knows that all ranks are on one host, they exchange no addresses.
    if (store.has_order() && d.local_size == d.size && h.id == h.machine)
        return {come_together(store, d.rank, d.size, until, {settings + connection_words(h), h.id, h.machine}).token,
                {}};
    return meet_at(store, d.rank, d.size, until, h, settings, listener, &all);
}
// Counts the ranks on this rank's host, and finds this rank's place among them.
[[gnu::cold]] inline void count_locals(job_description& d, const growing_array<int>& host_of) {
    if (host_of.empty()) return;
    d.local_rank = d.local_size = 0;
    for (int r = 0; r < d.size; ++r) {
        if (host_of[r] != host_of[d.rank]) continue;
        ++d.local_size;
        d.local_rank += r < d.rank ? 1 : 0;
    }
}

} // namespace detail

// Fills in the job's name, and the place on the host if only the meeting shows it. Collective among the ranks of a job
// without a name; a process that is alone needs no name. Errors: those of the stores and of rendezvous() · environment
// when nothing says how to meet.
[[gnu::cold]] inline void meet(job_description& d, const deadline& until, const job_key& key = {}) {
    detail::ask_manager(d, until);
    if (!d.job.empty() || d.size == 1) return;
    d.job =
        detail::with_store(d, until, key, [&](any_store& store) { return rendezvous(store, d.rank, d.size, until); });
}

// Like meet(), and also finds each rank's host. Then returns join(meeting, watch), which brings the job up; the watch
// still detects ranks that die or fall silent. A job that its launcher named is on one host. See meet_at().
template <class Listener, class Join>
[[gnu::cold]] auto meet_and_join(job_description& d, const deadline& until, const host_description& h,
                                 const kept_text& settings, Listener&& listener, Join&& join) {
    detail::ask_manager(d, until);
    const bool is_asked = h.id != h.machine;
    if (!d.job.empty() || d.size == 1) {
        if (d.size > 1 && is_asked)
            fail(errc::environment, d.rank, -1, "name a store in COLLX_STORE instead of COLLX_JOB",
                 "COLLX_HOST_ID says that ranks may be on several hosts, and COLLX_JOB is for one");
        return join(meeting{d.job, {}}, nullptr);
    }
    return detail::with_store(d, until, h.by.key, [&](any_store& store) {
        start_watch all(store.alarm(), d.rank, d.size, until);
        listener.tell(&all);
        return all.guard([&] {
            const meeting m = detail::find_places(store, d, until, h, settings, listener, all);
            d.job = m.token;
            detail::count_locals(d, m.host_of);
            auto joined = join(m, &all);
            all.finish();
            return joined;
        });
    });
}

COLLX_END_NAMESPACE
