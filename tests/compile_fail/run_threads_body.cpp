// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What threads run takes a communicator or nothing.
// expect: collx: run_threads() runs f(collx::communicator&) or f()
#include <collx/comm/run_threads.hpp>

void run() {
    collx::run_threads(2, [](collx::communicator&) {});
    collx::run_threads(2, [] {});
#ifdef COLLX_FAIL
    collx::run_threads(2, [](int rank) { return rank; });
#endif
}
