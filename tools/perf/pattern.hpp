// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The inputs of ranks and the expected results. Inputs repeat with a short period, so that the expected result of any
// element is one look into a table that was computed without the library. `exact`: small whole numbers, where any order
// of operands gives the same bits. `rough`: numbers that round, compared with a wider sum within an error bound.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <collx/core/half.hpp>

#include "operation.hpp"

namespace collx::tools::perf {

enum class pattern_kind { exact, rough };

/// Bits of the significand: they give the unit in the last place of 1, and the largest range of consecutive integers.
template <class T>
constexpr int mantissa_bits() {
    if constexpr (std::is_same_v<T, collx::f16>) return 11;
    else if constexpr (std::is_same_v<T, collx::bf16>) return 8;
    else return std::numeric_limits<T>::digits;
}

// A part of the receive buffer and what it must hold: elements of rank `from`'s input, or the reduction of the inputs
// of ranks 0 … last_rank.
struct expected_part {
    std::size_t at, count, offset;
    bool is_reduced;
    int rank; // from, or last_rank
};

/// Returns the parts of the whole receive buffer of `rank`. Parts whose contents are unspecified are left out.
inline std::vector<expected_part> expected_parts(operation op, std::size_t whole, int rank, int ranks, int root,
                                                 bool in_place) {
    const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
    const std::size_t part = whole / n;
    std::vector<expected_part> out;
    switch (op) {
        case operation::all_reduce: out.push_back({0, whole, 0, true, ranks - 1}); break;
        case operation::reduce:
            if (rank == root) out.push_back({0, whole, 0, true, ranks - 1});
            break;
        case operation::scan: out.push_back({0, whole, 0, true, rank}); break;
        case operation::reduce_scatter:
            out.push_back({in_place ? me * part : 0, part, me * part, true, ranks - 1});
            break;
        case operation::broadcast: out.push_back({0, whole, 0, false, root}); break;
        case operation::gather:
            if (rank != root) break;
            [[fallthrough]];
        case operation::all_gather:
            for (int r = 0; r < ranks; ++r) out.push_back({static_cast<std::size_t>(r) * part, part, 0, false, r});
            break;
        case operation::scatter: out.push_back({0, part, me * part, false, root}); break;
        case operation::all_to_all:
            for (int r = 0; r < ranks; ++r)
                out.push_back({static_cast<std::size_t>(r) * part, part, me * part, false, r});
            break;
        case operation::all_to_all_v: {
            std::size_t at = 0;
            for (int r = 0; r < ranks; ++r) {
                std::size_t offset = 0;
                for (int k = 0; k < rank; ++k) offset += uneven_count(whole, r, k, ranks);
                const std::size_t count = uneven_count(whole, r, rank, ranks);
                out.push_back({at, count, offset, false, r});
                at += count;
            }
            break;
        }
        case operation::sendrecv: out.push_back({0, whole, 0, false, (rank + ranks - 1) % ranks}); break;
        case operation::pingpong:
            if (rank < 2) out.push_back({0, whole, 0, false, 1 - rank});
            break;
        case operation::barrier: break;
    }
    return out;
}

template <class T>
class pattern {
public:
    // The widest type there is, so that sums of doubles can be checked.
    using wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, long double>;

    pattern(pattern_kind kind, reduction op, int ranks) : kind_(kind), op_(op), ranks_(ranks) {}

    // A prime: blocks of the usual sizes begin at different places of it.
    [[nodiscard]] static constexpr std::size_t period() { return 1021; }

