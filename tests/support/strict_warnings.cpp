// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a program includes and instantiates, for compilers that object to more than -Wall and -Wextra: many programs
// are built so, and include collx from a directory that is not the system's.
#include <complex.h> // defines I

#include <collx/net.hpp> // before the others, whose local names its names must not be

#include <collx/collx.hpp>
#include <collx/comm/any.hpp>
#include <collx/comm/bucketed.hpp>
#include <collx/comm/by_value.hpp>
#include <collx/comm/window.hpp>
#include <collx/topology.hpp>

#include <vector>

namespace {

template <class T>
void call_all(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<T> x(n), y(n), all(n * n);
    const std::vector<int> ones(n, 1);
    const collx::neighbors itself{{world.rank()}, {world.rank()}};
    collx::all_reduce(world, x);
    collx::all_reduce(world, x, y, collx::max{});
    collx::reduce(world, x, y, collx::multiplies{}, {.root = 0});
    collx::broadcast(world, x);
    collx::all_gather(world, x, all);
    collx::gather(world, x, all);
    collx::scatter(world, all, x);
    collx::reduce_scatter(world, all, x, collx::min{});
    collx::all_to_all(world, x, y);
    collx::all_to_all_v(world, x, ones, y, ones);
    collx::all_gather_v(world, x, all, std::vector<std::size_t>(n, n));
    collx::scan(world, x, y);
    collx::exclusive_scan(world, x, y);
    collx::neighbor_all_gather(world, itself, x, y);
    collx::async::all_reduce(world, x).wait();
    (void)collx::try_::all_reduce(world, x);
    auto ready = collx::persistent::all_reduce(world.with(collx::algo::one_shot_all_reduce{}), x);
    ready();
    collx::group together(world);
    together.all_reduce(x);
    together.launch();
    collx::window<T> part(world, n);
    part.put(0, 0, x);
    part.accumulate(0, 0, x);
    part.fence();
}

void does_nothing(collx::communicator&) {}

} // namespace

int main() {
    collx::communicator world;
    collx::run_threads(2, does_nothing);
    collx::run_threads(2, [](collx::communicator& w) { collx::barrier(w); });
    call_all<float>(world);
    call_all<double>(world);
    call_all<signed char>(world); // arithmetic on it is arithmetic on int
    call_all<unsigned short>(world);
    call_all<long long>(world);
    std::vector<float> x(3);
    collx::any::all_reduce(world, collx::as_any(x), collx::any_op::plus);
}
