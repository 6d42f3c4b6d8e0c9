// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: std::vector<bool> packs its elements into bits, so no bool can be pointed to. Use std::vector<char> or std::vector<std::uint8_t> with logical_and or logical_or.
// expect: collx::buffer: this is a single element, not a range. Use collx::value(x) to send it alone, or specialise collx::buffer_traits if it is a tensor of your own.
// expect-gcc: member_form F = collx::v0::detail::member_form::reduction
// expect-gcc: member_form F = collx::v0::detail::member_form::message
// clang-format on
// What collx::buffer refuses, a group refuses with its words.
#include <collx/comm/group.hpp>

#include <vector>

void call(collx::communicator& world, std::vector<char>& x, float z) {
    collx::group g(world);
#ifdef COLLX_FAIL
    std::vector<bool> bits(3);
    g.all_reduce(bits, collx::logical_or{});
    g.send(z, 1);
#else
    g.all_reduce(x, collx::logical_or{});
    g.send(collx::value(z), 1);
#endif
    g.launch();
}

int main() {}
