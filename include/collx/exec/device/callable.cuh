// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refuses, at compile time, operators, hooks and iterators that a kernel cannot call. Without this nvcc would silently
// leave them out of the kernel, and results would be wrong: code for both sides may call what exists on one side only
// (COLLX_EXEC_CHECK_DISABLE). Here the same calls stand in functions of the device alone, where nvcc refuses them. The
// functions are never run; their names are part of the compiler's message.
#pragma once

#include <collx/core/op.hpp>
#include <collx/core/views.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

template <class Op, class T>
struct callable {
    __device__ static void operator_must_be_marked_COLLX_HD(const Op& op, const T& a) {
        static_cast<void>(op(a, a));
        if constexpr (has_pre_v<Op, T>) static_cast<void>(apply_pre(op, a, hook_context{}));
    }
};
template <class T>
struct callable<plus, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const plus&, const T& a) { static_cast<void>(a + a); }
};
template <class T>
struct callable<average, T> : callable<plus, T> {};
template <class Scale, class T>
struct callable<premultiplied_sum<Scale>, T> : callable<plus, T> {};
template <class T>
struct callable<multiplies, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const multiplies&, const T& a) { static_cast<void>(a * a); }
};
template <class T>
struct callable<min, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const min&, const T& a) { static_cast<void>(a < a); }
};
template <class T>
struct callable<max, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const max&, const T& a) { static_cast<void>(a < a); }
};
template <class Op, class T>
struct callable<commutative_op<Op>, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const commutative_op<Op>& op, const T& a) {
        callable<Op, T>::operator_must_be_marked_COLLX_HD(op.op, a);
    }
};
// Named so that the compiler's message about a host-only hook says what to do.
template <class F, class T>
__device__ void hook_must_be_marked_COLLX_HD(const F& f, const T& a) {
    if constexpr (std::is_invocable_v<const F&, const T&, hook_context>) static_cast<void>(f(a, hook_context{}));
    else if constexpr (std::is_invocable_v<const F&, const T&>) static_cast<void>(f(a));
}
template <class Op, class F, class T>
struct callable<with_pre_op<Op, F>, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const with_pre_op<Op, F>& op, const T& a) {
        callable<Op, T>::operator_must_be_marked_COLLX_HD(op.op, a);
        hook_must_be_marked_COLLX_HD(op.hook, a);
    }
};
template <class Op, class F, class T>
struct callable<with_post_op<Op, F>, T> {
    __device__ static void operator_must_be_marked_COLLX_HD(const with_post_op<Op, F>& op, const T& a) {
        callable<Op, T>::operator_must_be_marked_COLLX_HD(op.op, a);
        hook_must_be_marked_COLLX_HD(op.hook, a);
    }
};

// The same for the iterator of an input that is computed while it is read.
template <class View>
struct readable {
    __device__ static void iterator_must_be_device_code(const View&) {}
};
template <class Iterator>
struct readable<input_view<Iterator>> {
    __device__ static void iterator_must_be_device_code(const input_view<Iterator>& v) {
        const auto& it = reinterpret_cast<const Iterator&>(v); // never run
        static_cast<void>(*(it + 0));
    }
};

// Refuses operators and iterators that a kernel cannot call. Never run.
template <class Types, class Operands>
__device__ void require_device_code(const Operands& r, const typename Types::acc_type& a) {
    if constexpr (Types::reduces)
        callable<typename Types::op_type, typename Types::acc_type>::operator_must_be_marked_COLLX_HD(r.op, a);
    readable<typename Types::in_view>::iterator_must_be_device_code(r.in);
}

// The same for the arguments of a launch.
template <template <class, class> class Args, class Algorithm, class Types>
__device__ void require_device_code_of(const Args<Algorithm, Types>& a) {
    require_device_code<Types>(a.rank(0), typename Types::acc_type{});
}

} // namespace device
COLLX_END_NAMESPACE
