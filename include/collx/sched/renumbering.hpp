// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Renumbers the ranks, chunks and places of a step of an algorithm that runs inside another one. The rules are in
// sub_executor.hpp.
#pragma once

#include <collx/sched/node_map.hpp>
#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// `size` of `total` positions, from `base` on, as `chunks` equal chunks of an inner algorithm. A single position is the
// last of the inner chunks; the others are empty.
struct chunk_part {
    int chunks = 1;
    int total = 1;
    int base = 0;
    int size = 1;
    const int* order = nullptr;

    COLLX_HD constexpr chunk_set operator()(const chunk_set& c) const {
        if (c.size != 0 || c.order != nullptr) return nothing_known(); // a part of a part is not supported
        chunk_set result;
        if (size % chunks == 0) {
            const int each = size / chunks;
            result = {c.first * each, c.count * each, c.run * each, c.period * each};
        } else if (size == 1) {
            result = {0, 0};
            for (int i = 0; i < c.count; ++i)
                if (c.at(i, chunks) == chunks - 1) result = {0, 1};
        } else {
            return nothing_known();
        }
        if (size != total) {
            result.base = base;
            result.size = size;
        }
        result.order = order;
        return result;
    }

private:
    COLLX_HD static constexpr chunk_set nothing_known() { return {-1, 1}; } // the verifier refuses it
};

// Where the inner algorithm finds its input and leaves its output. Between phases a partial result lives in tmp, as
// does the scratch of the next phase: chunk c of both is cell c. So an algorithm must not read its input of a chunk
// again once it has written scratch of that chunk. The verifier detects it.
struct places {
    place in = place::in;
    place out = place::out;
    COLLX_HD constexpr place operator()(place p) const { return p == place::in ? in : p == place::out ? out : p; }
};

struct renumbering {
    team ranks;
    chunk_part chunks;
    places at{};
    const renumbering* around = nullptr; // of the enclosing algorithm, if that is an inner one too

    // Renumbers the step; false: it then moves nothing.
    COLLX_HD constexpr bool operator()(step& s) const {
        const bool receives = (s.what & recv) != 0;
        const bool reads = !receives || (s.what & (reduce | reduce_after)) != 0;
        const bool writes = receives || (s.what & copy) != 0;
        if (receives) s.peer_from = ranks.rank(s.peer_from);
        if ((s.what & send) != 0) s.peer_to = ranks.rank(s.peer_to);
        if (reads) s.src = {at(s.src.where), chunks(s.src.chunks)};
        if (writes) s.dst = {at(s.dst.where), chunks(s.dst.chunks)};
        if ((reads ? s.src : s.dst).chunks.count == 0) return false;
        return s.what != copy || s.src != s.dst;
    }
};

} // namespace sched
COLLX_END_NAMESPACE
