// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A result that would lose its fractions, in each form of call: each has an output of its own type, since a compiler
// says it once for each pair of types.
// clang-format off
// expect: collx: the input has floating-point numbers and the output integers, so every fraction would be lost without a word. Give both buffers one element type.
// expect-re: (X = std::vector<short|std::vector<short>)
// expect-re: (X = std::vector<char|std::vector<char>)
// expect-re: (X = std::vector<int|std::vector<int>)
// expect-re: (X = std::vector<long int|std::vector<long>)
// expect-re: (X = std::vector<unsigned int|std::vector<unsigned int>)
// expect-re: (X = std::vector<long unsigned int|std::vector<unsigned long>)
// expect-re: (X = device_view<unsigned char|collx::device_view<unsigned char>)
// expect-re: (X = device_view<signed char|collx::device_view<signed char>)
// clang-format on
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/group.hpp>
#include <collx/comm/reduce_scatter.hpp>
#include <collx/comm/scan.hpp>
#include <collx/gpu/device_group.hpp>
#include <collx/testing/fake_runtime.hpp>

#include <vector>

template <class T>
collx::device_view<T> view_of(T* x) {
    return {x, 3};
}

void calls(collx::communicator& world, const std::vector<double>& in, const std::vector<std::size_t>& counts,
           collx::device::fake_runtime runtime, double* of_device) {
#ifdef COLLX_FAIL
    std::vector<short> reduced(in.size());
    std::vector<int> scattered(in.size());
    std::vector<char> scanned(in.size());
    std::vector<long> exchanged(in.size());
    std::vector<unsigned> in_group(in.size());
    std::vector<unsigned long> gathered_in_group(in.size());
    auto* on_device = reinterpret_cast<unsigned char*>(of_device);
    auto* in_device_group = reinterpret_cast<signed char*>(of_device);
#else
    std::vector<double> reduced(in.size()), scattered(in.size()), scanned(in.size()), exchanged(in.size()),
        in_group(in.size()), gathered_in_group(in.size());
    double *on_device = of_device + 3, *in_device_group = of_device + 6;
#endif
    collx::all_reduce(world, in, reduced);
    collx::reduce_scatter_v(world, in, scattered, counts);
    collx::scan(world, in, scanned);
    collx::all_to_all_v(world, in, counts, exchanged, counts);
    collx::group(world).all_to_all(in, in_group).all_gather(in, gathered_in_group).launch();
    auto comm = world.with(collx::gpus{runtime});
    const collx::device_view<const double> x(of_device, 3);
    collx::all_reduce(comm, x, view_of(on_device));
    collx::device_group(comm).all_to_all(x, view_of(in_device_group)).launch();
}

int main() { return 0; }
