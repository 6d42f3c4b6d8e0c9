// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Implements remote_memory by the devices of the streams to other hosts. Only for remote_links.hpp.
#pragma once

#include <cstdint>

#include <collx/core/pointers.hpp>
#include <collx/transport/detail/mutual_help.hpp>
#include <collx/transport/detail/remote_peers.hpp>
#include <collx/transport/remote_memory.hpp>
#include <collx/transport/socket_hub.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class stream_transfers final : public remote_memory {
public:
    // All three outlive this; the turn is taken for each access to the peers.
    stream_transfers(const counted_ptr<socket_hub>& hub, yielding_lock& t, remote_peers& peers)
        : hub_(hub), lock_(t), peers_(peers) {}
    verbs_device& device() override { return *hub_->verbs(); }
    bool reaches(int port, int peer) override {
        const lock_held here(lock_);
        return peers_.is_known(peer) && peers_.stream_to(peer).reaches_memory(port);
    }
    bool start(int peer, const verbs_transfer& what, const counted_ptr<transfer_room>& room) override {
        const lock_held here(lock_);
        return peers_.stream_to(peer).transfer(what, room);
    }
    std::uint64_t started(int peer) override {
        const lock_held here(lock_);
        return peers_.is_known(peer) ? peers_.stream_to(peer).transfers() : 0;
    }
    std::uint64_t finished(int peer) override {
        const lock_held here(lock_);
        return peers_.is_known(peer) ? peers_.stream_to(peer).transfers_done() : 0;
    }

private:
    const counted_ptr<socket_hub>& hub_;
    yielding_lock& lock_;
    remote_peers& peers_;
};

} // namespace detail
COLLX_END_NAMESPACE
