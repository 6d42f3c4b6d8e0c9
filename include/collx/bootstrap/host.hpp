// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which host a rank is on and where others can reach it: what each rank says about itself, and what all ranks conclude.
// Ranks with the same host id share memory; the others communicate over sockets.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/local_address.hpp>
#include <collx/bootstrap/protection.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

// What a rank says about its host when ranks meet: which ranks share its memory, and where others reach it.
struct host_description {
    kept_text id;                    // COLLX_HOST_ID, or the machine
    kept_text machine;               // this boot of the kernel, and the namespaces of this process
    kept_text address = "127.0.0.1"; // where this rank listens if others are on other hosts
    bool has_address = false;        // other machines can reach `address`
    job_protection by;
    int lanes = 1;                                        // connections to each rank of another host
    kept_text why = "loopback: COLLX_ADDRESS is not set"; // why `address` was chosen
};

namespace detail {

// This boot of the kernel and the process's namespaces. Processes that cannot find each other by socket name or process
// number are on different hosts, whatever the hostname says.
[[gnu::cold]] inline kept_text machine_id() {
    kept_text id;
    const descriptor f(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[36];
    if (f.is_open() && ::read(f.get(), text, sizeof text) == static_cast<ssize_t>(sizeof text))
        id = {text, sizeof text};
    else if (::gethostname(text, sizeof text) == 0) {
        text[sizeof text - 1] = '\0';
        id = text;
    }
    for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
        struct stat s {};
        id = joined({id, ":", ::stat(space, &s) == 0 ? s.st_ino : 0});
    }
    for (char& c : id)
        if (c <= ' ' || c > '~') c = '_';
    return id;
}

} // namespace detail

// How many communicators of a rank may have their own connections (COLLX_OWN_CONNECTIONS).
[[gnu::cold]] inline int most_own_communicators(const environment& env = environment()) {
    const int asked = detail::number_in(env, detail::variable_named("COLLX_OWN_CONNECTIONS"));
    return asked > 0 ? asked : 4;
}

// The host of a job of one rank. Nothing listens for others, so no address is chosen and no key is needed.
// Errors: environment.
[[gnu::cold]] inline host_description describe_host_of_one(const environment& env = environment()) {
    check_variables(env);
    host_description h;
    h.machine = detail::machine_id();
    const char* id = env.get("COLLX_HOST_ID");
    h.id = id != nullptr ? id : h.machine;
    return h;
}

// Describes this rank's host. root: the address where the ranks meet, or empty. Without COLLX_ADDRESS a rank listens on
// the address from which it sends to root. Errors: environment. A rank whose address others could reach needs a key, or
// COLLX_INSECURE=1: without one, an eavesdropper could join.
[[gnu::cold]] inline host_description describe_host(const environment& env = environment(), job_protection by = {},
                                                    const kept_text& root = {}) {
    host_description h = describe_host_of_one(env);
    h.by = std::move(by);
    if (const int lanes = detail::number_in(env, detail::variable_named("COLLX_LANES")); lanes > 0) h.lanes = lanes;
    const char* address = env.get("COLLX_ADDRESS");
    chosen_address chosen;
    if (address != nullptr) {
        chosen = choose_address(address, root);
    } else {
        if (root.empty() || detail::numeric_address(root, 0).is_loopback()) return h;
        chosen = {detail::address_towards(detail::numeric_address(root, 9)),
                  "on the way to " + root + ", where the ranks meet"};
        if (chosen.address.empty()) return h;
        detail::require_protection(env, "COLLX_STORE", root, h.by.key);
    }
    h.address = chosen.address;
    h.why = chosen.why;
    h.has_address = h.address != "unix";
    if (!detail::is_unix_address(h.address)) detail::require_protection(env, "COLLX_ADDRESS", h.address, h.by.key);
    return h;
}

// How the ranks of a job are distributed over hosts.
struct meeting {
    kept_text token;                    // name of the job
    detail::growing_array<int> host_of; // by rank; numbered in the order of their first ranks; empty: one host

    bool is_one_host() const { return host_of.empty(); }
};

