// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on device memory with an ordinary communicator, on a real device: one rank, processes of one device staged
// through the host or with IPC handles, captured, destroyed while captured, several communicators, errors.
// scripts/gpu builds and runs it. Exits with 77 if there is no GPU.
//
//   calls [--short [--alone]]        runs itself as ranks (not with --alone), then as one rank
//   calls --rank R SIZE STORE CASE   runs one of these ranks
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>

#include "../support/patience.hpp"
#include "support.hpp"

#include <collx/bootstrap/file_store.hpp>
#include <collx/collx.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/gpu/calls.cuh>
#include <collx/gpu/device_group.hpp>
#include <collx/net.hpp>

using namespace collx;
using device::require_cuda;

namespace {

struct stream {
    cudaStream_t s = nullptr;
    stream() { require_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream"); }
    ~stream() { cudaStreamDestroy(s); }
};

// Sums of `ranks` equal inputs with elements i % 7: each element is ranks * (i % 7).
void expect_sums(const thrust::device_vector<float>& x, int ranks, const std::string& what) {
    const std::vector<float> host = on_host(x);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < host.size(); ++i)
        wrong += host[i] != static_cast<float>(ranks * static_cast<int>(i % 7));
    expect(wrong == 0, what + ": " + std::to_string(wrong) + " wrong");
}
thrust::device_vector<float> sevenths(std::size_t n) {
    std::vector<float> host(n);
    for (std::size_t i = 0; i < n; ++i) host[i] = static_cast<float>(i % 7);
    return {host.begin(), host.end()};
}

void collectives(communicator& w, const char* what, const std::vector<std::size_t>& sizes) {
    const int ranks = w.size();
    const auto me = static_cast<std::size_t>(w.rank()), all = static_cast<std::size_t>(ranks);
    for (const std::size_t n : sizes) {
        stream s;
        auto x = sevenths(n), whole = sevenths(n * all);
        thrust::device_vector<float> sum(n), gathered(n * all), part(n), exchanged(n * all);
        const auto numbers = thrust::make_transform_iterator(thrust::make_counting_iterator(0LL), seventh{});
        require_cuda(cudaDeviceSynchronize(), "filling");
        all_reduce(w, input(numbers, n), sum, plus{}, {.stream = s.s}); // computed as it is read
        all_reduce(w, x, plus{}, {.stream = s.s});
        all_gather(w, x, gathered, {.stream = s.s});
        reduce_scatter(w, whole, part, plus{}, {.stream = s.s});
        all_to_all(w, gathered, exchanged, {.stream = s.s});
        broadcast(w, x, {.stream = s.s, .root = ranks - 1});
        synchronize(w, {.stream = s.s});
        const std::string label = std::string(what) + " elements=" + std::to_string(n);
        expect_sums(sum, ranks, label + " all_reduce of an iterator");
        expect_sums(x, ranks, label + " all_reduce in place, broadcast");
        const std::vector<float> g = on_host(gathered), e = on_host(exchanged), p = on_host(part);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < n * all; ++i)
            wrong += (g[i] != static_cast<float>(ranks * static_cast<int>(i % n % 7))) +
                     (e[i] != static_cast<float>(ranks * static_cast<int>(i % n % 7)));
        for (std::size_t i = 0; i < n; ++i)
            wrong += p[i] != static_cast<float>(ranks * static_cast<int>((me * n + i) % 7));
        expect(wrong == 0, label + " all_gather, all_to_all, reduce_scatter");
    }
}

