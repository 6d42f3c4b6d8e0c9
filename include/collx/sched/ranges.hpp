// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks that each step names ranks, chunks, places, scratch and signals that exist, in a combination that the engine
// has, and that each message that is sent is received. Both checks are cheap enough for every algorithm that a program
// binds. They are not the proof (verify.hpp), but an algorithm that passes them touches no memory that is not its own.
#pragma once

#include <cstdint>

#include <collx/core/growing_array.hpp>
#include <collx/sched/schedule.hpp>
#include <collx/sched/verdict.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

inline constexpr std::int64_t most_position = 0x7fff'ffff; // chunk_set::at counts so far

// Whether the set, which goes round at least once, comes to one of the `within` positions twice.
[[gnu::cold]] constexpr bool names_one_twice(const chunk_set& c, int within) {
    detail::growing_array<bool> seen(static_cast<unsigned>(within), false);
    for (int i = 0; i < c.count; ++i) {
        bool& is_seen = seen[static_cast<unsigned>((c.first + i / c.run * c.period + i % c.run) % within)];
        if (is_seen) return true;
        is_seen = true;
    }
    return false;
}

// Whether each chunk of the set exists in its place and none occurs twice. Positions wrap, from a first one in range.
constexpr bool is_set_of_chunks(const ref& r, const schedule& s) {
    const chunk_set& c = r.chunks;
    if (c.count == 0) return true;
    if (s.chunks == 0 || c.first < 0 || c.count < 0 || c.run < 1 || c.period < c.run) return false;
    const int most = r.where == place::tmp && c.order == nullptr ? s.tmp_chunks() : s.chunks;
    if (c.base < 0 || c.size < 0 || c.size > most || c.base > most - c.size) return false;
    const int within = c.size == 0 ? s.chunks : c.size;
    if (c.first >= within || c.count > within) return false;
    const std::int64_t last = std::int64_t{c.count - 1} / c.run * c.period + (c.count - 1) % c.run;
    if (last > most_position - c.first) return false;
    if (c.count > 1 && last >= within && names_one_twice(c, within)) return false;
    if (c.order == nullptr) return true;
    for (int i = 0; i < c.count; ++i)
        if (const int at = c.at(i, s.chunks); at < 0 || at >= s.chunks) return false;
    return true;
}

// The largest chunk that the set names; -1: it names none.
constexpr int last_chunk(const chunk_set& c, int chunks) {
    if (c.count < 1 || c.run < 1) return -1;
    if (c.order == nullptr) {
        const int within = c.size == 0 ? chunks : c.size;
        const std::int64_t last = std::int64_t{c.first} + std::int64_t{c.count - 1} / c.run * c.period;
        if (const std::int64_t end = last + (c.count - 1) % c.run; end < within) return c.base + static_cast<int>(end);
        if (c.run == c.period) return c.base + within - 1; // neighbours that go round
    }
    int most = -1;
    for (int i = 0; i < c.count; ++i) most = c.at(i, chunks) > most ? c.at(i, chunks) : most;
    return most;
}

constexpr fault out_of_range(const ref& r, const schedule& s) {
    if (!is_set_of_chunks(r, s)) return {problem::bad_chunk, -1, r.chunks.first};
    if (r.where == place::tmp && s.scratch >= 0)
        if (const int last = last_chunk(r.chunks, s.chunks); last >= s.scratch)
            return {problem::undeclared_tmp, -1, last};
    if (is_window(r.where) && s.declared_signals == 0) return {problem::undeclared_signal, -1, -1};
    return {};
}

