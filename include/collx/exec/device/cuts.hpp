// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the chunks of one call lie in every rank's buffers, as plain numbers that travel with the kernel's arguments. A
// kernel is compiled for one of four kinds: chunks of equal size, counts per rank, counts per pair of ranks, and what a
// rank knows of its own messages alone. In the first three messages have the same size at both ends by construction.
// Knows no step and no element.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/error.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/layout.hpp>
#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Chunks of equal size, the same on all ranks: no table.
class even_cuts {
public:
    static constexpr bool is_private = false; // whether ranks know only their own numbers

    even_cuts() = default;
    // Errors: invalid_argument for layouts with tables, which lie in host memory.
    even_cuts(const chunk_layout& in, const chunk_layout& out) : in_(in), out_(out) {
        if (in.is_table() || out.is_table())
            fail(errc::invalid_argument, -1, -1, "pass table_cuts or pair_cuts",
                 "a kernel cannot read the host's tables");
    }

    COLLX_HD constexpr std::size_t size(bool is_out, int, int chunk) const { return (is_out ? out_ : in_).size(chunk); }
    COLLX_HD constexpr std::size_t offset(bool is_out, int, int chunk) const {
        return (is_out ? out_ : in_).offset(chunk);
    }
    // The largest chunk of any rank.
    constexpr std::size_t largest(int, int) const { return in_.size(0) > out_.size(0) ? in_.size(0) : out_.size(0); }
    // How many elements a rank's buffer must have.
    constexpr std::size_t extent(bool is_out, int rank) const {
        const side& s = is_out ? out_ : in_;
        return s.packed ? s.size(rank) : s.total;
    }

private:
    struct side {
        std::size_t stride = 0, total = 0;
        bool packed = false;
        constexpr side() = default;
        constexpr side(const chunk_layout& l) : stride(l.stride()), total(l.total()), packed(l.is_packed()) {}
        COLLX_HD constexpr std::size_t size(int c) const {
            const std::size_t begin = stride * static_cast<std::size_t>(c);
            return begin >= total ? 0 : total - begin < stride ? total - begin : stride;
        }
        COLLX_HD constexpr std::size_t offset(int c) const {
            const std::size_t begin = stride * static_cast<std::size_t>(c);
            return packed ? 0 : begin < total ? begin : total;
        }
    };
    side in_, out_;
};

// Counts per rank, the same tables on all ranks: chunk c has sizes[c] elements, from in_at[c] on in every input (0
// where a rank's input holds only its own chunk) and from out_at[c] on in every output.
struct table_cuts {
    static constexpr bool is_private = false;
    std::size_t sizes[max_ranks] = {}, in_at[max_ranks] = {}, out_at[max_ranks] = {};

    COLLX_HD constexpr std::size_t size(bool, int, int chunk) const { return sizes[chunk]; }
    COLLX_HD constexpr std::size_t offset(bool is_out, int, int chunk) const {
        return is_out ? out_at[chunk] : in_at[chunk];
    }
    constexpr std::size_t largest(int, int chunks) const {
        std::size_t most = 0;
        for (int c = 0; c < chunks; ++c) most = sizes[c] > most ? sizes[c] : most;
        return most;
    }
};

// Counts per pair of ranks: rank r sends sizes[r][d] elements to rank d, from in_at[r][d] of its input on; they are
// stored at out_at[d][r] of d's output.
struct pair_cuts {
    static constexpr bool is_private = false;
    std::size_t sizes[max_ranks][max_ranks] = {}, in_at[max_ranks][max_ranks] = {}, out_at[max_ranks][max_ranks] = {};

    COLLX_HD constexpr std::size_t size(bool is_out, int rank, int chunk) const {
        return is_out ? sizes[chunk][rank] : sizes[rank][chunk];
    }
    COLLX_HD constexpr std::size_t offset(bool is_out, int rank, int chunk) const {
        return is_out ? out_at[rank][chunk] : in_at[rank][chunk];
    }
    constexpr std::size_t largest(int ranks, int) const {
        std::size_t most = 0;
        for (int r = 0; r < ranks; ++r)
            for (int c = 0; c < ranks; ++c) most = sizes[r][c] > most ? sizes[r][c] : most;
        return most;
    }
};

// What a rank knows of its own messages: chunk c has sizes[0][c] elements of its input, from at[0][c] on, and
// sizes[1][c] of its output. Only for algorithms whose every message goes straight from a sender to a receiver. The two
// sizes must agree, and both ends must cut pieces of one given length.
struct own_cuts {
    static constexpr bool is_private = true;
    std::size_t sizes[2][max_ranks] = {}, at[2][max_ranks] = {};
    std::uint16_t kinds[2][max_ranks] = {}; // of a program's messages, see part_word; 0: there is none

    COLLX_HD constexpr std::size_t size(bool is_out, int, int chunk) const { return sizes[is_out ? 1 : 0][chunk]; }
    COLLX_HD constexpr std::uint16_t kind(bool is_out, int chunk) const { return kinds[is_out ? 1 : 0][chunk]; }
    COLLX_HD constexpr bool is_empty_message(bool is_out, int chunk) const {
        return kinds[is_out ? 1 : 0][chunk] != 0 && sizes[is_out ? 1 : 0][chunk] == 0;
    }
    constexpr bool has_messages() const {
        for (const auto& side : kinds)
            for (const std::uint16_t kind : side)
                if (kind != 0) return true;
        return false;
    }
    COLLX_HD constexpr std::size_t offset(bool is_out, int, int chunk) const { return at[is_out ? 1 : 0][chunk]; }
    constexpr std::size_t largest(int, int chunks) const {
        std::size_t most = 0;
        for (const auto& side : sizes)
            for (int c = 0; c < chunks; ++c) most = side[c] > most ? side[c] : most;
        return most;
    }
};

// A run of a buffer's elements.
struct part {
    std::size_t at, count; // elements
};

// The elements of one piece of a chunk.
template <class Cuts>
COLLX_HD constexpr part cut(const Cuts& cuts, bool is_out, int rank, int chunk, std::size_t piece, std::size_t elems) {
    const std::size_t size = cuts.size(is_out, rank, chunk), begin = piece * elems;
    const std::size_t at = cuts.offset(is_out, rank, chunk);
    if (begin >= size) return {at, 0};
    return {at + begin, size - begin < elems ? size - begin : elems};
}

} // namespace device
COLLX_END_NAMESPACE
