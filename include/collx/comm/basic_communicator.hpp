// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator whose type names the transports that its ranks use. The list is written once, with the type, and
// stays with it through functions, split() and shrink(). Calls see only the `communicator` base, so that the compiler
// does not repeat the engine for each list.
//
//   using wires = collx::basic_communicator<collx::shm, mine>;
//   wires world;                            // as communicator world(per_peer{shm{}, mine{}})
//   wires row = world.split(world.rank() % 2);
//   void exchange_halo(wires& world);       // a communicator over another list is refused by the compiler
#pragma once

#include <utility>

#include <collx/comm/communicator.hpp>
#include <collx/comm/shrink.hpp>
#include <collx/comm/split.hpp>
#include <collx/transport/per_peer.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class T>
struct net_of; // defined by collx/net.hpp

// The compiled form has sockets and verbs whatever a source includes.
template <class... Transports>
constexpr bool require_net() {
#if !defined(COLLX_COMPILED)
    constexpr bool needs_net = ((std::same_as<Transports, sockets> || std::same_as<Transports, verbs>) || ...);
    static_assert(
        !needs_net || requires { sizeof(net_of<per_peer<Transports...>>); },
        "collx: this communicator's list has sockets or verbs, which are in collx/net.hpp: include it before "
        "the list, or link CMake's collx::collx");
#endif
    return true;
}

} // namespace detail

// A communicator over a list of transports. Requires: a list that per_peer takes. `communicator` has the default list:
// shm, and what else the program includes.
// Errors: as communicator over a per_peer: mismatch naming a rank with another list, with both lists; unsupported
//     where the list does not reach a rank; invalid_argument where the process has joined its job over another list.
template <class... Transports>
class basic_communicator : public communicator {
public:
    // The transports as one type.
    using list = per_peer<Transports...>;
    static_assert(list::size != 0 && detail::require_net<Transports...>()); // the list is checked here, once
    // The list as a value.
    static constexpr transports over() { return list(Transports{}...); }

    basic_communicator() : communicator(over()) {}
    template <class Store>
    basic_communicator(int rank, int size, Store& store, duration timeout = duration::from_ns(60'000'000'000))
        : communicator(rank, size, store, timeout, over()) {}
    basic_communicator(const unique_id& id, int rank, int size, duration timeout = duration::from_ns(60'000'000'000))
        : communicator(id, rank, size, timeout, over()) {}

    // As communicator's; the list stays.
    basic_communicator split(int color, int key = 0) { return made(communicator::split(color, key)); }
    // As communicator's.
    basic_communicator dup() { return split(0); }
    // As communicator's.
    basic_communicator shrink() { return made(communicator::shrink()); }

private:
    explicit basic_communicator(communicator&& c) : communicator(std::move(c)) {}
    static basic_communicator made(communicator c) { return basic_communicator(std::move(c)); }
};

COLLX_END_NAMESPACE
