// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The comparison that signature.hpp declares, and its error message. Compiled in every program, or once in
// collx::collx.
#pragma once

#include <cstdio>
#include <cstring>

#include <collx/call/signature.hpp>
#include <collx/core/type_name.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline const char* called(const signature& s) {
    switch (s.made_by) {
        case signature::split: return "split";
        case signature::window: return "window";
        case signature::group: return "group";
        default: return name_of(s.what);
    }
}

inline const char* kind_of_call(const signature& s) {
    return s.kind == call_kind::persistent ? "persistent " : s.kind == call_kind::async ? "async " : "";
}

// Ranks send hashes of types and operators, which have one size. An error shows the names of those that are known here
// by what type_hash and op_hash hash.
struct hashed_name {
    name_view hashed;
    const char* shown;
    bool has(std::uint32_t hash) const { return static_cast<std::uint32_t>(spelling_hash(hashed)) == hash; }
};
[[gnu::cold]] inline const char* type_of_hash(std::uint32_t hash) {
    static constexpr hashed_name types[] = {{"bool", "bool"},
                                            {"i8", "int8_t"},
                                            {"u8", "uint8_t"},
                                            {"i16", "int16_t"},
                                            {"u16", "uint16_t"},
                                            {"i32", "int32_t"},
                                            {"u32", "uint32_t"},
                                            {"i64", "int64_t"},
                                            {"u64", "uint64_t"},
                                            {"f32", "float"},
                                            {"f64", "double"},
                                            {"f128", "long double"},
                                            {"collx::basic_half<collx::binary16>", "f16"},
                                            {"collx::basic_half<collx::bfloat16>", "bf16"},
                                            {"collx::basic_fp8<collx::e4m3_format>", "e4m3"},
                                            {"collx::basic_fp8<collx::e5m2_format>", "e5m2"}};
    for (const hashed_name& t : types)
        if (t.has(hash)) return t.shown;
    return nullptr;
}
[[gnu::cold]] inline const char* op_of_hash(std::uint32_t hash) {
    static constexpr const char* ops[] = {"plus",        "multiplies", "min",     "max",         "average",
                                          "bit_and",     "bit_or",     "bit_xor", "logical_and", "logical_or",
                                          "logical_xor", "arg_min",    "arg_max"};
    if (hash == 0) return "none";
    for (const char* op : ops)
        if (hashed_name{op, op}.has(hash)) return op;
    return nullptr;
}

// Writes both names. nullptr: the name is not known. Its hash is not shown: it would tell the reader nothing.
[[gnu::cold]] inline void name_both(const char* first, const char* second, const char* what, char (&a)[40],
                                    char (&b)[40]) {
    if (first != nullptr) std::snprintf(a, sizeof a, "%s", first);
    else std::snprintf(a, sizeof a, "%s %s", second != nullptr ? "another" : "one", what);
    if (second != nullptr) std::snprintf(b, sizeof b, "%s", second);
    else std::snprintf(b, sizeof b, "another %s", what);
}

// The name of the first field in which two calls differ; nullptr if none. `a` and `b` receive the two values, or
// nothing if these are hashes.
[[gnu::cold]] inline const char* difference(const signature& x, const signature& y, char (&a)[40], char (&b)[40]) {
    const bool is_group = x.made_by == signature::group;
    const auto numbers = [&](long long p, long long q, const char* field) {
        std::snprintf(a, sizeof a, "%lld", p);
        std::snprintf(b, sizeof b, "%lld", q);
        return field;
    };
    const auto unnamed = [&](const char* field) { // hashes would tell the reader nothing
        a[0] = b[0] = '\0';
        return field;
    };
    if (x.what != y.what || x.made_by != y.made_by || x.kind != y.kind) {
        std::snprintf(a, sizeof a, "%s%s", kind_of_call(x), called(x));
        std::snprintf(b, sizeof b, "%s%s", kind_of_call(y), called(y));
        return "collective";
    }
    if (x.root != y.root) return numbers(x.root, y.root, "root");
    if (x.count != y.count)
        return numbers(static_cast<long long>(x.count), static_cast<long long>(y.count),
                       is_group ? "number of collectives" : "count");
    if (x.counts_hash != y.counts_hash) return unnamed(is_group ? "size or order of its calls" : "table of counts");
    if (is_group && x.type_hash != y.type_hash) return unnamed("verb or element type of a collective"); // hashes of all
    if (is_group && x.op_hash != y.op_hash) return unnamed("operator of a collective");                 // its calls
    if (x.type_hash != y.type_hash) {
        name_both(type_of_hash(x.type_hash), type_of_hash(y.type_hash), "type", a, b);
        return "element type";
    }
    if (x.op_hash != y.op_hash) {
        name_both(op_of_hash(x.op_hash), op_of_hash(y.op_hash), "operator", a, b);
        return "operator";
    }
    if (x.zero_copy != y.zero_copy)
        return numbers(x.zero_copy, y.zero_copy, "kind of memory (1: collx's shared allocator)");
    if (x.policy_hash != y.policy_hash) return unnamed("policy of with()");
    if (x.sequence != y.sequence) return numbers(x.sequence, y.sequence, "number of calls so far");
    return nullptr;
}

[[gnu::cold]] COLLX_ONCE void compare_signatures(communicator_core& c, signature mine, std::int64_t timeout_ns) {
    mine.sequence = static_cast<std::uint32_t>(c.sequence);
    signature first{}, odd{}; // of rank 0, and of the first rank that differs from it
    char ranks[120] = "", a[40] = "", b[40] = "", p[40], q[40];
    const char* field = nullptr;
    int odd_rank = -1, odd_ranks = 0;
    bool are_odd_alike = true;
    std::size_t used = 0;
    c.exchange_each(
        mine,
        [&](int r, const signature& other) {
            if (r == 0) return void(first = other);
            const char* f = difference(first, other, p, q);
            if (f == nullptr) return;
            if (odd_ranks++ == 0) {
                field = f;
                odd_rank = r;
                odd = other;
                std::memcpy(a, p, sizeof a);
                std::memcpy(b, q, sizeof b);
            }
            are_odd_alike = are_odd_alike && difference(odd, other, p, q) == nullptr;
            if (used + 8 < sizeof ranks)
                used += static_cast<std::size_t>(
                    std::snprintf(ranks + used, sizeof ranks - used, "%s%d", used != 0 ? ", " : "", r));
        },
        timeout_ns);
    if (odd_ranks == 0) return;
    const int culprit = are_odd_alike && 2 * odd_ranks > c.net.size() ? 0 : odd_rank; // most ranks are right
    char who[160], what[160], text[400];
    if (c.net.size() == 2) std::snprintf(who, sizeof who, "ranks 0 and 1 differ");
    else if (culprit == 0 || odd_ranks == 1) std::snprintf(who, sizeof who, "rank %d differs from the others", culprit);
    else std::snprintf(who, sizeof who, "ranks %s differ from rank 0", ranks);
    if (a[0] == '\0') std::snprintf(what, sizeof what, "in the %s", field);
    else std::snprintf(what, sizeof what, "%s is %s on rank 0 and %s on rank %d", field, a, b, odd_rank);
    std::snprintf(text, sizeof text, "call %llu (%s here): %s: %s", static_cast<unsigned long long>(c.sequence),
                  called(mine), who, what);
    mismatch e(errc::mismatch, c.net.rank(), culprit, text,
               "all ranks must make the same calls with the same arguments in the same order");
    e.set_sequence(c.calls());
    throw e;
}

} // namespace detail

COLLX_END_NAMESPACE
