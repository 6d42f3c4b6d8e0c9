// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused kernels on a real device: every protocol, the collectives, types, views, hooks, graphs, deadlines.
// scripts/gpu builds and runs it, alone and under compute-sanitizer (--short). Exits with 77 if there is no GPU.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "support.hpp"

#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/gpu/team.cuh>

using namespace collx;
using device::require_cuda;

namespace {

bool is_short = false, is_sample = false; // --sample: where every instruction is interpreted
// One buffer per rank in device memory. Each view begins after `offset` elements, so that views may be unaligned.
template <class T>
class device_buffers {
public:
    device_buffers(int ranks, std::size_t n, std::size_t offset = 0) : n_(n), offset_(offset) {
        for (int r = 0; r < ranks; ++r) {
            void* p = nullptr;
            require_cuda(cudaMalloc(&p, (n + offset + 1) * sizeof(T)), "allocating");
            memory_.push_back(static_cast<T*>(p));
        }
    }
    ~device_buffers() {
        for (T* p : memory_) cudaFree(p);
    }
    device_buffers(const device_buffers&) = delete;
    device_buffers& operator=(const device_buffers&) = delete;
    std::size_t size() const { return memory_.size(); }
    device_view<T> operator[](std::size_t r) const { return {memory_[r] + offset_, n_}; }
    void fill(T (*f)(int, std::size_t)) {
        std::vector<T> host(n_);
        for (std::size_t r = 0; r < size(); ++r) {
            for (std::size_t i = 0; i < n_; ++i) host[i] = f(static_cast<int>(r), i);
            require_cuda(cudaMemcpy((*this)[r].data(), host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "filling");
        }
        // These copies return when the host's memory may be reused; other streams do not wait for their end.
        require_cuda(cudaDeviceSynchronize(), "filling");
    }
    std::vector<T> read(std::size_t r) const {
        std::vector<T> host(n_);
        require_cuda(cudaMemcpy(host.data(), (*this)[r].data(), n_ * sizeof(T), cudaMemcpyDeviceToHost), "reading");
        return host;
    }

private:
    std::vector<T*> memory_;
    std::size_t n_, offset_;
};

// Small integers: exact in every type and order.
template <class T>
T element(int rank, std::size_t i) {
    return static_cast<T>(static_cast<float>(rank + 1 + static_cast<int>(i % 7)));
}
template <class T>
T none(int, std::size_t) {
    return static_cast<T>(-1.0f);
}

std::string label(const char* what, int n, std::size_t size) {
    return std::string(what) + " ranks=" + std::to_string(n) + " elements=" + std::to_string(size);
}

template <class T>
void expect_sums(const device_buffers<T>& out, int n, std::size_t size, const std::string& what) {
    for (int r = 0; r < n; ++r) {
        const auto x = out.read(static_cast<std::size_t>(r));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const float want = static_cast<float>(n * (n + 1) / 2 + n * static_cast<int>(i % 7));
            wrong += static_cast<float>(x[i]) != want;
        }
        expect(wrong == 0, what + " rank " + std::to_string(r) + ": " + std::to_string(wrong) + " wrong");
    }
}

std::vector<std::size_t> sizes() {
    if (is_short) return {1, 1000, 70'001};
    return {1, 7, 1000, 16'384, 70'001, 1'000'003, 8'388'608};
}
std::vector<int> rank_counts() { return is_short ? std::vector<int>{2, 3} : std::vector<int>{1, 2, 3, 4, 8}; }

template <class T>
void all_reduces(const char* what) {
    for (const int n : rank_counts()) {
        gpu_team team(n);
        for (const std::size_t size : sizes())
            for (const std::size_t offset : {0u, 1u}) {
                device_buffers<T> in(n, size, offset), out(n, size, offset);
                in.fill(element<T>);
                out.fill(none<T>);
                team.all_reduce(in, out);
                team.all_reduce(in, in); // in place, after it in the same stream
                team.synchronize();
                expect_sums(out, n, size, label(what, n, size));
                expect_sums(in, n, size, label(what, n, size) + " in place");
            }
    }
}

template <class Protocol, int Groups, class Wire, class A>
void by(const A& a, const char* what) {
    for (const int n : rank_counts()) {
        gpu_team team(n);
        for (const std::size_t size : sizes()) {
            if ((Protocol::flags_words || Protocol::flags_lines) && size > 1'000'003) continue;
            const auto cut = [size](int chunks) { return chunk_layout::even(size, chunks, 16); };
            device_buffers<float> in(n, size), out(n, size);
            in.fill(element<float>);
            out.fill(none<float>);
            for (int i = 0; i < 3; ++i) team.run<Protocol, Groups, Wire>(a, in, out, plus{}, {}, cut, cut);
            team.synchronize();
            expect_sums(out, n, size, label(what, n, size));
        }
    }
}

void moves() {
    for (const int n : rank_counts()) {
        gpu_team team(n);
        for (const std::size_t size : sizes()) {
            if (size > 1'000'003) continue;
            const std::size_t all = size * static_cast<unsigned>(n);
            device_buffers<int> part(n, size), whole(n, all), gathered(n, all), exchanged(n, all), scattered(n, size),
                copied(n, size);
            const auto value = [](int r, std::size_t i) { return r * 1'000'000 + static_cast<int>(i % 999'983); };
            part.fill(value);
            whole.fill(value);
            team.all_gather(part, gathered);
            team.all_to_all(whole, exchanged);
            team.reduce_scatter(whole, scattered);
            team.broadcast(part, copied, n - 1);
            team.synchronize();
            std::size_t wrong = 0;
            for (int r = 0; r < n; ++r) {
                const auto me = static_cast<std::size_t>(r);
                const auto g = gathered.read(me), e = exchanged.read(me), s = scattered.read(me), c = copied.read(me);
                for (std::size_t i = 0; i < size; ++i) {
                    for (int k = 0; k < n; ++k) {
                        wrong += g[static_cast<std::size_t>(k) * size + i] != value(k, i);
                        wrong += e[static_cast<std::size_t>(k) * size + i] != value(k, me * size + i);
                    }
                    wrong += s[i] != n * (n - 1) / 2 * 1'000'000 + n * static_cast<int>((me * size + i) % 999'983);
                    wrong += c[i] != value(n - 1, i);
                }
            }
            expect(wrong == 0, label("gather, exchange, scatter, broadcast", n, size));
        }
    }
}

struct square {
    COLLX_HD float operator()(float x) const { return x * x; }
};

void hooks_and_views() {
    const int n = 4;
    gpu_team team(n);
    for (const std::size_t size : {std::size_t{1000}, std::size_t{300'001}}) {
        device_buffers<float> in(n, 3 * size), out(n, size);
        in.fill(element<float>);
        out.fill(none<float>);
        std::vector<strided_view<float>> columns;
        for (std::size_t r = 0; r < 4; ++r) columns.push_back(strided(in[r].data(), size, 3));
        team.all_reduce(columns, out, with_pre(average{}, square{}));
        team.synchronize();
        std::size_t wrong = 0;
        for (std::size_t r = 0; r < 4; ++r) {
            const auto x = out.read(r);
            for (std::size_t i = 0; i < size; ++i) {
                float sum = 0;
                for (int k = 0; k < n; ++k) sum += element<float>(k, 3 * i) * element<float>(k, 3 * i);
                wrong += x[i] != sum / 4;
            }
        }
        expect(wrong == 0, label("mean of squares of every third element", n, size));
    }
}

// Inputs that are computed as they are read, outputs that own their memory.
void thrust_families() {
    const int n = 3;
    gpu_team team(n);
    for (const std::size_t size : {std::size_t{1000}, std::size_t{300'001}}) {
        std::vector<thrust::device_vector<float>> out(n, thrust::device_vector<float>(size));
        const auto numbers = thrust::make_transform_iterator(thrust::make_counting_iterator(0LL), seventh{});
        const std::vector<decltype(input(numbers, size))> in(n, input(numbers, size));
        team.all_reduce(in, out);
        team.all_reduce(out, out, collx::max{});
        team.synchronize();
        std::size_t wrong = 0;
        for (const auto& x : out) {
            const std::vector<float> host = on_host(x);
            for (std::size_t i = 0; i < size; ++i) wrong += host[i] != static_cast<float>(3 * (i % 7));
        }
        expect(wrong == 0, label("thrust iterators into thrust vectors", n, size));
    }
}

// 8-bit floats, summed in float.
void narrow_types() {
    const int n = 2;
    gpu_team team(n);
    device_buffers<e4m3> in(n, 5000), out(n, 5000);
    in.fill(element<e4m3>);
    out.fill(none<e4m3>);
    team.all_reduce(in, out);
    team.synchronize();
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < 2; ++r) {
        const auto x = out.read(r);
        for (std::size_t i = 0; i < x.size(); ++i)
            wrong += float(x[i]) != float(e4m3(float(element<e4m3>(0, i)) + float(element<e4m3>(1, i))));
    }
    expect(wrong == 0, label("e4m3", n, 5000));
}

// The device's conversions compared with the host's arithmetic, run on the device: all floats, all bit patterns.
struct soft_f16 {
    __device__ static unsigned narrow(float x) { return detail::f16_bits_from_float(x); }
    __device__ static float widen(unsigned b) { return detail::float_from_f16_bits(static_cast<unsigned short>(b)); }
};
struct soft_bf16 {
    __device__ static unsigned narrow(float x) { return detail::bf16_bits_from_float(x); }
    __device__ static float widen(unsigned b) { return detail::float_from_bf16_bits(static_cast<unsigned short>(b)); }
};
template <int Mantissa, int Bias, unsigned Most, unsigned Infinity>
struct soft_fp8 {
    __device__ static unsigned narrow(float x) { return detail::fp8_bits_from_float(x, Mantissa, Bias, Most); }
    __device__ static float widen(unsigned b) {
        const unsigned m = b & 0x7fu, sign = (b & 0x80u) << 24;
        if (m > Infinity || m == 0x7fu) return __uint_as_float(0x7fc00000u);
        if (m == Infinity) return __uint_as_float(sign | 0x7f800000u);
        return detail::float_from_fp8_bits(static_cast<unsigned char>(b), Mantissa, Bias);
    }
};
// wrong[0]: narrowing, wrong[1]: widening, wrong[2]: two at a time. Tests all patterns of T, and one of `every` floats.
template <class T, class Soft>
__global__ void compare_conversions(unsigned long long* wrong, unsigned every) {
    using bits = decltype(T::bits);
    constexpr unsigned long long patterns = 1ull << (8 * sizeof(T));
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    for (unsigned long long k = blockIdx.x * blockDim.x + threadIdx.x;; k += step) {
        const unsigned long long i = k < patterns ? k : patterns + (k - patterns) * every;
        if (i >= 1ull << 32) break;
        const float x = __uint_as_float(static_cast<unsigned>(i)), y = __uint_as_float(static_cast<unsigned>(~i));
        const T got(x);
        if (x != x ? Soft::widen(got.bits) == Soft::widen(got.bits) : got.bits != Soft::narrow(x)) atomicAdd(wrong, 1);
        bits two[2];
        T::format::two_from_floats(two, x, y);
        if (two[0] != got.bits || two[1] != T(y).bits) atomicAdd(wrong + 2, 1);
        if (i >= patterns) continue;
        const float want = Soft::widen(static_cast<unsigned>(i)), wide = T::from_bits(static_cast<bits>(i));
        if (want != want ? wide == wide : __float_as_uint(want) != __float_as_uint(wide)) atomicAdd(wrong + 1, 1);
    }
}
template <class T, class Soft>
void conversions(const char* name) {
    unsigned long long *counts = nullptr, wrong[3];
    require_cuda(cudaMalloc(&counts, sizeof wrong), "allocating");
    require_cuda(cudaMemset(counts, 0, sizeof wrong), "clearing");
    compare_conversions<T, Soft><<<is_sample ? 8 : 512, 512>>>(counts, is_sample ? 65'521 : 1);
    require_cuda(cudaMemcpy(wrong, counts, sizeof wrong, cudaMemcpyDeviceToHost), "comparing conversions");
    cudaFree(counts);
    expect(wrong[0] + wrong[1] + wrong[2] == 0, std::string(name) + ": conversions differ from the host's in " +
                                                    std::to_string(wrong[0]) + " floats, " + std::to_string(wrong[1]) +
                                                    " patterns, " + std::to_string(wrong[2]) + " pairs");
}

// Counts per rank, messages, scans, several calls in one launch.
void counts_per_rank() {
    for (const int n : rank_counts()) {
        gpu_team team(n);
        const auto ranks = static_cast<std::size_t>(n);
        std::vector<thrust::device_vector<int>> in, all, part, sums;
        std::vector<std::vector<std::size_t>> amount(ranks, std::vector<std::size_t>(ranks));
        std::size_t total = 0;
        std::vector<std::size_t> at;
        const auto value = [](std::size_t r, std::size_t i) { return static_cast<int>(r * 1'000'000 + i); };
        const auto made = [&](std::size_t r, std::size_t size) {
            std::vector<int> x(size);
            for (std::size_t i = 0; i < size; ++i) x[i] = value(r, i);
            return thrust::device_vector<int>(x.begin(), x.end());
        };
        for (std::size_t r = 0; r < ranks; ++r) {
            const std::size_t size = r % 3 == 1 ? 0 : 1000 * r + 70'001 / (r + 1);
            in.push_back(made(r, size));
            at.push_back(total);
            total += size;
        }
        for (std::size_t r = 0; r < ranks; ++r) {
            all.emplace_back(total);
            part.push_back(made(r, 1000));
            sums.emplace_back(1000);
            for (std::size_t d = 0; d < ranks; ++d)
                amount[r][d] = in[r].size() / ranks + (d == 0 ? in[r].size() % ranks : 0);
        }
        team.group({}, team.calls().all_gather_v(in, all), team.calls().scan(part, sums));
        team.synchronize();
        std::size_t wrong = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
            const std::vector<int> a = on_host(all[r]), s = on_host(sums[r]);
            for (std::size_t k = 0; k < ranks; ++k)
                for (std::size_t i = 0; i < in[k].size(); ++i) wrong += a[at[k] + i] != value(k, i);
            for (std::size_t i = 0; i < 1000; ++i)
                wrong += s[i] != static_cast<int>(r * (r + 1) / 2 * 1'000'000 + (r + 1) * i);
        }
        expect(wrong == 0, label("all_gather_v and scan in one launch", n, total));
        std::vector<thrust::device_vector<int>> out;
        for (std::size_t d = 0; d < ranks; ++d) {
            std::size_t size = 0;
            for (std::size_t r = 0; r < ranks; ++r) size += amount[r][d];
            out.emplace_back(size);
        }
        team.all_to_all_v(in, out, amount);
        team.synchronize();
        wrong = 0;
        for (std::size_t d = 0; d < ranks; ++d) {
            const std::vector<int> x = on_host(out[d]);
            std::size_t to = 0;
            for (std::size_t r = 0; r < ranks; ++r) {
                std::size_t from = 0;
                for (std::size_t k = 0; k < d; ++k) from += amount[r][k];
                for (std::size_t i = 0; i < amount[r][d]; ++i) wrong += x[to++] != value(r, from + i);
            }
        }
        expect(wrong == 0, label("all_to_all_v", n, total));
    }
}

void graphs() {
    const int n = 4;
    gpu_team team(n);
    cudaStream_t stream = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    for (const std::size_t size : {std::size_t{1000}, std::size_t{200'000}}) {
        device_buffers<float> in(n, size), out(n, size);
        in.fill(element<float>);
        out.fill(none<float>);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
        team.all_reduce(in, out, plus{}, {.stream = stream});
        require_cuda(cudaStreamEndCapture(stream, &graph), "capturing");
        require_cuda(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
        for (int i = 0; i < 5; ++i) require_cuda(cudaGraphLaunch(ready, stream), "launching a graph");
        team.synchronize({.stream = stream});
        expect_sums(out, n, size, label("a captured call, five times", n, size));
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
    }
    cudaStreamDestroy(stream);
}

void refusals() {
    gpu_team team(2);
    std::vector<float> host(10);
    const std::vector<device_view<float>> wrong(2, device_view<float>(host.data(), host.size()));
    std::string said;
    try {
        team.all_reduce(wrong, wrong);
    } catch (const invalid_argument& e) {
        said = e.what();
    }
    expect(said.find("lies in the host's memory") != std::string::npos, "a host pointer is refused: " + said);
}

// A call and synchronize() without a stream are the current device's.
void another_device(int devices) {
    if (devices < 2) return;
    gpu_team team(2);
    device_buffers<float> x(2, 100);
    x.fill(element<float>);
    const device::cuda_machine first; // of device 0
    require_cuda(cudaSetDevice(1), "choosing a device");
    for (const int what : {0, 1, 2}) {
        std::string said;
        try {
            if (what == 0) team.all_reduce(x, x);
            else if (what == 1) team.synchronize();
            else gpu_team(gpu_team::shape_for(2), first);
        } catch (const invalid_argument& e) {
            said = e.what();
        }
        expect(said.find("device 1 is current, and the team runs on device 0") != std::string::npos,
               "another device than the team's is refused: " + said);
    }
    require_cuda(cudaSetDevice(0), "choosing a device");
    team.all_reduce(x, x);
    team.synchronize();
    expect_sums(x, 2, 100, "after the refusals");
}

// The last rank's blocks are not started: the others give up at their deadline and name the awaited rank.
void deadlines() {
    gpu_team team(3);
    team.machine().leave_out_last();
    device_buffers<float> x(3, 100);
    x.fill(element<float>);
    team.all_reduce(x, x, plus{}, {.timeout_ns = 200'000'000});
    std::string said;
    int peer = -1;
    try {
        team.synchronize();
    } catch (const timed_out& e) {
        said = e.what();
        peer = e.peer();
    }
    expect(peer == 2, "the missing rank is named: " + said);
}

} // namespace

int main(int argc, char** argv) {
    is_sample = argc > 1 && std::strcmp(argv[1], "--sample") == 0;
    is_short = is_sample || (argc > 1 && std::strcmp(argv[1], "--short") == 0);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip();
    // An exception in one must not prevent the others from running.
    const auto run = [](const char* what, auto&& f) {
        const auto began = std::chrono::steady_clock::now();
        try {
            if constexpr (std::is_invocable_v<decltype(f), const char*>) f(what);
            else f();
        } catch (const std::exception& e) {
            expect(false, std::string(what) + " threw: " + e.what());
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        std::printf("%s: %.1f s\n", what, took.count());
        std::fflush(stdout);
    };
    using device::line_protocol, device::packet_protocol, device::simple_protocol;
    constexpr algo::ring_all_reduce ring{};
    constexpr algo::one_shot_all_reduce one_shot{};
    constexpr algo::two_shot_all_reduce two_shot{};
    run("all_reduce float", all_reduces<float>);
    run("all_reduce bf16", all_reduces<bf16>);
    run("ring", [&](const char* what) { by<simple_protocol, 1, float>(ring, what); });
    run("ring with flags", [&](const char* what) { by<packet_protocol, 1, float>(ring, what); });
    run("ring, bf16 on the wire", [&](const char* what) { by<simple_protocol, 1, bf16>(ring, what); });
    run("one-shot", [&](const char* what) { by<simple_protocol, 1, float>(one_shot, what); });
    run("two-shot", [&](const char* what) { by<simple_protocol, 1, float>(two_shot, what); });
    run("two-shot, strands side by side", [&](const char* what) { by<simple_protocol, 2, float>(two_shot, what); });
    run("ring in lines of 128 bytes", [&](const char* what) { by<line_protocol, 1, float>(ring, what); });
    run("ring in lines of 128 bytes, bf16 on the wire",
        [&](const char* what) { by<line_protocol, 1, bf16>(ring, what); });
    run("f16", conversions<f16, soft_f16>);
    run("bf16", conversions<bf16, soft_bf16>);
    run("e4m3", conversions<e4m3, soft_fp8<3, 7, 0x7e, 0x7f>>);
    run("e5m2", conversions<e5m2, soft_fp8<2, 15, 0x7b, 0x7c>>);
    run("counts per rank", counts_per_rank);
    run("moves", moves);
    run("hooks and views", hooks_and_views);
    run("thrust", thrust_families);
    run("narrow types", narrow_types);
    run("graphs", graphs);
    run("refusals", refusals);
    run("another device", [&] { another_device(devices); });
    run("deadlines", deadlines);
    return finish();
}
