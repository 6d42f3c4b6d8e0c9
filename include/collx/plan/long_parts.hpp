// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An all_to_all_v whose short parts are relayed and whose longer parts go directly from rank to rank afterwards: a
// message costs more than moving few bytes twice, and less than moving many. The limit is a number of bytes, whichever
// algorithm relays.
//
//   collx::all_to_all_v(world.with(collx::long_parts_directly(algo::leader_all_to_all{nodes}, 4096)), ...);
#pragma once

#include <cstdint>

#include <collx/algo/pairwise.hpp>

COLLX_BEGIN_NAMESPACE

// Relaying: an algorithm that can learn the counts (counts()). All ranks must give the same number of bytes. Both ends
// of a part know its length, and so which way it goes.
template <class Relaying>
struct long_parts_directly : Relaying {
    constexpr long_parts_directly(const Relaying& a, int most) : Relaying(a), most_bytes(most) {}
    constexpr std::uint64_t parameter_bits() const {
        return Relaying::parameter_bits() ^ static_cast<std::uint64_t>(most_bytes) * 0x9e37'79b9'7f4a'7c15;
    }
    constexpr algo::pairwise_all_to_all directly() const { return {}; }
    int most_bytes; // limit of a part that is relayed
};
template <class A>
long_parts_directly(A, int) -> long_parts_directly<A>;

COLLX_END_NAMESPACE