// Whether the host's engine looks for the operands of the step, and leaves its results, where the step says. Messages,
// their operands and what copies read are in the rank's own buffers; only get and fold reach windows and peers.
[[gnu::cold]] constexpr bool has_places(const step& st) {
    const auto is_own = [](place p) { return p == place::in || p == place::out || p == place::tmp; };
    const auto is_reached = [](place p) { return p == place::in || p == place::out || is_window(p); };
    const bool reaches = (st.what & (get | fold)) != 0;
    const bool reads_own = (st.what & recv) == 0 || (st.what & (reduce | reduce_after)) != 0;
    if (reaches ? !is_reached(st.src.where) : reads_own && !is_own(st.src.where)) return false;
    if ((st.what & fold) != 0 && st.own != place::none && st.own != st.src.where && !is_own(st.own)) return false;
    if (st.also != place::none && !is_window(st.also)) return false;
    if ((st.what & (copy | to_all)) == 0) return true;
    return st.dst.where == place::out || st.dst.where == place::tmp || (st.what == copy && is_window(st.dst.where));
}

// What the host's engine lacks of the step; devices have more kinds.
[[gnu::cold]] constexpr problem not_executable(const step& st, const schedule& s) {
    const bool reaches = (st.what & (get | fold)) != 0;
    if (s.on_devices || (s.op == collective::barrier && !reaches)) return problem::none; // a barrier's have no elements
    if (!has_places(st)) return problem::bad_place;
    if ((st.what & fold) == 0) return problem::none;
    if (!reduces(s.op)) return problem::no_operator;
    if ((st.what & to_all) == 0) return problem::none;
    return st.dst.where == place::out && st.peer_from == 0 && st.peer_to == s.ranks ? problem::none
                                                                                    : problem::bad_to_all;
}

// The first thing that a step names and that does not exist.
constexpr fault out_of_range(const step& st, const schedule& s) {
    const auto is_rank = [&](int r) { return r >= 0 && r < s.ranks; };
    if ((st.what & (signal | wait)) != 0) {
        if (st.index == no_signal || (s.declared_signals >= 0 && st.index >= s.declared_signals))
            return {problem::undeclared_signal, -1, st.index};
        if ((st.what & wait) != 0 && st.peer_from != all_ranks && !is_rank(st.peer_from))
            return {problem::bad_peer, st.peer_from};
        return {};
    }
    if ((st.what & (recv | get)) != 0 && !is_rank(st.peer_from)) return {problem::bad_peer, st.peer_from};
    if ((st.what & send) != 0 && !is_rank(st.peer_to)) return {problem::bad_peer, st.peer_to};
    const bool reads = (st.what & recv) == 0 || (st.what & (reduce | reduce_after)) != 0;
    const bool writes = (st.what & (recv | copy | to_all)) != 0;
    if ((st.what & fold) != 0 && (st.peer_from < 0 || st.peer_to > s.ranks || st.peer_from >= st.peer_to))
        return {problem::bad_fold, st.peer_from, st.src.chunks.first};
    fault f;
    if (writes && st.dst.where == place::in) return {problem::writes_input, -1, st.dst.chunks.first};
    if (const problem p = not_executable(st, s); p != problem::none) return {p, -1, -1};
    if ((st.what & (get | fold)) != 0 && s.declared_signals == 0) return {problem::undeclared_signal, -1, -1};
    if (reads) f = out_of_range(st.src, s);
    if (f.what == problem::none && writes) f = out_of_range(st.dst, s);
    if (f.what == problem::none && (st.what & fold) != 0) f = out_of_range({st.own, st.src.chunks}, s);
    if (f.what == problem::none && st.also != place::none) f = out_of_range({st.also, st.dst.chunks}, s);
    if (f.what != problem::none || !writes || !reads) return f;
    if (st.src.chunks.count != st.dst.chunks.count) return {problem::wrong_length, -1, st.dst.chunks.first};
    return {};
}

