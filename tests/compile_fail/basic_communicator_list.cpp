// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is no transport in a communicator's list.
// clang-format off
// expect: collx: a transport has a name (static constexpr const char*) and a static constexpr bool carries(collx::relation)
// clang-format on
#include <collx/comm/basic_communicator.hpp>

struct nameless {
    static constexpr bool carries(collx::relation) { return true; }
};
#ifdef COLLX_FAIL
using world_type = collx::basic_communicator<collx::shm, nameless>;
#else
using world_type = collx::basic_communicator<collx::shm>;
#endif

bool f(world_type& world) { return world.size() == 2; }
