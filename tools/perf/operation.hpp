// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What can be measured and what its numbers mean: names, possible sizes, how many elements a rank holds, and the factor
// from algorithm to bus bandwidth (nccl-tests' definitions). Independent of clocks, buffers and communicators.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <collx/sched/collective.hpp>

namespace collx::tools::perf {

// The first ten are those of the comparison harness, in its order: `all` means these.
enum class operation {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    reduce,
    all_to_all,
    all_to_all_v,
    barrier,
    pingpong,
    sendrecv,
    gather,
    scatter,
    scan,
};
inline constexpr int operation_count = 13;
inline constexpr int compared_operations = 10;

// In CSV files, for tables that compare libraries.
inline constexpr const char* short_name(operation op) {
    constexpr const char* names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast", "reduce",
                                     "alltoall",  "alltoallv",      "barrier",   "pingpong",  "sendrecv",
                                     "gather",    "scatter",        "scan"};
    return names[static_cast<int>(op)];
}
// As collx calls it.
inline constexpr const char* long_name(operation op) {
    constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                     "all_to_all", "all_to_all_v",   "barrier",    "pingpong",  "sendrecv",
                                     "gather",     "scatter",        "scan"};
    return names[static_cast<int>(op)];
}

/// all_reduce, allreduce, AllReduce and all-reduce are the same.
inline std::optional<operation> parse_operation(std::string_view text) {
    const auto plain = [](std::string_view t) {
        std::string out;
        for (char c : t)
            if (c != '_' && c != '-') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        return out;
    };
    for (int k = 0; k < operation_count; ++k)
        if (plain(text) == plain(short_name(operation(k)))) return operation(k);
    return std::nullopt;
}

inline constexpr bool is_rooted(operation op) {
    return op == operation::broadcast || op == operation::reduce || op == operation::gather || op == operation::scatter;
}
inline constexpr bool reduces(operation op) {
    return op == operation::all_reduce || op == operation::reduce_scatter || op == operation::reduce ||
           op == operation::scan;
}
// Whether a part of the buffer belongs to each rank.
inline constexpr bool divides_by_ranks(operation op) {
    return op == operation::reduce_scatter || op == operation::all_gather || op == operation::all_to_all ||
           op == operation::all_to_all_v || op == operation::gather || op == operation::scatter;
}
inline constexpr bool has_in_place(operation op) {
    return op == operation::all_reduce || op == operation::reduce_scatter || op == operation::all_gather;
}

/// The collective whose algorithms implement it; none if the library has only one way.
inline constexpr std::optional<collective> collective_of(operation op) {
    switch (op) {
        case operation::all_reduce: return collective::all_reduce;
        case operation::reduce_scatter: return collective::reduce_scatter;
        case operation::all_gather: return collective::all_gather;
        case operation::broadcast: return collective::broadcast;
        case operation::reduce: return collective::reduce;
        case operation::all_to_all: return collective::all_to_all;
        case operation::barrier: return collective::barrier;
        case operation::gather: return collective::gather;
        case operation::scatter: return collective::scatter;
        case operation::scan: return collective::scan;
        default: return std::nullopt;
    }
}
/// Calls f with it as a constant, if there is one.
template <class F>
void with_collective(operation op, F&& f) {
    const auto call_if = [&]<operation Verb>() {
        if constexpr (collective_of(Verb).has_value())
            if (op == Verb) f.template operator()<*collective_of(Verb)>();
    };
    [&]<int... K>(std::integer_sequence<int, K...>) { (call_if.template operator()<operation(K)>(), ...); }
    (std::make_integer_sequence<int, operation_count>{});
}

// Whether peers' private memory can be read through the kernel (--attach).
inline constexpr bool has_attach(operation op) {
    return op == operation::broadcast || op == operation::all_gather || op == operation::all_to_all;
}

/// Bus bandwidth = algorithm bandwidth * factor: what each link carries, comparable across rank counts.
inline double bus_factor(operation op, int ranks) {
    const double n = ranks;
    switch (op) {
        case operation::all_reduce: return 2 * (n - 1) / n;
        case operation::reduce_scatter:
        case operation::all_gather:
        case operation::all_to_all:
        case operation::all_to_all_v:
        case operation::gather:
        case operation::scatter: return (n - 1) / n;
        default: return 1;
    }
}

