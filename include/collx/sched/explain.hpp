// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Texts about steps and verdicts, for people. Separate from verify.hpp, which must stay usable in static_assert and
// cheap to include.
#pragma once

#include <cstdio>

#include <collx/core/kept_text.hpp>
#include <collx/sched/schedule.hpp>
#include <collx/sched/verdict.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// The word for a place in pictures and explanations.
constexpr const char* name_of(place p) {
    constexpr const char* names[] = {"", "in", "out", "tmp", "win0.", "win1."};
    return names[static_cast<int>(p)];
}

constexpr const char* name_of(reduction_order o) {
    constexpr const char* names[] = {"rank order", "rotated", "unordered"};
    return names[static_cast<int>(o)];
}

constexpr const char* name_of(problem p) {
    constexpr const char* names[] = {
        "nothing is wrong",
        "the peer is no rank",
        "this is no set of chunks (below zero, or one chunk twice)",
        "the range of ranks is empty or reaches beyond the last",
        "two strands of this rank use the same end of a channel",
        "the signal was already given in this iteration",
        "the message holds another number of chunks",
        "the place is right, but the data is another chunk's",
        "the chunk is right, but the data is of another iteration: no wait or message keeps ranks and strands in step",
        "what is read here was never written",
        "a contribution would be reduced twice",
        "a step may not store to its input",
        "this rank has no such chunk of the output",
        "this chunk of the output was already stored",
        "a partial reduction may not be stored to the output",
        "the data of other ranks than required",
        "this chunk of the output was never stored",
        "the operands are not in rank order, as the algorithm promises",
        "another rank computed this result in another way: the bits may differ",
        "a message that is never received",
        "the message it waits for is never sent",
        "the signal it waits for is never given",
        "strands wait for each other",
        "another strand may access this cell at the same time",
        "the algorithm declares no such chunk of scratch: see tmp_chunks(n)",
        "the algorithm declares no such signal, or no window (signals 0 to 254, and waits look back at most 255 "
        "iterations): see signals",
        "it returns although some rank has not entered",
        "the algorithm cuts the buffer into no chunks: see chunks(n)",
        "such a step cannot read or store there: only copy stores to a window (0 or 1), only get and fold read windows "
        "(one's own, too), and no step reads the scratch of another rank",
        "a fold reduces, and this collective has no operator: use get",
        "to_all stores the sum of all ranks to the output of all: at_ranks(0, n, ...), out(c)",
        "some steps go through windows, others straight to the buffers of peers: an algorithm does one of the two",
        "a peer says with signal 0 where its buffers lie: wait for that first, in each iteration",
        "the members are ranks, each named once: see member(i)",
    };
    static_assert(sizeof names / sizeof *names == static_cast<unsigned>(problem::bad_member) + 1);
    return names[static_cast<int>(p)];
}

// i in decimal.
inline kept_text number_text(int i) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%d", i);
    return digits;
}

// An operand as "in2", "out0,2,4" or "tmp1-3"; chunks are numbered modulo `chunks`.
inline kept_text describe(const ref& r, int chunks) {
    kept_text s = name_of(r.where);
    const chunk_set& c = r.chunks;
    if (c.count == 0 || chunks == 0) return s + "(none)";
    bool neighbours = c.count > 1;
    for (int i = 1; i < c.count; ++i) neighbours = neighbours && c.at(i, chunks) == c.at(i - 1, chunks) + 1;
    if (neighbours) return s + number_text(c.at(0, chunks)) + "-" + number_text(c.at(c.count - 1, chunks));
    for (int i = 0; i < c.count; ++i) s += (i == 0 ? "" : ",") + number_text(c.at(i, chunks));
    return s;
}

// One step in one line: "1> +in2 =out2 >3" receives from 1, reduces with in2, stores to out2 and sends to 3. "in2+" has
// in2 on the left.
inline kept_text describe(const step& st, int chunks) {
    if (st.what == signal) return "signal " + number_text(st.index);
    if (st.what == wait) {
        const kept_text who = st.peer_from == all_ranks ? "all" : number_text(st.peer_from);
        return "wait " + number_text(st.index) + " of " + who + (st.lag > 0 ? " -" + number_text(st.lag) : "");
    }
    kept_text s;
    const auto word = [&](const kept_text& w) { s += (s.empty() ? "" : " ") + w; };
    if ((st.what & fold) != 0) {
        const kept_text own =
            st.own != place::none && st.own != st.src.where ? kept_text(" own ") + name_of(st.own) : "";
        word("fold " + number_text(st.peer_from) + "-" + number_text(st.peer_to - 1) + ":" + describe(st.src, chunks) +
             own);
    } else if ((st.what & get) != 0) {
        word(number_text(st.peer_from) + ":" + describe(st.src, chunks));
    } else if ((st.what & recv) != 0) {
        word(number_text(st.peer_from) + ">");
        if ((st.what & reduce) != 0) word("+" + describe(st.src, chunks));
        if ((st.what & reduce_after) != 0) word(describe(st.src, chunks) + "+");
    } else {
        word(describe(st.src, chunks));
    }
    if ((st.what & copy) != 0) word("=" + describe(st.dst, chunks));
    if (st.also != place::none) word("=" + describe({st.also, st.dst.chunks}, chunks));
    if ((st.what & to_all) != 0) word("=" + describe(st.dst, chunks) + " of all");
    if ((st.what & send) != 0) word(">" + number_text(st.peer_to));
    return s;
}

// The step at this position of the schedule; null: there is none.
inline const step* find_step(const schedule& s, int rank, int strand, int index) {
    if (rank < 0 || rank >= static_cast<int>(s.programs.size()) || strand < 0 || index < 0) return nullptr;
    const auto& strands = s.programs[static_cast<unsigned>(rank)].strands;
    if (strand >= static_cast<int>(strands.size())) return nullptr;
    const auto& steps = strands[static_cast<unsigned>(strand)];
    return index < static_cast<int>(steps.size()) ? &steps[static_cast<unsigned>(index)] : nullptr;
}

// Explains a verdict: what is wrong and where, then one line for each strand that waits.
inline kept_text explain(const schedule& s, const verdict& v) {
    if (v.ok()) return "nothing is wrong";
    const auto at = [&](int rank, int strand, int index) {
        kept_text text = "rank " + number_text(rank);
        if (strand >= 0) text += ", strand " + number_text(strand) + ", step " + number_text(index);
        if (const step* st = find_step(s, rank, strand, index)) text += " [" + describe(*st, s.chunks) + "]";
        return text;
    };
    kept_text text = at(v.rank, v.strand, v.step);
    if (v.iteration > 0) text += ", iteration " + number_text(v.iteration);
    if (v.in_place) text += ", in place";
    text += ": ";
    text += name_of(v.what);
    if (v.chunk >= 0)
        text += (v.what == problem::missing_signal || v.what == problem::signal_twice ? ", signal " : ", chunk ") +
                number_text(v.chunk);
    if (v.peer >= 0 && v.peer != v.rank) text += ", rank " + number_text(v.peer) + " on the other side";
    for (int i = 0; i < v.waiting_count && i < 8; ++i)
        text += "\n  " + at(v.waits[i].rank, v.waits[i].strand, v.waits[i].step) + " waits for rank " +
                number_text(v.waits[i].peer);
    if (v.waiting_count > 8) text += "\n  and " + number_text(v.waiting_count - 8) + " more";
    return text;
}

} // namespace sched
COLLX_END_NAMESPACE
