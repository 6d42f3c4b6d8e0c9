// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Windows in device memory, used from kernels. Ranks are threads with a device each if there are enough, otherwise
// they share the first. A stencil, a hand-written ring, a shared counter, every place and length; errors; and the
// cost of a put with a signal ("windows,…" lines). scripts/gpu builds and runs it. Exits with 77 if there is no GPU,
// or if two grids do not run concurrently.
//
//   windows [--short]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include "../support/patience.hpp"
#include "support.hpp"

#include <collx/collx.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/gpu/device_window.cuh>

using namespace collx;
using device::require_cuda;

namespace {

bool is_short = false;
std::string why_not; // set if grids do not run concurrently

// Each rank has a row of the stencil; its part receives the neighbours' edges, of even and of odd steps. One block.
__global__ void stencil(device_window_handle<double> window, double* row, double* next, int width, int steps, int left,
                        int right) {
    auto halo = window.block();
    const auto at = static_cast<int>(threadIdx.x), step_width = static_cast<int>(blockDim.x);
    for (int step = 0; step < steps; ++step) {
        const std::size_t pair = static_cast<std::size_t>(step % 2) * 2;
        halo.put_signal(right, pair, row + width - 1, 1);
        halo.put_signal(left, pair + 1, row, 1);
        if (!halo.wait(left) || !halo.wait(right)) return;
        const double* edges = halo.local();
        for (int i = at; i < width; i += step_width)
            next[i] =
                ((i == 0 ? edges[pair] : row[i - 1]) + 2 * row[i] + (i + 1 == width ? edges[pair + 1] : row[i + 1])) /
                4;
        __syncthreads();
        for (int i = at; i < width; i += step_width) row[i] = next[i];
        __syncthreads();
    }
}

// A hand-written ring all_reduce: block b sums its share of every chunk. Each step has its own place, so no rank
// waits for a free one.
__global__ void ring(device_window_handle<float> window, float* x, std::size_t part) {
    auto in = window.block();
    const int n = in.ranks(), me = in.rank(), to = (me + 1) % n, from = (me + n - 1) % n;
    const std::size_t share = part / gridDim.x, first = share * blockIdx.x;
    const float* mine = in.local();
    for (int s = 0; s < 2 * (n - 1); ++s) {
        const std::size_t place = static_cast<std::size_t>(s) * part + first;
        float* const chunk = x + static_cast<std::size_t>((me - s + 2 * n) % n) * part + first;
        float* const next = x + static_cast<std::size_t>((me - s - 1 + 2 * n) % n) * part + first;
        in.put_signal(to, place, chunk, share);
        if (!in.wait(from)) return;
        for (std::size_t i = threadIdx.x; i < share; i += blockDim.x)
            next[i] = s < n - 1 ? next[i] + mine[place + i] : mine[place + i];
        __syncthreads();
    }
}

__global__ void put_run(device_window_handle<std::uint16_t> window, int peer, std::size_t place,
                        const std::uint16_t* from, std::size_t n) {
    auto w = window.block();
    const std::size_t each = (n + gridDim.x - 1) / gridDim.x, first = n < each * blockIdx.x ? n : each * blockIdx.x;
    w.put(peer, place + first, from + first, n - first < each ? n - first : each);
}
__global__ void get_run(device_window_handle<std::uint16_t> window, int peer, std::size_t place, std::uint16_t* to,
                        std::size_t n) {
    window.block().get(peer, place, to, n);
}
// The same out of the block's shared memory, and into it, some hundred elements at a time.
__global__ void put_tiles(device_window_handle<std::uint16_t> window, int peer, std::size_t place,
                          const std::uint16_t* from, std::size_t n) {
    __shared__ alignas(16) std::uint16_t tile[600];
    auto w = window.block();
    std::uint16_t* const mine = tile + place % 8;
    for (std::size_t first = 0; first < n; first += 592) {
        const std::size_t count = n - first < 592 ? n - first : 592;
        for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) mine[i] = from[first + i];
        __syncthreads();
        w.put(peer, place + first, mine, count);
        __syncthreads();
    }
}
__global__ void get_tiles(device_window_handle<std::uint16_t> window, int peer, std::size_t place, std::uint16_t* to,
                          std::size_t n) {
    __shared__ alignas(16) std::uint16_t tile[600];
    auto w = window.block();
    for (std::size_t first = 0; first < n; first += 600) {
        const std::size_t count = n - first < 600 ? n - first : 600;
        w.get(peer, place + first, tile, count);
        for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) to[first + i] = tile[i];
        __syncthreads();
    }
}

