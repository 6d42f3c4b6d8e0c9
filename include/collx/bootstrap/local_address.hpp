// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chooses the address on which a rank listens. COLLX_ADDRESS is an address, an interface, a network, the route to an
// address, or unix sockets. The result is a numeric address and a sentence on why it was chosen. Host names are not
// looked up. Asks the system for its interfaces and for one route, and sends nothing.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/variables.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

// Where a rank listens, and why.
struct chosen_address {
    kept_text address; // in numbers, or "unix", or "unix:" and a directory
    kept_text why;
};
// An address of a network interface of this host.
struct interface_address {
    kept_text interface, address;
    bool is_up = true;
};

namespace detail {

inline bool is_unix_address(const kept_text& address) {
    return address.starts_with("unix") && (address.size() == 4 || address[4] == ':');
}
// Empty: the abstract namespace.
inline kept_text unix_directory(const kept_text& address) {
    return address.size() > 5 ? address.substr(5) : kept_text();
}

inline kept_text text_of(const sockaddr* a) {
    char text[INET6_ADDRSTRLEN] = "";
    const void* at = a->sa_family == AF_INET
                         ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr)
                         : &reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr;
    return ::inet_ntop(a->sa_family, at, text, sizeof text) != nullptr ? text : "";
}

// All addresses of this host, as the system lists them, except link-local ones (fe80::/10): other hosts cannot say
// which of their links is meant.
[[gnu::cold]] inline growing_array<interface_address> interface_addresses() {
    growing_array<interface_address> all;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return all;
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr) continue;
        const int family = i->ifa_addr->sa_family;
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr))
            continue;
        if (family == AF_INET || family == AF_INET6)
            all.push_back({i->ifa_name, text_of(i->ifa_addr), (i->ifa_flags & IFF_UP) != 0});
    }
    ::freeifaddrs(first);
    return all;
}
[[gnu::cold]] inline kept_text list_of(const growing_array<interface_address>& all) {
    kept_text list;
    for (const auto& i : all)
        list += (list.empty() ? "" : ", ") + i.interface + " " + i.address + (i.is_up ? "" : " (down)");
    return list.empty() ? "none" : list;
}

// A network in bits: a.b.c.d/n or v6/n.
struct network {
    unsigned char bits[16] = {};
    int family = AF_UNSPEC, length = 0;

    // False if the text is no network.
    bool read(const kept_text& text) {
        const std::size_t slash = text.find('/');
        const kept_text address = text.substr(0, slash);
        family = address.find(':') != kept_text::npos ? AF_INET6 : AF_INET;
        const char* at = text.c_str() + (slash == kept_text::npos ? text.size() : slash + 1);
        length = static_cast<int>(read_digits(at, family == AF_INET ? 32 : 128));
        return length >= 0 && *at == '\0' && ::inet_pton(family, address.c_str(), bits) == 1;
    }
    bool holds(const kept_text& address) const {
        unsigned char other[16] = {};
        if (::inet_pton(family, address.c_str(), other) != 1) return false;
        for (int bit = 0; bit < length; ++bit)
            if (((bits[bit / 8] ^ other[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
        return true;
    }
};

// The first address that is up and fits; IPv4 before IPv6. Null: none.
template <class Fits>
[[gnu::cold]] const interface_address* first_that(const growing_array<interface_address>& all, Fits&& fits) {
    for (const bool v6 : {false, true})
        for (const auto& i : all)
            if (i.is_up && (i.address.find(':') != kept_text::npos) == v6 && fits(i)) return &i;
    return nullptr;
}

// The address from which this host sends to `to`; empty if it has no route there. Requires: `to` was read with a port;
// connecting a datagram socket sends nothing.
[[gnu::cold]] inline kept_text address_towards(const socket_address& to) {
    const descriptor s(::socket(to.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!s.is_open() || ::connect(s.get(), to.get(), to.bytes) != 0) return "";
    const socket_address here = socket_address::of(s.get());
    return here.bytes != 0 ? text_of(here.get()) : "";
}

[[noreturn, gnu::cold]] inline void fail_address(const kept_text& wanted, const char* what,
                                                 const growing_array<interface_address>& all) {
    fail(errc::environment, -1, -1,
         "set COLLX_ADDRESS to an address, an interface or a network of this host; docs/launchers.md has all forms",
         "COLLX_ADDRESS=%.80s: %s; this host has %.300s", wanted.c_str(), what, list_of(all).c_str());
}

} // namespace detail

// Turns COLLX_ADDRESS into an address to listen on. root: the address where the job's ranks meet; empty if they meet in
// another way. Errors: environment, listing the addresses of this host.
[[gnu::cold]] inline chosen_address
choose_address(const kept_text& wanted, const kept_text& root,
               const detail::growing_array<interface_address>& all = detail::interface_addresses()) {
    const kept_text said = "COLLX_ADDRESS=" + wanted;
    if (detail::is_unix_address(wanted)) return {wanted, said + ": unix sockets of this machine"};
    if (wanted.starts_with("route") && (wanted.size() == 5 || wanted[5] == ':')) {
        const kept_text to = wanted.size() > 6 ? wanted.substr(6) : root;
        if (to.empty()) detail::fail_address(wanted, "the ranks do not meet at an address; say route:ADDRESS", all);
        socket_address there;
        if (!detail::read_numeric_address(to, 9, there))
            detail::fail_address(wanted, ("'" + to + "' is no address in numbers").c_str(), all);
        const kept_text from = detail::address_towards(there);
        if (from.empty()) detail::fail_address(wanted, ("there is no way to " + to).c_str(), all);
        return {from, said + ": on the way to " + to};
    }
    if (wanted.find('/') != kept_text::npos) {
        detail::network net;
        if (!net.read(wanted)) detail::fail_address(wanted, "no network such as 10.0.0.0/8 or fd00::/8", all);
        const auto* found = detail::first_that(all, [&](const auto& i) { return net.holds(i.address); });
        if (found == nullptr) detail::fail_address(wanted, "no address of this network", all);
        return {found->address, said + ": " + found->interface + " has it"};
    }
    if (wanted.find(':') != kept_text::npos || wanted.find_first_not_of("0123456789.") == kept_text::npos) {
        socket_address read;
        if (!detail::read_numeric_address(wanted, 0, read))
            detail::fail_address(wanted, "no address such as 10.0.0.1 or fd00::1", all);
        if (read.is_any_host()) detail::fail_address(wanted, "no other host reaches this address", all);
        return {wanted, said};
    }
    const auto of_it = [&](const auto& i) { return i.interface == wanted; };
    const auto* found = detail::first_that(all, of_it);
    if (found != nullptr) return {found->address, said + ": an address of this interface"};
    bool is_there = false;
    for (const auto& i : all) is_there = is_there || of_it(i);
    detail::fail_address(wanted, is_there ? "this interface is down" : "no interface with an address has this name",
                         all);
}

COLLX_END_NAMESPACE
