// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// check_code.py compiles this once unchanged, and once for each of the numbered mistakes, which must not compile:
// otherwise the kernel would silently lack what it cannot call.
#include <array>

#include <collx/gpu/team.cuh>

#ifndef MISTAKE
#define MISTAKE 0
#endif
#if MISTAKE == 0
#define SIDE COLLX_HD
#else
#define SIDE
#endif

using namespace collx;

struct sum {
    SIDE float operator()(float a, float b) const { return a + b; }
};
struct number {
    float x;
    SIDE friend number operator+(const number& a, const number& b) { return {a.x + b.x}; }
};
struct twice {
    SIDE float operator()(float a) const { return 2 * a; }
};
struct counting {
    using value_type = float;
    std::ptrdiff_t at;
    SIDE float operator*() const { return static_cast<float>(at); }
    COLLX_HD counting operator+(std::ptrdiff_t d) const { return {at + d}; }
    COLLX_HD std::ptrdiff_t operator-(const counting& o) const { return at - o.at; }
};

template <class In, class Out, class Op>
using types = device::call_types<In, Out, Op>;
using floats = device_view<float>;
#define KERNEL(in, out, op)                                                                          \
    template __global__ void                                                                         \
    device::fused_kernel<device::packet_protocol, 1, algo::one_shot_all_reduce, types<in, out, op>>( \
        const __grid_constant__ device::fused_args<algo::one_shot_all_reduce, types<in, out, op>>)
using doubled = with_post_op<plus, twice>;
using halved = with_pre_op<commutative_op<sum>, twice>;

#if MISTAKE == 0 || MISTAKE == 1
KERNEL(floats, floats, sum);
#endif
#if MISTAKE == 0 || MISTAKE == 2
KERNEL(device_view<number>, device_view<number>, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 3
KERNEL(floats, floats, doubled);
#endif
#if MISTAKE == 0 || MISTAKE == 4
KERNEL(floats, floats, halved);
#endif
#if MISTAKE == 0 || MISTAKE == 5
KERNEL(input_view<counting>, floats, plus);
#endif
