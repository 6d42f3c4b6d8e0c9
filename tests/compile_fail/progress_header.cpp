// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A progress thread without its header: the note shows the line of collx.hpp that names the header.
// expect: incomplete type
// expect: collx/collx.hpp
// expect: forward declaration
#include <collx/collx.hpp>

void f(collx::communicator& world) {
#ifdef COLLX_FAIL
    world.with(collx::progress::thread{});
#else
    (void)world.with(collx::piece{42});
#endif
}

int main() {}
