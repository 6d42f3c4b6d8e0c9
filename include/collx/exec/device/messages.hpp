// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a block does before and after it moves the elements of a step: signals, and the two ends of a message with their
// counts. None of it depends on the elements, so a file of many kernels has it once.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/block.hpp>
#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The ends of a step: the peer that its message comes from and the peer that it sends to (-1: none).
struct message_ends {
    std::int16_t from, to;
    bool flagged;  // data and flags arrive together
    bool is_first; // of the message's chunks
};

// The two slots of a step. Where there is no message it is a slot of the channel to this rank itself, which is not
// looked at: no address is ever null.
struct message_slots {
    const std::byte* rx;
    std::byte* tx;
    std::uint64_t in_number, out_number; // messages before these
    bool stops;                          // give up
};

// The signals and messages of a block; the executor derives from it.
template <class Env>
class message_worker : public block_worker<Env> {
    using worker = block_worker<Env>;
    using state_type = thread_state<Env>;

public:
    using worker::worker;

protected:
    using worker::args_, worker::env_, worker::rank_, worker::lane_, worker::shared_;
    using worker::control, worker::rank_words;

    // ------------------------------------------------------------------------------------------ signals
    // Where words carry no flags. All threads of the group call it. Signals after all earlier writes to memory.
    COLLX_NOINLINE COLLX_HD static void run_signal(state_type t, int index) {
        auto&& env = Env::take_over(t.env);
        const message_worker w(env, t);
        env.sync();
        COLLX_ROLLED
        for (unsigned k = env.index(); k < static_cast<unsigned>(w.ranks()); k += env.threads())
            Env::store_release(&w.control(static_cast<int>(k))->signal[index][w.rank_],
                               w.shared_.iterations + t.turn + 1);
    }
    // True: give up; all threads get the same answer.
    COLLX_NOINLINE COLLX_HD static bool run_await(state_type t, int index, int peer, unsigned lag) {
        auto&& env = Env::take_over(t.env);
        message_worker w(env, t);
        const std::uint64_t least = w.shared_.iterations + t.turn - lag + 1;
        const std::uint64_t* words = w.control(w.rank_)->signal[index];
        bool failed = false;
        if (peer == sched::all_ranks) {
            COLLX_ROLLED
            for (unsigned k = env.index(); k < static_cast<unsigned>(w.ranks()); k += env.threads())
                failed |= !w.wait_until(waits_for::signal, static_cast<int>(k), words + k, least);
        } else if (env.index() == 0) {
            failed = !w.wait_until(waits_for::signal, peer, words + peer, least);
        }
        return env.any(failed);
    }

    // ------------------------------------------------------------------------------------------ messages
    // Before the first chunk, waits until the message has arrived and there is room for the next one. All threads agree
    // on how that ended.
    COLLX_NOINLINE COLLX_HD static message_slots run_enter(state_type t, message_ends m) {
        auto&& env = Env::take_over(t.env);
        message_worker w(env, t);
        const bool stops = m.is_first && env.any(w.has_failed_to_enter(m));
        const int source = m.from >= 0 ? m.from : w.rank_, target = m.to >= 0 ? m.to : w.rank_;
        const std::uint64_t in_number = w.shared_.received[source], out_number = w.shared_.sent[target];
        return {w.slot_of(w.rank_, source, in_number, m.flagged), w.slot_of(target, w.rank_, out_number, m.flagged),
                in_number, out_number, stops};
    }
    // After the barrier the thread that looks at a count in the next step raises it; the others see it after that
    // step's first barrier. True: give up.
    COLLX_NOINLINE COLLX_HD static bool run_leave(state_type t, message_ends m) {
        auto&& env = Env::take_over(t.env);
        bool stops = false;
        if (m.flagged) stops = env.any(t.failed);
        else env.sync();
        message_worker(env, t).raise_counts(m);
        return stops;
    }