namespace detail {

// Numbers the hosts. ids: a word per rank that identifies its host. Cost: linear.
[[gnu::cold]] inline detail::growing_array<int> number_hosts(const detail::growing_array<std::uint64_t>& ids) {
    std::size_t places = 16;
    while (places < 2 * ids.size()) places *= 2;
    detail::growing_array<int> first_at(places, -1), number(ids.size()), host_of;
    int hosts = 0;
    for (std::size_t r = 0; r < ids.size(); ++r) {
        std::size_t at = ids[r] & (places - 1);
        while (first_at[at] >= 0 && ids[first_at[at]] != ids[r]) at = (at + 1) & (places - 1);
        if (first_at[at] < 0) {
            first_at[at] = static_cast<int>(r);
            number[r] = hosts++;
        }
        host_of.push_back(number[first_at[at]]);
    }
    return host_of;
}

// What must be the same on all ranks for connections: see protection_words(). Unix sockets reach only unix sockets.
inline kept_text connection_words(const host_description& h) {
    return joined({protection_words(h.by), " COLLX_LANES=", h.lanes,
                   !is_unix_address(h.address) ? ""
                   : h.has_address             ? " COLLX_ADDRESS=unix:DIRECTORY"
                                               : " COLLX_ADDRESS=unix"});
}

// Follows a published address: the machine, and whether other machines can reach the address.
inline kept_text reach_of(const host_description& h) {
    return joined({" ", hash_bytes(h.machine.data(), h.machine.size(), 6), h.has_address ? " 1" : " 0"});
}
// Checks the words of reach_of() at the end of a published address and removes them. No rank sees all the others, so
// each compares itself with the one above it in the tree.
[[gnu::cold]] inline void take_reach(kept_text& address, const host_description& h, int rank, int up) {
    const kept_text mine = reach_of(h);
    const std::size_t last = address.rfind(' '),
                      begin = last == kept_text::npos || last == 0 ? last : address.rfind(' ', last - 1);
    if (begin == kept_text::npos || begin == 0)
        fail(errc::protocol, rank, up, "build all ranks with the same version of collx",
             "rank %d left something unknown in the store", up);
    const bool is_remote =
        !(name_view(address).substr(begin, last - begin) == name_view(mine).substr(0, mine.size() - 2));
    const int lonely = address.back() != '1' ? up : h.has_address ? -1 : rank;
    if (is_remote && lonely >= 0)
        fail(errc::environment, rank, lonely,
             "set COLLX_ADDRESS on every host to its own address, and give the job a key, see docs/security.md",
             "the ranks are on several machines, and rank %d has only an address within its own", lonely);
    address.resize(begin);
}

} // namespace detail

// Agrees on the name of the job and finds out which host each rank is on. `listener` is used only if ranks may be on
// several hosts. listener.open(h) opens this rank's listener and returns "ADDRESS PORT". listener.meet(token, rank,
// size, host, address, until) connects to the rank one up in a binomial tree, whose address is given, and returns the
// host words of all ranks. So a rank reads one address from the store, never the whole table. Collective. Errors: those
// of come_together() and the listener; timeout naming a rank that publishes no address. all: see come_together().
template <class Listener>
[[gnu::cold]] meeting meet_at(any_store& store, int rank, int size, const deadline& until, const host_description& h,
                              const kept_text& settings, Listener&& listener, start_watch* all = nullptr) {
    const bool is_watched = all != nullptr && all->is_on();
    const agreement a = come_together(store, rank, size, until,
                                      {settings + detail::connection_words(h), h.id, h.machine, h.has_address}, all);
    meeting m{a.token, {}};
    if (size == 1 || a.is_one_host) return m;
    const kept_text base = detail::joined({"collx/", name_view(a.token).substr(0, 8), "/listener/"}),
                    mine = detail::joined({listener.open(h), detail::reach_of(h)});
    const int up = rank & (rank - 1);
    if (rank % 2 == 0) store.set(detail::joined({base, rank}), mine); // odd ranks have no rank below them
    if (store.has_order()) store.barrier(base, size, until);
    kept_text address;
    try {
        const kept_text key = detail::joined({base, up});
        if (rank != 0) address = is_watched ? all->get(key, up) : kept_text(store.get(key, until));
    } catch (const timed_out&) {
        if (is_watched) throw;
        fail(errc::timeout, rank, up, "is it alive? See its output", "rank %d does not say where it listens", up);
    }
    if (rank != 0) detail::take_reach(address, h, rank, up);
    const std::uint64_t id = detail::hash_bytes(h.id.data(), h.id.size(), 5);
    m.host_of = detail::number_hosts(listener.meet(a.token, rank, size, id, address, until));
    bool is_one_host = true;
    for (const int host : m.host_of) is_one_host = is_one_host && host == 0;
    if (is_one_host) m.host_of.clear();
    return m;
}
template <OwnStore S, class Listener>
meeting meet_at(S& store, int rank, int size, const deadline& until, const host_description& h,
                const kept_text& settings, Listener&& listener) {
    detail::store_face<S> face(store);
    return meet_at(static_cast<any_store&>(face), rank, size, until, h, settings, listener);
}

COLLX_END_NAMESPACE