// Calls with parts: rank r's part has (r + 1) * n elements of i % 7, except in scans.
void parts(communicator& w, const char* what, std::size_t n) {
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    const auto all = static_cast<std::size_t>(ranks);
    const std::string label = std::string(what) + " elements=" + std::to_string(n);
    stream s;
    std::vector<std::size_t> counts, to_me(all, 0), from_me(all, 0);
    std::size_t total = 0;
    for (int r = 0; r < ranks; ++r) {
        counts.push_back(static_cast<std::size_t>(r + 1) * n);
        total += counts.back();
    }
    const std::size_t mine = counts[static_cast<std::size_t>(me)], from_last = counts[static_cast<std::size_t>(last)];
    from_me[static_cast<std::size_t>(next)] = mine;
    to_me[static_cast<std::size_t>(last)] = from_last;
    auto one = sevenths(n), two = sevenths(n + 1), three = sevenths(n), four = sevenths(n), five = sevenths(n),
         part = sevenths(mine), scanned = sevenths(n), before = sevenths(n), sums = sevenths(total),
         seed = sevenths(me == ranks - 1 ? n : 0);
    seed.resize(n);
    thrust::device_vector<float> gathered(n * all), back(n), whole(total), root_whole(total), root_back(mine),
        moved(from_last), sent(from_last), in_group(from_last), in_chain(from_last), in_ready_chain(from_last),
        reduced(mine);
    require_cuda(cudaDeviceSynchronize(), "filling");
    gather(w, one, gathered, {.stream = s.s});
    scatter(w, gathered, back, {.stream = s.s});
    scan(w, scanned, plus{}, {.stream = s.s});
    exclusive_scan(w, before, plus{}, {.stream = s.s});
    all_gather_v(w, part, whole, counts, {}, {.stream = s.s});
    gather_v(w, part, root_whole, counts, {}, {.stream = s.s});
    scatter_v(w, root_whole, root_back, counts, {}, {.stream = s.s});
    reduce_scatter_v(w, sums, reduced, counts, plus{}, {.stream = s.s});
    all_to_all_v(w, part, from_me, moved, to_me, {.stream = s.s});
    sendrecv(w, part, next, sent, last, {.stream = s.s});
    device_group g(w);
    g.send(part, next);
    g.recv(in_group, last);
    // the third call uses the output of the second
    g.all_reduce(one);
    g.all_reduce(two);
    g.all_reduce(two);
    g.launch({.stream = s.s});
    // Calls of several kinds: one kernel.
    device_group(w)
        .send(part, next)
        .recv(in_chain, last)
        .all_reduce(three)
        .broadcast(seed, ranks - 1)
        .launch({.stream = s.s});
    // The same kernels, prepared once and launched twice.
    auto sum = persistent::all_reduce(w, four, plus{}, {.stream = s.s});
    auto chain = persistent::device_group(w)
                     .send(part, next)
                     .recv(in_ready_chain, last)
                     .all_reduce(five)
                     .broadcast(seed, ranks - 1)
                     .launch({.stream = s.s});
    for (int k = 0; k < 2; ++k) {
        sum();
        chain();
    }
    barrier(w, device_call_options{.stream = s.s});
    synchronize(w, {.stream = s.s});
    expect_sums(back, 1, label + " gather, scatter");
    expect_sums(scanned, me + 1, label + " scan");
    if (me > 0) expect_sums(before, me, label + " exclusive_scan");
    expect_sums(root_back, 1, label + " gather_v, scatter_v");
    for (const auto* x : {&moved, &sent, &in_group, &in_chain, &in_ready_chain})
        expect_sums(*x, 1, label + " all_to_all_v, sendrecv, groups");
    expect_sums(three, ranks, label + " all_reduce in a chain");
    expect_sums(seed, 1, label + " broadcast in a chain");
    expect_sums(four, ranks * ranks, label + " a persistent all_reduce");
    expect_sums(five, ranks * ranks, label + " all_reduce in a persistent chain");
    expect_sums(one, ranks, label + " all_reduce in a group");
    expect_sums(two, ranks * ranks, label + " twice in a group");
    const std::vector<float> h = on_host(whole), r = on_host(reduced);
    std::size_t wrong = 0, at = 0, begin = 0;
    for (int k = 0; k < ranks; ++k) {
        if (k == me) begin = at;
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(k)]; ++i)
            wrong += h[at++] != static_cast<float>(i % 7);
    }
    for (std::size_t i = 0; i < mine; ++i)
        wrong += r[i] != static_cast<float>(ranks * static_cast<int>((begin + i) % 7));
    expect(wrong == 0, label + " all_gather_v, reduce_scatter_v: " + std::to_string(wrong) + " wrong");
}

