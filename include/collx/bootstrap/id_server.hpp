// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store in which ranks on several hosts meet that join with a unique_id: run by the process that makes the id.
#pragma once

#include <atomic>
#include <string>

#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/unique_id.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Servers serve until their process ends: nobody here knows when the last rank has come.
struct kept_server {
    tcp_server server;
    kept_server* next;
};

[[gnu::cold]] COLLX_ONCE std::string serve_id() {
    static std::atomic<kept_server*> all{nullptr};
    const host_description h = describe_host(environment(), process_protection());
    if (!h.has_address && h.id == h.machine) return "";
    const std::string at = is_unix_address(h.address) ? "127.0.0.1" : h.address;
    auto* made = new kept_server{tcp_server(at, 0, h.by.key), all.load(std::memory_order_relaxed)};
    while (!all.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
    }
    return "@" + at + ":" + std::to_string(made->server.port());
}

} // namespace detail

COLLX_END_NAMESPACE
