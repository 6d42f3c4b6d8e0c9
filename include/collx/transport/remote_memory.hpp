// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory of ranks on other hosts that this rank's device writes and reads by itself, where both ends have a device for
// RDMA. An ability of remote_ranks.hpp. Transfers to one peer are done in their order, also with respect to the
// messages of a port that go by the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/verbs_device.hpp>

COLLX_BEGIN_NAMESPACE

// Registered memory of this side, in pieces: transfers go from it and come to it. Posted transfers keep it, so a
// transfer that is under way when its caller has given up touches nothing else.
class transfer_room {
public:
    // Throws error (errc::resource).
    transfer_room(verbs_device& d, int pieces, std::size_t piece_bytes) : piece_bytes_(piece_bytes) {
        const std::size_t bytes =
            (static_cast<std::size_t>(pieces) * piece_bytes + page_bytes - 1) / page_bytes * page_bytes;
        room_.resize(bytes + 2 * page_bytes);
        const auto behind = reinterpret_cast<std::uintptr_t>(room_.data()) & (page_bytes - 1);
        first_ = room_.data() + (behind == 0 ? 0 : page_bytes - behind); // it shares no page with anything else
        unwritten_ = first_ + bytes;
        memory_ = d.register_memory(first_, bytes);
    }
    transfer_room(const transfer_room&) = delete;
    // One more page, in which nothing is ever written. It is not registered with the others.
    std::byte* unwritten_page() const { return unwritten_; }
    std::byte* piece(int k) const { return first_ + static_cast<std::size_t>(k) * piece_bytes_; }
    std::size_t piece_bytes() const { return piece_bytes_; }
    std::uint32_t key() const { return memory_->local_key; }

private:
    std::size_t piece_bytes_;
    detail::growing_array<std::byte> room_;
    std::byte *first_ = nullptr, *unwritten_ = nullptr;
    sole_ptr<verbs_memory> memory_;
};

class remote_memory {
public:
    virtual verbs_device& device() = 0;
    // Whether a transfer that is started now is done after all messages that this rank has sent to the peer by `port`,
    // and before those that it sends from now on. False: not yet, or never.
    virtual bool reaches(int port, int peer) = 0;
    // Starts a transfer whose side here is in `room`. False: there is no room for another one yet.
    virtual bool start(int peer, const verbs_transfer& what, const counted_ptr<transfer_room>& room) = 0;
    // How many transfers with a peer have been started, and how many are done. A write that is done may not be in the
    // peer's memory yet. It is there when a read that was started behind it is done.
    virtual std::uint64_t started(int peer) = 0;
    virtual std::uint64_t finished(int peer) = 0;

protected:
    ~remote_memory() = default;
};

COLLX_END_NAMESPACE
