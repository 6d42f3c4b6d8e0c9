// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// barrier: no rank leaves before all have entered. A failure shows as a counter value that is too small.
#include "support.hpp"

using namespace collx_test;

namespace {

// All ranks add 1, pass a barrier, and must see the sum of all ranks.
template <class Comm>
void check_rounds(collx::communicator& w, Comm&& bound, std::atomic<int>& arrived, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        arrived.fetch_add(1, std::memory_order_relaxed);
        collx::barrier(bound);
        EXPECT(arrived.load(std::memory_order_relaxed) >= (i + 1) * w.size());
        collx::barrier(bound); // no rank may add again before all have looked
        EXPECT(arrived.load(std::memory_order_relaxed) <= (i + 2) * w.size());
    }
}

} // namespace

TEST_CASE("no rank leaves a barrier before all have come") {
    for (const int n : rank_counts) {
        std::atomic<int> by_default{0};
        on_ranks(n, [&](collx::communicator& w) { check_rounds(w, w, by_default, 100); });
        collx::algo::algorithms<collx::collective::barrier>::for_each([&](auto a) {
            std::atomic<int> arrived{0};
            on_ranks(n, [&](collx::communicator& w) {
                at("%s n=%d", a.name, w.size());
                check_rounds(w, w.with(a), arrived, 100);
            });
        });
    }
}

TEST_CASE("ranks can work during a barrier until all have come") {
    std::atomic<int> started{0};
    on_ranks(4, [&](collx::communicator& w) {
        for (int i = 0; i < 50; ++i) {
            started.fetch_add(1);
            auto done = collx::async::barrier(w);
            if (w.rank() == i % 4) EXPECT(started.load() >= 4 * i);
            done.wait();
            EXPECT(started.load() >= 4 * (i + 1));
            collx::barrier(w);
        }
    });
}

TEST_CASE("what was written before a barrier is seen after it") {
    std::vector<int> plain(8, -1); // not atomic: ThreadSanitizer reports a missing happens-before as a data race
    on_ranks(8, [&](collx::communicator& w) {
        for (int i = 0; i < 100; ++i) {
            plain[static_cast<std::size_t>(w.rank())] = i;
            collx::barrier(w);
            for (const int x : plain) EXPECT(x == i);
            collx::barrier(w);
        }
    });
}
