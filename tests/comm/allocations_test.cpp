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
thread_local long until_none = -1; // allocations until one fails

} // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
    ++allocations;
    if (until_none > 0 && --until_none == 0) throw std::bad_alloc();
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

// Each allocation fails once.
TEST_CASE("a rank that has no memory for its part in a split ends the split of the others at once") {
    for (const bool is_one_host : {true, false}) {
        bool has_failed = true;
        for (long k = 1; has_failed; ++k) {
            REQUIRE(k < 1000);
            std::atomic<int> done{0};
            collx::run_threads({0, is_one_host ? 0 : 1}, [&](collx::communicator& w) {
                w.set_timeout(std::chrono::seconds(50));
                if (w.rank() == 1) has_failed = false;
                std::string odd; // said when both are done
                const auto look = [&](const std::exception& e, bool is_expected) {
                    if (w.rank() == 1) has_failed = true;
                    if (!is_expected) odd = e.what();
                };
                try {
                    if (w.rank() == 1) until_none = k;
                    auto c = w.split(0);
                    until_none = -1;
                    int x = 1;
                    collx::all_reduce(c, collx::value(x));
                    if (x != 2) odd = "a wrong sum";
                } catch (const std::bad_alloc& e) {
                    look(e, w.rank() == 1);
                } catch (const collx::aborted& e) {
                    look(e, true);
                } catch (const collx::error& e) { // rank 1 is the first of its host, or has left
                    look(e, !is_one_host && (e.code() == collx::errc::resource || w.rank() == 0) &&
                                e.code() != collx::errc::timeout);
                }
                until_none = -1;
                at("allocation %ld, one host: %d, %s", k, is_one_host, odd.c_str());
                EXPECT(odd.empty());
                for (++done; done.load() < 2;) ::sched_yield(); // nobody hears of the other's end
            });
        }
    }
}