    [[nodiscard]] T input(int rank, std::size_t i) const {
        i %= period();
        if (kind_ == pattern_kind::rough && !std::is_integral_v<T>) return from_wide(noise(rank, i));
        const std::size_t mixed = (i * 0x9e3779b1u & 0xffff'ffff) >> 16; // no two places begin the same row
        if (op_ == reduction::prod) return from_whole(1 + (static_cast<std::size_t>(rank) + mixed) % 2);
        return from_whole(static_cast<std::size_t>(rank) + 1 + mixed % 7);
    }

    void fill(T* to, std::size_t count, int rank) const {
        std::vector<T> row(period());
        for (std::size_t i = 0; i < row.size(); ++i) row[i] = input(rank, i);
        for (std::size_t i = 0; i < count; i += row.size())
            std::memcpy(to + i, row.data(), (count - i < row.size() ? count - i : row.size()) * sizeof(T));
    }

    /// Counts the elements of `p` (which begins at the receive buffer) that are not what this part must be.
    [[nodiscard]] std::uint64_t count_wrong(const T* p, const expected_part& part) const {
        const std::size_t length = period();
        std::vector<T> want(length);
        std::vector<double> most(length, 0);
        for (std::size_t i = 0; i < length; ++i)
            if (part.is_reduced) reduced(part.rank, i, want[i], most[i]);
            else want[i] = input(part.rank, i);
        std::uint64_t wrong = 0;
        for (std::size_t i = 0, k = part.offset % length; i < part.count; ++i) {
            const T got = p[part.at + i];
            if (std::memcmp(&got, &want[k], sizeof(T)) != 0 && !is_near(got, want[k], most[k])) ++wrong;
            if (++k == length) k = 0;
        }
        return wrong;
    }

private:
    static T from_whole(std::size_t v) {
        if constexpr (std::is_integral_v<T>) return static_cast<T>(v);
        else return from_wide(static_cast<long double>(v));
    }
    static T from_wide(long double v) {
        if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(v);
        else return T(static_cast<float>(v));
    }
    static long double noise(int rank, std::size_t i) {
        std::uint64_t z = (static_cast<std::uint64_t>(rank) << 32) + i + 0x9e37'79b9'7f4a'7c15u; // splitmix64's mixer
        z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9u;
        z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebu;
        return static_cast<long double>((z >> 12) & 0xffff'ffffu) / 0x1p31L - 1;
    }
    static bool is_near(const T& got, const T& want, double most) {
        if constexpr (std::is_integral_v<T>) return false;
        else {
            const auto a = static_cast<double>(got), b = static_cast<double>(want);
            return a == b || std::fabs(a - b) <= most;
        }
    }

    // Computes element i of the reduction over ranks 0 … last, and how far a correct result may be from it.
    void reduced(int last, std::size_t i, T& want, double& most) const {
        wide all = as_wide(input(0, i)), size = absolute(all);
        for (int r = 1; r <= last; ++r) {
            const wide x = as_wide(input(r, i));
            size += absolute(x);
            switch (op_) {
                case reduction::prod: all *= x; break;
                case reduction::min: all = less(x, all) ? x : all; break;
                case reduction::max: all = less(all, x) ? x : all; break;
                default: all += x;
            }
        }
        if constexpr (std::is_integral_v<T>) {
            want = static_cast<T>(all);
            if (op_ == reduction::avg)
                want = static_cast<T>(
                    want / static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(ranks_));
        } else {
            constexpr int bits = mantissa_bits<T>();
            // Every rank's operation may round once, in the type that travels.
            const double unit = std::ldexp(1.0, 1 - bits) * (last + 1);
            const bool rounds = kind_ == pattern_kind::rough || size > std::ldexp(1.0L, bits);
            if (op_ == reduction::prod) most = rounds ? unit * static_cast<double>(absolute(all)) : 0;
            else if (op_ == reduction::sum) most = rounds ? unit * static_cast<double>(size) : 0;
            else if (op_ == reduction::avg) {
                all /= ranks_;
                most = unit * static_cast<double>(size) / ranks_;
            }
            want = from_wide(all);
        }
    }
    static wide as_wide(const T& x) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<wide>(static_cast<std::int64_t>(x)); // wraps as the type does
        else if constexpr (std::is_arithmetic_v<T>) return static_cast<wide>(x);
        else return static_cast<wide>(static_cast<float>(x));
    }
    static wide absolute(wide x) {
        if constexpr (std::is_integral_v<T>) return x;
        else return x < 0 ? -x : x;
    }
    static bool less(wide a, wide b) {
        if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
            return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b);
        else return a < b;
    }

    pattern_kind kind_;
    reduction op_;
    int ranks_;
};

/// A hash, to compare what ranks hold without moving it.
inline std::uint64_t hash_of(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    std::uint64_t h = 0x9e37'79b9'7f4a'7c15u ^ bytes;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        std::uint64_t word;
        std::memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51'afd7'ed55'8ccdu;
        h ^= h >> 32;
    }
    for (; bytes != 0; ++p, --bytes) h = (h ^ *p) * 0xff51'afd7'ed55'8ccdu;
    return h ^ (h >> 29);
}

} // namespace collx::tools::perf