struct product {
    template <class Pair>
    COLLX_HD float operator()(const Pair& p) const {
        return thrust::get<0>(p) * thrust::get<1>(p);
    }
};
// Inputs that are the product of two vectors, or a permuted vector, without a third vector in memory.
void fancy(communicator& w) {
    constexpr std::size_t n = 10'000;
    auto x = sevenths(n);
    thrust::device_vector<float> twos(n, 2.0f), sum(n), turned(n);
    std::vector<int> host(n);
    for (std::size_t i = 0; i < n; ++i) host[i] = static_cast<int>(n - 1 - i);
    const thrust::device_vector<int> order(host.begin(), host.end());
    const auto pairs = thrust::make_zip_iterator(thrust::make_tuple(x.data().get(), twos.data().get()));
    all_reduce(w, input(thrust::make_transform_iterator(pairs, product{}), n), sum);
    all_reduce(w, input(thrust::make_permutation_iterator(x.data().get(), order.data().get()), n), turned);
    synchronize(w);
    expect_sums(sum, 2 * w.size(), "two vectors multiplied as they are read");
    std::vector<float> t = on_host(turned);
    std::reverse(t.begin(), t.end());
    expect_sums({t.begin(), t.end()}, w.size(), "a vector read backwards");
}

// A graph is replayed, then destroyed during another capture of the same communicator, which is replayed, too.
void graphs(communicator& w, const char* what) {
    const std::size_t n = 50'000;
    stream s;
    auto x = sevenths(n), y = sevenths(n);
    require_cuda(cudaDeviceSynchronize(), "filling");
    cudaGraph_t first = nullptr, second = nullptr;
    cudaGraphExec_t ready = nullptr, again = nullptr;
    const auto begin = [&] {
        require_cuda(cudaStreamBeginCapture(s.s, cudaStreamCaptureModeThreadLocal), "capturing");
    };
    const auto end = [&](cudaGraph_t& g) { require_cuda(cudaStreamEndCapture(s.s, &g), "capturing"); };
    begin();
    all_reduce(w, x, average{}, {.stream = s.s});
    bool refused = false;
    try {
        synchronize(w, {.stream = s.s});
    } catch (const invalid_argument&) {
        refused = true;
    }
    expect(refused, "a captured stream cannot be waited for");
    end(first);
    require_cuda(cudaGraphInstantiate(&ready, first, 0), "instantiating");
    for (int i = 0; i < 3; ++i) require_cuda(cudaGraphLaunch(ready, s.s), "launching a graph");
    synchronize(w, {.stream = s.s});
    begin();
    all_reduce(w, y, plus{}, {.stream = s.s});
    {
        const device::beside_captures free_to_destroy; // otherwise a capturing thread may not destroy
        require_cuda(cudaGraphExecDestroy(ready), "destroying a graph");
        require_cuda(cudaGraphDestroy(first), "destroying a graph");
    }
    end(second);
    require_cuda(cudaGraphInstantiate(&again, second, 0), "instantiating");
    require_cuda(cudaGraphLaunch(again, s.s), "launching a graph");
    synchronize(w, {.stream = s.s});
    expect_sums(x, 1, std::string(what) + ": the mean of equal inputs, three times from a graph");
    expect_sums(y, w.size(), std::string(what) + ": a sum from a graph captured while another was destroyed");
    cudaGraphExecDestroy(again);
    cudaGraphDestroy(second);
}

// Calls of one communicator in two unordered branches of a graph: they share its exchange memory, so the second waits
// for the first.
void branches(communicator& w, const char* what) {
    const std::size_t n = 50'000;
    stream s, side;
    auto x = sevenths(n), y = sevenths(n);
    cudaEvent_t fork = nullptr, join = nullptr;
    require_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "making an event");
    require_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "making an event");
    require_cuda(cudaDeviceSynchronize(), "filling");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    require_cuda(cudaStreamBeginCapture(s.s, cudaStreamCaptureModeThreadLocal), "capturing");
    require_cuda(cudaEventRecord(fork, s.s), "forking");
    require_cuda(cudaStreamWaitEvent(side.s, fork, 0), "forking");
    for (int i = 0; i < 3; ++i) {
        all_reduce(w, x, average{}, {.stream = s.s});
        all_reduce(w, y, plus{}, {.stream = side.s});
    }
    require_cuda(cudaEventRecord(join, side.s), "joining");
    require_cuda(cudaStreamWaitEvent(s.s, join, 0), "joining");
    require_cuda(cudaStreamEndCapture(s.s, &graph), "capturing");
    require_cuda(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
    for (int i = 0; i < 2; ++i) require_cuda(cudaGraphLaunch(ready, s.s), "launching a graph");
    synchronize(w, {.stream = s.s});
    expect_sums(x, 1, std::string(what) + ": means of equal inputs in one branch of a graph");
    expect_sums(y, static_cast<int>(std::pow(w.size(), 6)), std::string(what) + ": sums in the other branch");
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
}

