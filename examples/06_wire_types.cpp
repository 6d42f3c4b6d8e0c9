// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chooses what travels and in which order it is summed: bf16 on the wire for float sums, f16 data that is summed in
// float, and a sum with the bits of the serial loop. Next: docs/determinism.md.
#include <collx/collx.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "check.hpp"

namespace {

float gradient(int rank, std::size_t i) {
    return std::sin(static_cast<float>(i) * 0.1f + static_cast<float>(rank)) * 0.01f;
}

std::vector<float> gradient_of(int rank, std::size_t n) {
    std::vector<float> g(n);
    for (std::size_t i = 0; i < n; ++i) g[i] = gradient(rank, i);
    return g;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void half_the_bytes(collx::communicator& world, std::size_t n) {
    auto exact = gradient_of(world.rank(), n), narrow = exact;
    collx::all_reduce(world, exact);
    // [doc:wire]
    auto bf16 = world.with(collx::wire<collx::bf16>{}); // can be kept and used for any number of calls
    collx::all_reduce(bf16, narrow);
    // [doc:end]
    float worst = 0, largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        worst = std::max(worst, std::abs(narrow[i] - exact[i]));
        largest = std::max(largest, std::abs(exact[i]));
    }
    // bf16 keeps 8 bits. Each contribution and the result are rounded once; the sum itself is computed in float.
    example::expect(worst < 2 * 0.01f * static_cast<float>(world.size()) / 256, "bf16 on the wire rounds, no more");
    std::vector<float> all(n * static_cast<std::size_t>(world.size()));
    collx::all_gather(world, narrow, all);
    for (std::size_t i = 0; i < all.size(); ++i)
        example::expect(all[i] == narrow[i % n], "still the same on all ranks");
    if (world.rank() == 0)
        std::printf("bf16 on the wire: half the bytes, largest deviation %.2g of sums up to %.2g\n", worst, largest);
}

void sums_in_float(collx::communicator& world) {
    // Above 2048, f16 has no odd whole numbers: in f16, 2048 + 1 is 2048. A sum in float does not lose the ones.
    std::vector<collx::f16> x(1000, collx::f16(world.rank() == 0 ? 2048.0f : 1.0f));
    collx::all_reduce(world, x);
    const float sum = 2048.0f + static_cast<float>(world.size() - 1);
    example::expect(static_cast<float>(x[0]) == static_cast<float>(collx::f16(sum)), "rounded once, at the end");
    if (world.rank() == 0)
        std::printf("f16: 2048 + 1 + 1 + 1 = %g (in f16 arithmetic it stays 2048)\n", static_cast<float>(x[0]));
}

void same_as_the_loop(collx::communicator& world, std::size_t n) {
    auto loop = gradient_of(0, n); // the sum of a serial program: rank 0, then 1, …
    for (int r = 1; r < world.size(); ++r) {
        const auto g = gradient_of(r, n); // stored first: g + a * b in one expression may be rounded once only (fma)
        for (std::size_t i = 0; i < n; ++i) loop[i] += g[i];
    }
    // [doc:deterministic]
    auto g = gradient_of(world.rank(), n);
    collx::all_reduce(world.with(collx::deterministic{}), g); // in rank order, for any size and on any machine
    // [doc:end]
    example::expect(same_bits(g, loop), "deterministic: the bits of the serial loop");
    if (world.rank() == 0) std::printf("deterministic: %zu sums, all with the bits of the serial loop\n", n);
}

} // namespace

int main() {
    collx::run_threads(4, [](collx::communicator& world) {
        const std::size_t n = example::is_short() ? 10'000 : 1'000'000;
        half_the_bytes(world, n);
        sums_in_float(world);
        same_as_the_loop(world, n);
        same_as_the_loop(world, 100); // uses another algorithm, gives the same bits
    });
    return example::result();
}
