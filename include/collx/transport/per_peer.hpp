// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which transports a program lets its ranks use, as a list known at compile time: for each peer the first of them that
// reaches it, settled when the job comes up, so that no call asks again.
//
//   using namespace collx;
//   communicator world(per_peer{shm{}, verbs{}, sockets{}});   // what `communicator world;` means
//   communicator world(per_peer{shm{}, sockets{}});            // no RDMA, although there may be devices
//   communicator world(per_peer{sockets{}});                   // sockets also inside a host
//   communicator world(per_peer{shm{}});                       // on one host, or an error
//   communicator world(per_peer{shm{}, verbs{}});              // RDMA to other hosts, or an error
//
// A transport is a type with a name and `carries(relation)`. What carries the bytes is in shm.hpp, memory.hpp and
// remote_links.hpp; devices have a list of their own (nvlink.hpp, pcie.hpp, gpu_links.hpp).
#pragma once

#include <concepts>
#include <initializer_list>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// How two ranks stand to each other.
struct relation {
    bool share_memory = false; // they can: both are on one host
    bool have_verbs = false;   // both have a device for RDMA, and the library that drives it
};

// Memory that both ranks see: threads and processes of one host.
struct shm {
    static constexpr const char* name = "shm";
    static constexpr bool carries(relation r) { return r.share_memory; }
};
// RDMA over InfiniBand or RoCE, in a program that includes interop/libibverbs.hpp. A socket to the same peer carries
// the words beside the messages.
struct verbs {
    static constexpr const char* name = "verbs";
    static constexpr bool carries(relation r) { return r.have_verbs; }
};
// TCP or unix sockets; COLLX_ADDRESS says which.
struct sockets {
    static constexpr const char* name = "sockets";
    static constexpr bool carries(relation) { return true; }
};

template <class T>
concept Transport = std::same_as<T, shm> || std::same_as<T, verbs> || std::same_as<T, sockets>;

// Whether messages to other hosts go by RDMA.
enum class verbs_use : unsigned char { never, where_possible, always };

// A list of transports when the program runs: what start-up needs of it.
struct transports {
    bool use_memory = true;  // for ranks that can share it
    bool cross_hosts = true; // a rank on another host is reached at all
    verbs_use by_verbs = verbs_use::where_possible;
    const char* text = "shm,verbs,sockets";
    friend constexpr bool operator==(const transports& a, const transports& b) {
        return a.use_memory == b.use_memory && a.cross_hosts == b.cross_hosts && a.by_verbs == b.by_verbs;
    }
};

template <Transport... Candidates>
struct per_peer {
    static_assert(sizeof...(Candidates) != 0,
                  "collx: per_peer needs a transport: shm{}, verbs{}, sockets{}, or several");

    constexpr explicit per_peer(Candidates...) {}

    static constexpr int size = sizeof...(Candidates);
    // The place in the list of the transport to such a peer, -1: none reaches it.
    static constexpr int choose(relation r) {
        int at = 0, found = -1;
        ((found = found < 0 && Candidates::carries(r) ? at : found, ++at), ...);
        return found;
    }
    template <class T>
    static constexpr bool has = (std::same_as<Candidates, T> || ...);
    constexpr operator transports() const { // NOLINT(google-explicit-constructor): a list is meant as one
        constexpr verbs_use by = !has<verbs>    ? verbs_use::never
                                 : has<sockets> ? verbs_use::where_possible
                                                : verbs_use::always;
        constexpr const char* texts[2][4] = {{"", "sockets", "verbs", "verbs,sockets"},
                                             {"shm", "shm,sockets", "shm,verbs", "shm,verbs,sockets"}};
        return {has<shm>, has<verbs> || has<sockets>, by, texts[has<shm>][2 * has<verbs> + has<sockets>]};
    }

private:
    // Whether each is the choice for somebody, with devices and without.
    static constexpr bool all_serve() {
        bool serves[sizeof...(Candidates) + 1] = {}, is_memory_first = true;
        for (const bool here : {false, true})
            for (const bool devices : {false, true}) {
                const int at = choose({.share_memory = here, .have_verbs = devices});
                serves[at < 0 ? size : at] = true;
                is_memory_first = is_memory_first && (!here || at == choose({.share_memory = true}));
            }
        for (int at = 0; at < size; ++at)
            if (!serves[at]) return false;
        return is_memory_first || !has<shm>;
    }
    static_assert(sizeof...(Candidates) == 0 || all_serve(),
                  "collx: a transport in this per_peer is never chosen: sockets reach every peer, so shm comes first, "
                  "then verbs");
};
template <class... Candidates>
per_peer(Candidates...) -> per_peer<Candidates...>;

COLLX_END_NAMESPACE
