// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One collective of a user's type on device memory, for scripts/include_cost.
#include <collx/collx.hpp>
#include <collx/gpu/calls.cuh>

struct point {
    double x, y, z;
    friend COLLX_HD point operator+(const point& a, const point& b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
};
void add_up(collx::communicator& world, collx::device_view<point> points) {
    collx::all_reduce(world, points, collx::plus{});
}
