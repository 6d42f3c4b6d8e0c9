// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A symbolic operand: which ranks' contributions to which chunk it stands for, and in which order they were combined.
// It has no numerical value.
#pragma once

#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// SplitMix64's finaliser: 64 well-mixed bits of a number.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Operands in cyclic rank order are known exactly, as the interval of `count` ranks first, first + 1, …. Others are
// known as a multiset: `members` is the sum of one hash per contribution, so a doubled or lost contribution shows
// however it came about.
struct value {
    int chunk = -1;
    int first = 0;
    int count = 0; // 0: never written
    bool contiguous = true;
    std::uint64_t members = 0;
    std::uint64_t tree = 0; // hash of the expression: equal trees give equal bits
    constexpr bool is_set() const { return count != 0; }
};

// A rank's contribution to a chunk.
constexpr value leaf(int chunk, int rank) {
    const std::uint64_t h = mix_bits(static_cast<std::uint64_t>(rank));
    return {chunk, rank, 1, true, h, h};
}

// Whether two intervals of ranks have a rank in common; false if one of them is not an interval.
constexpr bool overlaps(const value& a, const value& b, int n) {
    if (!a.contiguous || !b.contiguous) return false; // the multiset shows it at the end
    const int from_a_to_b = b.first >= a.first ? b.first - a.first : b.first - a.first + n;
    const int from_b_to_a = from_a_to_b == 0 ? 0 : n - from_a_to_b;
    return from_a_to_b < a.count || from_b_to_a < b.count;
}

// left (op) right, of the same chunk and without overlap.
constexpr value combine(const value& left, const value& right, int n) {
    value v = left;
    int end = left.first + left.count;
    if (end >= n) end -= n;
    v.contiguous = left.contiguous && right.contiguous && right.first == end;
    v.count = left.count + right.count;
    v.members = left.members + right.members;
    v.tree = mix_bits(left.tree * 3 + right.tree);
    return v;
}

} // namespace sched
COLLX_END_NAMESPACE
