// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: views and operators must fit a kernel's parameters
#include <collx/algo/one_shot.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/device/call_mix.hpp>

// A table that travels with each call.
struct table {
#ifdef COLLX_FAIL
    float weights[8192];
#else
    float weights[4096];
#endif
    COLLX_HD float operator()(float a, float b) const { return a + b * weights[0]; }
};
using view = collx::contiguous_view<float>;
using types = collx::device::call_types<view, view, table, float, collx::device::even_cuts, true>;
using call = collx::device::fused_call<collx::device::simple_protocol, 1, collx::algo::one_shot_reduce, types>;

void put(collx::device::call_mix<call>& into, const call& one) { into.add(one); }
