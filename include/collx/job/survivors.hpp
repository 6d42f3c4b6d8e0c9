// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Determines who continues after a failure, and makes their new communicator: the work of communicator::shrink. The old
// communicator carries no messages any more. On several hosts its ranks agree over new connections
// (remote_survivors.hpp), on one host through words in its memory. There each rank says that it has come, and waits
// until every other has come or is gone. The first to see that proposes members and a place, and one compare-exchange
// decides whose proposal holds. So a rank that dies at any moment in between changes nothing but the members.
#pragma once

#include <collx/core/atomic.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/job/world.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

[[noreturn, gnu::cold]] inline void fail_left_out(int rank) {
    fail(errc::peer_failed, rank, rank, "start again: this rank came too late", "the others went on without this rank");
}
[[noreturn, gnu::cold]] inline void fail_late_to_shrink(int rank, int late) {
    fail(errc::timeout, rank, late, "all ranks that live must call shrink()",
         "rank %d lives, but did not come to shrink the communicator", late);
}

// A bit for each rank.
inline bool is_member(const std::uint64_t* bits, int r) { return (bits[r / 64] >> (r % 64) & 1) != 0; }
inline void add_member(std::uint64_t* bits, int r) { bits[r / 64] |= std::uint64_t{1} << (r % 64); }

// Ends a communicator of which a member is gone, as far as this rank can see. A member that is in a call of it then
// learns of the death, and does not wait for those who shrink.
[[gnu::cold]] inline void end_for_the_dead(communicator_core& c) {
    for (int r = 0; r < c.net.size() && !c.net.failed(); ++r)
        if (c.is_gone(r)) c.net.report(failure(errc::peer_failed, r));
    c.net.announce_failure();
}

// Takes a place in this host's memory for the new communicator, and proposes it together with this rank's note, unless
// another rank of this host was first. Returns the rank whose note holds.
[[gnu::cold]] inline int propose_place(communicator_core& c, std::uint32_t round, const links_layout& layout) {
    auto& decided = c.net.control().decided;
    survival_note& mine = c.net.note(c.net.rank());
    mine.place = job::no_place;
    try {
        mine.place = job::take_links(*c.home->memory, layout, c.net.rank());
    } catch (const error&) { // the note says to all ranks of this host that there is no place
    }
    const std::uint64_t proposal = std::uint64_t{round} << 32 | static_cast<std::uint64_t>(c.net.rank() + 1);
    std::uint64_t before = decided.load(memory_order::acquire);
    while (before >> 32 != round)
        if (decided.compare_exchange_weak(before, proposal, memory_order::acq_rel)) return c.net.rank();
    if (mine.place != job::no_place) c.home->memory->give_back(mine.place, layout.bytes());
    return static_cast<int>(before & 0xffff'ffff) - 1;
}

class survivors {
public:
    explicit survivors(communicator_core& c) : c_(c), round_(++c.shrinks) {}

    // Returns the proposal that holds. Throws: timed_out.
    const survival_note& agree() {
        mine().round.store(round_, memory_order::release);
        const deadline until = deadline::in_ns(c_.settings.timeout_ns);
        backoff b(c_.settings.waiting);
        do {
            for (int r = 0; r < c_.net.size() && !is_decided(); ++r)
                while (!has_come(r) && !is_decided()) {
                    if (!b.pause()) continue;
                    if (c_.home->connector) c_.home->connector->serve();
                    if (c_.is_gone(r)) break;
                    if (until.passed()) withdraw(r);
                }
        } while (!is_decided() && !propose());
        const auto winner = static_cast<int>(decided().load(memory_order::acquire) & 0xffff'ffff) - 1;
        return c_.net.note(winner);
    }

private:
    // Withdraws and throws. It is as if this rank had not come yet, so that it may come again.
    [[noreturn, gnu::cold]] void withdraw(int late) {
        --c_.shrinks;
        mine().round.store(round_ - 1, memory_order::release);
        fail_late_to_shrink(c_.net.rank(), late);
    }

    // Proposes members and a place. False if a rank has withdrawn since it was seen: it lives and will come again.
    bool propose() {
        auto& note = mine();
        int count = 0;
        for (auto& word : note.members) word = 0;
        for (int r = 0; r < c_.net.size(); ++r) {
            if (c_.is_gone(r)) continue;
            if (!has_come(r)) return false;
            add_member(note.members, r);
            ++count;
        }
        (void)propose_place(c_, round_, links_layout::for_ranks(count));
        return true;
    }

    bool has_come(int r) const { return c_.net.note(r).round.load(memory_order::acquire) >= round_; }
    bool is_decided() const { return decided().load(memory_order::acquire) >> 32 == round_; }
    atomic<std::uint64_t>& decided() const { return c_.net.control().decided; }
    survival_note& mine() const { return c_.net.note(c_.net.rank()); }

    communicator_core& c_;
    std::uint32_t round_;
};

// The place in this host's memory for a communicator whose ranks all know its members. The first of them takes it,
// without waiting.
[[gnu::cold]] inline std::uint64_t place_of_survivors(communicator_core& c, std::uint32_t round,
                                                      const detail::growing_array<int>& members) {
    const std::uint64_t before = c.net.control().decided.load(memory_order::acquire);
    const int winner = before >> 32 == round ? static_cast<int>(before & 0xffff'ffff) - 1
                                             : propose_place(c, round, c.home->layout_of(members));
    return c.net.note(winner).place;
}

// The ranks of the old communicator whose bits are set, as ranks of the job. rank_there: this rank's place among them.
inline detail::growing_array<int> chosen_members(const communicator_core& c, const std::uint64_t* bits,
                                                 int& rank_there) {
    detail::growing_array<int> members;
    for (int r = 0; r < c.net.size(); ++r) {
        if (!is_member(bits, r)) continue;
        if (r == c.net.rank()) rank_there = static_cast<int>(members.size());
        members.push_back(c.members[r]);
    }
    return members;
}

// The id of the communicator that the last shrink() makes. It names the files of recorded calls, too.
inline std::uint64_t id_of_shrunk(const communicator_core& c) {
    const std::uint64_t origin[] = {c.id, c.shrinks};
    return remote_members::id_of(hash_bytes(reinterpret_cast<const char*>(origin), sizeof origin, 14),
                                 remote_members::shares(c.id));
}

[[gnu::cold]] inline sole_ptr<communicator_core> shrink_across_hosts(communicator_core& c) {
    const std::uint32_t round = c.shrinks + 1;
    sole_ptr<job_attachment> answers;
    // bits: the ranks that continue, a bit per rank. answers: answers ranks that come late, and so is kept.
    const auto bits = require_net(c.net.rank(), "shrink() finds the survivors of this communicator by sockets")
                          .survivors(c, round, answers);
    c.home->late_answers.push_back(std::move(answers));
    c.accepted_ballot = 0;
    c.shrinks = round;
    c.net.remote()->count_shrink();
    int rank_there = -1;
    detail::growing_array<int> members = chosen_members(c, bits.data(), rank_there);
    if (rank_there < 0) fail_left_out(c.net.rank());
    const int n = static_cast<int>(members.size());
    const std::uint64_t place = place_of_survivors(c, round, members);
    if (place == job::no_place) job::fail_no_place(c.net.rank(), c.net.rank());
    return make_sole<communicator_core>(c.home, place, rank_there, n, std::move(members), nullptr, false,
                                        id_of_shrunk(c));
}

} // namespace detail

COLLX_END_NAMESPACE
