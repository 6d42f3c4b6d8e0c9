// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a schedule costs and needs, counted from its steps. Algorithms declare some of these numbers because plans are
// made from them at compile time. The proofs assert that declared numbers equal derived ones; the tables of the
// documentation are printed from here.
#pragma once

#include <cstdint>

#include <collx/core/growing_array.hpp>
#include <collx/sched/accesses.hpp>
#include <collx/sched/races.hpp>
#include <collx/sched/verify.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

inline constexpr int races_up_to = 9; // larger rank counts are not searched for races here

struct facts {
    bool ok = false; // verify() accepted it; otherwise only the counts below are meaningful
    int strands = 0; // this and the next three: the most of any rank
    int steps = 0;
    int messages = 0;
    int chunks_sent = 0;
    std::int64_t total_messages = 0;
    std::int64_t total_chunks_sent = 0;
    std::int64_t window_chunks_written = 0; // by all ranks, zero-copy stores into peers' buffers included
    std::int64_t window_chunks_read = 0;    // by all ranks
    int rounds = 0;                         // see round_reader
    int min_depth = 0;                      // of channels; 0: there are none
    int min_window_depth = 0;               // stages; 0: no signals, -1: none found or not searched
    int signals = 0;
    int tmp_chunks = 0; // one more than the largest tmp chunk used
    int max_message_chunks = 0;
    reduction_order order = reduction_order::rank_order;
    bool same_on_all_ranks = true;
    bool in_place = false; // proved by verify(); for an all_to_all only up to races_up_to ranks
};

// Every message counts.
struct all_messages {
    constexpr bool operator()(int /*from*/, int /*to*/) const { return true; }
};

// Counts rounds. In one round a strand may send one message and receive one; a message received in a round can be
// answered in the next. Signals count like messages, but any number of them may be seen in one round. A chain of S
// ranks passes K chunks in S + K - 2 rounds. A message for which counts(from, to) is false takes no round.
template <class Counts = all_messages>
class round_reader {
public:
    constexpr explicit round_reader(const schedule& s, const Counts& counts = {})
        : s_(s), counts_(counts), by_signal_(static_cast<unsigned>(s.ranks * s.signals), 0) {
        unsigned strands = 0;
        for (const program& p : s.programs) strands += static_cast<unsigned>(p.strands.size());
        received_.assign(strands, 0);
        sent_.assign(strands, 0);
    }
    constexpr int rounds() const {
        int most = 0;
        for (int r : received_) most = later(r, most);
        return most;
    }

    constexpr void channel_added(int depth) {
        for (; depth > 0; --depth) by_slot_.push_back(0);
    }
    constexpr void enter(int, int, int, int) {}
    constexpr fault leave(int, int, int, int) { return {}; }
    constexpr fault act(const running& me, const step& st, int in_slot, int out_slot) {
        const auto id = static_cast<unsigned>(me.id);
        if (in_slot >= 0)
            received_[id] =
                later(received_[id] + counts_(st.peer_from, me.rank), by_slot_[static_cast<unsigned>(in_slot)]);
        if (out_slot >= 0) by_slot_[static_cast<unsigned>(out_slot)] = publish(id, counts_(me.rank, st.peer_to));
        return {};
    }
    static constexpr bool follows_signals() { return true; }
    constexpr void signalled(const running& me, int index) {
        by_signal_[static_cast<unsigned>(me.rank * s_.signals + index)] = publish(static_cast<unsigned>(me.id), 1);
    }
    constexpr void waited(const running& me, int index, int rank, int) {
        int& mine = received_[static_cast<unsigned>(me.id)];
        mine = later(mine, by_signal_[static_cast<unsigned>(rank * s_.signals + index)]);
    }

private:
    static constexpr int later(int a, int b) { return a > b ? a : b; }
    constexpr int publish(unsigned strand, int takes) {
        return sent_[strand] = later(sent_[strand], received_[strand]) + takes;
    }
    const schedule& s_;
    Counts counts_;
    detail::growing_array<int> received_, sent_, by_slot_, by_signal_; // last round by strand, slot and signal
};

// The number of messages or signals that must follow one another; -1: the schedule does not end. counts(from, to):
// whether a message takes a round.
template <class Counts = all_messages>
constexpr int rounds(const schedule& s, const Counts& counts = {}) {
    round_reader<Counts> reader(s, counts);
    network<round_reader<Counts>> run(s, reader, {.iterations = 1});
    return run.run().ok() ? reader.rounds() : -1;
}

// The least number of messages a channel must hold for the schedule to end; 0 without channels, -1 if none is enough.
constexpr int min_depth(const schedule& s) {
    if ((s.uses & send) == 0) return 0;
    int most = 1; // no channel ever holds more than all messages of one strand
    for (const program& p : s.programs)
        for (const auto& strand : p.strands)
            most = static_cast<int>(strand.size()) > most ? static_cast<int>(strand.size()) : most;
    for (int d = 1; d <= most * s.iterations(); ++d) {
        round_reader<> reader(s);
        if (network<round_reader<>>(s, reader, {.depth = d}).run().what != problem::deadlock) return d;
    }
    return -1;
}

