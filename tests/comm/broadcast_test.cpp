// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=address,nightly
//
// broadcast: every root, algorithm, size, number of ranks.
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size, int root) {
    std::vector<int> x(size + 2, -1); // a guard on both sides
    if (w.rank() == root)
        for (std::size_t i = 0; i < size; ++i) x[i + 1] = sample(root, i);
    collx::broadcast(bound, collx::view(x.data() + 1, size), {.root = root});
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i + 1] == sample(root, i));
    EXPECT(x.front() == -1 && x.back() == -1);
};

} // namespace

TEST_CASE("broadcast copies the root's buffer to all ranks, whatever the algorithm and the root") {
    check_algorithms<collective::broadcast>(check_call);
}

TEST_CASE("broadcast cuts its buffer into pieces of any size") { check_pieces<collective::broadcast>(check_call); }

TEST_CASE("a broadcast from one root may be followed by one from another at once") {
    on_ranks(5, [](collx::communicator& w) {
        for (int i = 0; i < 300; ++i) check_call(w, w, static_cast<std::size_t>(i * 37 % 2500), i % 5);
    });
}
