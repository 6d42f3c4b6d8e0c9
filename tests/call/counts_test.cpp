// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// The messages and bytes that calls send, compared with those that the verifier derives from the schedules.
#include "comm/support.hpp"

#include <collx/sched/facts.hpp>

using namespace collx_test;
using collx::collective;

namespace {

std::atomic<int> algorithms_checked{0}, windows_seen{0};

// Runs `call` once to bind it and once to count. Compares the sums over all ranks with the facts of the schedule.
template <class A, class F>
void check_traffic(collx::communicator& w, const A& algorithm, std::uint64_t chunk_bytes, F&& call) {
    const auto facts = collx::sched::facts_of(algorithm, w.size());
    at("%s %s n=%d", name_of(A::op), A::name, w.size());
    call();
    const auto before = w.sent();
    call();
    const auto after = w.sent();
    std::uint64_t sums[] = {after.messages - before.messages, after.bytes - before.bytes,
                            after.window_bytes_written - before.window_bytes_written,
                            after.window_bytes_read - before.window_bytes_read};
    collx::all_reduce(w, sums);
    EXPECT_AT(sums[0], facts.ok && sums[0] == static_cast<std::uint64_t>(facts.total_messages));
    EXPECT_AT(sums[1], sums[1] == static_cast<std::uint64_t>(facts.total_chunks_sent) * chunk_bytes);
    EXPECT_AT(sums[2], sums[2] == static_cast<std::uint64_t>(facts.window_chunks_written) * chunk_bytes);
    EXPECT_AT(sums[3], sums[3] == static_cast<std::uint64_t>(facts.window_chunks_read) * chunk_bytes);
    if (facts.signals == 0 && w.size() > 1) EXPECT(sums[0] > 0);
    windows_seen += sums[2] > 0 && sums[3] > 0;
}

// Calls run(...) with each algorithm whose number of chunks divides `whole` into multiples of 16 elements.
template <collective C, class F>
void check_all(collx::communicator& w, std::size_t whole, F&& run) {
    for_each_copying_algorithm<C>([&](auto a) {
        const auto chunks = static_cast<std::size_t>(a.chunks(w.size()));
        if (whole % (chunks * 16) != 0) return;
        algorithms_checked += w.rank() == 0;
        check_traffic(w, a, whole / chunks * sizeof(int), [&] { run(w.with(a)); });
    });
}

} // namespace

TEST_CASE("calls send the messages and bytes that the facts of their schedules say") {
    for (const int n : {1, 2, 3, 4, 5, 8}) {
        algorithms_checked = windows_seen = 0;
        on_ranks(n, [n](collx::communicator& w) {
            const std::size_t whole = 16u * 3 * 5 * 8 * 2; // divides among all these ranks in multiples of 16 elements
            const auto u = static_cast<std::size_t>(n);
            std::vector<int> x(whole, 1), y(whole), part(whole / u);
            check_all<collective::all_reduce>(w, whole, [&](auto&& c) { collx::all_reduce(c, x, y, collx::max{}); });
            check_all<collective::reduce>(w, whole, [&](auto&& c) { collx::reduce(c, x, y, collx::max{}); });
            check_all<collective::broadcast>(w, whole, [&](auto&& c) { collx::broadcast(c, x); });
            check_all<collective::scan>(w, whole, [&](auto&& c) { collx::scan(c, x, y, collx::max{}); });
            check_all<collective::exclusive_scan>(w, whole,
                                                  [&](auto&& c) { collx::exclusive_scan(c, x, y, collx::max{}); });
            check_all<collective::all_gather>(w, whole, [&](auto&& c) { collx::all_gather(c, part, y); });
            check_all<collective::reduce_scatter>(w, whole,
                                                  [&](auto&& c) { collx::reduce_scatter(c, x, part, collx::max{}); });
            check_all<collective::gather>(w, whole, [&](auto&& c) { collx::gather(c, part, y); });
            check_all<collective::scatter>(w, whole, [&](auto&& c) { collx::scatter(c, y, part); });
            check_all<collective::all_to_all>(w, whole, [&](auto&& c) { collx::all_to_all(c, x, y); });
        });
        int algorithms = 0;
        const auto count = [&]<collective... C>(std::integer_sequence<collective, C...>) {
            (for_each_copying_algorithm<C>([&](auto) { ++algorithms; }), ...);
        };
        count(std::integer_sequence<collective, collective::all_reduce, collective::reduce, collective::broadcast,
                                    collective::scan, collective::exclusive_scan, collective::all_gather,
                                    collective::reduce_scatter, collective::gather, collective::scatter,
                                    collective::all_to_all>{});
        if (n > 1) CHECK(windows_seen > 0);
        CHECK(algorithms_checked == algorithms); // no algorithm was skipped because its chunks do not divide
        CHECK(algorithms > 30);
    }
}
