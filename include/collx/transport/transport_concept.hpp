// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The concept of a transport: a type with a name, which says to which peers it carries messages. The library itself
// starts shm, verbs and sockets (per_peer.hpp). A program's own transport also has an `endpoint`: one object per rank
// and job, with a channel to and from each peer (channel_concept.hpp). collx/testing/endpoint_contract.hpp checks an
// endpoint, examples/16_write_a_transport/ shows one, docs/writing_a_transport.md explains both.
//
//   struct mine {
//       static constexpr const char* name = "mine";
//       static constexpr bool carries(collx::relation) { return true; }
//       class endpoint { ... };
//   };
//   collx::communicator world(collx::per_peer{collx::shm{}, mine{}});
//
// An endpoint carries the messages of all communicators of the job. The library puts them into its channels and takes
// them out again, and keeps track of what belongs to whom (custom_links.hpp). What an endpoint must do:
//
// Start:    endpoint(rank, size) constructs it. address() is what the other endpoints need to reach it; the library
//           carries these bytes to them. connect(peer, address) is called once for each peer that it may have to reach,
//           before tx(peer) and rx(peer). Other ranks may already have begun to send.
// Progress: move() advances what can advance without waiting, and returns whether anything moved. It is called whenever
//           the rank waits in a call, which may not be for a long time. Anything that peers need meanwhile
//           (acknowledgements, repetitions) is up to the endpoint's own thread, or to the system.
// Threads:  the library calls one function of an endpoint at a time, from any thread.
// Failures: is_gone(peer) becomes true when the peer's process has ended or cannot be reached any more, and stays so.
//           Its earlier messages arrive first. Messages to it are still accepted or refused, without an error.
// Limits:   the library has the time limits. No function waits except the constructor and the destructor.
// End:      the destructor still sends what was committed, as long as peers receive it, within its own time limit.
// Errors:   the constructor, address() and connect() throw collx::error or any other exception; it ends the start on
//           all ranks. The other functions do not throw.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/transport/channel_concept.hpp>

COLLX_BEGIN_NAMESPACE

// What two ranks have in common.
struct relation {
    bool share_memory = false; // they can: both are on one host
    bool have_verbs = false;   // both have a device for RDMA, and the library that drives it
};

// The address of an endpoint: up to 120 bytes that mean something to the other endpoints of the transport.
struct endpoint_address {
    static constexpr std::size_t most_bytes = 120;
    std::uint32_t bytes = 0; // of `at` that are used
    std::byte at[most_bytes] = {};
};

// most_bytes(): the longest message that tx(peer).try_acquire() accepts; at least 256.
template <class E>
concept Endpoint = std::constructible_from<E, int, int> && requires(E& e, int peer, const endpoint_address& there) {
    { e.address() } -> std::same_as<endpoint_address>;
    e.connect(peer, there);
    { e.most_bytes() } -> std::same_as<std::size_t>;
    { e.tx(peer) } -> SendingEnd;
    { e.rx(peer) } -> ReceivingEnd;
    { e.move() } -> std::same_as<bool>;
    { e.is_gone(peer) } -> std::same_as<bool>;
};

// A way to move bytes between two ranks: its name, and which ranks it connects.
template <class T>
concept Transport = requires(relation r) {
    { T::name } -> std::convertible_to<const char*>;
    { T::carries(r) } -> std::same_as<bool>;
};
// A transport of the program's own.
template <class T>
concept CustomTransport = Transport<T> && Endpoint<typename T::endpoint>;

namespace detail {

// Says what a type lacks, in one sentence each.
template <class E>
constexpr bool require_endpoint() {
    static_assert(std::constructible_from<E, int, int>, "collx: an endpoint is made of (int rank, int size)");
    constexpr bool has_address = requires(E & e) {
        { e.address() } -> std::same_as<endpoint_address>;
    };
    static_assert(has_address, "collx: an endpoint needs collx::endpoint_address address()");
    constexpr bool connects = requires(E & e, const endpoint_address& there) { e.connect(0, there); };
    static_assert(connects, "collx: an endpoint needs connect(int peer, const collx::endpoint_address&)");
    constexpr bool has_limit = requires(E & e) {
        { e.most_bytes() } -> std::same_as<std::size_t>;
    };
    static_assert(has_limit, "collx: an endpoint needs std::size_t most_bytes(), of one message");
    constexpr bool moves = requires(E & e) {
        { e.move() } -> std::same_as<bool>;
    };
    static_assert(moves, "collx: an endpoint needs bool move(), which carries on what it can and never waits");
    constexpr bool has_news = requires(E & e) {
        { e.is_gone(0) } -> std::same_as<bool>;
    };
    static_assert(has_news, "collx: an endpoint needs bool is_gone(int peer): its process has ended");
    constexpr bool has_ends = requires(E & e) {
        e.tx(0);
        e.rx(0);
    };
    static_assert(has_ends, "collx: an endpoint needs tx(int peer) and rx(int peer), the ends of its channels");
    if constexpr (has_ends)
        return require_sending_end<std::remove_cvref_t<decltype(std::declval<E&>().tx(0))>>() &&
               require_receiving_end<std::remove_cvref_t<decltype(std::declval<E&>().rx(0))>>();
    return true;
}

} // namespace detail

COLLX_END_NAMESPACE
