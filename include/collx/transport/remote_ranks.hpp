// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks on other hosts, as a communicator sees them: channels like those of shared memory, and the notifications beside
// them. The implementation (remote_links.hpp) is behind this interface, so that the code of a call need not compile it.
#pragma once

#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/failure.hpp>

COLLX_BEGIN_NAMESPACE

class remote_memory;

class remote_ranks {
public:
    virtual ~remote_ranks() = default;
    // failed: the word that ends the communicator. The ranks of this host share it, and the waiting words.
    virtual void begin(atomic<std::uint64_t>& failed, waiting_words waits = {}) = 0;
    virtual sending_end tx(int port, int peer) = 0;
    virtual receiving_end rx(int port, int peer) = 0;

    // Advances everything that can advance without waiting. True if anything moved.
    virtual bool move() = 0;
    // Sends what is ready for one peer, as far as possible without waiting, and leaves the rest to move().
    virtual void push(int peer) = 0;
    // A peer that will never send or take anything again and is missed: one that is waited for, or one whose connection
    // broke a while ago. A peer that ended without a goodbye may have done its part, so ranks that need nothing from it
    // get time to end as well. -1: none.
    virtual int find_gone(int waiting_for, std::int64_t now) = 0;
    // Notifies every connected peer of the failure; each passes it on. Gives up after some milliseconds: a peer that
    // does not read is not notified. is_young: ranks are still connecting to each other. Then peers that have not
    // connected are given 0.2 s, because a peer that finds this rank's process ended would take it for the culprit.
    virtual void announce_failure(bool is_young) = 0;

    // Tells all connected peers for whom this rank waits, and what is known of the chain from there on.
    virtual void say_waiting() = 0;

    // After a failure: nothing goes from or to the user's memory any more.
    virtual void settle() = 0;
    // Says goodbye to all peers, without waiting. The system goes on sending what it has not sent yet.
    virtual void say_bye() = 0;
    // shrink() has made a communicator of these ranks. They are asked for their next one by another id.
    virtual void count_shrink() {}
    // In a child of fork(): the connections belong to the parent.
    virtual void forget() = 0;
    // The number of connections: one for each peer that this rank has talked to, and more where they have more lanes.
    virtual int connections() = 0;
    // Whether this rank has a device for RDMA, so that messages go by it to ranks that have one, too.
    virtual bool has_verbs() const = 0;
    // Null: nothing but messages goes to other hosts.
    virtual remote_memory* memory() { return nullptr; }
};

// An object with its own links (windows), which is moved whenever a communicator's remote ranks are. It is moved by
// the thread that waits in that communicator's call, so it first checks that no call of its own is running.
class moved_beside {
public:
    virtual bool move_beside() = 0;
    moved_beside* next = nullptr;

protected:
    ~moved_beside() = default;
};

// What a communicator states of itself when it asks for links.
struct remote_members {
    std::uint64_t id = 0; // the same on all its ranks, and on no other communicator of the job
    int rank = 0;
    detail::growing_array<int> ranks; // rank here -> rank of the job
    channel_shape shape{};
    int ports = 0;
    single_copy_mode single_copy = single_copy_mode::automatic;

    // shares: the communicator has no connections of its own, but a part of one that this rank has to each other rank.
    static constexpr std::uint64_t id_of(std::uint64_t hash, bool shares) {
        return ((hash | 1) & ~shares_bit) | (shares ? shares_bit : 0);
    }
    static constexpr bool shares(std::uint64_t id) { return (id & shares_bit) != 0; }
    static constexpr std::uint64_t shares_bit = std::uint64_t{1} << 63;
};

class socket_connector;

// Makes a communicator's connections to ranks that share no memory with this one.
class any_connector {
public:
    virtual ~any_connector() = default;
    // The sockets by which survivors of a failure find each other; null: there are none.
    virtual socket_connector* of_sockets() { return nullptr; }
    // Whether this rank has as many communicators with connections of their own as it may.
    virtual bool is_full() const { return false; }
    // Answers ranks of other hosts that wait for none of the communicators which this rank moves: survivors of an
    // earlier one, and those for whom this rank's last words in it are not sent yet. Called now and then in each wait.
    virtual void serve() {}
    virtual sole_ptr<remote_ranks> open(remote_members m) = 0;
};

COLLX_END_NAMESPACE
