// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are threads of one process and share one device: calls of a communicator by kernels of several launches
// that wait for each other, each rank in its own stream. Every size, many calls in a row with late ranks, a graph,
// and the cost of a call for host and device ("shared,…" lines). scripts/gpu builds and runs it. Exits with 77 if
// there is no GPU, or if two grids do not run concurrently.
//
//   shared [--short]
//   --ahead CALLS     calls that a rank launches before it waits; default 32
//   --apart STREAMS   two ranks with their streams made this far apart: tests which streams share a queue
//   --ranks RANKS     only this number of ranks, instead of 2, 3, 4 and 8
//   --lanes LANES     lanes of each rank's kernels; default: three quarters of the device
//   --deadline S      of a call; default 20. After half of it without a result the stacks of all threads are shown
//   --no-graphs       leaves out the graphs
//   --lazy            lets CUDA load the program's own kernels at their first launch: then ranks wait forever
//   --marks           if progress stops, reports how far each rank's stream is and which new kernels still begin
//   --serial          ranks launch their first call one after the other, once the streams of all are empty
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "stacks.hpp"
#include "support.hpp"

#include <collx/collx.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/gpu/calls.cuh>

using namespace collx;
using device::require_cuda;

namespace {

bool is_short = false, has_route = true;
int ahead = 32; // calls that a rank launches before it waits
int apart = 1;  // a rank makes its stream this many streams after the previous rank
int only_ranks = 0, lanes = 0, seconds = 20;
std::atomic<int> turn{0}; // of the ranks of a team
bool is_lazy = false, has_graphs = true, has_marks = false, is_serial = false;

__global__ void fill(float* x, std::size_t n, float first) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        x[i] = first + static_cast<float>(i % 5);
}
// Counts elements other than first + scale * (i % 5), where i starts at `from` in parts of `part`.
__global__ void compare(const float* x, std::size_t n, float first, float scale, std::size_t part, std::size_t from,
                        unsigned long long* wrong) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (x[i] != first + scale * static_cast<float>((from + i % part) % 5)) atomicAdd(wrong, 1ull);
}
// Occupies a rank's stream, so that its next kernel begins late.
__global__ void delay(unsigned cycles) {
    const auto began = clock64();
    while (static_cast<unsigned long long>(clock64() - began) < cycles) {
    }
}

// How far each rank's stream is in its first collectives, in host memory; 8 ranks, then one word for new streams.
volatile unsigned* reached = nullptr;
__global__ void mark(volatile unsigned* at, unsigned step) { *at = step; }
// Like a kernel of a call: one block fills a multiprocessor's registers.
__global__ void __launch_bounds__(512, 1) wide(volatile unsigned* at, unsigned n) {
    unsigned x[80];
#pragma unroll
    for (unsigned i = 0; i < 80; ++i) x[i] = at[i % 8] + n * i;
#pragma unroll 1
    for (unsigned k = 0; k < n; ++k) {
#pragma unroll
        for (unsigned i = 0; i < 80; ++i) x[i] = x[i] * x[(i + 7) % 80] + k;
    }
    unsigned sum = 0;
#pragma unroll
    for (unsigned i = 0; i < 80; ++i) sum ^= x[i];
    if (sum == 12345) *at = sum;
}
void reach(const communicator& w, cudaStream_t s, unsigned step) {
    if (reached != nullptr && w.rank() < 8) mark<<<1, 1, 0, s>>>(reached + w.rank(), step);
}
void make_marks() {
    unsigned* words = nullptr;
    cudaFuncAttributes a;
    require_cuda(cudaHostAlloc(&words, 64, cudaHostAllocMapped | cudaHostAllocPortable), "allocating");
    require_cuda(cudaFuncGetAttributes(&a, mark), "loading a kernel");
    require_cuda(cudaFuncGetAttributes(&a, wide), "loading a kernel");
    std::printf("the wide kernel has %d registers, %zu bytes of local memory\n", a.numRegs, a.localSizeBytes);
    std::memset(words, 0, 64);
    reached = words; // also visible to the device
}
void show_reached() {
    if (reached == nullptr) return;
    std::fprintf(stderr, "reached:");
    for (int r = 0; r < 8; ++r) std::fprintf(stderr, " %u", reached[r]);
    std::fprintf(stderr, "\n");
    using clock = std::chrono::steady_clock;
    const auto tries = [](const char* what, auto launch) {
        cudaStream_t s = nullptr;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        const auto begun = clock::now();
        launch(s);
        const auto launched = clock::now();
        cudaError_t e = cudaErrorNotReady;
        while ((e = cudaStreamQuery(s)) == cudaErrorNotReady && clock::now() - begun < std::chrono::milliseconds(100)) {
        }
        std::fprintf(stderr, "%s in a new stream: launched in %.3f ms, %s after %.3f ms\n", what,
                     std::chrono::duration<double, std::milli>(launched - begun).count(), cudaGetErrorName(e),
                     std::chrono::duration<double, std::milli>(clock::now() - begun).count());
    };
    tries("one thread", [](cudaStream_t s) { mark<<<1, 1, 0, s>>>(reached + 8, 1); });
    tries("132 x 1024 threads", [](cudaStream_t s) { mark<<<132, 1024, 0, s>>>(reached + 8, 1); });
    for (int i = 0; i < 2; ++i)
        tries("12 x 512 threads of many registers", [](cudaStream_t s) { wide<<<12, 512, 0, s>>>(reached + 8, 1); });
    tries("36 x 512 threads of many registers", [](cudaStream_t s) { wide<<<36, 512, 0, s>>>(reached + 8, 1); });
}

