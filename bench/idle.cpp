// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What communicators that do nothing cost the one that works: an all_reduce of 8 bytes beside 0 to 1,000 of them, and
// what making one takes. Started by collx_run, with --hosts 2 over sockets. Markdown: one line per number; each is
// timed in rounds, with the whole number first and none last, so that a drift of the machine shows. idle [MOST]
// [ROUNDS]
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace {

// Median over batches of 50 calls.
double call_us(collx::communicator& w, int batches) {
    constexpr int batch = 50;
    std::vector<double> us;
    double x = 1;
    for (int b = 0; b < batches; ++b) {
        const std::int64_t begun = collx::now_ns();
        for (int i = 0; i < batch; ++i) collx::all_reduce(w, collx::value(x), collx::max{});
        us.push_back(static_cast<double>(collx::now_ns() - begun) / 1e3 / batch);
    }
    std::nth_element(us.begin(), us.begin() + batches / 2, us.end());
    return us[static_cast<std::size_t>(batches / 2)];
}

} // namespace

int main(int argc, char** argv) {
    try {
        const int most = argc > 1 ? std::atoi(argv[1]) : 1000, rounds = argc > 2 ? std::atoi(argv[2]) : 5;
        if (most < 0 || rounds < 1) return 2;
        collx::communicator w;
        w.set_checked(false);
        const bool speaks = w.rank() == 0;
        (void)call_us(w, 40); // warm
        if (speaks)
            std::puts("| idle communicators | all_reduce of 8 B (us) | beside none | making one (us) "
                      "|\n|---:|---:|---:|---:|");
        for (const int n : {most / 10, most * 4 / 10, most}) {
            std::vector<double> with, without;
            double making = 0;
            for (int r = 0; r < rounds; ++r) {
                {
                    std::vector<collx::communicator> idle;
                    const std::int64_t begun = collx::now_ns();
                    for (int i = 0; i < n; ++i) idle.push_back(w.dup());
                    making = static_cast<double>(collx::now_ns() - begun) / 1e3 / std::max(n, 1);
                    with.push_back(call_us(w, 60));
                }
                without.push_back(call_us(w, 60));
            }
            std::sort(with.begin(), with.end());
            std::sort(without.begin(), without.end());
            const double a = with[with.size() / 2], b = without[without.size() / 2];
            if (speaks) std::printf("| %d | %.2f | %.2f, %.2f times | %.0f |\n", n, a, b, a / b, making);
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "idle: %s\n", e.what());
        return 1;
    }
    return 0;
}