    // The slot at rank `at` for a message from rank `from`.
    COLLX_HD std::byte* slot_of(int at, int from, std::uint64_t message, bool flagged) const {
        const auto bytes = flagged ? args_.shape.flag_slot_bytes : args_.shape.slot_bytes;
        return args_.lane_of(at, lane_) + args_.places.slots + args_.shape.slot_number(from, message) * bytes;
    }

private:
    COLLX_HD unsigned second_thread() const { return env_.threads() > 32 ? 32 : env_.threads() - 1; }

    COLLX_HD bool has_failed_to_enter(const message_ends& m) {
        bool failed = false;
        // By two threads, of two warps where there are two, so that the two waits overlap.
        COLLX_ROLLED
        for (int end = m.flagged ? 1 : 0; end < 2; ++end) {
            const bool for_room = end == 1;
            const int peer = for_room ? m.to : m.from;
            if (env_.index() != (for_room ? second_thread() : 0) || peer < 0 || failed) continue;
            const std::uint64_t number = for_room ? shared_.sent[peer] : shared_.received[peer];
            if (for_room && number < shared_.drained[peer] + args_.shape.slots) continue;
            const lane_control& mine = *control(rank_);
            std::uint64_t found = 0, early = 0;
            const bool is_first = compares_parts(m) && !for_room && !shared_.compared[peer];
            if (is_first) early = Env::load_relaxed(part_of(rank_, peer, number)); // under way together with the count
            failed = !this->wait_until(for_room ? waits_for::room : waits_for::message, peer,
                                       for_room ? &mine.head[peer] : &mine.tail[peer],
                                       for_room ? number + 1 - args_.shape.slots : number + 1, found);
            if (for_room && !failed) shared_.drained[peer] = found;
            if (is_first && !failed) {
                shared_.compared[peer] = true;
                failed = is_other_part(peer, number, early);
            }
        }
        return failed;
    }
    COLLX_HD void raise_counts(const message_ends& m) {
        if (m.from >= 0 && env_.index() == 0)
            Env::store_release(&control(m.from)->head[rank_], ++shared_.received[m.from]);
        if (m.to < 0 || env_.index() != second_thread()) return;
        if (compares_parts(m) && !shared_.announced[m.to]) {
            const std::uint64_t number = shared_.sent[m.to];
            Env::store_relaxed(part_of(m.to, rank_, number), expected_part(false, m.to, number));
            shared_.announced[m.to] = true;
        }
        const std::uint64_t sent = ++shared_.sent[m.to];
        if (!m.flagged) Env::store_release(&control(m.to)->tail[rank_], sent);
    }

    // Whether the two ends of a message compare its part.
    COLLX_HD bool compares_parts(const message_ends& m) const {
        return args_.own_cuts_at != 0 && !m.flagged && lane_ == 0;
    }
    // Whether the first message of a part from `from` is not what this rank receives. early: the word when this rank
    // began to wait; where it is right already, the comparison costs no time of its own.
    COLLX_HD bool is_other_part(int from, std::uint64_t message, std::uint64_t early) {
        const std::uint64_t expected = expected_part(true, from, message);
        if (early == expected) return false;
        const std::uint64_t word = Env::load_relaxed(part_of(rank_, from, message));
        if (word == expected) return false;
        this->disagree(from, {word, part_word::mark}, {expected, part_word::mark});
        return true;
    }
    COLLX_HD std::uint64_t* part_of(int at, int from, std::uint64_t message) const {
        return &rank_words(args_.exchange[at])->parts[from][message & (args_.shape.slots - 1)];
    }
    // What both ends of a part say of it.
    COLLX_HD std::uint64_t expected_part(bool is_out, int peer, std::uint64_t message) const {
        const std::uint64_t what =
            args_.words.are_compared() ? part_word::of_call(shared_.number) : args_.parts().kind(is_out, peer);
        return part_word::of(message + shared_.empty[is_out ? 1 : 0][peer], what,
                             args_.part_bytes(is_out, rank_, peer));
    }
};

} // namespace device
COLLX_END_NAMESPACE
