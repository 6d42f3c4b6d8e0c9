// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators and staging ranges for calls in two levels. A reduction begins inside domains and is completed between
// them; its hooks get the element numbers of the whole call. A piece may consist of blocks of several ranks.
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

// `count` elements of the block of each of several ranks, one after the other in a staging buffer.
struct staging_blocks {
    static constexpr int most = 128; // as many as fit a kernel's arguments
    std::size_t count = 0, pitch = 0, at = 0;
    unsigned blocks = 0;
    std::uint16_t rank[most] = {};

    void add(int r) { rank[blocks++] = static_cast<std::uint16_t>(r); }
    COLLX_HD std::size_t size() const { return count * blocks; }
    COLLX_HD unsigned runs() const { return blocks; }
    COLLX_HD device::staging_run run(unsigned k) const { return {rank[k] * pitch + at, k * count, count}; }
};

// An operator inside a domain. Its results are partial, so it applies only the pre hook.
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
// The same operator between domains. Its operands have passed the pre hook, so it applies only the post hook.
template <class Op>
struct completing_op : bare_op<Op> {
    int ranks;
    device::staging_runs numbers; // where the results lie in their owners' buffers

    template <class X>
    requires has_post_v<Op, X>
    constexpr X post(const X& x, hook_context c) const {
        return apply_post(this->op, x, hook_context{ranks, numbers.index(c.index)});
    }
};

// Operators without hooks keep their type, so that they need no further kernel.
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
// For steps between these two, which have neither first operands nor final results: no hook applies.
template <class T, class Op>
auto without_hooks(const Op& op) {
    if constexpr (has_hooks_v<Op, T>) return bare_op<Op>{op};
    else return op;
}

} // namespace detail
COLLX_END_NAMESPACE
