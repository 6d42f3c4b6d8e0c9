// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls in two levels need of an operator and of staging: a reduction that is begun inside domains and completed
// between them, with its hooks told the numbers of the whole call; and pieces made of blocks of several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/element.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/device/staging.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// `count` elements of the block of each of some ranks, one block after the other in a staging buffer.
struct staging_blocks {
    static constexpr int most = 128; // what a kernel's arguments hold
    std::size_t count = 0, pitch = 0, at = 0;
    unsigned blocks = 0;
    std::uint16_t rank[most] = {};

    void add(int r) { rank[blocks++] = static_cast<std::uint16_t>(r); }
    COLLX_HD std::size_t size() const { return count * blocks; }
    COLLX_HD unsigned runs() const { return blocks; }
    COLLX_HD device::staging_run run(unsigned k) const { return {rank[k] * pitch + at, k * count, count}; }
};

// An operator inside a domain, whose results are partial: with its pre hook only.
template <class Op>
struct beginning_op : bare_op<Op> {
    int ranks;

    COLLX_EXEC_CHECK_DISABLE
    template <class X>
    requires has_pre_v<Op, X> COLLX_HD constexpr X pre(const X& x, hook_context c) const {
        c.nranks = ranks;
        return apply_pre(this->op, x, c);
    }
};
// The same operator between domains, whose operands have met the pre hook: with its post hook only.
template <class Op>
struct completing_op : bare_op<Op> {
    int ranks;
    device::staging_runs numbers; // of the results in their owners' buffers

    template <class X>
    requires has_post_v<Op, X>
    constexpr X post(const X& x, hook_context c) const {
        return apply_post(this->op, x, hook_context{ranks, numbers.index(c.index)});
    }
};

// Operators without hooks stay what they are, so that they need no other kernel.
template <class Op, class T>
inline constexpr bool has_hooks_v = has_pre_v<Op, T> || has_post_v<Op, T> || has_post_v<Op, accumulator_t<T>>;

template <class T, class Op>
auto beginning_of(const Op& op, int ranks) {
    if constexpr (has_hooks_v<Op, T>) return beginning_op<Op>{{op}, ranks};
    else return op;
}
template <class T, class Op>
auto completion_of(const Op& op, int ranks, const device::staging_runs& numbers) {
    if constexpr (has_hooks_v<Op, T>) return completing_op<Op>{{op}, ranks, numbers};
    else return op;
}
// Between the two there are neither first operands nor results.
template <class T, class Op>
auto without_hooks(const Op& op) {
    if constexpr (has_hooks_v<Op, T>) return bare_op<Op>{op};
    else return op;
}

} // namespace detail
COLLX_END_NAMESPACE