// CUDA loads a kernel at its first launch, and may wait for everything on the device to do so. That hangs if a
// running collective waits for the rank of that launch. use_device() loads the kernels of collx; a program whose
// ranks are threads must load its own.
void load_kernels() {
    cudaFuncAttributes a;
    require_cuda(cudaFuncGetAttributes(&a, fill), "loading a kernel");
    require_cuda(cudaFuncGetAttributes(&a, compare), "loading a kernel");
    require_cuda(cudaFuncGetAttributes(&a, delay), "loading a kernel");
}

// The memory of one rank. It is allocated before the first call and freed after the last: freeing memory waits for
// the device, and so for kernels that wait for this rank.
struct rank_memory {
    float *x = nullptr, *y = nullptr;
    unsigned long long* wrong = nullptr;
    cudaStream_t s = nullptr;
    explicit rank_memory(std::size_t elems) {
        require_cuda(cudaMalloc(&x, elems * sizeof(float)), "allocating");
        require_cuda(cudaMalloc(&y, elems * sizeof(float)), "allocating");
        require_cuda(cudaMalloc(&wrong, sizeof *wrong), "allocating");
        require_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
        require_cuda(cudaMemsetAsync(wrong, 0, sizeof *wrong, s), "clearing");
    }
    ~rank_memory() {
        cudaFree(x);
        cudaFree(y);
        cudaFree(wrong);
        cudaStreamDestroy(s);
    }
    rank_memory(const rank_memory&) = delete;
    void put(std::size_t n, float first) const { fill<<<8, 256, 0, s>>>(x, n, first); }
    void look(std::size_t n, float first, float scale, std::size_t part, std::size_t from = 0) const {
        compare<<<8, 256, 0, s>>>(y, n, first, scale, part, from, wrong);
    }
    unsigned long long count() const {
        unsigned long long n = 0;
        require_cuda(cudaMemcpyAsync(&n, wrong, sizeof n, cudaMemcpyDeviceToHost, s), "reading");
        require_cuda(cudaStreamSynchronize(s), "reading");
        return n;
    }
};

void collectives(communicator& w, const rank_memory& m, std::size_t n) {
    const auto all = static_cast<std::size_t>(w.size()), me = static_cast<std::size_t>(w.rank());
    const auto ranks = static_cast<float>(w.size()), sum = ranks * (ranks + 1) / 2, mine = static_cast<float>(me + 1);
    const device_view<float> x(m.x, n), y(m.y, n), wide_x(m.x, n * all), wide_y(m.y, n * all);
    const device_call_options o{.stream = m.s};
    reach(w, m.s, 1);
    m.put(n, mine);
    reach(w, m.s, 2);
    if (is_serial) { // without calls of the communicator, whose order is compared
        require_cuda(cudaStreamSynchronize(m.s), "waiting");
        barrier(w);
        while (turn % w.size() != w.rank()) std::this_thread::yield();
    }
    all_reduce(w, x, y, plus{}, o);
    if (is_serial) ++turn;
    reach(w, m.s, 3);
    m.look(n, sum, ranks, n);
    m.put(n, mine + 1);
    all_reduce(w, x, y, collx::max{}, o);
    reach(w, m.s, 4);
    m.look(n, ranks + 1, 1, n);
    all_gather(w, x, wide_y, o);
    for (std::size_t k = 0; k < all; ++k)
        compare<<<8, 256, 0, m.s>>>(m.y + k * n, n, static_cast<float>(k + 2), 1, n, 0, m.wrong);
    m.put(n * all, mine);
    reduce_scatter(w, wide_x, y, plus{}, o);
    m.look(n, sum, ranks, n, me * n);
    all_to_all(w, wide_x, wide_y, o);
    for (std::size_t k = 0; k < all; ++k)
        compare<<<8, 256, 0, m.s>>>(m.y + k * n, n, static_cast<float>(k + 1), 1, n, me * n, m.wrong);
    broadcast(w, x, {.stream = m.s, .root = w.size() - 1});
    compare<<<8, 256, 0, m.s>>>(m.x, n, ranks, 1, n, 0, m.wrong);
    scan(w, x, y, plus{}, o);
    m.look(n, ranks * mine, mine, n);
    synchronize(w, o);
    stacks::passed();
}

