// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ends that lack a function of the contract: the sentence names it.
// expect: collx: a sending end needs bool is_drained(): all arrives without this rank's help
// expect: collx: a receiving end needs std::size_t message_bytes(), of the message that has come
#include <collx/testing/archetypes.hpp>
#include <collx/testing/channel_contract.hpp>

struct nearly_sending {
    std::byte* try_acquire(std::size_t);
    void commit(std::size_t);
#ifdef COLLX_FAIL
    int is_drained(); // not bool
#else
    bool is_drained();
#endif
};
struct nearly_receiving {
    bool has_message();
#ifndef COLLX_FAIL
    std::size_t message_bytes();
#endif
    const std::byte* peek(std::size_t);
    void release(std::size_t);
};
struct link {
    nearly_sending& tx();
    nearly_receiving& rx();
    void move_sender();
    void move_receiver();
};

collx::testing::report f(link (*make)()) { return collx::testing::check_channel(*make); }
