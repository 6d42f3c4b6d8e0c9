// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One fused kernel of each kind for check_code.py, which compiles them for all architectures and reads the
// assembler's report of registers and stacks.
#include <collx/exec/device/cuda_runtime.cuh>
#include <collx/exec/device/window_calls.hpp>
#include <collx/exec/fused.cuh>

#include <collx/algo/multicast.hpp>
#include <collx/algo/multicast_two_shot.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/preceding.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>

using namespace collx;
template <class T>
using plain = device::call_types<contiguous_view<T>, contiguous_view<T>, plus>;
// The input is every second column of a matrix; the wire type has 16 bits.
using mixed = device::call_types<strided_view<float>, contiguous_view<float>, collx::max, bf16>;

// Kernels of algorithms without scratch memory have no code for it. (nvcc 13 once missed these constants.)
static_assert(!sched::has_scratch_v<algo::ring_all_reduce> && !sched::has_scratch_v<algo::two_shot_all_reduce>);
static_assert(!sched::has_scratch_v<algo::one_shot_all_reduce>);
static_assert(!sched::has_scratch_v<algo::zero_copy_all_reduce>);

#define KERNEL(protocol, groups, algorithm, types)                                                   \
    template __global__ void device::fused_kernel<device::protocol, groups, algo::algorithm, types>( \
        const __grid_constant__ device::fused_args<algo::algorithm, types>)

KERNEL(simple_protocol, 1, ring_all_reduce, plain<float>);
KERNEL(packet_protocol, 1, ring_all_reduce, plain<float>);
KERNEL(packet_protocol, 1, one_shot_all_reduce, plain<bf16>);
KERNEL(packet_protocol, 1, two_shot_all_reduce, plain<float>);
KERNEL(simple_protocol, 2, two_shot_all_reduce, plain<bf16>);
KERNEL(simple_protocol, 1, zero_copy_all_reduce, plain<float>);
KERNEL(simple_protocol, 1, ring_all_reduce, mixed);
KERNEL(line_protocol, 1, ring_all_reduce, plain<float>);
// 8-bit floats; counts per pair of ranks; a switch that reduces and multicasts.
KERNEL(simple_protocol, 1, zero_copy_all_reduce, plain<e4m3>);
KERNEL(simple_protocol, 1, two_shot_all_reduce, plain<e4m3>);
using pairs =
    device::call_types<contiguous_view<float>, contiguous_view<float>, device::move_only, float, device::pair_cuts>;
KERNEL(simple_protocol, 1, zero_copy_all_to_all, pairs);
// The preceding shares that two-level scans put before their results.
using shares = device::call_types<contiguous_view<float>, contiguous_view<float>, plus, float, device::table_cuts>;
KERNEL(simple_protocol, 1, preceding<false>, shares);
KERNEL(multicast_protocol, 1, zero_copy_all_reduce, plain<bf16>);
using moved = device::call_types<contiguous_view<float>, contiguous_view<float>, device::move_only>;
KERNEL(multicast_protocol, 1, multicast_all_gather, moved);
KERNEL(multicast_protocol, 1, multicast_two_shot_all_reduce, plain<bf16>);

// Calls of a communicator: any number of calls of one kind in a group.
template <class T>
using mine = device::call_types<contiguous_view<T>, contiguous_view<T>, plus, T, device::even_cuts, true>;
#define KERNEL_OF_CALLS(protocol, algorithm, types)                                                                  \
    template __global__ void                                                                                         \
    device::fused_array_kernel<device::call_array<device::fused_call<device::protocol, 1, algo::algorithm, types>>>( \
        const __grid_constant__ device::call_array<device::fused_call<device::protocol, 1, algo::algorithm, types>>)

KERNEL_OF_CALLS(packet_protocol, one_shot_all_reduce, mine<bf16>);
KERNEL_OF_CALLS(simple_protocol, two_shot_all_reduce, mine<float>);
KERNEL_OF_CALLS(packet_protocol, two_shot_all_reduce, mine<bf16>);
KERNEL_OF_CALLS(multicast_protocol, multicast_two_shot_all_reduce, mine<float>);

// Calls of several kinds in a group: sums of float of any length, all_gather of bf16, broadcast of double, messages.
template <class Protocol, class Algorithm, class Types>
using call = device::fused_call<Protocol, 1, Algorithm, Types>;
template <class T, class Cuts = device::even_cuts>
using mine_moved = device::call_types<contiguous_view<T>, contiguous_view<T>, device::move_only, T, Cuts, true>;
using mix = device::call_mix<
    call<device::packet_protocol, algo::one_shot_all_reduce, mine<float>>,
    call<device::simple_protocol, algo::two_shot_all_reduce, mine<float>>,
    call<device::simple_protocol, algo::one_shot_all_gather, mine_moved<bf16>>,
    call<device::simple_protocol, algo::one_shot_broadcast, mine_moved<double>>,
    call<device::simple_protocol, algo::pairwise_all_to_all, mine_moved<std::uint32_t, device::own_cuts>>>;
#define KERNEL_OF_KINDS(calls) template __global__ void device::fused_array_kernel<calls>(const __grid_constant__ calls)

KERNEL_OF_KINDS(mix);

// Windows in device memory: the operations of streams, which kernels of a program call, too.
#define KERNEL_OF_LANES(body) template __global__ void device::lanes_kernel<body>(const __grid_constant__ body)
KERNEL_OF_LANES(device::window_copy_call<float>);
KERNEL_OF_LANES(device::window_signal_call);
KERNEL_OF_LANES(device::window_wait_call);
