// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives between devices, a thread and a rank for each, by calls and by a replayed graph. bench/gpu/side_by_side
// runs it beside NCCL and others. Results are checked once before a point is timed: a wrong one ends the program.
//   between [--ranks N] [--from BYTES] [--to BYTES] [--factor F] [--ops all_reduce,...] [--variants calls,graph]
// Lines of CSV:
//   op,variant,ranks,bytes,us,algbw_GBps,busbw_GBps
// bytes and both rates as nccl-tests count them: of all_gather what a rank gets, of all others what it gives.
// us: of one call, the slowest rank's median of five batches. Exits with 77 where there are fewer than two devices.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <thrust/device_vector.h>

#include <collx/collx.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/gpu/calls.cuh>

using namespace collx;
using device::require_cuda;

namespace {

struct settings {
    int ranks = 0; // as many as there are devices
    std::size_t from = 8, to = std::size_t{256} << 20, factor = 4;
    std::string ops = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast", variants = "calls,graph";
    static bool has(const std::string& list, const std::string& word) {
        return ("," + list + ",").find("," + word + ",") != std::string::npos;
    }
};

struct stream {
    cudaStream_t s = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    stream() {
        require_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
        require_cuda(cudaEventCreate(&begin), "making an event");
        require_cuda(cudaEventCreate(&end), "making an event");
    }
    ~stream() {
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        cudaStreamDestroy(s);
    }
};

// Element i of what rank r gives: small whole numbers, so that sums are exact.
COLLX_HD inline float given(int r, std::size_t i) {
    return static_cast<float>((i + static_cast<std::size_t>(r) * 3) % 7);
}

thrust::device_vector<float> gifts(int rank, std::size_t n) {
    std::vector<float> host(n);
    for (std::size_t i = 0; i < n; ++i) host[i] = given(rank, i);
    return {host.begin(), host.end()};
}

// One operation and size on one rank: what it calls, and what each element of its result must be.
template <class Call, class Expected>
class point {
public:
    point(communicator& w, stream& s, const thrust::device_vector<float>& out, const Call& call,
          const Expected& expected)
        : w_(w), s_(s), out_(out), call_(call), expected_(expected) {}

