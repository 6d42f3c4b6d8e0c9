// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// On which host a rank is and where others can reach it: what it says of itself, and what all of them make of it. Ranks
// with the same host id share memory, others talk over sockets.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include <collx/bootstrap/cards.hpp>
#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/protection.hpp>
#include <collx/bootstrap/rendezvous.hpp>

COLLX_BEGIN_NAMESPACE

struct host_description {
    std::string id;                    // COLLX_HOST_ID, or the machine
    std::string machine;               // this start of this kernel, and what of it this process may see
    std::string address = "127.0.0.1"; // where this rank listens if others are on other hosts
    bool has_address = false;          // the address was given
    job_protection by;
};

namespace detail {

// Which kernel, and which of its namespaces: processes that cannot meet by name or see each other's numbers are on
// different hosts, whatever the hostname says.
[[gnu::cold]] inline std::string machine_id() {
    std::string id;
    const descriptor f(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[36];
    if (f.is_open() && ::read(f.get(), text, sizeof text) == static_cast<ssize_t>(sizeof text))
        id.assign(text, sizeof text);
    else if (::gethostname(text, sizeof text) == 0) text[sizeof text - 1] = '\0', id = text;
    for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
        struct stat s {};
        id += ":" + std::to_string(::stat(space, &s) == 0 ? s.st_ino : 0);
    }
    for (char& c : id)
        if (c <= ' ' || c > '~') c = '_';
    return id;
}

} // namespace detail

// Errors: environment. A rank whose address others could reach needs a key, or COLLX_INSECURE=1: without one, whoever
// can read along can also join in.
[[gnu::cold]] inline host_description describe_host(const environment& env = environment(), job_protection by = {}) {
    check_variables(env);
    host_description h;
    h.machine = detail::machine_id();
    h.by = std::move(by);
    const char* id = env.get("COLLX_HOST_ID");
    h.id = id != nullptr ? id : h.machine;
    const char* address = env.get("COLLX_ADDRESS");
    if (address == nullptr) return h;
    h.address = address;
    h.has_address = true;
    detail::require_protection(env, "COLLX_ADDRESS", h.address, 0, h.by.key);
    return h;
}

// How the ranks of a job are spread.
struct meeting {
    std::string token;                  // name of the job
    std::vector<std::string> addresses; // "ADDRESS PORT" by rank; empty: one host
    std::vector<int> host_of;           // by rank; hosts count from 0 in the order of their first ranks

    bool is_one_host() const { return addresses.empty(); }
};

namespace detail {

// Hosts by number. "ID MACHINE WHETHER-AN-ADDRESS-WAS-GIVEN" by rank.
[[gnu::cold]] inline std::vector<int> number_hosts(const std::vector<std::string>& cards, int rank) {
    std::vector<std::string> ids;
    std::vector<int> host_of;
    const std::string* stranger = nullptr; // without an address, on another machine than rank 0
    int stranger_rank = -1;
    const auto word = [](const std::string& card, int i) {
        std::size_t at = 0;
        for (; i > 0; --i) at = card.find(' ', at) + 1;
        return card.substr(at, card.find(' ', at) - at);
    };
    for (std::size_t r = 0; r < cards.size(); ++r) {
        const std::string id = word(cards[r], 0);
        int h = 0;
        while (h < static_cast<int>(ids.size()) && ids[static_cast<std::size_t>(h)] != id) ++h;
        if (h == static_cast<int>(ids.size())) ids.push_back(id);
        host_of.push_back(h);
        const bool is_far = word(cards[r], 1) != word(cards[0], 1);
        if (is_far && stranger == nullptr && (word(cards[r], 2) == "0" || word(cards[0], 2) == "0")) {
            stranger = &cards[r];
            stranger_rank = word(cards[r], 2) == "0" ? static_cast<int>(r) : 0;
        }
    }
    if (stranger != nullptr && ids.size() > 1)
        fail(errc::environment, rank, stranger_rank,
             "set COLLX_ADDRESS on every host to its own address, and give the job a key, see docs/security.md",
             "the ranks are on several machines, and rank %d has only a loopback address", stranger_rank);
    return host_of;
}

} // namespace detail

// Agrees on the name of the job and finds out who is where. listen() opens this rank's door and returns "ADDRESS PORT";
// it is called only if the ranks are on several hosts. Collective. Errors: as rendezvous(); environment if hosts cannot
// reach each other; security if their keys differ.
template <Store S, class Listen>
[[gnu::cold]] meeting meet_at(S& store, int rank, int size, const deadline& until, const host_description& h,
                              Listen&& listen) {
    meeting m;
    m.token = rendezvous(store, rank, size, until);
    if (size == 1) return m;
    const auto cards = exchange_cards(
        store, m.token, "host", rank, size,
        h.id + " " + h.machine + (h.has_address ? " 1 " : " 0 ") + detail::protection_card(h.by, m.token), until);
    detail::compare_protection(cards, rank);
    m.host_of = detail::number_hosts(cards, rank);
    bool is_one_host = true;
    for (const int host : m.host_of) is_one_host = is_one_host && host == 0;
    if (!is_one_host) m.addresses = exchange_cards(store, m.token, "address", rank, size, listen(), until);
    return m;
}

COLLX_END_NAMESPACE