// Many calls in a row with new values and lengths; checks all results. At most `ahead` calls are launched before a
// wait: a thread whose launch waits for space in the device's queue prevents other threads from launching what its
// kernels wait for.
void in_a_row(communicator& w, const rank_memory& m, int calls) {
    const auto ranks = static_cast<float>(w.size());
    for (int call = 0; call < calls; ++call) {
        const std::size_t n = 1 + static_cast<std::size_t>(call) * 37 % 5000;
        const auto step = static_cast<float>(call % 97);
        m.put(n, static_cast<float>(w.rank() + 1) + step);
        if (call % 8 == w.rank()) delay<<<1, 1, 0, m.s>>>(static_cast<unsigned>(call % 31) * 500);
        all_reduce(w, device_view<float>(m.x, n), device_view<float>(m.y, n), plus{}, {.stream = m.s});
        m.look(n, ranks * (ranks + 1) / 2 + ranks * step, ranks, n);
        if (call % ahead == ahead - 1) {
            synchronize(w, {.stream = m.s});
            stacks::passed();
        }
    }
    synchronize(w, {.stream = m.s});
}

void replayed(communicator& w, const rank_memory& m, std::size_t n, int times) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    m.put(n, 1);
    require_cuda(cudaStreamBeginCapture(m.s, cudaStreamCaptureModeThreadLocal), "capturing");
    all_reduce(w, device_view<float>(m.x, n), device_view<float>(m.y, n), average{}, {.stream = m.s});
    all_reduce(w, device_view<float>(m.y, n), collx::max{}, {.stream = m.s});
    require_cuda(cudaStreamEndCapture(m.s, &graph), "capturing");
    require_cuda(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
    barrier(w);
    for (int i = 0; i < times; ++i) {
        require_cuda(cudaGraphLaunch(ready, m.s), "launching a graph");
        if (i % ahead == ahead - 1) {
            synchronize(w, {.stream = m.s});
            stacks::passed();
        }
    }
    m.look(n, 1, 1, n);
    synchronize(w, {.stream = m.s});
    // A barrier of the host. Instantiating and destroying a graph may wait for the device, and so for kernels of
    // other ranks that wait for this rank's next call.
    barrier(w);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    barrier(w);
}

// Times per call in a sequence: the host's part, and the total. Median of several batches.
void measure(communicator& w, const rank_memory& m, std::size_t n) {
    using clock = std::chrono::steady_clock;
    const device_view<float> x(m.x, n), y(m.y, n);
    const int calls = n > 1'000'000 ? 10 : 100;
    std::vector<double> host, whole;
    for (int batch = 0; batch < 9; ++batch) {
        synchronize(w, {.stream = m.s});
        barrier(w);
        const auto begun = clock::now();
        for (int i = 0; i < calls; ++i) all_reduce(w, x, y, plus{}, {.stream = m.s});
        const auto launched = clock::now();
        synchronize(w, {.stream = m.s});
        const auto done = clock::now();
        stacks::passed();
        host.push_back(std::chrono::duration<double, std::micro>(launched - begun).count() / calls);
        whole.push_back(std::chrono::duration<double, std::micro>(done - begun).count() / calls);
    }
    std::sort(host.begin(), host.end());
    std::sort(whole.begin(), whole.end());
    if (w.rank() == 0)
        std::printf("shared,all_reduce,%d,%zu,%.2f,%.2f,host %.2f us\n", w.size(), n * sizeof(float), whole[4],
                    static_cast<double>(n * sizeof(float)) / whole[4] / 1000, host[4]);
}