/// Whether that many ranks can run it.
inline constexpr bool is_possible(operation op, int ranks) { return op != operation::pingpong || ranks == 2; }

/// Rounds down to a size that the operation can have, as nccl-tests does: whole elements, and equally many for each
/// rank if a part belongs to each. Never below the smallest such size: one element, one for each rank, or four for each
/// rank if they are divided unevenly. `bytes` is the larger of a rank's send and receive buffer.
inline std::size_t rounded_bytes(operation op, std::size_t bytes, std::size_t element_bytes, int ranks) {
    if (op == operation::barrier) return 0;
    const std::size_t unit = element_bytes * (divides_by_ranks(op) ? static_cast<std::size_t>(ranks) : 1);
    const std::size_t least = op == operation::all_to_all_v ? 4 * unit : unit;
    return bytes < least ? least : bytes / unit * unit;
}

/// Returns the wanted sizes, rounded, each once. Returns none if that many ranks cannot run the operation.
inline std::vector<std::size_t> rounded_sizes(operation op, const std::vector<std::size_t>& wanted_bytes,
                                              std::size_t element_bytes, int ranks) {
    std::vector<std::size_t> out;
    if (!is_possible(op, ranks)) return out;
    for (const std::size_t wanted : wanted_bytes) {
        const std::size_t bytes = rounded_bytes(op, wanted, element_bytes, ranks);
        if (std::find(out.begin(), out.end(), bytes) == out.end()) out.push_back(bytes);
    }
    return out;
}

/// Returns the bytes that a rank's buffer must hold for all of them.
inline std::size_t largest_rounded(const std::vector<operation>& operations,
                                   const std::vector<std::size_t>& wanted_bytes, std::size_t element_bytes, int ranks) {
    std::size_t most = 64;
    for (const operation op : operations)
        for (const std::size_t wanted : wanted_bytes)
            most = std::max(most, rounded_bytes(op, wanted, element_bytes, ranks));
    return most;
}

/// Returns the elements as MPI counts them: the whole buffer, or one rank's part.
inline std::size_t count_of(operation op, std::size_t bytes, std::size_t element_bytes, int ranks) {
    const std::size_t whole = bytes / element_bytes;
    return divides_by_ranks(op) ? whole / static_cast<std::size_t>(ranks) : whole;
}

// The uneven all-to-all: 1 to 4 shares for each rank. Every rank can compute what any rank sends to any other.
inline std::size_t share(int from, int to) { return 1 + static_cast<std::size_t>((from * 5 + to * 3) % 4); }
inline std::size_t uneven_count(std::size_t whole, int from, int to, int ranks) {
    std::size_t shares = 0;
    for (int k = 0; k < ranks; ++k) shares += share(from, k);
    return whole * share(from, to) / shares;
}
struct uneven_counts {
    std::vector<std::size_t> send, receive;
    std::size_t sent = 0, received = 0;
};
inline uneven_counts uneven_counts_of(std::size_t whole, int rank, int ranks) {
    uneven_counts c;
    for (int k = 0; k < ranks; ++k) {
        c.send.push_back(uneven_count(whole, rank, k, ranks));
        c.receive.push_back(uneven_count(whole, k, rank, ranks));
        c.sent += c.send.back();
        c.received += c.receive.back();
    }
    return c;
}

// ---------------------------------------------------------------------------------------------- elements, operators

enum class element { int8, uint8, int32, uint32, int64, uint64, half, bfloat16, float32, float64 };
inline constexpr std::array<const char*, 10> element_names{"int8",   "uint8", "int32",    "uint32", "int64",
                                                           "uint64", "half",  "bfloat16", "float",  "double"};
inline constexpr std::array<std::size_t, 10> element_sizes{1, 1, 4, 4, 8, 8, 2, 2, 4, 8};

enum class reduction { sum, prod, min, max, avg };
inline constexpr std::array<const char*, 5> reduction_names{"sum", "prod", "min", "max", "avg"};

inline constexpr const char* name_of(element e) { return element_names[static_cast<std::size_t>(e)]; }
inline constexpr std::size_t bytes_of(element e) { return element_sizes[static_cast<std::size_t>(e)]; }
inline constexpr const char* name_of(reduction r) { return reduction_names[static_cast<std::size_t>(r)]; }

} // namespace collx::tools::perf