// Every thread takes numbers from rank 0 until none are left.
__global__ void take(device_window_handle<unsigned long long> window, unsigned* taken, unsigned long long most) {
    auto w = window.block();
    for (unsigned long long got = 0; w.fetch_add(0, 0, 1ull, got) && got < most;) atomicAdd(taken + got, 1u);
}
template <class T>
__global__ void add_all(device_window_handle<T> window, int peer, const T* from, std::size_t n) {
    window.block().add(peer, 0, from, n);
}

__global__ void ping_pong(device_window_handle<double> window, const double* from, int peer, int turns, bool begins) {
    auto w = window.block();
    for (int i = 0; i < turns; ++i) {
        if (begins || i > 0) w.put_signal(peer, 0, from, 1);
        if (begins || i + 1 < turns)
            if (!w.wait(peer)) return;
    }
    if (!begins) (void)w.wait(peer), w.put_signal(peer, 0, from, 1);
}
__global__ void put_large(device_window_handle<double> window, int peer, const double* from, std::size_t n, int times) {
    auto w = window.block();
    const std::size_t each = n / gridDim.x, first = each * blockIdx.x;
    for (int i = 0; i < times; ++i) w.put(peer, first, from + first, each);
}
__global__ void outside(device_window_handle<double> window, int peer, const double* from, std::size_t place) {
    window.block().put_signal(peer, place, from, 3);
}
__global__ void wait_for(device_window_handle<double> window, int peer, std::uint64_t count) {
    (void)window.block().wait(peer, count);
}

template <class... K>
void load(K*... kernels) {
    cudaFuncAttributes a;
    (require_cuda(cudaFuncGetAttributes(&a, kernels), "loading a kernel"), ...);
}

template <class T>
class memory {
public:
    explicit memory(std::size_t n) : n_(n) {
        require_cuda(device::allocate_cleared(reinterpret_cast<void**>(&p_), n * sizeof(T)), "allocating");
    }
    memory(const memory&) = delete;
    ~memory() { cudaFree(p_); }
    T* get() const { return p_; }
    void set(const std::vector<T>& x, cudaStream_t s) {
        require_cuda(cudaMemcpyAsync(p_, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice, s), "copying");
        require_cuda(cudaStreamSynchronize(s), "copying");
    }
    std::vector<T> read(cudaStream_t s) const { return read_from(p_, n_, s); }
    static std::vector<T> read_from(const T* p, std::size_t n, cudaStream_t s) {
        std::vector<T> x(n);
        require_cuda(cudaMemcpyAsync(x.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost, s), "copying");
        require_cuda(cudaStreamSynchronize(s), "copying");
        return x;
    }

private:
    T* p_ = nullptr;
    std::size_t n_;
};

// The state of one rank. Memory is allocated before kernels wait for each other, and freed when none waits.
struct rank_state {
    communicator& w;
    cudaStream_t s;
    device_window_options o;
    int left() const { return (w.rank() + w.size() - 1) % w.size(); }
    int right() const { return (w.rank() + 1) % w.size(); }
};

void check_stencil(const rank_state& r) {
    constexpr int width = 300;
    const int steps = is_short ? 10 : 500, n = r.w.size(), me = r.w.rank();
    device_window<double> halo(r.w, 4, r.o);
    std::vector<double> all(static_cast<std::size_t>(width * n)), then(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i * i % 101);
    memory<double> row(width), next(width);
    row.set({all.begin() + me * width, all.begin() + (me + 1) * width}, r.s);
    barrier(r.w);
    stencil<<<1, 128, 0, r.s>>>(halo.on_device(), row.get(), next.get(), width, steps, r.left(), r.right());
    halo.fence(r.s);
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < all.size(); ++i)
            then[i] = (all[(i + all.size() - 1) % all.size()] + 2 * all[i] + all[(i + 1) % all.size()]) / 4;
        all.swap(then);
    }
    const auto mine = row.read(r.s);
    expect(std::equal(mine.begin(), mine.end(), all.begin() + me * width), "the stencil is the serial program's");
}

void check_ring(const rank_state& r) {
    constexpr unsigned blocks = 4;
    const std::size_t part = is_short ? 4096 : 65'536, n = static_cast<std::size_t>(r.w.size());
    device_window<float> in(r.w, part * 2 * n, r.o);
    memory<float> x(part * n);
    std::vector<float> mine(part * n);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(i % 13) + static_cast<float>(r.w.rank());
    x.set(mine, r.s);
    barrier(r.w);
    ring<<<blocks, 256, 0, r.s>>>(in.on_device(), x.get(), part);
    in.fence(r.s);
    const auto sum = x.read(r.s);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sum.size(); ++i)
        wrong += sum[i] != static_cast<float>(n) * static_cast<float>(i % 13) + static_cast<float>(n * (n - 1) / 2);
    expect(wrong == 0, "a ring by hand: " + std::to_string(wrong) + " sums are wrong");
}

