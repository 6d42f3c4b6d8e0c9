// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a unique_id and, for ranks on several hosts, the store in which they meet. The process that makes the id runs
// that store.
#pragma once

#include <cstdio>

#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/unique_id.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Servers run until their process ends, because it does not learn when the last rank has come.
struct kept_server {
    tcp_server server;
    kept_server* next;
};

// "@ADDRESS:PORT" of a new store if ranks may be on several hosts; empty if all are on one.
[[gnu::cold]] inline kept_text serve_id() {
    static atomic<kept_server*> all{nullptr};
    const host_description h = describe_host(environment(), process_protection());
    if (!h.has_address && h.id == h.machine) return "";
    const kept_text at = is_unix_address(h.address) ? "127.0.0.1" : h.address;
    auto* made = new kept_server{tcp_server(at, 0, h.by.key), all.load(memory_order::relaxed)};
    while (!all.compare_exchange_weak(made->next, made, memory_order::acq_rel)) {
    }
    return joined({"@", at, ":", made->server.port()});
}

} // namespace detail

[[gnu::cold]] COLLX_ONCE unique_id unique_id::make_at(const char* at) {
    unique_id id;
    std::snprintf(id.bytes, sizeof id.bytes, "%s%016llx-%s%s", prefix,
                  static_cast<unsigned long long>(detail::host_id()), detail::random_token().c_str(), at);
    return id;
}
[[gnu::cold]] COLLX_ONCE unique_id unique_id::make() { return make_at(detail::serve_id().c_str()); }
[[gnu::cold]] COLLX_ONCE unique_id unique_id::make_here() { return make_at(""); }

COLLX_END_NAMESPACE
