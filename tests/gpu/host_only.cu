// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// check_code.py compiles this once unchanged, and once for each of the numbered mistakes, which must not compile:
// otherwise the kernel would silently lack what it cannot call. The word behind a number is in the compiler's message.
#include <array>

#include <collx/algo/direct.hpp>
#include <collx/core/mappings.hpp>
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
// Its sum is marked, all else is not.
struct other_number {
    float x;
    COLLX_HD friend other_number operator+(const other_number& a, const other_number& b) { return {a.x + b.x}; }
    SIDE friend other_number operator/(const other_number& a, int n) { return {a.x / static_cast<float>(n)}; }
    SIDE friend other_number operator*(const other_number& a, float f) { return {a.x * f}; }
    SIDE friend other_number operator&(const other_number& a, const other_number& b) { return {a.x + b.x}; }
    SIDE friend other_number operator|(const other_number& a, const other_number& b) { return {a.x - b.x}; }
    SIDE friend other_number operator^(const other_number& a, const other_number& b) { return {a.x * b.x}; }
    SIDE friend bool operator<(const other_number& a, const other_number& b) { return a.x < b.x; }
    friend constexpr bool operator==(const other_number& a, const other_number& b) = default;
};
struct truth {
    bool x;
    truth() = default;
    COLLX_HD explicit truth(bool b) : x(b) {}
    SIDE explicit operator bool() const { return x; }
};
struct length {
    float x;
    SIDE explicit operator float() const { return x; }
};
struct twice {
    SIDE float operator()(float a) const { return 2 * a; }
};
struct scaled {
    SIDE float operator()(float a, hook_context c) const { return a * static_cast<float>(c.index); }
};
struct marked_sum {
    COLLX_HD float operator()(float a, float b) const { return a + b; }
};
struct sum_of_squares : marked_sum {
    SIDE float pre(float a) const { return a * a; }
};
struct sum_of_places : marked_sum {
    SIDE float pre(float a, hook_context c) const { return a * static_cast<float>(c.index); }
};
struct mean : marked_sum {
    SIDE float post(float a, hook_context c) const { return a / static_cast<float>(c.nranks); }
};
struct counting {
    using value_type = float;
    std::ptrdiff_t at;
    SIDE float operator*() const { return static_cast<float>(at); }
    COLLX_HD counting operator+(std::ptrdiff_t d) const { return {at + d}; }
    COLLX_HD std::ptrdiff_t operator-(const counting& o) const { return at - o.at; }
};
struct every_third {
    COLLX_HD std::size_t size() const { return 100; }
    COLLX_HD std::size_t run() const { return 1; }
    SIDE std::size_t offset(std::size_t i) const { return 3 * i; }
};
// Like std::layout_right's mapping, whose functions are constexpr and not marked.
struct extents {
    using index_type = std::size_t;
    using rank_type = std::size_t;
    static constexpr std::size_t rank() { return 2; }
    COLLX_HD constexpr std::size_t extent(std::size_t) const { return 10; }
};
struct layout {
    extents e;
    COLLX_HD constexpr const extents& extents() const { return e; }
    SIDE constexpr std::size_t operator()(std::size_t i, std::size_t j) const { return 20 * i + j; }
};
struct reversed {
    using value_type = float;
    static constexpr bool is_contiguous = false, is_output = true, is_window = false;
    float* end;
    COLLX_HD std::size_t size() const { return 100; }
    SIDE float& operator[](std::size_t i) const { return *(end - 1 - i); }
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
using hidden = commutative_op<with_post_op<plus, scaled>>;
using numbers = device_view<other_number>;
using truths = device_view<truth>;
using places = device_view<indexed<other_number, int>>;
using tensor = mapped_view<float, mdspan_mapping<layout>>;

#if MISTAKE == 0 || MISTAKE == 1 // operator_must_be_marked_COLLX_HD
KERNEL(floats, floats, sum);
#endif
#if MISTAKE == 0 || MISTAKE == 2 // library_operator_must_be_marked_COLLX_HD
KERNEL(device_view<number>, device_view<number>, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 3 // hook_must_be_marked_COLLX_HD
KERNEL(floats, floats, doubled);
#endif
#if MISTAKE == 0 || MISTAKE == 4 // operator_must_be_marked_COLLX_HD
KERNEL(floats, floats, halved);
#endif
#if MISTAKE == 0 || MISTAKE == 5 // place_must_be_device_code
KERNEL(input_view<counting>, floats, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 6 // library_operator_must_be_marked_COLLX_HD
KERNEL(numbers, numbers, average);
#endif
#if MISTAKE == 0 || MISTAKE == 7 // library_operator_must_be_marked_COLLX_HD
KERNEL(numbers, numbers, premultiplied_sum<float>);
#endif
#if MISTAKE == 0 || MISTAKE == 8 // library_operator_must_be_marked_COLLX_HD
KERNEL(numbers, numbers, bit_and);
#endif
#if MISTAKE == 0 || MISTAKE == 9 // library_operator_must_be_marked_COLLX_HD
KERNEL(numbers, numbers, bit_or);
#endif
#if MISTAKE == 0 || MISTAKE == 10 // library_operator_must_be_marked_COLLX_HD
KERNEL(numbers, numbers, bit_xor);
#endif
#if MISTAKE == 0 || MISTAKE == 11 // library_operator_must_be_marked_COLLX_HD
KERNEL(truths, truths, logical_xor);
#endif
#if MISTAKE == 0 || MISTAKE == 12 // order_must_be_marked_COLLX_HD
KERNEL(places, places, arg_min);
#endif
#if MISTAKE == 0 || MISTAKE == 13 // operator_must_be_marked_COLLX_HD
KERNEL(floats, floats, sum_of_squares);
#endif
#if MISTAKE == 0 || MISTAKE == 14 // operator_must_be_marked_COLLX_HD
KERNEL(floats, floats, sum_of_places);
#endif
#if MISTAKE == 0 || MISTAKE == 15 // operator_must_be_marked_COLLX_HD
KERNEL(floats, floats, mean);
#endif
#if MISTAKE == 0 || MISTAKE == 16 // hook_must_be_marked_COLLX_HD
KERNEL(floats, floats, hidden);
#endif
#if MISTAKE == 0 || MISTAKE == 17 // mapping_must_be_device_code
using thirds = mapped_view<float, every_third>;
KERNEL(thirds, floats, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 18 // layout_must_be_device_code
KERNEL(tensor, floats, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 19 // layout_must_be_device_code
KERNEL(floats, tensor, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 20 // place_must_be_device_code
KERNEL(on_device_view<input_view<counting>>, floats, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 21 // view_must_be_device_code
KERNEL(reversed, floats, plus);
#endif
#if MISTAKE == 0 || MISTAKE == 22 // conversion_must_be_marked_COLLX_HD
using gathered = types<device_view<length>, floats, device::move_only>;
template __global__ void device::fused_kernel<device::simple_protocol, 1, algo::one_shot_all_gather, gathered>(
    const __grid_constant__ device::fused_args<algo::one_shot_all_gather, gathered>);
#endif
#if MISTAKE == 0 || MISTAKE == 23 // operator_must_be_marked_COLLX_HD
using grouped = device::fused_call<device::packet_protocol, 1, algo::one_shot_all_reduce, types<floats, floats, sum>>;
template __global__ void device::fused_group_kernel<grouped>(const __grid_constant__ device::call_list<grouped>);
#endif
