// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: a transport in this per_peer is never chosen: sockets reach every peer, so shm comes first, then verbs
// clang-format on
#include <collx/transport/per_peer.hpp>

int main() {
#ifdef COLLX_FAIL
    const collx::transports t = collx::per_peer{collx::sockets{}, collx::shm{}};
#else
    const collx::transports t = collx::per_peer{collx::shm{}, collx::sockets{}};
#endif
    return t.use_memory ? 0 : 1;
}
