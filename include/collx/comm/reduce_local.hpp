// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// reduce_local: combines two buffers of this process into one, by the operators and loops of the collectives. No
// communicator takes part, nothing is sent.
#pragma once

#include <cstddef>
#include <type_traits>

#include <collx/call/checks.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/buffer.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/loops.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Computes out[i] = a[i] op b[i], in blocks that fit the first-level cache unless all are arrays of one type.
template <class A, class B, class Out, class Op>
void combine_views(const A& a, const B& b, const Out& out, const Op& op) {
    using type = element_of<A>;
    using acc_type = combined_t<Op, type>;
    constexpr bool is_plain = A::is_contiguous && B::is_contiguous && Out::is_contiguous &&
                              std::is_same_v<type, acc_type> && std::is_same_v<type, element_of<B>> &&
                              std::is_same_v<type, element_of<Out>>;
    if constexpr (is_plain) {
        const type* both[2] = {a.data(), b.data()};
        fold_arrays(op, out.data(), both, 2, out.size());
    } else {
        constexpr std::size_t block = 512 / sizeof(acc_type) != 0 ? 512 / sizeof(acc_type) : 1;
        alignas(64) std::byte room[2][block * sizeof(acc_type)];
        auto *const left = reinterpret_cast<acc_type*>(room[0]), *const right = reinterpret_cast<acc_type*>(room[1]);
        for (std::size_t at = 0; at < out.size(); at += block) {
            const std::size_t m = out.size() - at < block ? out.size() - at : block;
            for (std::size_t i = 0; i < m; ++i) {
                left[i] = static_cast<acc_type>(a[at + i]);
                right[i] = static_cast<acc_type>(b[at + i]);
            }
            combine_into_left(op, left, right, m);
            for (std::size_t i = 0; i < m; ++i) out[at + i] = static_cast<element_of<Out>>(left[i]);
        }
    }
}

struct reduce_local_fn {
    template <HostBuffer In, HostBuffer Out, OpArgument Op = plus>
    void operator()(In&& in, Out&& inout, const Op& op = {}) const {
        const auto v = buffer(inout);
        run<Out>(buffer(in), v, v, op);
    }
    template <HostBuffer A, HostBuffer B, HostBuffer Out, OpArgument Op = plus>
    void operator()(A&& a, B&& b, Out&& out, const Op& op = {}) const {
        run<Out>(buffer(a), buffer(b), buffer(out), op);
    }

private:
    template <class Output, class A, class B, class Out, class Op>
    static void run(const A& a, const B& b, const Out& out, const Op& op) {
        require_output<Output>();
        require_reduce_op<Op, element_of<A>>();
        static_assert(alignof(combined_t<Op, element_of<A>>) <= 64,
                      "collx: operands lie at multiples of 64 bytes, and this element type is aligned to more.");
        static_assert(sizeof(combined_t<Op, element_of<A>>) <= std::size_t{256} * 1024,
                      "collx: reduce_local keeps operands on the stack, and this element is longer than 256 KiB. Give "
                      "it the parts of the element as a buffer.");
        constexpr int no_rank = -1;
        if (a.size() != out.size() || b.size() != out.size())
            fail(errc::invalid_argument, no_rank, -1, "give all the same number of elements",
                 "reduce_local: operands have %zu and %zu elements, the result %zu", a.size(), b.size(), out.size());
        require_elements(no_rank, a, "left");
        require_elements(no_rank, b, "right");
        require_elements(no_rank, out, "output");
        require_distinct(no_rank, facts_of(out), "output");
        require_no_overlap(no_rank, a, out);
        require_no_overlap(no_rank, b, out);
        if constexpr (ReduceOp<Op, element_of<A>>) combine_views(a, b, out, op); // else it was refused above
    }
};

} // namespace detail

// Combines two buffers of this process: inout[i] = in[i] op inout[i] (as MPI_Reduce_local), or out[i] = a[i] op b[i].
// Shape: the same number of elements in all tensors. `out` may be one of the operands, but may not overlap them
//     otherwise.
// Cost: one pass; the vector loops of the collectives where all are arrays of one type. No hooks: a result here is
//     an operand elsewhere, so the program itself applies apply_pre and apply_post.
// Errors: invalid_argument (sizes, null, overlapping).
// Example: collx::reduce_local(received, sum);
//     collx::reduce_local(a, b, smaller, collx::min{});
inline constexpr detail::reduce_local_fn reduce_local{};

COLLX_END_NAMESPACE