template <class F>
void refuses(const char* text, F&& f) {
    std::string said = "nothing";
    try {
        f();
    } catch (const error& e) {
        said = e.what();
    }
    expect(said.find(text) != std::string::npos, std::string("expected '") + text + "': " + said);
}

void errors(communicator& w) {
    std::vector<float> host(10);
    auto x = sevenths(10);
    refuses("lies in the host's memory", [&] { all_reduce(w, device_view<float>(host.data(), 10)); });
    void* pinned = nullptr;
    require_cuda(cudaMallocHost(&pinned, 40), "allocating");
    refuses("pinned host memory", [&] { all_reduce(w, device_view<float>(static_cast<float*>(pinned), 10)); });
    cudaFreeHost(pinned);
    refuses("roots are ranks", [&] { broadcast(w, x, {.root = 99}); });
    communicator fresh = w.split(0);
    stream s;
    require_cuda(cudaStreamBeginCapture(s.s, cudaStreamCaptureModeThreadLocal), "capturing");
    refuses("use_device(comm) before the capture", [&] { all_reduce(fresh, x, plus{}, {.stream = s.s}); });
    cudaGraph_t g = nullptr;
    require_cuda(cudaStreamEndCapture(s.s, &g), "capturing");
    if (g != nullptr) cudaGraphDestroy(g);
}

// Rank 1 maps memory of rank 0 by each kind of handle that the driver has; calls use only the first kind.
void handles(communicator& w) {
    const device::cuda_runtime r;
    struct shown {
        device::memory_handle handle;
        std::uint64_t bytes = 0;
    };
    for (const auto kind : {device::handle_kind::ipc, device::handle_kind::file, device::handle_kind::fabric}) {
        const std::string name = device::name_of(kind);
        std::vector<shown> card(1);
        std::vector<unsigned char> pattern(4096, static_cast<unsigned char>(40 + static_cast<int>(kind))), seen(4096);
        device::gpu_mapping m;
        try {
            if (w.rank() == 0) {
                m = r.allocate_shared(pattern.size(), kind);
                card[0] = {r.export_memory(m), m.bytes};
                require_cuda(cudaMemcpy(m.at, pattern.data(), pattern.size(), cudaMemcpyHostToDevice), "filling");
                require_cuda(cudaDeviceSynchronize(), "filling");
            }
        } catch (const error& e) {
            std::printf("%s: %s\n", name.c_str(), e.what());
            expect(kind != device::handle_kind::ipc, "memory can be shown by CUDA IPC");
            if (m.at != nullptr) r.free_shared(m);
        }
        std::vector<unsigned char> wire(sizeof(shown));
        std::memcpy(wire.data(), card.data(), sizeof(shown));
        broadcast(w, wire, {.root = 0});
        std::memcpy(static_cast<void*>(card.data()), wire.data(), sizeof(shown));
        if (card[0].bytes == 0) continue;
        if (w.rank() == 1) {
            try {
                m = r.open_memory(card[0].handle, kind, card[0].bytes);
                require_cuda(cudaMemcpy(seen.data(), m.at, seen.size(), cudaMemcpyDeviceToHost), "reading");
                expect(seen == pattern, name + ": what rank 0 has written is seen");
            } catch (const error& e) {
                // A descriptor needs permissions, and the fabric a service.
                std::printf("%s: %s\n", name.c_str(), e.what());
                expect(kind != device::handle_kind::ipc, "memory can be mapped by CUDA IPC");
            }
            if (m.at != nullptr) r.close_memory(m);
        }
        barrier(w);
        if (w.rank() == 0) r.free_shared(m);
    }
}

