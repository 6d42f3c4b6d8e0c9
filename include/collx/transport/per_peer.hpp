// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which transports a program lets its ranks use, as a list known at compile time: for each peer the first of them that
// reaches it, settled when the job comes up, so that no call asks again.
//
//   collx::communicator world(collx::per_peer{collx::shm{}, collx::sockets{}});   // what `communicator world;` means
//   collx::communicator world(collx::per_peer{collx::sockets{}});                 // sockets also inside a host
//   collx::communicator world(collx::per_peer{collx::shm{}});                     // on one host, or an error
//
// A transport is a type with a name and `carries(relation)`. What carries the bytes is in shm.hpp, memory.hpp and
// remote_links.hpp; devices have a list of their own (nvlink.hpp, pcie.hpp, gpu_links.hpp).
#pragma once

#include <concepts>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// How two ranks stand to each other.
struct relation {
    bool share_memory = false; // they can: both are on one host
};

// Memory that both ranks see: threads and processes of one host.
struct shm {
    static constexpr const char* name = "shm";
    static constexpr bool carries(relation r) { return r.share_memory; }
};
// TCP or unix sockets; COLLX_ADDRESS says which.
struct sockets {
    static constexpr const char* name = "sockets";
    static constexpr bool carries(relation) { return true; }
};

template <class T>
concept Transport = std::same_as<T, shm> || std::same_as<T, sockets>;

// A list of transports when the program runs: what start-up needs of it.
struct transports {
    bool use_memory = true;  // for ranks that can share it
    bool cross_hosts = true; // a rank on another host is reached at all
    const char* text = "shm,sockets";
    friend constexpr bool operator==(const transports& a, const transports& b) {
        return a.use_memory == b.use_memory && a.cross_hosts == b.cross_hosts;
    }
};

template <Transport... Candidates>
struct per_peer {
    static_assert(sizeof...(Candidates) != 0, "collx: per_peer needs a transport: shm{}, sockets{}, or both");

    constexpr explicit per_peer(Candidates...) {}

    static constexpr int size = sizeof...(Candidates);
    // The place in the list of the transport to such a peer, -1: none reaches it.
    static constexpr int choose(relation r) {
        int at = 0, found = -1;
        ((found = found < 0 && Candidates::carries(r) ? at : found, ++at), ...);
        return found;
    }
    static constexpr bool is_memory(int at) {
        int i = 0;
        bool is = false;
        ((is = is || (i++ == at && std::same_as<Candidates, shm>)), ...);
        return is;
    }
    constexpr operator transports() const { // NOLINT(google-explicit-constructor): a list is meant as one
        constexpr bool use_memory = is_memory(choose({.share_memory = true})), cross = choose({}) >= 0;
        return {use_memory, cross, use_memory ? cross ? "shm,sockets" : "shm" : "sockets"};
    }

private:
    // Whether each is the choice for somebody.
    static constexpr bool all_serve() {
        const int here = choose({.share_memory = true}), elsewhere = choose({});
        for (int at = 0; at < size; ++at)
            if (at != here && at != elsewhere) return false;
        return true;
    }
    static_assert(sizeof...(Candidates) == 0 || all_serve(),
                  "collx: a transport in this per_peer is never chosen: sockets reach every peer, so shm comes first");
};
template <class... Candidates>
per_peer(Candidates...) -> per_peer<Candidates...>;

COLLX_END_NAMESPACE
