// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule reduced to what a simulation needs: the cost of a step, not its chunks, and consecutive steps of equal
// cost as one step with a count. A ring of n ranks has a few steps per rank instead of 2(n - 1) of 96 bytes, so rings
// of 16,384 ranks fit into memory and into the cache.
#pragma once

#include <cstdint>
#include <vector>

#include <collx/sched/schedule.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// `times` steps with the same peers and the same number of chunks.
struct short_step {
    std::uint16_t what = 0;
    std::uint8_t index = 0, lag = 0;
    std::int32_t peer_from = -1, peer_to = -1;
    std::int32_t chunks = 0;
    std::int32_t times = 1;
};

// The steps of a strand: recording::steps from number `begin` up to `end`.
struct short_strand {
    int rank = 0;
    std::size_t begin = 0, end = 0;
};

// The programs of all ranks.
struct recording {
    collective op = collective::all_reduce;
    int ranks = 0, chunks = 1, signals = 0, depth = 1;
    std::vector<short_strand> strands; // rank after rank
    std::vector<short_step> steps;
};

namespace detail {

inline recording emptied(const sched::schedule& s) { return {s.op, s.ranks, s.chunks, s.signals, s.depth, {}, {}}; }

// The executor that records an algorithm as short steps, one rank at a time.
class short_recorder : public sched::verbs<short_recorder> {
public:
    bool strand(int k) {
        if (k >= asked_) asked_ = k + 1;
        if (static_cast<int>(strands_.size()) < asked_) strands_.resize(static_cast<std::size_t>(asked_));
        current_ = static_cast<std::size_t>(k);
        return true;
    }
    template <sched::action What>
    void emit(const sched::step& s) {
        add(s);
    }
    void add(const sched::step& s) {
        if (asked_ == 0) strand(0);
        std::vector<short_step>& to = strands_[current_];
        const int chunks = (s.what == sched::send ? s.src : s.dst).chunks.count;
        if (!to.empty()) {
            short_step& last = to.back();
            if (last.what == s.what && last.peer_from == s.peer_from && last.peer_to == s.peer_to &&
                last.chunks == chunks && last.index == s.index && last.lag == s.lag) {
                ++last.times;
                return;
            }
        }
        to.push_back({static_cast<std::uint16_t>(s.what), s.index, s.lag, s.peer_from, s.peer_to, chunks, 1});
    }
    // Appends the recorded steps to `all`, and is empty again.
    void move_to(recording& all, int rank) {
        if (asked_ == 0) strand(0);
        strands_.resize(static_cast<std::size_t>(asked_)); // an earlier rank may have had more
        for (std::vector<short_step>& one : strands_) {
            all.strands.push_back({rank, all.steps.size(), all.steps.size() + one.size()});
            all.steps.insert(all.steps.end(), one.begin(), one.end());
            for (const short_step& s : one)
                if ((s.what & (sched::signal | sched::wait)) != 0 && s.index >= all.signals) all.signals = s.index + 1;
            one.clear();
        }
        asked_ = 0;
    }

private:
    std::vector<std::vector<short_step>> strands_;
    std::size_t current_ = 0;
    int asked_ = 0; // strands that the algorithm has named so far
};

} // namespace detail

// The short recording of a full schedule.
inline recording recording_of(const sched::schedule& s) {
    recording all = detail::emptied(s);
    detail::short_recorder to;
    for (int r = 0; r < s.ranks; ++r) {
        int k = 0;
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands) {
            to.strand(k++);
            for (const sched::step& one : strand) to.add(one);
        }
        to.move_to(all, r);
    }
    return all;
}

// Records the programs of n ranks of an algorithm. Cost: 20 bytes for each run of equal steps.
template <class A>
recording record_short(const A& a, int n) {
    recording all = detail::emptied(sched::declared_schedule(a, n));
    detail::short_recorder to;
    for (int r = 0; r < n; ++r) {
        a(to, r, n);
        to.move_to(all, r);
    }
    return all;
}

} // namespace sim
COLLX_END_NAMESPACE
