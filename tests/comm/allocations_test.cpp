// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=no
//
// A call that was made before takes nothing from the heap: operator new is counted.
#include "support.hpp"

#include <cstdlib>
#include <new>

using namespace collx_test;
using collx::collective;

namespace {

thread_local long allocations = 0;

} // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
    ++allocations;
    if (void* p = std::malloc(n != 0 ? n : 1)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("a call that was made before takes no memory from the heap") {
    for (const int n : {1, 2, 3})
        on_ranks(n, [n](collx::communicator& w) {
            const auto u = static_cast<std::size_t>(n);
            std::vector<int> x(3000 * u, 1), y(3000 * u), part(3000);
            const std::vector<std::size_t> counts(u, 3000);
            long small = 1;
            const auto planned = [&] {
                collx::all_reduce(w, collx::value(small), collx::max{});
                collx::all_reduce(w, x, y);
                collx::broadcast(w, x, {.root = n - 1});
                collx::reduce(w, x, y, collx::plus{}, {.root = 0});
                collx::all_gather(w, part, y);
                collx::reduce_scatter(w, x, part);
                collx::all_to_all(w, x, y);
                collx::scan(w, part, collx::max{});
                collx::barrier(w);
                collx::all_gather_v(w, part, y, counts);
                collx::reduce_scatter_v(w, x, part, counts);
                collx::all_to_all_v(w, x, counts, y, counts);
                for_each_copying_algorithm<collective::all_reduce>(
                    [&](auto a) { collx::all_reduce(w.with(a), x, y, collx::max{}); });
                std::fill(x.begin(), x.end(), 1);
            };
            for (const bool checked : {false, true}) {
                w.set_checked(checked);
                planned();
                const long before = allocations;
                for (int i = 0; i < 20; ++i) planned();
                EXPECT_AT(allocations - before, allocations == before);
            }
        });
}
