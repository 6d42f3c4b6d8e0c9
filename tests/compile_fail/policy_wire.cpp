// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A wire type that integers do not pass through.
// expect: collx: wire<W> would destroy these elements
#include <collx/collx.hpp>

using collx::detail::carries;
static_assert(carries<collx::bf16, float>() && carries<float, double>() && carries<collx::e4m3, collx::f16, float>());
static_assert(carries<double, int>() && carries<long, int>() && carries<int, unsigned short>() &&
              carries<float, char>());
static_assert(!carries<int, float>() && !carries<collx::bf16, int>() && !carries<float, int>() &&
              !carries<int, long>());
static_assert(!carries<unsigned, int>() && !carries<int, unsigned>());
static_assert(!carries<collx::bf16, collx::indexed<float>>());

void f(collx::communicator& world, long (&count)[1]) {
#ifdef COLLX_FAIL
    collx::all_reduce(world.with(collx::wire<collx::bf16>{}), collx::view(count, 1));
#else
    collx::all_reduce(world.with(collx::wire<long long>{}), collx::view(count, 1));
    collx::broadcast(world.with(collx::wire<collx::bf16>{}), collx::view(count, 1)); // moved, not rounded
#endif
}
