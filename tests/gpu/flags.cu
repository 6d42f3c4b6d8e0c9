// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LL words and LL128 lines in the cases that fail first: flags that wrap around after 2^32 messages, in memory full
// of old flags; and lines of 128 bytes in slots that are reused at once, with new values in every call and with late
// blocks. scripts/gpu builds and runs it (--short: fewer calls). Exits with 77 if there is no GPU.
#include <cstring>
#include <string>
#include <vector>

#include "support.hpp"

#include <collx/algo/one_shot.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/exec/fused.cuh>

using namespace collx;
using device::require_cuda;

namespace {

// A machine that lets the test read its memory.
struct open_machine : device::cuda_machine {
    std::vector<std::byte*> memory;
    std::byte* allocate(int rank, std::size_t bytes) {
        memory.push_back(cuda_machine::allocate(rank, bytes));
        return memory.back();
    }
};
using floats = contiguous_view<float>;
using types = device::call_types<floats, floats, plus>;

device::exchange_shape small_shape(int ranks, int lanes) {
    device::exchange_shape s;
    s.ranks = ranks;
    s.lanes = lanes;
    s.slots = 2;
    s.flag_slot_bytes = 512;
    s.packet_bytes = 256;
    return s;
}

// Occupies a multiprocessor for some time, so that blocks of the next launch begin at different times.
__global__ void delay(unsigned cycles) {
    const auto began = clock64();
    while (static_cast<unsigned long long>(clock64() - began) < cycles * (blockIdx.x % 3)) {
    }
}

__global__ void fill(float* x, std::size_t n, float first) {
    for (std::size_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = first + static_cast<float>(i % 5);
}

// `calls` sums of n floats, with new values in each; checks all results.
template <class Protocol, class A>
void sums(device::team<open_machine>& team, const A& a, std::size_t n, int calls, const std::string& what) {
    const int ranks = team.size();
    std::vector<thrust::device_vector<float>> x(static_cast<std::size_t>(ranks), thrust::device_vector<float>(n));
    const auto at = [&](int r) { return thrust::raw_pointer_cast(x[static_cast<std::size_t>(r)].data()); };
    const auto layout = chunk_layout::even(n, a.chunks(ranks), 16);
    std::size_t wrong = 0;
    for (int call = 0; call < calls; ++call) {
        for (int r = 0; r < ranks; ++r) fill<<<1, 64>>>(at(r), n, static_cast<float>(1 + r + call % 97));
        if (call % 4 == 3) delay<<<6, 32>>>(static_cast<unsigned>(call % 7) * 1000);
        team.run<types, Protocol>(a, layout, layout, [&](int r) {
            return device::rank_operands<types>{{at(r), n}, {at(r), n}, {}};
        });
        require_cuda(cudaDeviceSynchronize(), "adding");
        team.check();
        const auto base = static_cast<float>(ranks * (ranks + 1) / 2 + ranks * (call % 97));
        for (const auto& part : x) {
            const std::vector<float> host = on_host(part);
            for (std::size_t i = 0; i < n; ++i)
                wrong += host[i] != base + static_cast<float>(ranks) * static_cast<float>(i % 5);
        }
    }
    expect(wrong == 0, what + ": " + std::to_string(wrong) + " wrong");
}

// Writes an old flag into every word of every cell and slot, and makes `first` the number of the next message.
void begin_from(open_machine& machine, const device::exchange_shape& s, std::uint64_t first) {
    constexpr std::uint64_t old = std::uint64_t{0x7777'7777} << 32;
    for (std::byte* memory : machine.memory)
        for (int lane = 0; lane < s.lanes; ++lane) {
            std::byte* at = memory + s.lane_at(lane);
            device::lane_control c;
            require_cuda(cudaMemcpy(&c, at, sizeof c, cudaMemcpyDeviceToHost), "reading counts");
            for (auto* counts : {c.tail, c.head, c.sent, c.received})
                for (int k = 0; k < device::max_ranks; ++k) counts[k] = first;
            c.packets = first;
            require_cuda(cudaMemcpy(at, &c, sizeof c, cudaMemcpyHostToDevice), "setting counts");
            for (const auto& [begin, end] : {std::pair{s.packets_at(), s.windows_at()}, {s.words_at(), s.lines_at()}}) {
                const std::vector<std::uint64_t> words((end - begin) / 8, old);
                require_cuda(cudaMemcpy(at + begin, words.data(), end - begin, cudaMemcpyHostToDevice), "old words");
            }
        }
}

} // namespace

int main(int argc, char** argv) {
    const bool is_short = argc > 1 && std::strcmp(argv[1], "--short") == 0;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip();
    try {
        for (const int ranks : {2, is_short ? 5 : 8}) /* more than slots, so that a sender may run ahead of them */ {
            const auto shape = small_shape(ranks, 2);
            open_machine machine;
            device::team<open_machine> team(machine, shape);
            const std::string of = " of " + std::to_string(ranks) + " ranks";
            for (const std::uint64_t first : {(std::uint64_t{1} << 32) - 3, (std::uint64_t{1} << 24) - 2}) {
                begin_from(machine, shape, first);
                sums<device::packet_protocol>(team, algo::one_shot_all_reduce{}, 601, is_short ? 4 : 50,
                                              "one-shot, flags from " + std::to_string(first) + of);
                begin_from(machine, shape, first);
                sums<device::packet_protocol>(team, algo::two_shot_all_reduce{}, 601, is_short ? 4 : 50,
                                              "two-shot, flags from " + std::to_string(first) + of);
                begin_from(machine, shape, first);
                sums<device::packet_protocol>(team, algo::ring_all_reduce{}, 601, is_short ? 4 : 50,
                                              "ring, flags from " + std::to_string(first) + of);
            }
            // Several pieces for each lane, so that both slots of a channel are reused in every call; also with tails.
            for (const std::size_t n : {1u, 119u, 1501u})
                sums<device::line_protocol>(team, algo::ring_all_reduce{}, n, is_short ? 4 : 3000,
                                            "lines of 128 bytes, " + std::to_string(n) + of);
        }
    } catch (const std::exception& e) {
        return finish(e.what());
    }
    return finish();
}
