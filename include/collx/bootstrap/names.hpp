// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Host names as addresses where ranks meet. The system's resolver is asked until it knows the name, and all ranks make
// the same choice among its answers. If a host knows its own name as a loopback address (127.0.1.1 in /etc/hosts is
// Debian's way), the name means its outward address, as it does on the other hosts.
#pragma once

#include <netdb.h>

#include <collx/bootstrap/description.hpp>
#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/local_address.hpp>
#include <collx/bootstrap/protection.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct name_answer {
    detail::growing_array<kept_text> addresses; // in numbers
    int error = 0;                              // EAI_...
};
using name_resolver = name_answer (*)(const kept_text&);

// Asks the system. Cost: as long as its resolver takes; 10 s if a name server is silent and no other limit is set.
[[gnu::cold]] inline name_answer ask_system(const kept_text& name) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    name_answer a;
    a.error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
    for (const addrinfo* i = a.error == 0 ? found : nullptr; i != nullptr; i = i->ai_next) {
        const kept_text text = text_of(i->ai_addr);
        if (!text.empty()) a.addresses.push_back(text);
    }
    if (a.error == 0) ::freeaddrinfo(found);
    return a;
}

// Whether the text may be a host name: only characters of names, and not only digits and dots.
inline bool is_name(const kept_text& host) {
    return host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
               kept_text::npos &&
           host.find_first_not_of("0123456789.") != kept_text::npos;
}
inline bool is_outward(const kept_text& address) {
    return !address.starts_with("fe80:") && !numeric_address(address, 0).is_loopback();
}

// IPv4 before IPv6, then the lowest text, because resolvers sort in different ways.
[[gnu::cold]] inline kept_text choose_named(const kept_text& name, const detail::growing_array<kept_text>& all,
                                            const growing_array<interface_address>& here) {
    const auto is_before = [](const kept_text& a, const kept_text& b) {
        const bool a6 = a.find(':') != kept_text::npos, b6 = b.find(':') != kept_text::npos;
        return a6 != b6 ? b6 : name_view(a) < name_view(b);
    };
    const kept_text *first = nullptr, *outward = nullptr;
    for (const kept_text& a : all) {
        if (first == nullptr || is_before(a, *first)) first = &a;
        if (is_outward(a) && (outward == nullptr || is_before(a, *outward))) outward = &a;
    }
    if (outward != nullptr) return *outward;
    if (first == nullptr || name == "localhost") return first == nullptr ? kept_text() : *first;
    kept_text own;
    for (const bool v6 : {false, true})
        for (const auto& i : here) {
            if (!i.is_up || (i.address.find(':') != kept_text::npos) != v6 || !is_outward(i.address)) continue;
            if (!own.empty() && (own.find(':') != kept_text::npos) == v6)
                fail(errc::environment, -1, -1, "write the one at which the other hosts reach this one",
                     "'%.80s' is %.40s on this host, which has several addresses: %.300s", name.c_str(), first->c_str(),
                     list_of(here).c_str());
            if (own.empty()) own = i.address;
        }
    return own.empty() ? *first : own;
}

} // namespace detail

// Turns the name of a host into a numeric address; a numeric address stays as it is. Asks again until the deadline,
// because a name may become known only when its host is up. Errors: environment when the name cannot be resolved, or is
// this host's own and the host has several addresses.
[[gnu::cold]] inline kept_text look_up(const kept_text& host, const deadline& until,
                                       detail::name_resolver resolver = detail::ask_system) {
    if (!detail::is_name(host)) return host; // numbers, or text that is refused later
    for (detail::retry_pause pause(500'000'000);;) {
        const detail::name_answer a = resolver(host);
        if (!a.addresses.empty()) return detail::choose_named(host, a.addresses, detail::interface_addresses());
        if (pause.sleep(until)) continue;
        fail(errc::environment, -1, -1, "write an address in numbers, or a name that this host can look up",
             "no address is known for '%.80s': %s", host.c_str(), a.error != 0 ? ::gai_strerror(a.error) : "no answer");
    }
}

// tcp:NAME:PORT becomes tcp:ADDRESS:PORT.
[[gnu::cold]] inline void look_up_store(job_description& d, const deadline& until) {
    const kept_text host = detail::address_of_store(d.store);
    if (!host.empty() && d.size > 1 && d.job.empty())
        d.store = detail::joined({"tcp:", look_up(host, until), d.store.substr(4 + host.size())});
}

COLLX_END_NAMESPACE