// The first step of a rank's program that is out of range.
constexpr verdict out_of_range(const program& p, int rank, const schedule& s) {
    for (unsigned k = 0; k < p.strands.size(); ++k)
        for (unsigned i = 0; i < p.strands[k].size(); ++i)
            if (const fault f = out_of_range(p.strands[k][i], s); f.what != problem::none)
                return {.what = f.what,
                        .rank = rank,
                        .strand = static_cast<int>(k),
                        .step = static_cast<int>(i),
                        .iteration = 0,
                        .peer = f.peer,
                        .chunk = f.chunk};
    return {};
}
// Whether steps over windows and over peers' buffers are mixed, over all ranks. In the host's engine a call does one of
// the two: pieces go through a window, and whole buffers of peers are read where they lie.
constexpr bool mixes_memory(const schedule& s) { return s.uses_windows && s.reaches_buffers && !s.on_devices; }

constexpr verdict out_of_range(const schedule& s) {
    if (s.op != collective::barrier && s.chunks < 1) return {.what = problem::no_chunks, .rank = 0};
    for (int r = 0; r < s.ranks; ++r)
        if (const verdict v = out_of_range(s.programs[static_cast<unsigned>(r)], r, s); !v.ok()) return v;
    if (mixes_memory(s)) return {.what = problem::mixed_memory, .rank = 0};
    return {};
}

// One more than the largest chunk of scratch that the steps name.
[[gnu::cold]] constexpr int scratch_named(const program& p, int chunks) {
    int most = 0;
    const auto look = [&](place where, const chunk_set& c) {
        if (where == place::tmp)
            if (const int last = last_chunk(c, chunks); last >= most) most = last + 1;
    };
    for (const auto& strand : p.strands)
        for (const step& st : strand) {
            look(st.src.where, st.src.chunks);
            look(st.own, st.src.chunks);
            look(st.dst.where, st.dst.chunks);
        }
    return most;
}
constexpr int scratch_named(const schedule& s) {
    int most = 0;
    for (const program& p : s.programs)
        if (const int one = scratch_named(p, s.chunks); one > most) most = one;
    return most;
}

// Checks that the messages that all ranks send are those that they receive. Message i from one rank to another adds its
// own number where it is sent, and subtracts it where it is received. A message left over by one call would be the next
// one's data.
class message_balance {
public:
    // A message must have as many chunks as its receiver expects, except in a barrier, whose messages are tokens.
    constexpr message_balance(int ranks, collective op)
        : ranks_(static_cast<unsigned>(ranks)), counts_(op != collective::barrier), sent_(ranks_, 0u),
          received_(ranks_, 0u) {}
    // Requires: a program that is in range.
    constexpr void add(const program& p, int rank) {
        for (unsigned k = 0; k < ranks_; ++k) sent_[k] = received_[k] = 0;
        const auto me = static_cast<unsigned>(rank);
        for (const auto& strand : p.strands)
            for (const step& st : strand) {
                if ((st.what & recv) != 0) {
                    const auto from = static_cast<unsigned>(st.peer_from);
                    left_ -= mixed(from, me, received_[from]++, st.dst.chunks.count);
                }
                if ((st.what & send) != 0) {
                    const auto to = static_cast<unsigned>(st.peer_to);
                    const ref& what = (st.what & recv) != 0 ? st.dst : st.src;
                    left_ += mixed(me, to, sent_[to]++, what.chunks.count);
                }
            }
    }
    constexpr bool is_even() const { return left_ == 0; }

private:
    constexpr std::uint64_t mixed(unsigned from, unsigned to, unsigned i, int count) const {
        std::uint64_t x = (std::uint64_t{from} * ranks_ + to) << 32 ^ i;
        x = (x ^ static_cast<std::uint64_t>(counts_ ? count : 0) << 20) * 0x9e37'79b9'7f4a'7c15;
        return (x ^ x >> 29) * 0xbf58'476d'1ce4'e5b9;
    }
    unsigned ranks_;
    bool counts_;
    detail::growing_array<unsigned> sent_, received_;
    std::uint64_t left_ = 0;
};

} // namespace sched
COLLX_END_NAMESPACE
