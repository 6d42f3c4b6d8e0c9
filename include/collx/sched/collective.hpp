// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a collective promises, in chunks: which rank contributes which chunk, and what each rank must hold at the end.
// The verifier, the facts and the pictures read these definitions; algorithms must fulfil them. Independent of
// algorithms and bytes.
#pragma once

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

enum class collective : unsigned char {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    gather,
    scatter,
    all_to_all,
    scan,
    exclusive_scan,
    barrier,
    send_recv,
};

// How many collectives there are.
inline constexpr int collective_count = 12;

// The name of a collective, which is that of its verb; send_recv stands for messages.
constexpr const char* name_of(collective c) {
    constexpr const char* names[] = {"all_reduce",     "reduce",         "broadcast", "all_gather",
                                     "reduce_scatter", "gather",         "scatter",   "all_to_all",
                                     "scan",           "exclusive_scan", "barrier",   "send_recv"};
    return names[static_cast<int>(c)];
}

// Whether one rank, the root, has a role that other ranks do not have.
constexpr bool is_rooted(collective c) {
    return c == collective::reduce || c == collective::broadcast || c == collective::gather || c == collective::scatter;
}

// Whether the collective takes an operator.
constexpr bool reduces(collective c) {
    return c == collective::all_reduce || c == collective::reduce || c == collective::reduce_scatter ||
           c == collective::scan || c == collective::exclusive_scan;
}

// Whether chunk c is the part of rank c, so that there are as many chunks as ranks.
constexpr bool chunks_are_ranks(collective c) {
    return c == collective::all_gather || c == collective::reduce_scatter || c == collective::gather ||
           c == collective::scatter || c == collective::all_to_all;
}

// Whether `out` may be the same buffer as `in`, with chunk c at the same place in both. An exchange would overwrite
// data that are still to be sent.
constexpr bool may_be_in_place(collective c) {
    return c != collective::all_to_all && c != collective::barrier && c != collective::send_recv;
}

// An operand in a proof: chunk `chunk`, reduced over the `count` ranks first, first + 1, … (modulo n). count = 0 stands
// for "nothing"; as a requirement it means that the collective promises nothing about the chunk.
struct contribution {
    int chunk = -1;
    int first = 0;
    int count = 0;
    constexpr bool operator==(const contribution&) const = default;
};

// What rank `rank` of `n` holds in chunk `chunk` of its input when the call begins.
constexpr contribution input_of(collective c, int rank, int chunk, int /*n*/, int root) {
    switch (c) {
        case collective::broadcast:
        case collective::scatter: return rank == root ? contribution{chunk, rank, 1} : contribution{};
        case collective::all_gather:
        case collective::gather: return chunk == rank ? contribution{chunk, rank, 1} : contribution{};
        default: return {chunk, rank, 1};
    }
}

// What rank `rank` of `n` must hold in chunk `chunk` of its output when the call returns.
constexpr contribution output_of(collective c, int rank, int chunk, int n, int root) {
    switch (c) {
        case collective::all_reduce:
        case collective::barrier: return {chunk, 0, n};
        case collective::reduce: return rank == root ? contribution{chunk, 0, n} : contribution{};
        case collective::broadcast: return {chunk, root, 1};
        case collective::all_gather: return {chunk, chunk, 1};
        case collective::reduce_scatter: return chunk == rank ? contribution{chunk, 0, n} : contribution{};
        case collective::gather: return rank == root ? contribution{chunk, chunk, 1} : contribution{};
        case collective::scatter: return chunk == rank ? contribution{chunk, root, 1} : contribution{};
        case collective::all_to_all: return {rank, chunk, 1}; // rank `chunk`'s chunk for this rank
        case collective::scan: return {chunk, 0, rank + 1};
        case collective::exclusive_scan: return rank == 0 ? contribution{} : contribution{chunk, 0, rank};
        case collective::send_recv: return {};
    }
    return {};
}

COLLX_END_NAMESPACE
