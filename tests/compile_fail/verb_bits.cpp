// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: std::vector<bool> packs its elements into bits, so no bool can be pointed to. Use std::vector<char> or std::vector<std::uint8_t> with logical_and or logical_or.
// expect: collx::buffer: this is a single element, not a range. Use collx::value(x) to send it alone, or specialise collx::buffer_traits if it is a tensor of your own.
// expect: collx::buffer: a pointer does not say how many elements it points to. Use collx::view(pointer, count).
// expect: group::all_reduce(X&&
// clang-format on
// What collx::buffer refuses, the verbs refuse with its words.
#include <collx/collx.hpp>

#include <vector>

void call(collx::communicator& world, std::vector<char>& x, std::vector<char>& y, float z) {
    collx::group g(world);
#ifdef COLLX_FAIL
    std::vector<bool> bits(3);
    double single = 0;
    collx::all_reduce(world, bits, collx::logical_or{}, {.root = 0});
    collx::broadcast(world, single);
    collx::all_gather(world, x, &z);
    collx::gather(world, x, 7, {.root = 1});
    g.all_reduce(z);
#else
    collx::all_reduce(world, x, collx::logical_or{}, {.root = 0});
    collx::broadcast(world, collx::value(z));
    collx::all_gather(world, x, y);
    collx::gather(world, x, y, {.root = 1});
    g.all_reduce(collx::value(z));
#endif
    g.launch();
}

int main() {}