// Adds what one rank does. For strands, steps, messages and chunks_sent the facts keep the most of any rank.
constexpr void count(facts& f, const schedule& s, int rank) {
    const program& p = s.programs[static_cast<unsigned>(rank)];
    int steps = 0, messages = 0, sent = 0;
    for (const auto& strand : p.strands)
        for (const step& st : strand) {
            ++steps;
            const int chunks = st.src.where != place::none ? st.src.chunks.count : st.dst.chunks.count;
            if ((st.what & send) != 0) {
                ++messages;
                sent += chunks;
            }
            if ((st.what & send) != 0 && chunks > f.max_message_chunks) f.max_message_chunks = chunks;
            const bool zero_copy = (st.what & to_all) != 0;
            for_each_access(st, rank, s.ranks, s.chunks, [&](const access& a) {
                if (a.where == place::tmp && a.chunk >= f.tmp_chunks) f.tmp_chunks = a.chunk + 1;
                if (is_window(a.where) || a.rank != rank || zero_copy)
                    ++(a.write ? f.window_chunks_written : f.window_chunks_read);
                return true;
            });
        }
    const auto at_least = [](int& most, int x) { most = x > most ? x : most; };
    at_least(f.strands, static_cast<int>(p.strands.size()));
    at_least(f.steps, steps);
    at_least(f.messages, messages);
    at_least(f.chunks_sent, sent);
    f.total_messages += messages;
    f.total_chunks_sent += sent;
}

// The messages from node to node.
struct crossings {
    std::int64_t total_messages = 0, total_chunks = 0; // of all ranks
    int messages = 0, chunks_sent = 0;                 // of the rank that sends most
};

// Counts the messages between ranks of different nodes; node_of(rank) is the node of a rank.
template <class NodeOf>
constexpr crossings messages_between(const schedule& s, NodeOf&& node_of) {
    crossings all;
    for (int r = 0; r < s.ranks; ++r) {
        int messages = 0, chunks = 0;
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const step& st : strand) {
                if ((st.what & send) == 0 || node_of(r) == node_of(st.peer_to)) continue;
                ++messages;
                chunks += st.src.where != place::none ? st.src.chunks.count : st.dst.chunks.count;
            }
        all.total_messages += messages;
        all.total_chunks += chunks;
        all.messages = messages > all.messages ? messages : all.messages;
        all.chunks_sent = chunks > all.chunks_sent ? chunks : all.chunks_sent;
    }
    return all;
}

// Counts a recorded schedule; `ok` says whether the verifier accepts it.
constexpr facts facts_of(const schedule& s) {
    facts f;
    for (int r = 0; r < s.ranks; ++r) count(f, s, r);
    f.signals = s.signals;
    f.min_window_depth = s.signals == 0 ? 0 : -1;
    const verdict v = verify(s);
    f.ok = v.ok();
    if (!f.ok) return f;
    f.order = v.order;
    f.same_on_all_ranks = v.same_bits;
    f.in_place = may_be_in_place(s.op) || (s.op == collective::all_to_all && s.ranks <= races_up_to &&
                                           verify_once(s, true).ok() && races_once(s, true).ok());
    f.rounds = rounds(s);
    f.min_depth = min_depth(s);
    return f;
}

// The least number of window stages with which the algorithm is correct and free of races; -1: none up to 8.
template <class Algorithm>
constexpr int min_window_depth(Algorithm a, int n) {
    if (record_all(a, n).signals == 0) return 0;
    for (int d = 1; d <= 8; ++d) {
        set_window_depth(a, d);
        schedule s = record_all(a, n);
        s.window_depth = d;
        if (verify(s).ok() && races(s).ok()) return d;
    }
    return -1;
}

template <class Algorithm>
constexpr facts facts_of(const Algorithm& a, int n) {
    facts f = facts_of(record_all(a, n));
    if (f.ok && f.signals != 0 && n <= races_up_to) f.min_window_depth = min_window_depth(a, n);
    return f;
}

// Returns the name of the first declared member that the derived facts contradict, or nullptr. Members that are
// declared once for all n (min_depth, window_depth, needs_commutative) or by a formula (tmp_chunks) must suffice for
// this n. From `tight_from` ranks on, they must not exceed what is needed.
template <class Algorithm>
constexpr const char* misdeclared(const Algorithm& a, int n, int tight_from = 4) {
    const facts f = facts_of(a, n);
    const auto differs = [&](int declared, int derived) {
        return n < tight_from ? declared < derived : declared != derived;
    };
    if (tmp_chunks_of(a, n) < f.tmp_chunks) return "tmp_chunks";
    if (signals_v<Algorithm> < f.signals) return "signals";
    if (!f.ok) return "the schedule itself";
    constexpr bool says_depth = requires { Algorithm::min_depth; };
    if (says_depth ? differs(min_depth_v<Algorithm>, f.min_depth) : f.min_depth > min_depth_v<Algorithm>)
        return "min_depth";
    if (reduces(Algorithm::op) && differs(needs_commutative_of(a, n), f.order != reduction_order::rank_order))
        return "needs_commutative";
    if (differs(signals_v<Algorithm>, f.signals)) return "signals";
    constexpr bool says_window_depth = requires { Algorithm::window_depth; };
    constexpr int stages = least_window_depth_v<Algorithm>;
    if (says_window_depth ? f.min_window_depth >= 0 && differs(stages, f.min_window_depth)
                          : f.min_window_depth > stages)
        return "window_depth";
    if (differs(tmp_chunks_of(a, n), f.tmp_chunks)) return "tmp_chunks";
    return nullptr;
}

// Whether an algorithm declares what its steps show; for proofs.
template <class Algorithm>
constexpr bool declared_equals_derived(const Algorithm& a, int n, int tight_from = 4) {
    return misdeclared(a, n, tight_from) == nullptr;
}

} // namespace sched
COLLX_END_NAMESPACE