    // Elements that are wrong, on all ranks.
    std::size_t wrong() {
        call_();
        synchronize(w_, {.stream = s_.s});
        std::vector<float> host(out_.size());
        require_cuda(cudaMemcpy(host.data(), out_.data().get(), host.size() * sizeof(float), cudaMemcpyDeviceToHost),
                     "reading");
        std::size_t bad = 0;
        for (std::size_t i = 0; i < host.size(); ++i) bad += host[i] != expected_(i);
        all_reduce(w_, value(bad));
        return bad;
    }
    double calls_us() { return time_us(call_, 1); }
    double graph_us() {
        constexpr int calls = 10;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        require_cuda(cudaStreamBeginCapture(s_.s, cudaStreamCaptureModeThreadLocal), "capturing");
        for (int i = 0; i < calls; ++i) call_();
        require_cuda(cudaStreamEndCapture(s_.s, &graph), "capturing");
        require_cuda(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
        const double us = time_us([&] { require_cuda(cudaGraphLaunch(ready, s_.s), "launching a graph"); }, calls);
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
        return us;
    }

private:
    // us of each of the calls that f makes, on the slowest rank.
    template <class F>
    double time_us(const F& f, int calls) {
        const auto batch = [&](int count) {
            barrier(w_); // of the threads: all ranks launch from now on
            require_cuda(cudaEventRecord(s_.begin, s_.s), "measuring");
            for (int i = 0; i < count; ++i) f();
            require_cuda(cudaEventRecord(s_.end, s_.s), "measuring");
            synchronize(w_, {.stream = s_.s});
            float ms = 0;
            require_cuda(cudaEventElapsedTime(&ms, s_.begin, s_.end), "measuring");
            double us = 1000.0 * ms / count / calls;
            all_reduce(w_, value(us), collx::max{});
            return us;
        };
        const double first = batch(2) * calls; // the same on all ranks, and so is what follows from it
        const int count = std::clamp(static_cast<int>(10'000 / (first + 0.1)), 3, 100);
        std::vector<double> times;
        for (int i = 0; i < 5; ++i) times.push_back(batch(count));
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }
    communicator& w_;
    stream& s_;
    const thrust::device_vector<float>& out_;
    const Call& call_;
    const Expected& expected_;
};

class session {
public:
    session(communicator& w, const settings& set) : w_(w), set_(set) {}

    void at(std::size_t bytes) {
        const auto n = static_cast<std::size_t>(w_.size());
        const std::size_t elems = bytes / sizeof(float), part = elems / n;
        const int me = w_.rank(), ranks = w_.size();
        const double others = static_cast<double>(n - 1) / static_cast<double>(n);
        const device_call_options o{.stream = s_.s};
        const auto in = gifts(me, elems), small = gifts(me, part);
        thrust::device_vector<float> out(elems), least(part), same = gifts(0, elems);
        require_cuda(cudaDeviceSynchronize(), "filling");
        const auto sum = [ranks](std::size_t i) {
            float x = 0;
            for (int r = 0; r < ranks; ++r) x += given(r, i);
            return x;
        };
        const auto first = static_cast<std::size_t>(me) * part;
        measure(
            "all_reduce", bytes, 2 * others, out, [&] { all_reduce(w_, in, out, plus{}, o); }, sum);
        // From the root's buffer, which the others begin with nothing in.
        if (me != 0) thrust::fill(same.begin(), same.end(), 0.0f);
        require_cuda(cudaDeviceSynchronize(), "filling");
        measure(
            "broadcast", bytes, 1, same, [&] { broadcast(w_, same, {.stream = s_.s, .root = 0}); },
            [](std::size_t i) { return given(0, i); });
        if (part == 0) return;
        thrust::device_vector<float> whole(part * n), exchanged(part * n);
        const auto parts = gifts(me, part * n);
        require_cuda(cudaDeviceSynchronize(), "filling");
        const std::size_t all = part * n * sizeof(float);
        measure(
            "all_gather", all, others, whole, [&] { all_gather(w_, small, whole, o); },
            [=](std::size_t i) { return given(static_cast<int>(i / part), i % part); });
        measure(
            "reduce_scatter", all, others, least, [&] { reduce_scatter(w_, parts, least, plus{}, o); },
            [=](std::size_t i) { return sum(first + i); });
        measure(
            "all_to_all", all, others, exchanged, [&] { all_to_all(w_, parts, exchanged, o); },
            [=](std::size_t i) { return given(static_cast<int>(i / part), first + i % part); });
    }

private:
    template <class Call, class Expected>
    void measure(const char* op, std::size_t bytes, double share, const thrust::device_vector<float>& out,
                 const Call& call, const Expected& expected) {
        if (!settings::has(set_.ops, op)) return;
        point<Call, Expected> p(w_, s_, out, call, expected);
        if (const std::size_t bad = p.wrong(); bad != 0)
            throw std::runtime_error(std::string(op) + " of " + std::to_string(bytes) +
                                     " bytes: " + std::to_string(bad) + " elements are wrong");
        if (settings::has(set_.variants, "calls")) line(op, "calls", bytes, share, p.calls_us());
        if (settings::has(set_.variants, "graph")) line(op, "graph", bytes, share, p.graph_us());
    }
    void line(const char* op, const char* variant, std::size_t bytes, double share, double us) const {
        if (w_.rank() != 0) return;
        const double rate = static_cast<double>(bytes) / us / 1000;
        std::printf("%s,%s,%d,%zu,%.2f,%.2f,%.2f\n", op, variant, w_.size(), bytes, us, rate, share * rate);
        std::fflush(stdout);
    }
    communicator& w_;
    const settings& set_;
    stream s_;
};

void run(const settings& set) {
    std::printf("op,variant,ranks,bytes,us,algbw_GBps,busbw_GBps\n");
    run_threads(set.ranks, [&](communicator& w) {
        require_cuda(cudaSetDevice(w.rank()), "choosing a device");
        w.set_timeout(std::chrono::seconds(60));
        w.set_checked(false); // the host would wait for the other ranks in each call
        use_device(w);
        if (w.rank() == 0) std::fprintf(stderr, "%d ranks, %s\n", w.size(), device_route(w).c_str());
        session s(w, set);
        for (std::size_t bytes = set.from; bytes <= set.to; bytes *= set.factor) s.at(bytes);
    });
}

} // namespace

int main(int argc, char** argv) {
    settings set;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        const unsigned long long number = std::strtoull(argv[i + 1], nullptr, 10);
        if (name == "--ranks") set.ranks = static_cast<int>(number);
        else if (name == "--from") set.from = number;
        else if (name == "--to") set.to = number;
        else if (name == "--factor") set.factor = number;
        else if (name == "--ops") set.ops = argv[i + 1];
        else if (name == "--variants") set.variants = argv[i + 1];
        else argc = 0;
    }
    if (argc % 2 == 0 || set.from < sizeof(float) || set.factor < 2) {
        std::fprintf(stderr,
                     "usage: between [--ranks N] [--from BYTES (4 or more)] [--to BYTES] [--factor F (2 or more)] "
                     "[--ops LIST] [--variants LIST]\n");
        return 2;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) {
        std::fprintf(stderr, "SKIPPED: needs two GPUs, there are %d\n", devices);
        return 77;
    }
    if (set.ranks == 0) set.ranks = devices;
    if (set.ranks < 2 || set.ranks > devices) {
        std::fprintf(stderr, "between: --ranks is 2 to %d, the number of devices\n", devices);
        return 2;
    }
    try {
        run(set);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
