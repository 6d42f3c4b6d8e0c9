// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: procs=2 timeout=120 sanitize=no env=COLLX_SINGLE_COPY=always
//
// Ranks that are processes read each other's memory; a repeated call allocates nothing for that, either.
#include "comm/support.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "support/skip.hpp"

namespace {
long allocations = 0;
}

[[gnu::noinline]] void* operator new(std::size_t n) {
    ++allocations;
    if (void* p = std::malloc(n != 0 ? n : 1)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("a repeated call that reads a peer's memory takes none from the heap") {
    collx::communicator w;
    REQUIRE(w.size() == 2);
    const int peer = 1 - w.rank();
    for (const std::size_t m : {10'000u, 1'000'000u}) {
        std::vector<int> x(m, w.rank()), both(2 * m, w.rank()), all(2 * m), sum(m, 1);
        auto gather = collx::persistent::all_gather(w, x, all);
        std::vector<double> wide(2 * m);
        auto widen = collx::persistent::all_gather(w, x, wide); // read piece by piece, and converted
        auto exchange = collx::persistent::all_to_all(w, both, all);
        auto spread = collx::persistent::broadcast(w, x);
        auto add = collx::persistent::all_reduce(w, sum, collx::max{});
        auto swap = collx::persistent::sendrecv(w, both, peer, all, peer);
        const auto planned = [&] {
            gather();
            widen();
            exchange();
            spread();
            add();
            swap();
            collx::all_gather(w, x, all);
        };
        for (int i = 0; i < 10; ++i) planned();
        const long before = allocations;
        for (int i = 0; i < 10; ++i) planned();
        const long after = allocations;
        CHECK(after == before);
        CHECK(std::count(all.begin(), all.end(), 0) == static_cast<std::ptrdiff_t>(2 * m)); // rank 0's, broadcast
    }
    std::uint64_t read = 0;
    for (int port = 0; port < collx::port::count; ++port) read += w.internals().net.tx(port, peer).single_copy_messages;
    if (read == 0) collx_test::skip("this system lets no process read another one's memory");
}
