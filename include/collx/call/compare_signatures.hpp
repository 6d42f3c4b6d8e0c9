// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The comparison that signature.hpp declares, and its error message. Compiled in every program, or once in
// collx::collx.
#pragma once

#include <cstdio>
#include <cstring>

#include <collx/call/signature.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline const char* called(const signature& s) {
    return s.made_by == signature::split ? "split" : s.made_by == signature::group ? "group" : name_of(s.what);
}

inline const char* kind_of_call(const signature& s) { return s.made_by == signature::persistent ? "persistent " : ""; }

// The name of the first field in which two calls differ; nullptr if none. `a` and `b` receive the two values.
[[gnu::cold]] inline const char* difference(const signature& x, const signature& y, char (&a)[40], char (&b)[40]) {
    const auto numbers = [&](long long p, long long q) {
        std::snprintf(a, sizeof a, "%lld", p);
        std::snprintf(b, sizeof b, "%lld", q);
    };
    if (x.what != y.what || x.made_by != y.made_by) {
        std::snprintf(a, sizeof a, "%s%s", kind_of_call(x), called(x));
        std::snprintf(b, sizeof b, "%s%s", kind_of_call(y), called(y));
        return "collective";
    }
    if (x.root != y.root) return numbers(x.root, y.root), "root";
    if (x.count != y.count)
        return numbers(static_cast<long long>(x.count), static_cast<long long>(y.count)),
               x.made_by == signature::group ? "number of collectives" : "count";
    if (x.counts_hash != y.counts_hash)
        return numbers(static_cast<long long>(x.counts_hash % 10000), static_cast<long long>(y.counts_hash % 10000)),
               "table of counts";
    if (x.type_hash != y.type_hash) return numbers(x.type_hash, y.type_hash), "element type";
    if (x.op_hash != y.op_hash) return numbers(x.op_hash, y.op_hash), "operator";
    if (x.zero_copy != y.zero_copy)
        return numbers(x.zero_copy, y.zero_copy), "kind of memory (1: collx's shared allocator)";
    if (x.policy_hash != y.policy_hash) return numbers(x.policy_hash, y.policy_hash), "policy";
    if (x.sequence != y.sequence) return numbers(x.sequence, y.sequence), "number of calls so far";
    return nullptr;
}

[[gnu::cold]] COLLX_ONCE void compare_signatures(communicator_core& c, signature mine, std::int64_t timeout_ns) {
    mine.sequence = static_cast<std::uint32_t>(c.sequence);
    signature first{};
    char ranks[120] = "", a[40] = "", b[40] = "", p[40], q[40];
    const char* field = nullptr;
    int culprit = -1;
    std::size_t used = 0;
    c.exchange(
        &mine, sizeof mine,
        [&](int r, const std::byte* line) {
            signature other;
            std::memcpy(&other, line, sizeof other);
            if (r == 0) return void(first = other);
            const char* f = difference(first, other, p, q);
            if (f == nullptr) return;
            if (culprit < 0) {
                field = f, culprit = r;
                std::memcpy(a, p, sizeof a);
                std::memcpy(b, q, sizeof b);
            }
            if (used + 8 < sizeof ranks)
                used += static_cast<std::size_t>(
                    std::snprintf(ranks + used, sizeof ranks - used, "%s%d", used != 0 ? ", " : "", r));
        },
        timeout_ns);
    if (culprit < 0) return;
    char text[400];
    std::snprintf(text, sizeof text,
                  "call %llu (%s here): rank 0 differs from rank %s: %s is %s on rank 0 and %s on rank %d",
                  static_cast<unsigned long long>(c.sequence), called(mine), ranks, field, a, b, culprit);
    mismatch e(errc::mismatch, c.net.rank(), culprit, text,
               "all ranks must make the same calls with the same arguments in the same order");
    e.set_sequence(c.calls());
    throw e;
}

} // namespace detail

COLLX_END_NAMESPACE
