// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a stream needs of RDMA verbs: registered memory, and queue pairs of the reliable-connection service that write
// into the memory of their peer and notify it. The library that does it is a component (interop/libibverbs.hpp), so
// that these headers need none. Tests have their own fabric.
//
//   writer: post(writes, head) ──RDMA writes, then a send──▶ reader: poll() says "received" when all is there
//           poll() says "sent" when the peer's device has it
//
// Only the completion of the send shows that the writes before it have arrived: no device promises what a poll of
// memory shows earlier. (InfiniBand Architecture Specification 1.4, section 10.8: ordering.)
//
//   writer: post_alone(write or read) ──▶ memory of the reader, whose program does nothing and is not notified
//           poll() says "sent" when the write has reached the peer's device, or what was read is here
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/pointers.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Which device, port and address of it to use. Defaults: the first active port, and of its addresses the one that
// equals `address`, else the first of RoCE v2 (link-local ones last), else the first.
struct verbs_choice {
    const char* device = nullptr; // as `ibv_devices` names it
    int port = 0;                 // from 1
    int gid_index = -1;
    // The address of this rank's sockets as IPv6 (IPv4 as ::ffff:a.b.c.d); has_address says whether it is there.
    unsigned char address[16] = {};
    bool has_address = false;
};

// What the packets of a queue pair are: queue pairs of different kinds never reach each other.
enum class verbs_link : std::uint32_t { unsaid, infiniband, roce_v1, roce_v2 };

// The address of a queue pair. It crosses the network as it is, so it is little-endian and without gaps.
struct queue_pair_address {
    unsigned char gid[16] = {};
    std::uint32_t number = 0, first_packet = 0; // 24 bits each
    std::uint16_t lid = 0;                      // 0 on Ethernet
    std::uint16_t mtu_bytes = 0;
    verbs_link link = verbs_link::unsaid;
};
static_assert(sizeof(queue_pair_address) == 32);

// What peers may do to registered memory.
enum class peers_may { write, write_and_read };

// Registered memory, which a device may read and write. The registration ends with the last of these objects; from then
// on the device refuses what peers post for it. Requires: nothing of this side is posted then.
class verbs_memory {
public:
    virtual ~verbs_memory() = default;
    std::uint32_t local_key = 0;  // for posts of this side
    std::uint32_t remote_key = 0; // for what peers post
};

// One write into the memory of the peer.
struct verbs_write {
    const std::byte* from = nullptr;
    std::uint32_t bytes = 0, local_key = 0;
    std::uint64_t to = 0; // address there
    std::uint32_t remote_key = 0;
};

// One write into the memory of the peer, or read of it, without a head behind it. bytes: at least 1.
struct verbs_transfer {
    std::byte* here = nullptr;
    std::uint32_t bytes = 0, local_key = 0;
    std::uint64_t there = 0; // address
    std::uint32_t remote_key = 0;
    bool is_read = false;
};

// What a queue pair reports of a post that is done.
struct verbs_completion {
    enum class kind : unsigned char { sent, received, failed };
    kind what = kind::sent;
    std::uint64_t id = 0;      // as posted
    std::uint32_t bytes = 0;   // received
    const char* why = nullptr; // failed: static text of the library
};

// How much may be under way on a queue pair. The caller must keep to it: not every device notices.
struct verbs_limits {
    int sends = 0;    // posts with a head
    int writes = 0;   // in all posts together
    int receives = 0; // posted
    std::uint32_t head_bytes = 0;
    int transfers = 0; // posted alone
};

// One end of a connection by RDMA, as transports see it; interop/libibverbs.hpp has the model.
class queue_pair {
public:
    virtual ~queue_pair() = default;
    virtual queue_pair_address address() const = 0;
    // On both sides, before the first post(); receives may be posted before. Throws error (errc::environment).
    virtual void connect(const queue_pair_address& peer) = 0;

    // Posts a place for one head from the peer.
    virtual void post_receive(std::byte* at, std::uint32_t bytes, std::uint32_t local_key, std::uint64_t id) = 0;
    // Starts `count` writes and, if head_bytes is not 0, a send of the head behind them, which completes with `id`. The
    // head is copied; the written bytes must stay until then. False: the queue pair has failed, poll() says why.
    virtual bool post(const verbs_write* writes, int count, const void* head, std::uint32_t head_bytes,
                      std::uint64_t id) = 0;
    // Starts a transfer behind what was posted before. It completes with `id`, as a send does. A write is done when the
    // peer's device has it, which may be before it is in the peer's memory. It is there when a read or a head that was
    // posted behind it is done. A read sees all writes before it; writes behind it may come first. False: as above.
    virtual bool post_alone(const verbs_transfer& what, std::uint64_t id) = 0;
    // Takes up to `most` completions: sends in the order of their posts, receives in the order of theirs. Never waits.
    virtual int poll(verbs_completion* to, int most) = 0;
};

// One port of one device. Outlives its queue pairs and memory.
class verbs_device {
public:
    virtual ~verbs_device() = default;
    virtual const char* name() const = 0; // "mlx5_0 port 1"
    virtual std::uint32_t most_write_bytes() const = 0;
    virtual std::uint32_t most_head_bytes() const = 0; // of a head, which goes inline
    // Throws error (errc::resource: a limit of locked memory, most likely).
    virtual sole_ptr<verbs_memory> register_memory(std::byte* at, std::size_t bytes,
                                                   peers_may access = peers_may::write) = 0;
    virtual sole_ptr<queue_pair> make_queue_pair(const verbs_limits& limits) = 0;
};

// A library of verbs. open() returns null where there is no device (reason(): why, for people). It throws where a
// device that was asked for by name is not there or not usable.
struct verbs_component {
    const char* name = "";
    sole_ptr<verbs_device> (*open)(const verbs_choice& which) = nullptr;
    const char* (*reason)() = nullptr;
};

namespace detail {
// The library of this program; null: none. Set before main() by the header that brings it, as in
// core/authentication.hpp.
inline const verbs_component* verbs_library = nullptr;
} // namespace detail

COLLX_END_NAMESPACE
