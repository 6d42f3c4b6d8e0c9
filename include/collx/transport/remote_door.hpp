// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank's way to other hosts by sockets: each communicator's links go through the one hub of the rank.
#pragma once

#include <utility>

#include <collx/transport/remote_links.hpp>

COLLX_BEGIN_NAMESPACE

// Links over the sockets of one hub.
class remote_door final : public far_door {
public:
    explicit remote_door(counted_ptr<socket_hub> hub) : hub_(std::move(hub)) {}
    sole_ptr<far_links> open(far_members m) override { return make_sole<remote_links>(hub_, std::move(m)); }
    const counted_ptr<socket_hub>& hub() const { return hub_; }

private:
    counted_ptr<socket_hub> hub_;
};

COLLX_END_NAMESPACE
