// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The checked policy: before a call every rank shows what it is about to do, and everybody compares. One exchange of
// one cache line; a disagreement becomes the same sentence on all ranks instead of a hang.
#pragma once

#include <cstdint>
#include <cstdio>

#include <collx/comm/communicator.hpp>
#include <collx/sched/collective.hpp>

COLLX_BEGIN_NAMESPACE

struct signature {
    std::uint64_t count = 0;       // elements per rank, as the collective counts them
    std::uint64_t counts_hash = 0; // of the table of a v-variant that all ranks must share
    std::uint32_t sequence = 0;
    std::uint32_t type_hash = 0;
    std::uint32_t op_hash = 0;
    std::int32_t root = 0;
    std::uint32_t policy_hash = 0;
    collective what = collective::barrier;
    std::uint8_t zero_copy = 0;
};
static_assert(sizeof(signature) <= signal_line::inline_bytes);

namespace detail {

// The first field in which two calls differ, in words; nullptr if none. `a` and `b` receive the two values.
inline const char* difference(const signature& x, const signature& y, char (&a)[40], char (&b)[40]) {
    const auto numbers = [&](long long p, long long q) {
        std::snprintf(a, sizeof a, "%lld", p);
        std::snprintf(b, sizeof b, "%lld", q);
    };
    if (x.what != y.what) {
        std::snprintf(a, sizeof a, "%s", name_of(x.what));
        std::snprintf(b, sizeof b, "%s", name_of(y.what));
        return "collective";
    }
    if (x.root != y.root) return numbers(x.root, y.root), "root";
    if (x.count != y.count) return numbers(static_cast<long long>(x.count), static_cast<long long>(y.count)), "count";
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

// Everybody compares with rank 0 and names all ranks that differ from it, so that every rank prints the same names.
inline void compare_signatures(communicator::core& c, signature mine, std::int64_t timeout_ns) {
    mine.sequence = static_cast<std::uint32_t>(c.sequence);
    signature first{};
    char ranks[120] = "", a[40] = "", b[40] = "";
    const char* field = nullptr;
    int culprit = -1;
    std::size_t used = 0;
    c.exchange(
        &mine, sizeof mine,
        [&](int r, const std::byte* line) {
            signature other;
            std::memcpy(&other, line, sizeof other);
            if (r == 0) return void(first = other);
            char p[40], q[40];
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
    if (culprit >= 0)
        fail(errc::mismatch, c.net.rank(), culprit,
             "all ranks must make the same calls with the same arguments in the same order",
             "in call %llu (%s here) rank 0 differs from rank %s: %s is %s on rank 0 and %s on rank %d",
             static_cast<unsigned long long>(c.sequence), name_of(mine.what), ranks, field, a, b, culprit);
}

} // namespace detail

COLLX_END_NAMESPACE
