// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decides whether a rank's messages to other hosts may go by RDMA, and over which device. It asks what the program's
// per_peer allows, what COLLX_VERBS and COLLX_VERBS_DEVICE say, which card COLLX_TOPOLOGY puts beside this rank's GPU,
// and which devices there are.
#pragma once

#include <cstring>

#include <collx/bootstrap/environment.hpp>
#include <collx/core/authentication.hpp>
#include <collx/core/error.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/parts.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/per_peer.hpp>
#include <collx/transport/verbs_device.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Reads NAME, NAME:PORT or NAME:PORT:GID_INDEX; `name` keeps what `c` points to.
[[gnu::cold]] inline void read_verbs_device(const char* text, kept_text& name, verbs_choice& c) {
    const char* rest = std::strchr(text, ':');
    name = kept_text(text, rest == nullptr ? std::strlen(text) : static_cast<std::size_t>(rest - text));
    c.device = name.c_str();
    bool is_good = !name.empty();
    if (rest != nullptr) {
        c.port = static_cast<int>(read_digits(++rest, 255));
        is_good = is_good && c.port > 0 && (*rest == ':' || *rest == '\0');
        if (*rest == ':') {
            const char* const digits = ++rest;
            c.gid_index = static_cast<int>(read_digits(rest, 255));
            is_good = is_good && rest != digits && c.gid_index >= 0 && *rest == '\0';
        }
    }
    if (!is_good) fail_value(variable_named("COLLX_VERBS_DEVICE"), text, "NAME, NAME:PORT or NAME:PORT:GID_INDEX");
}

// Sets the address in the form by which a device knows it: IPv6, or IPv4 inside IPv6.
inline void set_address(verbs_choice& c, const socket_address& at) {
    if (at.address.ss_family == AF_INET6) {
        std::memcpy(c.address, &reinterpret_cast<const sockaddr_in6&>(at.address).sin6_addr, 16);
        c.has_address = true;
    } else if (at.address.ss_family == AF_INET) {
        c.address[10] = c.address[11] = 0xff;
        std::memcpy(c.address + 12, &reinterpret_cast<const sockaddr_in&>(at.address).sin_addr, 4);
        c.has_address = true;
    }
}

// Opens this rank's RDMA device; null: messages go over sockets. at: where this rank listens. place, here: which of how
// many ranks of this host it is. Errors: environment if a named device is not there. If only verbs are allowed:
// environment or unsupported if there are none, security if connections must be sealed, which a device cannot do.
[[gnu::cold]] inline sole_ptr<verbs_device> open_verbs(const transports& over, protection level,
                                                       const socket_address& at, int rank,
                                                       const environment& env = environment(), int place = 0,
                                                       int here = 1) {
    const char* const said = env.get("COLLX_VERBS");
    const auto is = [&](const char* word) { return said != nullptr && std::strcmp(said, word) == 0; };
    const bool is_must = over.by_verbs == verbs_use::always || is("always");
    if (over.by_verbs == verbs_use::never && is("always"))
        fail(errc::environment, rank, -1, "add verbs{} to the program's per_peer, or unset COLLX_VERBS",
             "COLLX_VERBS=always, but this program's per_peer{%s} has no verbs", over.text);
    if (over.by_verbs == verbs_use::always && is("never"))
        fail(errc::environment, rank, -1, "add sockets{} to the program's per_peer, or unset COLLX_VERBS",
             "COLLX_VERBS=never, but this program's per_peer{%s} has nothing else for other hosts", over.text);
    if (over.by_verbs == verbs_use::never || is("never")) return nullptr;
    if (level == protection::integrity || level == protection::encrypted) {
        if (!is_must) return nullptr;
        fail(errc::security, rank, -1, "set COLLX_SECURITY=auth_only, or let messages go over sockets",
             "messages by RDMA cannot be sealed, and COLLX_SECURITY asks for it");
    }
    if (verbs_library == nullptr) {
        if (!is_must) return nullptr;
        fail(errc::unsupported, rank, -1, "include collx/interop/libibverbs.hpp in the program and link collx::verbs",
             "only RDMA is allowed between hosts, and this program has no library for it");
    }
    verbs_choice which;
    kept_text name;
    if (const char* device = env.get("COLLX_VERBS_DEVICE"); device != nullptr) read_verbs_device(device, name, which);
    set_address(which, at);
    if (which.device == nullptr && topology != nullptr) name = topology->own_card(env, place, here);
    if (which.device == nullptr && !name.empty()) { // a card that is no RDMA device is for sockets
        verbs_choice beside = which;
        beside.device = name.c_str();
        if (auto d = verbs_library->open(beside)) return d;
    }
    auto d = verbs_library->open(which);
    if (!d && is_must)
        fail(errc::environment, rank, -1, "see what `ibv_devinfo` says, or let messages go over sockets",
             "only RDMA is allowed between hosts, and %s finds no device: %s", verbs_library->name,
             verbs_library->reason());
    return d;
}

} // namespace detail

COLLX_END_NAMESPACE
