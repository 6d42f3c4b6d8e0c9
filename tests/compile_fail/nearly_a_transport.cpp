// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A type that is nearly a transport: the sentences say what it lacks.
// expect: collx: an endpoint needs bool is_gone(int peer): its process has ended
// expect: collx: a sending end needs commit(std::size_t bytes), which sends what was acquired
#include <collx/job/custom_transport.hpp>

struct mine {
    static constexpr const char* name = "mine";
    static constexpr bool carries(collx::relation) { return true; }
    struct end {
        std::byte* try_acquire(std::size_t);
#ifndef COLLX_FAIL
        void commit(std::size_t);
#endif
        bool is_drained();
        bool has_message();
        std::size_t message_bytes();
        const std::byte* peek(std::size_t);
        void release(std::size_t);
    };
    struct endpoint {
        endpoint(int rank, int size);
        collx::endpoint_address address();
        void connect(int peer, const collx::endpoint_address& there);
        std::size_t most_bytes();
        end& tx(int peer);
        end& rx(int peer);
        bool move();
#ifndef COLLX_FAIL
        bool is_gone(int peer);
#endif
    };
};

collx::transports f() { return collx::per_peer{collx::shm{}, mine{}}; }