void check_places(const rank_state& r) {
    const std::size_t room = 5000;
    device_window<std::uint16_t> x(r.w, room, r.o);
    memory<std::uint16_t> out(room + 16), back(room);
    std::vector<std::uint16_t> there(room), values(room + 16);
    std::minstd_rand dice(5 + static_cast<unsigned>(r.w.rank()));
    std::size_t wrong = 0;
    for (int turn = 0; turn < (is_short ? 12 : 300); ++turn) {
        const std::size_t place = dice() % room, n = dice() % (room - place + 1), from = dice() % 9;
        for (auto& v : values) v = static_cast<std::uint16_t>(dice());
        std::copy_n(values.begin() + static_cast<long>(from), n, there.begin() + static_cast<long>(place));
        out.set(values, r.s);
        if (turn % 2 == 0) x.put(r.right(), place, out.get() + from, n, r.s);
        else if (turn % 4 == 1) put_tiles<<<1, 96, 0, r.s>>>(x.on_device(), r.right(), place, out.get() + from, n);
        else put_run<<<2, 96, 0, r.s>>>(x.on_device(), r.right(), place, out.get() + from, n);
        if (turn % 3 == 0) x.get(r.right(), 0, back.get(), room, r.s);
        else if (turn % 3 == 1) get_tiles<<<1, 96, 0, r.s>>>(x.on_device(), r.right(), 0, back.get(), room);
        else get_run<<<1, 96, 0, r.s>>>(x.on_device(), r.right(), 0, back.get(), room);
        x.synchronize(r.s);
        wrong += back.read(r.s) != there;
    }
    expect(wrong == 0, "puts and gets of any place and length: " + std::to_string(wrong) + " are wrong");
    x.fence(r.s);
}

void check_sums(const rank_state& r) {
    const unsigned long long most = is_short ? 500 : 20'000;
    device_window<unsigned long long> counter(r.w, r.w.rank() == 0 ? 1 : 0, r.o);
    device_window<double> doubles(r.w, 100, r.o);
    device_window<int> ints(r.w, 100, r.o);
    memory<unsigned> taken(most);
    memory<double> half(100);
    memory<int> three(100);
    half.set(std::vector<double>(100, 0.5), r.s);
    three.set(std::vector<int>(100, 3), r.s);
    barrier(r.w);
    take<<<2, 64, 0, r.s>>>(counter.on_device(), taken.get(), most);
    add_all<<<2, 64, 0, r.s>>>(doubles.on_device(), r.w.size() - 1, half.get(), 100);
    add_all<<<1, 64, 0, r.s>>>(ints.on_device(), 0, three.get(), 100);
    counter.synchronize(r.s);
    ints.synchronize(r.s);
    doubles.fence(r.s);
    std::vector<unsigned> all = taken.read(r.s);
    all_reduce(r.w, all);
    expect(std::all_of(all.begin(), all.end(), [](unsigned k) { return k == 1; }),
           "a shared counter gives each number once");
    const auto ranks = r.w.size();
    if (r.w.rank() == ranks - 1)
        for (const double x : memory<double>::read_from(doubles.local(), 100, r.s))
            expect(x == 1.0 * ranks, "added doubles");
    if (r.w.rank() == 0)
        for (const int x : memory<int>::read_from(ints.local(), 100, r.s)) expect(x == 3 * ranks, "added ints");
    barrier(r.w);
}

template <class F>
void expect_error(errc code, int peer, const char* text, F&& f) {
    try {
        f();
        expect(false, std::string("no error: ") + text);
    } catch (const error& e) {
        const bool is_it = e.code() == code && e.peer() == peer && std::strstr(e.what(), text) != nullptr;
        expect(is_it, std::string("another error: ") + e.what());
    }
}

void check_errors(const rank_state& r) {
    memory<double> x(8);
    {
        device_window<double> w(r.w, 10, r.o);
        barrier(r.w);
        if (r.w.rank() == 0) {
            outside<<<1, 32, 0, r.s>>>(w.on_device(), 1, x.get(), 8);
            expect_error(errc::invalid_argument, 1, "an access of 24 bytes at byte 64 of rank 1, whose part has 80",
                         [&] { w.synchronize(r.s); });
        } else {
            wait_for<<<1, 32, 0, r.s>>>(w.on_device(), 0, 1);
            expect_error(errc::aborted, 0, "rank 0 has ended it", [&] { w.synchronize(r.s); });
        }
    }
    {
        device_window<double> w(r.w, 10, r.o);
        w.set_timeout(std::chrono::milliseconds(200));
        barrier(r.w);
        if (r.w.rank() == 0) {
            wait_for<<<2, 32, 0, r.s>>>(w.on_device(), 1, 3);
            expect_error(errc::timeout, 1, "waited too long for signal 3 of rank 1 on line",
                         [&] { w.synchronize(r.s); });
        }
        barrier(r.w);
    }
}