// One process that drives all devices, with a thread and a rank for each.
int all_ranks(int devices) {
    run_threads(devices, [](communicator& w) {
        require_cuda(cudaSetDevice(w.rank()), "choosing a device");
        w.set_timeout(collx_test::patient(std::chrono::seconds(30)));
        use_device(w);
        if (w.rank() == 0) std::printf("threads: %s\n", device_route(w).c_str());
        collectives(w, "threads", {1, 1000, 70'001});
        graphs(w, "threads");
        parts(w, "threads", 1000);
    });
    std::printf("threads: %d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}

// One of several processes.
int one_rank(int rank, int size, const char* directory, const std::string& what) {
    int devices = 0;
    require_cuda(cudaGetDeviceCount(&devices), "counting devices");
    if (what == "threads") {
        if (devices > 1) return all_ranks(devices);
        std::printf("SKIPPED: threads with a device each: there is one device\n");
        return 0;
    }
    require_cuda(cudaSetDevice(rank % devices), "choosing a device");
    file_store store(directory);
    communicator w(rank, size, store);
    w.set_timeout(collx_test::patient(std::chrono::seconds(30)));
    device_settings s;
    s.staged = what == "host";
    s.shares_device = what == "ipc" && devices < size;
    // Two contexts of one device take turns, so their kernels rarely run at once: only a few short calls.
    if (s.shares_device) s.lanes = 2;
    if (what == "ipc") handles(w);
    use_device(w, s);
    if (rank == 0) std::printf("%s: %s\n", what.c_str(), device_route(w).c_str());
    collectives(w, what.c_str(),
                s.shares_device ? std::vector<std::size_t>{1000} : std::vector<std::size_t>{1, 1000, 300'001});
    if (!s.shares_device) {
        graphs(w, what.c_str());
        branches(w, what.c_str());
    }
    parts(w, what.c_str(), s.shares_device ? 500 : 70'001);
    communicator half = w.split(rank % 2); // a second communicator, with its own mappings
    use_device(half, s);
    auto x = sevenths(500);
    all_reduce(half, x);
    synchronize(half);
    expect_sums(x, half.size(), what + ": another communicator");
    std::printf("%s rank %d: %d checks, %d failed\n", what.c_str(), rank, checks, failures);
    return failures == 0 ? 0 : 1;
}

// Starts this program as ranks: a process that has used CUDA must not fork and continue.
int run_ranks(const char* self, int size, const char* what, int limit_s) {
    char directory[] = "/tmp/collx-gpu-XXXXXX";
    if (mkdtemp(directory) == nullptr) return 1;
    const std::string store = std::string(directory) + "/store";
    std::vector<pid_t> pids;
    for (int r = 0; r < size; ++r) {
        const pid_t p = fork();
        if (p == 0) {
            alarm(static_cast<unsigned>(collx_test::patient_s(limit_s)));
            execl(self, self, "--rank", std::to_string(r).c_str(), std::to_string(size).c_str(), store.c_str(), what,
                  static_cast<char*>(nullptr));
            _exit(127);
        }
        pids.push_back(p);
    }
    int bad = 0;
    for (const pid_t p : pids) {
        int status = 0;
        waitpid(p, &status, 0);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    expect(bad == 0,
           std::string(what) + ": " + std::to_string(bad) + " of " + std::to_string(size) + " processes failed");
    return bad;
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 6 && std::strcmp(argv[1], "--rank") == 0)
            return one_rank(std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5]);
        const bool is_short = argc > 1 && std::strcmp(argv[1], "--short") == 0;
        // compute-sanitizer stops on a program that does not use CUDA soon.
        const bool is_alone = argc > 2 && std::strcmp(argv[2], "--alone") == 0;
        const auto has_device = [] {
            int devices = 0;
            return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
        };
        if (is_alone) {
            if (!has_device()) return skip();
        } else {
            // Checked in a child: this process must fork before it uses CUDA.
            const pid_t p = fork();
            if (p == 0) _exit(has_device() ? 0 : 77);
            int status = 0;
            waitpid(p, &status, 0);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return skip();
            run_ranks(argv[0], 2, "host", 60);
            run_ranks(argv[0], 2, "ipc", 60);
            run_ranks(argv[0], 1, "threads", 60); // if there are several devices
            if (!is_short) run_ranks(argv[0], 4, "host", 90);
        }
        communicator world;
        collectives(world, "alone",
                    is_short ? std::vector<std::size_t>{1, 1000} : std::vector<std::size_t>{1, 1000, 1'000'003});
        // An exception in one must not prevent the others from running.
        const auto run = [](const char* what, auto&& f) {
            try {
                f();
            } catch (const std::exception& e) {
                expect(false, std::string(what) + " threw: " + e.what());
            }
        };
        run("parts", [&] { parts(world, "alone", 1000); });
        run("fancy", [&] { fancy(world); });
        run("graphs", [&] { graphs(world, "alone"); });
        run("branches", [&] { branches(world, "alone"); });
        run("errors", [&] { errors(world); });
    } catch (const std::exception& e) {
        return finish(e.what());
    }
    return finish();
}
