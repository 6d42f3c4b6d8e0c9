// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How much of an all_reduce the progress thread hides behind a computation: overlap [MIB] [COMPUTE_MS] [ROUNDS], under
// collx_run -n 2, with --hosts 2 over sockets. The computation either keeps this rank's core busy, or waits for a
// device and leaves the core free, which is also what a spare core would be to the thread. Markdown: one line per way.
//   hidden: (sum alone + computation alone - both together) / the shorter of the two; medians.
#include <collx/collx.hpp>
#include <collx/comm/progress.hpp>
#include <collx/core/clock.hpp>
#include <collx/net.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <vector>

namespace {

double ms_since(std::int64_t begin) { return static_cast<double>(collx::now_ns() - begin) / 1e6; }
double cpu_ms() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

// Multiplications that nothing can leave out: the same work each time, not the same time.
double multiply(std::int64_t times) {
    double x = 1;
    for (std::int64_t i = 0; i < times; ++i) x = x * 0.999999 + 1e-9;
    return x;
}

// Of the slowest rank, so that all print the same.
double median_ms(collx::communicator& w, int rounds, const std::function<void()>& f) {
    std::vector<double> t;
    for (int i = 0; i < rounds; ++i) {
        collx::barrier(w);
        const std::int64_t begin = collx::now_ns();
        f();
        double ms = ms_since(begin);
        collx::all_reduce(w, collx::value(ms), collx::max{});
        t.push_back(ms);
    }
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
}

void measure(collx::communicator& w, std::size_t mib, int compute_ms, int rounds) {
    std::vector<float> x(mib << 18, static_cast<float>(w.rank() + 1));
    auto pair = w.dup(); // its thread must not serve the barriers
    volatile double sink = 0;
    std::int64_t begin = collx::now_ns();
    sink = multiply(20'000'000);
    const auto times = static_cast<std::int64_t>(20e6 * compute_ms / ms_since(begin));
    const auto sum = [&] { collx::async::all_reduce(pair, x, collx::max{}).wait(); };
    sum();
    const double alone = median_ms(w, rounds, sum);
    for (const bool is_busy : {false, true}) {
        const auto compute = [&] {
            if (is_busy) sink = multiply(times);
            else collx::detail::nap_ns(compute_ms * 1'000'000);
        };
        const double computing = median_ms(w, rounds, compute);
        for (const bool has_thread : {false, true}) {
            if (has_thread) (void)pair.with(collx::progress::thread{});
            else (void)pair.with(collx::progress::calls{});
            const double both = median_ms(w, rounds, [&] {
                auto under_way = collx::async::all_reduce(pair, x, collx::max{});
                compute();
                under_way.wait();
            });
            if (w.rank() == 0)
                std::printf("| %s | %s | %.1f | %.1f | %.1f | %.0f %% |\n", is_busy ? "busy core" : "free core",
                            has_thread ? "thread" : "calls", alone, computing, both,
                            100 * (alone + computing - both) / std::min(alone, computing));
        }
    }
    collx::barrier(w);
    const double cpu = cpu_ms();
    begin = collx::now_ns();
    collx::detail::nap_ns(1'000'000'000);
    if (w.rank() == 0) std::printf("\nidle thread: %.3f %% of a core\n", 100 * (cpu_ms() - cpu) / ms_since(begin));
    if (sink > 1e9 || x[0] != static_cast<float>(w.size())) throw std::runtime_error("overlap: a result is wrong");
}

} // namespace

int main(int argc, char** argv) {
    try {
        collx::communicator w;
        const auto number = [&](int i, int usual) { return argc > i ? std::max(1, std::atoi(argv[i])) : usual; };
        if (w.rank() == 0)
            std::puts("| computation | moved by | sum alone, ms | computation alone | both | hidden |\n"
                      "|---|---|---:|---:|---:|---:|");
        measure(w, static_cast<std::size_t>(number(1, 64)), number(2, 20), number(3, 9));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
