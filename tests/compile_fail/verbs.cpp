// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What users get wrong in calls is answered by a sentence, not by the list of a verb's forms.
// clang-format off
// expect-gcc: collx::buffer: a pointer does not say how many elements it points to. Use collx::view(pointer, count).
// expect: collx::buffer: this is a single element, not a range. Use collx::value(x) to send it alone, or specialise collx::buffer_traits if it is a tensor of your own.
// expect: collx::buffer: std::vector<bool> packs its elements into bits
// expect: collx: elements travel between ranks as bytes, and this type has a destructor
// expect: collx::buffer: the elements of this range have no numbers
// expect: collx: a bare number cannot stand here. Options go by name: {.root = 1}
// expect: collx: the first argument is the communicator, not const, then come the buffers
// clang-format on
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/send_recv.hpp>

#include <list>
#include <string>
#include <vector>

void calls(collx::communicator& world, std::vector<float>& x, std::list<float>& list, std::vector<bool>& bits,
           std::vector<std::string>& words) {
#ifdef COLLX_FAIL
    collx::broadcast(world, x.data(), {.root = 1});
    collx::all_reduce(world, x[0]);
    collx::all_reduce(world, x, bits);
    collx::send(world, words, 1);
    collx::all_reduce(world, list);
    collx::broadcast(world, x, 1);
    collx::all_reduce(x, world);
#else
    static_cast<void>(bits), static_cast<void>(list), static_cast<void>(words);
    collx::broadcast(world, collx::view(x.data(), x.size()), {.root = 1});
    collx::all_reduce(world, collx::value(x[0]));
    collx::send(world, x, 1);
#endif
}

int main() { return 0; }
