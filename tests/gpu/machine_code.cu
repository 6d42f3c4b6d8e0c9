// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels for machine_code.py, which reads their machine code: one for each kind of element whose loads it counts.
#include <collx/exec/device/cuda_runtime.cuh>
#include <collx/exec/device/window_calls.hpp>
#include <collx/exec/fused.cuh>

#include <collx/algo/one_shot.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>

using namespace collx;

// Elements with one per pack: 24 bytes, and 16 bytes laid out like std::complex<double>.
struct moments {
    double sum, square, count;
    COLLX_HD friend moments operator+(const moments& a, const moments& b) {
        return {a.sum + b.sum, a.square + b.square, a.count + b.count};
    }
};
struct complex_double {
    double re, im;
    COLLX_HD friend complex_double operator+(const complex_double& a, const complex_double& b) {
        return {a.re + b.re, a.im + b.im};
    }
};

template <class T>
using sum_of = device::call_types<contiguous_view<T>, contiguous_view<T>, plus>;
#define KERNEL(algorithm, types) KERNEL_BY(simple_protocol, algorithm, types)
#define KERNEL_BY(protocol, algorithm, types)                                                   \
    template __global__ void device::fused_kernel<device::protocol, 1, algo::algorithm, types>( \
        const __grid_constant__ device::fused_args<algo::algorithm, types>)

KERNEL(zero_copy_all_reduce, sum_of<float>);
KERNEL(zero_copy_all_reduce, sum_of<bf16>);
KERNEL(zero_copy_all_reduce, sum_of<moments>);
KERNEL(zero_copy_all_reduce, sum_of<complex_double>);
KERNEL(two_shot_all_reduce, sum_of<float>);
KERNEL(ring_all_reduce, sum_of<float>);
KERNEL_BY(packet_protocol, one_shot_all_reduce, sum_of<float>);

// The copies of staged calls, with one run and with several.
using floats = contiguous_view<float>;
using out = device::stage_out<floats>;
using in = device::stage_in<floats, device::staging_runs>;
template __global__ void device::lanes_kernel<out>(const __grid_constant__ out);
template __global__ void device::lanes_kernel<in>(const __grid_constant__ in);

// Signals of a window in device memory.
using tell = device::window_signal_call;
using hear = device::window_wait_call;
template __global__ void device::lanes_kernel<tell>(const __grid_constant__ tell);
template __global__ void device::lanes_kernel<hear>(const __grid_constant__ hear);
