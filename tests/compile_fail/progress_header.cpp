// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A progress thread without its header: the note shows the header.
// expect: incomplete type
// expect: struct thread; // <collx/comm/progress.hpp>
#include <collx/collx.hpp>

void f(collx::communicator& world) {
#ifdef COLLX_FAIL
    world.with(collx::progress::thread{});
#else
    (void)world.with(collx::piece{42});
#endif
}

int main() {}
