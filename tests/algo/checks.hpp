// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the tests of all algorithms: steps as short lines of text, and the loop over rank counts and roots.
//
//   in[1] -> 3             send                    3 + in[1] -> out[1] -> 4     recv | reduce | copy | send
//   3 -> out[1] -> 4       recv | copy | send      in[1] + 3 -> tmp[1]          recv | reduce_after | copy
//   3.w0[2] -> out[2]      get | copy              w0[1] of 0..3, in -> out[1]  fold | copy, the own operand from in
//   wait 0 of 3            wait 1 of all, 4 ago    in[2+3]                      chunks 2, 3, 4
#pragma once

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <collx/sched/facts.hpp>

namespace checks {

using namespace collx;
using namespace collx::algo;
using namespace collx::sched;
using lines = std::vector<std::string>;

inline std::string text(place p) {
    constexpr const char* names[] = {"", "in", "out", "tmp", "w0", "w1"};
    return names[static_cast<int>(p)];
}

inline std::string text(const ref& r) {
    const chunk_set& c = r.chunks;
    std::string s = text(r.where) + "[" + std::to_string(c.first);
    if (c.count > 1) s += "+" + std::to_string(c.count);
    if (c.count > c.run) s += " by " + std::to_string(c.run) + "/" + std::to_string(c.period);
    return s + "]";
}

inline std::string text(const step& st) {
    const auto rank = [](int r) { return std::to_string(r); };
    if ((st.what & collx::sched::signal) != 0) return "signal " + rank(st.index);
    if ((st.what & collx::sched::wait) != 0)
        return "wait " + rank(st.index) + " of " + (st.peer_from == all_ranks ? "all" : rank(st.peer_from)) +
               (st.lag > 0 ? ", " + rank(st.lag) + " ago" : "");
    std::string s;
    if ((st.what & fold) != 0) {
        s = text(st.src) + " of " + rank(st.peer_from) + ".." + rank(st.peer_to - 1);
        if (st.own != place::none) s += ", " + text(st.own);
    } else if ((st.what & reduce) != 0) {
        s = rank(st.peer_from) + " + " + text(st.src);
    } else if ((st.what & reduce_after) != 0) {
        s = text(st.src) + " + " + rank(st.peer_from);
    } else if ((st.what & recv) != 0) {
        s = rank(st.peer_from);
    } else {
        s = ((st.what & get) != 0 ? rank(st.peer_from) + "." : "") + text(st.src);
    }
    if ((st.what & copy) != 0) s += " -> " + text(st.dst);
    if ((st.what & to_all) != 0) s += " -> all " + text(st.dst);
    if (st.also != place::none) s += " and " + text(st.also);
    if ((st.what & send) != 0) s += " -> " + rank(st.peer_to);
    return s;
}

// The steps of one strand of one rank.
template <class Algorithm>
lines steps(const Algorithm& a, int rank, int n, int strand = 0) {
    lines result;
    const program p = record(a, rank, n);
    if (strand < static_cast<int>(p.strands.size()))
        for (const step& st : p.strands[static_cast<unsigned>(strand)]) result.push_back(text(st));
    return result;
}

inline int log2_ceiling(int n) {
    int k = 0;
    while ((1 << k) < n) ++k;
    return k;
}

inline std::vector<int> roots(int n) {
    std::vector<int> all;
    for (int r = 0; r < n; ++r)
        if (n <= 9 || r < 2 || r == n / 2 || r >= n - 2) all.push_back(r);
    return all;
}

// The algorithm with default parameters is correct for 1 to `most` ranks and several roots. For few ranks no two
// accesses to a cell are unordered, and its declarations equal what the schedule shows.
template <class Algorithm>
void check_all(int most = 64) {
    for (int n = 1; n <= most; ++n) {
        for (int root : is_rooted(Algorithm::op) ? roots(n) : std::vector<int>{0}) {
            Algorithm a{};
            collx::sched::set_root(a, root);
            const schedule s = record_all(a, n);
            const verdict v = verify(s);
            INFO(Algorithm::name << ", " << n << " ranks, root " << root << ": problem " << static_cast<int>(v.what)
                                 << " at rank " << v.rank << ", strand " << v.strand << ", step " << v.step);
            REQUIRE(v.ok());
            CHECK(v.same_bits);
            if (n > races_up_to) continue;
            CHECK(races(s).ok());
            const char* wrong = misdeclared(a, n);
            CHECK(std::string(wrong == nullptr ? "" : wrong) == "");
        }
    }
}

} // namespace checks
