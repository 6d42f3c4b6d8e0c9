// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the elements of one iteration lie: chunks of the input and the output, cut into pieces that travel one after
// the other. All ranks cut alike, so a step's message has the same size at both ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/layout.hpp>
#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE

struct pieces {
    struct part {
        std::size_t at, count; // elements
    };

    chunk_layout in, out;
    int chunks;
    std::size_t elems;             // of one piece
    std::size_t count;             // iterations: pieces of the largest chunk, at least one
    const chunk_layout* relayed;   // sizes of scratch chunks where they are not the input's; owned by the caller
    const pieces* whole = nullptr; // what these are a part of: its sizes tag the messages; owned by the caller

    COLLX_HD pieces(chunk_layout in_, chunk_layout out_, int chunks_, std::size_t elems_,
                    const chunk_layout* relayed_ = nullptr)
        : in(in_), out(out_), chunks(chunks_), elems(elems_ == 0 ? 1 : elems_), relayed(relayed_) {
        std::size_t most = in.largest() > out.largest() ? in.largest() : out.largest();
        if (relayed != nullptr && relayed->largest() > most) most = relayed->largest();
        count = most <= elems ? 1 : (most + elems - 1) / elems; // a division costs as much as a step of a short call
    }

    // Resolves a single chunk in advance: three divisions take a good part of a short call's time.
    COLLX_HD static sched::chunk_set settled(const sched::chunk_set& c, int chunks) {
        return c.count == 1 && chunks > 0 ? sched::chunk_set(c.at(0, chunks)) : c;
    }
    // Requires: the set is settled.
    COLLX_HD int chunk(const sched::chunk_set& c, int i) const { return c.count == 1 ? c.first : c.at(i, chunks); }
    COLLX_HD part cut(const chunk_layout& l, int chunk, std::size_t piece) const {
        const std::size_t size = l.size(chunk), begin = piece * elems;
        if (begin >= size) return {l.offset(chunk), 0};
        return {l.offset(chunk) + begin, size - begin < elems ? size - begin : elems};
    }
    // Elements that travel together from this piece of a chunk on: as many whole pieces as `most` allows, at least one.
    COLLX_HD std::size_t several(const chunk_layout& l, int chunk, std::size_t piece, std::size_t most) const {
        const std::size_t fit = most / elems, rest = l.size(chunk) - piece * elems;
        const std::size_t together = (fit != 0 ? fit : 1) * elems;
        return rest < together ? rest : together;
    }
    // Where an operand of a step lies in its own buffer; scratch holds one piece per chunk.
    COLLX_HD part local(sched::place p, int chunk, std::size_t piece) const {
        if (p == sched::place::out) return cut(out, chunk, piece);
        part from = p == sched::place::tmp ? cut(scratch(), kept_as(chunk), piece) : cut(in, chunk, piece);
        if (p == sched::place::tmp || p == sched::place::none) from.at = static_cast<std::size_t>(chunk) * elems;
        return from;
    }
    COLLX_HD std::size_t message_elems(sched::place p, const sched::chunk_set& set, std::size_t piece) const {
        if (set.count == 1) return local(p, set.first, piece).count;
        std::size_t n = 0;
        for (int i = 0; i < set.count; ++i) n += local(p, chunk(set, i), piece).count;
        return n;
    }
    // Elements of a whole chunk, all pieces.
    COLLX_HD std::size_t size(sched::place p, int chunk) const {
        if (p == sched::place::tmp) return scratch().size(kept_as(chunk));
        return (p == sched::place::out ? out : in).size(chunk);
    }
    // The number of iterations in which a chunk of this step has elements, at least one.
    std::size_t count_for(const sched::step& s) const {
        std::size_t most = 1;
        const auto look = [&](const sched::ref& r) {
            for (int i = 0; r.where != sched::place::none && i < r.chunks.count; ++i)
                if (const std::size_t n = size(r.where, chunk(r.chunks, i)); n > most) most = n;
        };
        look(s.src);
        look(s.dst);
        return (most - 1) / elems + 1;
    }
    // Elements of the whole transfer, all pieces.
    std::size_t transfer_elems(const sched::ref& r) const {
        const pieces& by = whole != nullptr ? *whole : *this;
        std::size_t n = 0;
        for (int i = 0; i < r.chunks.count; ++i) n += by.size(r.where, chunk(r.chunks, i));
        return n;
    }
    // A number of them by which ranks that disagree on a count notice at the first message. Several chunks are hashed,
    // not summed: two wrong counts must not hide each other.
    COLLX_HD std::uint32_t transfer_tag(const sched::ref& r) const {
        const pieces& by = whole != nullptr ? *whole : *this;
        if (r.chunks.count == 1) return static_cast<std::uint32_t>(by.size(r.where, r.chunks.first));
        std::size_t n = 0;
        for (int i = 0; i < r.chunks.count; ++i) n = n * 31 + by.size(r.where, chunk(r.chunks, i));
        return static_cast<std::uint32_t>(n);
    }

private:
    // Scratch with more chunks than the buffers repeats the sizes of the buffers' chunks.
    COLLX_HD int kept_as(int chunk) const {
        const int known = scratch().chunks();
        return chunk < known ? chunk : chunk % known;
    }
    COLLX_HD const chunk_layout& scratch() const { return relayed != nullptr ? *relayed : in; }
};

COLLX_END_NAMESPACE
