// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cells that one step touches: rank, place, chunk, and whether it reads or writes. Shared by the analyses that look
// at memory rather than at values (races.hpp, facts.hpp).
#pragma once

#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// One read or write of a chunk by a step.
struct access {
    int rank = 0; // whose memory
    place where = place::none;
    int chunk = 0;
    bool write = false;
};

// Calls f(access) for every cell that `st` of rank `rank` touches among `n` ranks; stops at the first call that returns
// false.
template <class F>
constexpr bool for_each_access(const step& st, int rank, int n, int chunks, F&& f) {
    const bool reads_src = (st.what & (reduce | reduce_after | get | fold)) != 0 ||
                           ((st.what & recv) == 0 && (st.what & (copy | send)) != 0);
    for (int i = 0; reads_src && i < st.src.chunks.count; ++i) {
        const int chunk = st.src.chunks.at(i, chunks);
        const bool folds = (st.what & fold) != 0;
        const int first = folds || (st.what & get) != 0 ? st.peer_from : rank;
        const int last = folds ? st.peer_to : first + 1;
        for (int k = first; k < last; ++k)
            if (!f(access{k, folds && k == rank && st.own != place::none ? st.own : st.src.where, chunk, false}))
                return false;
    }
    const bool stores = (st.what & (copy | to_all)) != 0;
    for (int i = 0; stores && i < st.dst.chunks.count; ++i) {
        const int chunk = st.dst.chunks.at(i, chunks);
        const bool everywhere = (st.what & to_all) != 0;
        for (int k = everywhere ? 0 : rank; k < (everywhere ? n : rank + 1); ++k)
            if (!f(access{k, st.dst.where, chunk, true})) return false;
        if (st.also != place::none && !f(access{rank, st.also, chunk, true})) return false;
    }
    return true;
}

} // namespace sched
COLLX_END_NAMESPACE