// The round trip between two ranks' kernels, and the bandwidth of a kernel's puts.
void measure(const rank_state& r) {
    using clock = std::chrono::steady_clock;
    const int peer = 1 - r.w.rank(), turns = is_short ? 50 : 2000;
    const std::size_t n = (is_short ? std::size_t{1} : std::size_t{64}) << 17; // 1 or 64 MiB
    device_window<double> w(r.w, n, r.o);
    memory<double> x(n);
    double best = 1e300;
    for (int k = 0; k < 5; ++k) {
        barrier(r.w);
        const auto begun = clock::now();
        ping_pong<<<1, 32, 0, r.s>>>(w.on_device(), x.get(), peer, turns, r.w.rank() == 0);
        w.synchronize(r.s);
        best = std::min(best, std::chrono::duration<double, std::micro>(clock::now() - begun).count() / turns / 2);
    }
    if (r.w.rank() == 0)
        std::printf("windows,put_signal,2,8,%.2f,,one way by a kernel of 32 threads, launch included\n", best);
    const auto rate = [&](auto&& f, int times) {
        double fastest = 1e300;
        for (int k = 0; k < 5; ++k) {
            barrier(r.w);
            const auto begun = clock::now();
            if (r.w.rank() == 0) {
                f();
                w.synchronize(r.s);
            }
            fastest =
                std::min(fastest, std::chrono::duration<double, std::micro>(clock::now() - begun).count() / times);
        }
        return fastest;
    };
    const double put = rate([&] { put_large<<<64, 512, 0, r.s>>>(w.on_device(), peer, x.get(), n, 4); }, 4);
    const double copy = rate(
        [&] {
            for (int i = 0; i < 4; ++i)
                require_cuda(cudaMemcpyAsync(w.local(), x.get(), n * sizeof(double), cudaMemcpyDeviceToDevice, r.s),
                             "copying");
        },
        4);
    const auto bytes = static_cast<double>(n * sizeof(double));
    if (r.w.rank() == 0)
        std::printf("windows,put,2,%.0f,%.2f,%.2f,by a kernel of 64 "
                    "blocks\nwindows,copy,1,%.0f,%.2f,%.2f,cudaMemcpyAsync on the device\n",
                    bytes, put, bytes / put / 1000, bytes, copy, bytes / copy / 1000);
    barrier(r.w);
}

void run_rank(communicator& w, int devices, int processors) {
    require_cuda(cudaSetDevice(devices >= w.size() ? w.rank() : 0), "choosing a device");
    load(stencil, ring, put_run, get_run, put_tiles, get_tiles, take, add_all<double>, add_all<int>, ping_pong,
         put_large, outside, wait_for);
    w.set_timeout(collx_test::patient(std::chrono::seconds(20)));
    rank_state r{w, nullptr, {}};
    r.o.settings.shares_device = devices < w.size();
    r.o.settings.lanes = std::max(1, processors / 2 / w.size());
    for (int k = 0; k < w.size(); ++k) { // one after the other, so that each has its own queue
        if (k == w.rank()) require_cuda(cudaStreamCreateWithFlags(&r.s, cudaStreamNonBlocking), "making a stream");
        barrier(w);
    }
    try {
        const device_window<int> first(w, 1, r.o);
        if (w.rank() == 0) std::printf("%d ranks: %s\n", w.size(), first.route().c_str());
    } catch (const error& e) {
        if (e.code() != errc::unsupported) throw;
        if (w.rank() == 0) why_not = e.what();
        return;
    }
    check_stencil(r);
    check_ring(r);
    check_places(r);
    check_sums(r);
    if (w.size() == 2) {
        check_errors(r);
        measure(r);
    }
    cudaStreamDestroy(r.s);
}

} // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--short") == 0) is_short = true;
        else {
            std::printf("usage: windows [--short]\n");
            return 2;
        }
    }
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); // otherwise streams that share a queue would wait for each other
    int devices = 0, processors = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip();
    try {
        require_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "asking a device");
        for (const int ranks : {2, 3})
            run_threads(ranks, [&](communicator& w) {
                try {
                    run_rank(w, devices, processors);
                } catch (const std::exception& e) { // of each rank: the first exception may not be the cause
                    std::printf("rank %d: %s\n", w.rank(), e.what());
                    std::fflush(stdout);
                    throw;
                }
            });
    } catch (const std::exception& e) {
        return finish(e.what());
    }
    if (!why_not.empty()) {
        std::printf("SKIPPED: %s\n", why_not.c_str());
        return 77;
    }
    return finish();
}
