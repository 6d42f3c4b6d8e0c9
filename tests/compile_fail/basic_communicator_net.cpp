// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator's list has sockets, in a program without what opens them.
// clang-format off
// expect: collx: this communicator's list has sockets or verbs, which are in collx/net.hpp: include it before the list
// clang-format on
#ifndef COLLX_FAIL
#include <collx/net.hpp>
#endif
#include <collx/comm/basic_communicator.hpp>

bool f(collx::basic_communicator<collx::shm, collx::sockets>& world) { return world.size() == 2; }
