// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A façade: types and operators arrive as numbers at run time, as from another language. All collectives are available
// without a template in this file. Results by value are for programs that should read well rather than run fast.
// collx-example: needs=any
// Next: docs/tensors.md.
#include <collx/collx.hpp>
#include <collx/comm/any.hpp>
#include <collx/comm/by_value.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "check.hpp"

namespace {

// [doc:facade]
// A function that a C interface or a binding would export.
int their_all_reduce(collx::communicator& c, void* data, std::size_t count, int type, int op) {
    const collx::any_buffer x{data, count, static_cast<collx::any_type>(type)};
    const auto done = collx::any::try_::all_reduce(c, x, static_cast<collx::any_op>(op));
    return done ? 0 : static_cast<int>(done.error().code());
}
// [doc:end]

void numbers_for_types(collx::communicator& world) {
    std::vector<double> x(100, world.rank() + 1.0);
    std::vector<unsigned char> bits(100, static_cast<unsigned char>(1 << world.rank()));
    const int float64 = static_cast<int>(collx::any_type::float64), uint8 = static_cast<int>(collx::any_type::uint8);
    const int max = static_cast<int>(collx::any_op::max), bit_or = static_cast<int>(collx::any_op::bit_or);
    example::expect(their_all_reduce(world, x.data(), x.size(), float64, max) == 0 && x[99] == 4,
                    "the largest of 1..4");
    example::expect(their_all_reduce(world, bits.data(), bits.size(), uint8, bit_or) == 0 && bits[0] == 15, "all bits");
    const int refused = static_cast<int>(collx::errc::invalid_argument);
    example::expect(their_all_reduce(world, x.data(), x.size(), float64, bit_or) == refused, "a double has no bits");
    example::expect(refused != 0, "the code of an error is not that of success");
    example::expect(their_all_reduce(world, x.data(), x.size(), 77, max) == refused, "no such type");
}

void results_by_value(collx::communicator& world) {
    const std::string me = "rank " + std::to_string(world.rank());
    const std::vector<float> mine(static_cast<std::size_t>(world.rank()), 0.5f); // another size on each rank
    // [doc:by_value]
    const double mean = collx::by_value::all_reduce(world, world.rank() + 1.0) / world.size();
    const std::vector<float> all = collx::by_value::all_gather(world, mine); // of different sizes on different ranks
    const std::string first = collx::by_value::broadcast(world, me, {.root = 0});
    // [doc:end]
    example::expect(mean == 2.5 && all.size() == 6 && first == "rank 0", "a mean, a list, a text");
    if (world.rank() == 0) std::printf("mean %g, %zu elements, from %s\n", mean, all.size(), first.c_str());
}

} // namespace

int main() {
    collx::run_threads(4, [](collx::communicator& world) {
        numbers_for_types(world);
        results_by_value(world);
    });
    return example::result();
}
