// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=address,nightly
//
// broadcast: every root, algorithm, size, number of ranks.
#include "support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

template <class Comm>
void check_call(collx::communicator& w, Comm&& bound, std::size_t size, int root) {
    std::vector<int> x(size + 2, -1); // a guard on both sides
    if (w.rank() == root)
        for (std::size_t i = 0; i < size; ++i) x[i + 1] = sample(root, i);
    collx::broadcast(bound, collx::view(x.data() + 1, size), {.root = root});
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i + 1] == sample(root, i));
    EXPECT(x.front() == -1 && x.back() == -1);
}

} // namespace

TEST_CASE("broadcast copies the root's buffer to everybody, whatever the algorithm and the root") {
    for (const int n : rank_counts)
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t size : sizes)
                for (int root = 0; root < w.size(); ++root) {
                    at("default n=%d size=%zu root=%d", w.size(), size, root);
                    check_call(w, w, size, root);
                    if (size > 5000 && root % 3 != 0) continue;
                    for_each_copying_algorithm<collective::broadcast>([&](auto a) {
                        at("%s n=%d size=%zu root=%d", a.name, w.size(), size, root);
                        check_call(w, w.with(a), size, root);
                    });
                }
        });
}

TEST_CASE("broadcast cuts its buffer into pieces of any size") {
    for (const int n : {1, 2, 3, 5})
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t bytes : {1u, 60u, 256u, 1u << 30})
                for (const std::size_t size : {0u, 1u, 33u, 1037u})
                    for_each_copying_algorithm<collective::broadcast>([&](auto a) {
                        at("%s n=%d size=%zu piece=%zu", a.name, w.size(), size, bytes);
                        check_call(w, w.with(a, collx::piece{bytes}), size, w.size() / 2);
                    });
        });
}

TEST_CASE("a broadcast from one root may be followed by one from another at once") {
    on_ranks(5, [](collx::communicator& w) {
        for (int i = 0; i < 300; ++i) check_call(w, w, static_cast<std::size_t>(i * 37 % 2500), i % 5);
    });
}
