// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Connects a rank to other hosts by sockets: the links of all communicators go through the rank's one hub.
#pragma once

#include <utility>

#include <collx/transport/remote_links.hpp>

COLLX_BEGIN_NAMESPACE

class socket_connector final : public any_connector {
public:
    explicit socket_connector(counted_ptr<socket_hub> hub) : hub_(std::move(hub)) {}
    sole_ptr<remote_ranks> open(remote_members m) override { return make_sole<remote_links>(hub_, std::move(m)); }
    socket_connector* of_sockets() override { return this; }
    void serve() override { hub_->serve(); }
    bool is_full() const override { return hub_->is_full(); }
    const counted_ptr<socket_hub>& hub() const { return hub_; }

private:
    counted_ptr<socket_hub> hub_;
};

// The hub, for callers that need sockets whatever the messages of calls go over.
[[gnu::cold]] inline const counted_ptr<socket_hub>& hub_of(any_connector& d, int rank) {
    socket_connector* const of_sockets = d.of_sockets();
    if (of_sockets == nullptr)
        fail(errc::unsupported, rank, -1, "let the ranks be processes of a job, or use sockets{}",
             "ranks that share no memory have no sockets here by which survivors find each other");
    return of_sockets->hub();
}

COLLX_END_NAMESPACE
