// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank of a job whose ranks were compiled by different compilers (tests/scripts/two_compilers_test.py): checked calls
// compare types, operators and policies, whose names compilers spell differently; messages and windows compare types
// always.
#include <collx/collx.hpp>
#include <collx/comm/explain.hpp> // compiles with -D_GLIBCXX_DEBUG, whose std::vector is no literal type
#include <collx/comm/neighbor.hpp>
#include <collx/comm/window.hpp>
#include <collx/net.hpp>
#include <collx/topology.hpp> // with net.hpp: all that CMake's collx::collx compiles

#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

namespace {

int wrong = 0;
void expect(bool holds, const char* what) {
    if (holds) return;
    ++wrong;
    std::printf("wrong: %s\n", what);
}

template <class T>
void combine_in_a_window(collx::communicator& world, const char* what) {
    collx::window<T> part(world, 3);
    part.fence();
    part.accumulate(0, 0, std::vector<T>(3, T(1)));
    part.fence();
    if (world.rank() == 0) expect(part.local()[2] == T(2), what);
}

void exchange(collx::communicator& world) {
    const int me = world.rank(), other = 1 - me;
    std::vector<float> x(100, 1.f);
    collx::all_reduce(world, x);
    collx::all_reduce(world, x, std::plus<>{});
    collx::all_reduce(world.with(collx::wire<collx::bf16>{}), x);
    collx::all_reduce(world.with(collx::algo::ring_all_reduce{}, collx::piece{64}), x);
    expect(x[99] == 16, "sums");
    std::vector<std::pair<long, unsigned short>> pairs(3, {me, 7});
    collx::broadcast(world, pairs, {.root = 1});
    expect(pairs[2].first == 1, "pairs");
    std::vector<collx::f16> mine(3, collx::f16(1.f + static_cast<float>(me))), theirs(3);
    collx::sendrecv(world, mine, other, theirs, other);
    expect(theirs[2] == collx::f16(1.f + static_cast<float>(other)), "messages");
    const collx::neighbors across{{other}, {other}};
    collx::neighbor_all_gather(world, across, mine, theirs);
    expect(theirs[0] == collx::f16(1.f + static_cast<float>(other)), "neighbours");
    combine_in_a_window<long>(world, "whole numbers in a window");
    combine_in_a_window<collx::bf16>(world, "numbers of 16 bits in a window");
}

} // namespace

int main() {
    try {
        collx::communicator world;
        world.set_checked(true);
        exchange(world);
        world.set_checked(false);
        exchange(world);
        return wrong;
    } catch (const collx::error& e) {
        std::printf("%s\n", e.what());
        return 100;
    }
}
