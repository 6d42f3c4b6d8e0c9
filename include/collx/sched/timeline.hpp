// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// When each step can happen if all take one unit of time: after the one before it, after the step that sent what it
// receives and after the signals it waits for. Gives the columns of pictures and tables; not a cost model.
#pragma once

#include <vector>

#include <collx/sched/network.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// A step and the column of a picture that it stands in.
struct timed_step {
    int rank = 0, strand = 0, index = 0;
    int column = -1; // -1: never reached
};

// A message or a signal, from one step to another; both are positions in timeline::steps.
struct link {
    int from = 0, to = 0;
    bool is_signal = false;
    int chunk = -1;
};

struct timeline {
    std::vector<timed_step> steps; // by rank, strand and index
    std::vector<link> links;
    int columns = 0;
};

// Finds the columns while a schedule runs; callers use timeline_of().
class timeline_reader {
public:
    timeline_reader(const schedule& s, timeline& t)
        : s_(s), t_(t), by_signal_(static_cast<unsigned>(s.ranks * s.signals), -1) {
        for (int r = 0; r < s.ranks; ++r)
            for (unsigned k = 0; k < s.programs[static_cast<unsigned>(r)].strands.size(); ++k) {
                first_.push_back(static_cast<int>(t.steps.size()));
                next_.push_back(0);
                const int count = static_cast<int>(s.programs[static_cast<unsigned>(r)].strands[k].size());
                for (int i = 0; i < count; ++i) t.steps.push_back({r, static_cast<int>(k), i, -1});
            }
    }

    void channel_added(int depth) { by_slot_.resize(by_slot_.size() + static_cast<unsigned>(depth), -1); }
    void enter(int, int, int, int) {}
    fault leave(int, int, int first, int last) {
        for (int i = first; i < last; ++i) {
            const auto strand = static_cast<unsigned>(i);
            const int end = strand + 1 < first_.size() ? first_[strand + 1] : static_cast<int>(t_.steps.size());
            pass(i, end);
        }
        return {};
    }

    fault act(const running& me, const step&, int in_slot, int out_slot) {
        const int at = here(me);
        if (in_slot >= 0) {
            const int source = by_slot_[static_cast<unsigned>(in_slot)];
            reach(me, source);
            t_.links.push_back({source, at, false, chunk_sent_by(source)});
        }
        reach(me, -1);
        if (out_slot >= 0) by_slot_[static_cast<unsigned>(out_slot)] = at;
        return {};
    }
    void signalled(const running& me, int index) {
        reach(me, -1);
        by_signal_[static_cast<unsigned>(me.rank * s_.signals + index)] = here(me);
    }
    static constexpr bool follows_signals() { return true; }
    void waited(const running& me, int index, int rank, int) {
        const int source = by_signal_[static_cast<unsigned>(rank * s_.signals + index)];
        reach(me, source);
        t_.links.push_back({source, here(me), true, -1});
    }

private:
    int here(const running& me) const { return first_[static_cast<unsigned>(me.id)] + me.index(); }
    // Waits for iterations before the first are not reported: they get their columns when a later step does.
    void pass(int strand, int end) {
        int& next = next_[static_cast<unsigned>(strand)];
        for (int i = first_[static_cast<unsigned>(strand)]; i < end; ++i)
            if (t_.steps[static_cast<unsigned>(i)].column < 0) t_.steps[static_cast<unsigned>(i)].column = next++;
        if (next > t_.columns) t_.columns = next;
    }
    // The current step happens after the step at `source` (-1: after those before it only).
    void reach(const running& me, int source) {
        const int at = here(me);
        pass(me.id, at);
        int& next = next_[static_cast<unsigned>(me.id)];
        int& column = t_.steps[static_cast<unsigned>(at)].column;
        if (column < 0) column = next;
        if (source >= 0 && t_.steps[static_cast<unsigned>(source)].column >= column)
            column = t_.steps[static_cast<unsigned>(source)].column + 1;
        next = column + 1;
        if (next > t_.columns) t_.columns = next;
    }
    int chunk_sent_by(int source) const {
        const timed_step& t = t_.steps[static_cast<unsigned>(source)];
        const auto& strand = s_.programs[static_cast<unsigned>(t.rank)].strands[static_cast<unsigned>(t.strand)];
        const step& st = strand[static_cast<unsigned>(t.index)];
        const chunk_set& what = st.src.where != place::none ? st.src.chunks : st.dst.chunks;
        return what.count == 0 || s_.chunks == 0 ? -1 : what.at(0, s_.chunks);
    }

    const schedule& s_;
    timeline& t_;
    std::vector<int> first_, next_, by_slot_, by_signal_; // by strand, strand, slot, signal
};

// The first iteration of a schedule, as far as it gets.
inline timeline timeline_of(const schedule& s) {
    timeline t;
    timeline_reader reader(s, t);
    network<timeline_reader>(s, reader, {.iterations = 1}).run();
    return t;
}

} // namespace sched
COLLX_END_NAMESPACE
