// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which messages a peer may read where they lie, and from which size on: see docs/design/single_copy.md.
#pragma once

#include <cstddef>

#include <collx/exec/element_ops.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/sched/schedule.hpp>

COLLX_BEGIN_NAMESPACE

// A system call costs as much as copying 16 KiB. With more ranks than cores each message costs a process switch, so one
// single-copy message carries several pieces.
inline constexpr std::size_t least_single_copy_bytes = 32 * 1024, most_single_copy_bytes = 512 * 1024;
inline constexpr std::size_t least_measured_bytes = 8 * 1024; // from here on, some copies are timed to compare both

// Whether no step of this rank writes to the memory of a chunk of its input. A step of an in-place call that copies the
// chunk to itself does not count. Requires: plain elements.
inline bool stays_as_it_is(const sched::program& p, const pieces& cuts, const element_ops& elements, int chunk) {
    const std::size_t each = elements.is.bytes;
    const std::byte *const in = elements.is.in, *const out = elements.is.out;
    const std::byte *from = in + cuts.in.offset(chunk) * each, *to = from + cuts.in.size(chunk) * each;
    for (const auto& strand : p.strands)
        for (const auto& s : strand) {
            if (s.dst.where != sched::place::out) continue;
            for (int i = 0; i < s.dst.chunks.count; ++i) {
                const int c = cuts.chunk(s.dst.chunks, i);
                const std::byte *begin = out + cuts.out.offset(c) * each, *end = begin + cuts.out.size(c) * each;
                if (end <= from || to <= begin) continue;
                const bool is_itself = s.what == sched::copy && s.src.where == sched::place::in &&
                                       in + cuts.in.offset(cuts.chunk(s.src.chunks, i)) * each == begin;
                if (!is_itself) return false;
            }
        }
    return true;
}

COLLX_END_NAMESPACE
