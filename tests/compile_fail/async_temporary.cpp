// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this call continues after the statement that starts it, until launch(), and one of its buffers is a temporary that is gone by then. Keep it in a variable that lives until launch(), or pass a view of memory that stays.
// expect-gcc: group_verbs<Group, OnDevice>::broadcast(X&&
// expect: collx: this call continues after the statement that starts it, until wait(), and one of its buffers is a temporary that can neither be moved nor copied into the call. Keep it in a variable.
// expect: collx: this call is made again and again, and its output is a temporary that the program cannot read. Keep it in a variable, or pass a view of memory that stays.
// clang-format on
#include <collx/collx.hpp>

#include <array>
#include <span>
#include <string_view>
#include <vector>

namespace async = collx::async;

// What owns nothing may be a temporary.
void views(collx::communicator& world, std::vector<float>& x, std::vector<float>& y) {
    async::broadcast(world, std::span(x)).wait();
    async::broadcast(world, collx::view(x.data(), 3)).wait();
    async::send(world, collx::strided(x.data(), 3, 2), 1).wait();
    async::send(world, std::string_view("abc"), 1).wait();
    async::recv(world, collx::value(x[0]), 1).wait();
    async::all_gather(world, collx::in_place(x)).wait();
    async::scan(world, std::span<const float>(x), y, collx::plus{}).wait();
    async::all_to_all_v(world, std::span(x), std::vector<int>{1, 2}, std::span(y), std::vector<int>{1, 2}).wait();
    collx::group g(world);
    g.all_reduce(std::span(x));
    g.launch();
    // What is done at once may have temporaries that own their elements, and async calls keep what they are given.
    collx::all_gather(world, std::vector<float>(1), y);
    const std::vector<float> sum = async::all_reduce(world, std::vector<float>(10)).wait();
    (void)sum;
    // A persistent call's output is the program's; an input may be handed over.
    collx::persistent::all_reduce(world, std::span(x))();
    collx::persistent::all_gather(world, std::vector<float>(1), y)();
}

#ifdef COLLX_FAIL
struct fixed {
    fixed() = default;
    fixed(const fixed&) = delete;
    auto collx_buffer() { return collx::view(memory, 4); }
    float memory[4];
};

void owners(collx::communicator& world) {
    collx::group g(world);
    g.broadcast(std::vector<float>(1), 0);
    async::all_reduce(world, fixed()).wait();
    collx::persistent::all_reduce(world, std::vector<float>(10))();
}
#endif

int main() {}
