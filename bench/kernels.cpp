// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-bench: needs=benchmark
//
// What a call costs inside, with Google Benchmark: the loops that touch the bytes (exec/loops.hpp), and the whole
// path of an all_reduce of 8 bytes that was planned before, on one rank: checks, selection, cursor, arithmetic, and
// no waits. Shows instructions too where the kernel lets a program count its own.
#include <benchmark/benchmark.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include <collx/collx.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/exec/loops.hpp>

namespace {

// Instructions of this thread in user mode, from its making on.
class instruction_count {
public:
    instruction_count() {
        perf_event_attr what;
        std::memset(&what, 0, sizeof what);
        what.size = sizeof what;
        what.type = PERF_TYPE_HARDWARE;
        what.config = PERF_COUNT_HW_INSTRUCTIONS;
        what.exclude_kernel = 1;
        what.exclude_hv = 1;
        file_ = static_cast<int>(::syscall(SYS_perf_event_open, &what, 0, -1, -1, 0));
    }
    instruction_count(const instruction_count&) = delete;
    ~instruction_count() {
        if (file_ >= 0) ::close(file_);
    }
    // A machine that does not count shows no column, rather than zeros.
    void report(benchmark::State& state) const {
        std::uint64_t count = 0;
        if (file_ < 0 || ::read(file_, &count, sizeof count) != sizeof count || count == 0) return;
        state.counters["instructions"] =
            benchmark::Counter(static_cast<double>(count), benchmark::Counter::kAvgIterations);
    }

private:
    int file_;
};

constexpr int most_sources = 9;

// range(0): bytes of one array; range(1): sources; range(2): destinations.
template <class T>
void fold(benchmark::State& state) {
    const std::size_t n = static_cast<std::size_t>(state.range(0)) / sizeof(T);
    const int sources = static_cast<int>(state.range(1));
    std::vector<std::vector<T>> in(most_sources, std::vector<T>(n, T(1)));
    std::vector<T> first(n), second(n);
    const T* from[most_sources];
    for (int k = 0; k < sources; ++k) from[k] = in[static_cast<std::size_t>(k)].data();
    T* const also = state.range(2) == 2 ? second.data() : nullptr;
    const instruction_count instructions;
    for (auto _ : state) {
        if (also == nullptr) collx::fold_arrays(collx::plus{}, first.data(), from, sources, n);
        else collx::fold_for_others(collx::plus{}, first.data(), &also, 1, from, sources, n);
        benchmark::ClobberMemory();
    }
    instructions.report(state);
    if (first[n - 1] != T(sources)) state.SkipWithError("The sum is wrong.");
    // Bytes read and written.
    state.SetBytesProcessed(state.iterations() * state.range(0) * (state.range(1) + state.range(2)));
}
void fold_shapes(benchmark::internal::Benchmark* b) {
    b->ArgNames({"bytes", "sources", "to"});
    for (int bytes : {64, 4 << 10, 256 << 10})
        for (int sources : {1, 2, 4, 8})
            for (int destinations : {1, 2}) b->Args({bytes, sources, destinations});
}
BENCHMARK_TEMPLATE(fold, float)->Apply(fold_shapes);
BENCHMARK_TEMPLATE(fold, double)->Args({4 << 10, 2, 1})->ArgNames({"bytes", "sources", "to"});
BENCHMARK_TEMPLATE(fold, std::int8_t)->Args({4 << 10, 2, 1})->ArgNames({"bytes", "sources", "to"});

template <class Call>
void on_one_rank(benchmark::State& state, Call&& call) {
    collx::run_threads(1, [&](collx::communicator& world) {
        world.set_checked(false);
        std::int64_t x = 1;
        call(world, x); // plans it
        const instruction_count instructions;
        for (auto _ : state) {
            call(world, x);
            benchmark::DoNotOptimize(x);
        }
        instructions.report(state);
        if (x != 1) state.SkipWithError("The result is wrong.");
    });
}

void planned_all_reduce_of_8_bytes(benchmark::State& state) {
    on_one_rank(state, [](collx::communicator& world, std::int64_t& x) { collx::all_reduce(world, collx::value(x)); });
}
BENCHMARK(planned_all_reduce_of_8_bytes);

// A copy whose destination lies so many bytes further into its page than the source into its own.
template <bool ByMemcpy>
void copy_ahead(benchmark::State& state) {
    const auto n = static_cast<std::size_t>(state.range(0)), ahead = static_cast<std::size_t>(state.range(1));
    std::vector<std::byte> room(2 * n + 3 * 4096);
    std::byte* const from = room.data() + (4096 - reinterpret_cast<std::uintptr_t>(room.data()) % 4096);
    std::byte* const to = from + (n + 4095) / 4096 * 4096 + ahead;
    for (auto _ : state) {
        if (ByMemcpy) std::memcpy(to, from, n);
        else collx::copy_bytes(to, from, n);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(n));
}
BENCHMARK_TEMPLATE(copy_ahead, true)->ArgsProduct({{4 << 10, 64 << 10}, {0, 4, 16, 32}})->ArgNames({"bytes", "ahead"});
BENCHMARK_TEMPLATE(copy_ahead, false)->ArgsProduct({{4 << 10, 64 << 10}, {0, 4, 16, 32}})->ArgNames({"bytes", "ahead"});

void planned_broadcast_of_8_bytes(benchmark::State& state) {
    on_one_rank(state, [](collx::communicator& world, std::int64_t& x) { collx::broadcast(world, collx::value(x)); });
}
BENCHMARK(planned_broadcast_of_8_bytes);

} // namespace

BENCHMARK_MAIN();
