// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Uses the program's own reduction operators: the largest value together with data about it, the denominator of a
// softmax whose logits are spread over ranks, composition of functions, a lambda with a capture, an operator on
// arrays. Next: docs/writing_an_operator.md.
#include <collx/collx.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "check.hpp"

namespace {

// [doc:winner]
struct winner {
    float score;
    int rank;
    char name[24]; // any data that travels with it
};
struct best_of {
    winner operator()(const winner& a, const winner& b) const { return b.score > a.score ? b : a; }
};
// [doc:end]

void who_is_best(collx::communicator& world) {
    winner best{std::sin(static_cast<float>(world.rank() + 1)), world.rank(), {}};
    std::snprintf(best.name, sizeof best.name, "run %d", 100 + world.rank());
    collx::all_reduce(world, collx::value(best), best_of{}); // not known to commute, so applied in rank order
    example::expect(best.rank == 1 && std::string_view(best.name) == "run 101", "sin(2) is the largest of sin(1..4)");
    if (world.rank() == 0) std::printf("best: %s of rank %d with %.4f\n", best.name, best.rank, best.score);

    // The operator that collx has for (value, index) pairs.
    auto place = collx::indexed<float>{best.score - static_cast<float>(world.rank()), world.rank()};
    collx::all_reduce(world, collx::value(place), collx::arg_max{});
    example::expect(place.index == 0, "arg_max");
}

// Rank r holds a quarter of the logits of each of 3 rows. The softmax needs max and sum of the whole row, in one pass.
void sharded_softmax(collx::communicator& world) {
    const auto logit = [](int row, int i) { return std::cos(static_cast<float>(7 * row + i)) * 40; };
    const int mine = 1000, first = world.rank() * mine, all = mine * world.size();
    // [doc:softmax]
    std::vector<collx::softmax_state<float>> rows(3, collx::online_softmax::identity<collx::softmax_state<float>>());
    for (int row = 0; row < 3; ++row)
        for (int i = first; i < first + mine; ++i)
            rows[static_cast<std::size_t>(row)] = collx::online_softmax{}(
                rows[static_cast<std::size_t>(row)], collx::softmax_state<float>::of(logit(row, i)));
    collx::all_reduce(world, rows, collx::online_softmax{});
    // [doc:end]
    for (int row = 0; row < 3; ++row) {
        const auto& state = rows[static_cast<std::size_t>(row)];
        double want = 0;
        for (int i = 0; i < all; ++i)
            want += std::exp(static_cast<double>(logit(row, i)) - static_cast<double>(state.max));
        example::expect(std::abs(static_cast<double>(state.sum) - want) < 1e-4 * want,
                        "the denominator of the whole row");
        if (world.rank() == 0) std::printf("softmax row %d: max %.3f, sum %.4f\n", row, state.max, state.sum);
    }
}

// [doc:affine]
// f(x) = a x + b. Composition does not commute: first f, then g differs from first g, then f.
struct affine {
    double a, b;
};
struct then {
    affine operator()(const affine& f, const affine& g) const { return {g.a * f.a, g.a * f.b + g.b}; }
};
// [doc:end]

// A linear recurrence x(i + 1) = a(i) x(i) + b(i) over ranks: each composes its own steps, a scan composes the ranks'.
void recurrence(collx::communicator& world) {
    const auto step = [](int i) { return affine{0.5 + 0.01 * i, 1.0 + i}; };
    affine composed{1, 0};
    for (int i = 0; i < 10; ++i) composed = then{}(composed, step(world.rank() * 10 + i));
    affine before{1, 0}; // rank 0 keeps this: no rank comes before it
    collx::exclusive_scan(world, collx::value(composed), collx::value(before), then{});

    double x = 3; // computed serially from the start
    for (int i = 0; i < world.rank() * 10; ++i) x = step(i).a * x + step(i).b;
    const double found = before.a * 3 + before.b;
    example::expect(std::abs(found - x) < 1e-9 * std::abs(x), "the state in which this rank's part begins");
    if (world.rank() == world.size() - 1)
        std::printf("recurrence: rank %d begins with x = %.6f\n", world.rank(), found);
}

void capturing_lambda(collx::communicator& world) {
    const int modulus = 1005 + world.size(); // captured: any callable will do
    int x = 200 + world.rank();
    collx::all_reduce(world, collx::value(x), [modulus](int a, int b) { return a * b % modulus; });
    example::expect(x == 200 * 201 % modulus * 202 % modulus * 203 % modulus, "the product modulo 1009");

    // An algorithm may change the order of operands only if the operator is declared commutative.
    auto product = collx::commutative([modulus](int a, int b) { return a * b % modulus; });
    int y = 200 + world.rank();
    collx::all_reduce(world, collx::value(y), product);
    example::expect(y == x, "the same, declared commutative");
    if (world.rank() == 0) std::printf("lambda: product modulo %d is %d\n", modulus, x);
}

// An operator may take arrays instead of elements. A library function on vectors then needs no loop around it, and
// setup that each call would repeat is done once for many elements.
void whole_arrays(collx::communicator& world) {
    // [doc:arrays]
    const auto add_angles = [](const float* in, float* inout, std::size_t n) { // inout[i] = in[i] op inout[i]
        for (std::size_t i = 0; i < n; ++i) inout[i] = std::remainder(in[i] + inout[i], 360.0f);
    };
    std::vector<float> angles(1000, 100);
    collx::all_reduce(world, angles, add_angles);

    std::vector<float> more(1000, 20);
    collx::reduce_local(angles, more, add_angles); // reduces two buffers of this process, without communication
    // [doc:end]
    example::expect(angles[999] == 40 && more[0] == 60, "4 times 100 degrees, and 20 more");
    if (world.rank() == 0) std::printf("arrays: %g degrees, then %g\n", angles[0], more[0]);
}

} // namespace

int main() {
    collx::run_threads(4, [](collx::communicator& world) {
        who_is_best(world);
        sharded_softmax(world);
        recurrence(world);
        capturing_lambda(world);
        whole_arrays(world);
    });
    return example::result();
}
