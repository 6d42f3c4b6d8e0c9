// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A step that moves data, chunk by chunk, in the form that a kernel's one function for all such steps takes: by value
// and in few words, so that it travels in registers. Plain data; knows no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/cuts.hpp>
#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One chunk of a step.
struct chunk_move {
    std::uint16_t what; // sched::action
    sched::place src_at, dst_at;
    std::uint8_t peer_from, peer_to;
    bool is_first, is_last; // of the message's chunks
    std::uint16_t src_chunk, dst_chunk;
    std::uint32_t at; // bytes of the message that lie before this chunk

    COLLX_HD constexpr bool has(sched::action a) const { return (what & a) != 0; }
    COLLX_HD constexpr bool travels() const { return has(sched::recv | sched::send); }
    // The rank whose memory holds the operand.
    COLLX_HD constexpr int owner(int rank) const { return has(sched::get) ? peer_from : rank; }
    // Whether the destination says how large the chunk is, else the source: both ends find the same.
    COLLX_HD static constexpr bool counts_by_dst(sched::action what, sched::place src_at) {
        return what != sched::copy && ((what & sched::copy) != 0 || src_at == sched::place::none);
    }
};

// Where one piece of a chunk lies, in elements: the operand, and the result.
struct chunk_parts {
    std::size_t from, to;
    std::uint32_t count;
};
// Scratch has a cell of whole packs per chunk.
template <class Cuts>
COLLX_HD constexpr part part_of(const Cuts& cuts, sched::place p, int rank, int chunk, std::size_t piece,
                                std::uint32_t piece_elems, std::uint32_t cell_elems) {
    part l = cut(cuts, p == sched::place::out, rank, chunk, piece, piece_elems);
    if (p == sched::place::tmp) l.at = static_cast<std::size_t>(chunk) * cell_elems;
    return l;
}
// Not inlined: neither algorithm nor types matter here, so a file of many kernels has it once for each kind of cuts.
template <class Cuts>
COLLX_NOINLINE COLLX_HD chunk_parts run_plan(const Cuts& cuts, chunk_move m, int rank, std::size_t piece,
                                             std::uint32_t piece_elems, std::uint32_t cell_elems) {
    const part own = part_of(cuts, m.src_at, m.owner(rank), m.src_chunk, piece, piece_elems, cell_elems);
    const part result = part_of(cuts, m.dst_at, rank, m.dst_chunk, piece, piece_elems, cell_elems);
    const bool by_dst = chunk_move::counts_by_dst(m.what, m.src_at);
    return {own.at, result.at, static_cast<std::uint32_t>(by_dst ? result.count : own.count)};
}
// Whether a piece has elements of any of several chunks. Not inlined, because most messages have one chunk, which the
// compiler finds only after inlining.
template <class Cuts>
COLLX_NOINLINE COLLX_HD bool run_has_elements(const Cuts& cuts, sched::ref r, int chunks, int rank, std::size_t piece,
                                              std::uint32_t piece_elems) {
    COLLX_ROLLED
    for (int i = 0; i < r.chunks.count; ++i)
        if (cut(cuts, r.where == sched::place::out, rank, r.chunks.at(i, chunks), piece, piece_elems).count != 0)
            return true;
    return false;
}

// The outcome of moving a chunk.
struct move_result {
    std::uint32_t at; // as in chunk_move, after this chunk
    bool stops;       // the block gives up
    bool failed;      // this thread does; not voted upon yet
};

// Where a chunk comes from, what is done to it, and where it goes.
struct transfer {
    bool receives, reads, combines, own_first, finishes, keeps, sends;
    bool is_fast; // its packs are aligned
    sched::place src_at, dst_at;
    int owner;                   // the rank whose memory holds the operand
    int peer;                    // the rank that is waited for, where words carry flags
    std::size_t from, to, count; // elements
    const std::byte* rx;
    std::byte* tx;
    std::uint64_t rx_flag, tx_flag;
};

} // namespace device
COLLX_END_NAMESPACE