// One rank after the other, before anything else makes streams, so that neighbours' streams are `apart`.
void make_in_turn(communicator& w, std::optional<rank_memory>& made, std::size_t elems) {
    for (int r = 0; r < w.size(); ++r) {
        if (r == w.rank()) {
            for (int i = 1; i < apart && r > 0; ++i) {
                cudaStream_t other = nullptr; // kept until the end of the program
                require_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "making a stream");
            }
            made.emplace(elems);
        }
        barrier(w);
    }
}

void run_rank(communicator& w, int processors) {
    const int ranks = w.size();
    const auto say = [&](const std::string& what) {
        if (w.rank() == 0) {
            std::printf("%d ranks: %s\n", ranks, what.c_str());
            std::fflush(stdout);
        }
    };
    require_cuda(cudaSetDevice(0), "choosing a device");
    w.set_timeout(std::chrono::seconds(seconds));
    if (is_serial) w.set_checked(false); // comparing calls would make the ranks start together
    device_settings settings;
    // A quarter of the device remains for the program's own kernels, which run while ranks wait for each other.
    settings.shares_device = true;
    settings.lanes = lanes > 0 ? lanes : std::min(32, processors * 3 / 4 / ranks);
    std::vector<std::size_t> sizes{1, 1000, 16'384, 70'001};
    if (!is_short) sizes.push_back(4'000'003);
    const std::size_t most = sizes.back();
    std::optional<rank_memory> made;
    make_in_turn(w, made, most * static_cast<std::size_t>(ranks));
    const rank_memory& m = *made;
    use_device(w, settings);
    const std::string route = device_route(w);
    say(route);
    if (route.find("kernels over") != 0) return void(has_route = false);
    for (const std::size_t n : sizes) {
        collectives(w, m, n);
        say("collectives of " + std::to_string(n) + " done");
    }
    in_a_row(w, m, is_short ? 300 : 25'000); // 100,000 for the four numbers of ranks together
    say("calls in a row done");
    if (has_graphs) {
        replayed(w, m, 1000, is_short ? 5 : 2000);
        replayed(w, m, 70'001, 5);
        say("graphs done");
    }
    expect(m.count() == 0, std::to_string(ranks) + " ranks of one device: " + std::to_string(m.count()) + " wrong");
    for (const std::size_t n : {std::size_t{2}, std::size_t{2048}, std::size_t{16'384}, std::size_t{65'536},
                                std::size_t{1} << 18, std::size_t{1} << 20, std::size_t{1} << 22})
        if (n <= most) measure(w, m, n);
    barrier(w);
}

void share(int ranks, int processors) {
    turn = 0;
    run_threads(ranks, [&](communicator& w) {
        try {
            run_rank(w, processors);
        } catch (const std::exception& e) { // of each rank: the first exception may not be the cause
            std::printf("rank %d: %s\n", w.rank(), e.what());
            std::fflush(stdout);
            throw;
        }
    });
}

} // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto number = [&] { return ++i < argc ? std::atoi(argv[i]) : 0; };
        if (word == "--short") is_short = true;
        else if (word == "--ahead") ahead = number();
        else if (word == "--apart") {
            is_short = true;
            only_ranks = 2;
            seconds = 3;
            apart = number();
        } else if (word == "--ranks") only_ranks = number();
        else if (word == "--lanes") lanes = number();
        else if (word == "--no-graphs") has_graphs = false;
        else if (word == "--lazy") is_lazy = true;
        else if (word == "--marks") has_marks = true;
        else if (word == "--serial") is_serial = true;
        else if (word == "--deadline") seconds = number();
        else {
            std::printf("usage: the comment at the top of tests/gpu/shared.cu\n");
            return 2;
        }
    }
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); // otherwise streams that share a queue would wait for each other
    int devices = 0, processors = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip();
    try {
        require_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "asking a device");
        if (!is_lazy) load_kernels();
        if (has_marks) make_marks();
        const stacks::watch watch(std::chrono::seconds(seconds) / 2, show_reached);
        for (const int ranks : {2, 3, 4, 8})
            if ((only_ranks == 0 || ranks == only_ranks) && processors * 3 / 4 >= ranks) share(ranks, processors);
    } catch (const std::exception& e) {
        return finish(e.what());
    }
    if (!has_route) {
        std::printf("SKIPPED: kernels of two launches do not run side by side here\n");
        return 77;
    }
    return finish();
}
