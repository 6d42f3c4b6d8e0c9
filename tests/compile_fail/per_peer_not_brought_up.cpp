// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport of the program's own without the header that brings it up.
// clang-format off
// expect: collx: a transport of the program's own needs #include <collx/job/custom_transport.hpp>
// clang-format on
#ifndef COLLX_FAIL
#include <collx/job/custom_transport.hpp>
#endif
#include <collx/testing/archetypes.hpp>
#include <collx/transport/per_peer.hpp>

struct mine {
    static constexpr const char* name = "mine";
    static constexpr bool carries(collx::relation) { return true; }
    struct endpoint {
        endpoint(int rank, int size);
        collx::endpoint_address address();
        void connect(int peer, const collx::endpoint_address& there);
        std::size_t most_bytes();
        collx::testing::sending_archetype& tx(int peer);
        collx::testing::receiving_archetype& rx(int peer);
        bool move();
        bool is_gone(int peer);
    };
};

using list = collx::per_peer<collx::shm, mine>;
bool f() { return list(collx::shm{}, mine{}).size == 2; }
