// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a block of a fused kernel does around the steps: it takes over its lane's counts, waits for words of its peers,
// and gives up when a deadline has passed or another rank has given up. Knows no step and no element.
//
// A failed wait stops the block: all threads learn it in the same barrier, and each further step returns at once. So
// the algorithm needs no error path, and no barrier is reached by only a part of the threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/args.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A thread's side of a block_worker in a few words, for a function that continues its work and is not inlined. Passed
// by value it travels in registers; a reference to the worker would put that onto the stack.
template <class Env>
struct thread_state {
    typename Env::handle env;
    const call_args* args;
    block_state* shared;
    unsigned who; // rank (8 bits), group (8), lane
    unsigned turn;
    unsigned step;
    bool failed; // not yet voted upon
};

// Functions whose names begin with run_ are not inlined, and know neither algorithm nor types: a file has each of them
// once, however many kernels there are. They are no part of a loop over elements.
template <class Env>
class block_worker {
    using state_type = thread_state<Env>;
    // Of the whole block: code that does not look at groups is compiled for this kind of environment only.
    using block_env = typename Env::block_env;
    using of_block = block_worker<block_env>;
    template <class>
    friend class block_worker;

public:
    COLLX_HD block_worker(Env& env, const call_args& a, block_state& shared, int rank, int lane)
        : env_(env), args_(a), shared_(shared), rank_(rank), lane_(lane), group_(env.group()) {}
    COLLX_HD block_worker(Env& env, const state_type& s)
        : env_(env), args_(*s.args), shared_(*s.shared), rank_(static_cast<int>(s.who & 0xffu)),
          lane_(static_cast<int>(s.who >> 16)), group_(static_cast<int>(s.who >> 8 & 0xffu)), turn_(s.turn),
          step_(s.step) {}

    COLLX_HD bool has_stopped() const { return stopped_; }

protected:
    COLLX_HD state_type state(bool failed) const { return state_as<Env>(failed); }
    COLLX_HD thread_state<block_env> block_side(bool failed = false) const { return state_as<block_env>(failed); }

    // All threads of the block call these at the beginning and at the end of a call. has_neighbours: some may be in
    // other launches and must be waited for. IsShort: the first data must be requested soon, so the kernel has this
    // code itself. There the arguments are constants of the launch; a called function loads them from memory, one by
    // one.
    template <bool IsShort>
    COLLX_HD void begin_call(bool has_neighbours) {
        if constexpr (IsShort) begin(has_neighbours);
        else stopped_ = of_block::run_begin(block_side(), has_neighbours);
    }
    COLLX_HD void end_call(bool has_neighbours, bool waits, unsigned iterations, unsigned packets) {
        of_block::run_end(block_side(stopped_), has_neighbours, waits, iterations, packets);
    }
    COLLX_HD lane_control* control(int rank) const { return args_.control(rank, lane_); }
    COLLX_HD static rank_control* rank_words(std::byte* exchange) { return reinterpret_cast<rank_control*>(exchange); }
    COLLX_HD rank_control& my_words() const { return *rank_words(args_.exchange[rank_]); }
    COLLX_HD int ranks() const { return args_.shape.ranks; }

    // ------------------------------------------------------------------------------------------ waiting
    // By one thread. Polls without acquiring, because each acquire empties the first-level cache, then acquires once;
    // `seen` is what that found. A later look may find more, but nothing that it could rely on.
    COLLX_HD bool wait_until(waits_for what, int peer, const std::uint64_t* word, std::uint64_t least,
                             std::uint64_t& seen) {
        if (Env::load_relaxed(word) < least && !of_block::run_wait(block_side(), what, peer, word, least)) return false;
        seen = Env::load_acquire(word);
        return true;
    }
    COLLX_HD bool wait_until(waits_for what, int peer, const std::uint64_t* word, std::uint64_t least) {
        std::uint64_t seen = 0;
        return wait_until(what, peer, word, least, seen);
    }
    COLLX_NOINLINE COLLX_HD static bool run_wait(state_type t, waits_for what, int peer, const std::uint64_t* word,
                                                 std::uint64_t least) {
        auto&& env = Env::take_over(t.env);
        return block_worker(env, t).template poll<false, true>(what, peer,
                                                               [=] { return Env::load_relaxed(word) >= least; });
    }
    struct look_result {
        std::uint64_t began; // 0: not yet
        bool ends, reported;
        std::uint16_t left; // bit k: rank k had left at the last look into the host's memory
    };
    COLLX_NOINLINE COLLX_HD static look_result run_look(state_type t, waits_for what, int peer, unsigned polls,
                                                        look_result last) {
        auto&& env = Env::take_over(t.env);
        last.ends = !block_worker(env, t).may_go_on(what, peer, polls, last);
        return last;
    }

    // Asks is_there until it says yes. False: give up. Together: all threads of a line call it, is_there tells them the
    // same, and they give up together. peer: the rank that is waited for; is_there may change it.
    template <bool Together = false, bool LooksHere = false, class Question>
    COLLX_HD bool poll(waits_for what, const int& peer, Question&& is_there) {
        look_result look{0, false, false, 0};
        for (unsigned polls = 1; !is_there(); ++polls) {
            Env::pause();
            if (polls % polls_per_look != 0) continue;
            if constexpr (LooksHere) look.ends = !may_go_on(what, peer, polls, look);
            else look = of_block::run_look(block_side(), what, peer, polls, look);
            if constexpr (Together) look.ends = env_.any_of_line(look.ends);
            if (look.ends) return false;
        }
        if (look.reported) report(wait_state::idle, waits_for::nothing, 0, 0);
        return true;
    }

    COLLX_HD void disagree(int peer, const unit16& theirs, const unit16& expected) {
        std::uint64_t* d = args_.host->differs[peer];
        Env::store_relaxed(d, theirs.low);
        Env::store_relaxed(d + 1, theirs.high);
        Env::store_relaxed(d + 2, expected.low);
        Env::store_relaxed(d + 3, expected.high);
        const std::uint64_t why = stop_word::disagreement(rank_, peer);
        Env::store_release(&args_.host->disagreement, why);
        stop_all(why);
    }

    // All threads of the group call it, after a vote.
    COLLX_HD void stop_if(bool failed) { stopped_ |= failed; }

    COLLX_HD void begin_piece(unsigned turn) {
        step_ = 0;
        turn_ = turn;
    }
    COLLX_HD void begin_step() { ++step_; }

    Env& env_;
    const call_args& args_;
    block_state& shared_;
    int rank_, lane_;
    int group_;
    unsigned turn_ = 0; // pieces of this lane that are done
    unsigned step_ = 0;
    bool stopped_ = false;

private:
    template <class E>
    COLLX_HD thread_state<E> state_as(bool failed) const {
        return {env_.hand_over(),
                &args_,
                &shared_,
                static_cast<unsigned>(rank_) | static_cast<unsigned>(group_) << 8 | static_cast<unsigned>(lane_) << 16,
                turn_,
                step_,
                failed};
    }

    // ------------------------------------------------------------------------------------------ begin and end
    // True: the block has stopped.
    COLLX_NOINLINE COLLX_HD static bool run_begin(state_type t, bool has_neighbours) {
        auto&& env = Env::take_over(t.env);
        block_worker w(env, t);
        w.begin(has_neighbours);
        return w.has_stopped();
    }
    COLLX_HD void begin(bool has_neighbours) {
        take_counts();
        say_call();
        if (has_neighbours && !has_stopped()) wait_for_neighbours();
    }
    COLLX_NOINLINE COLLX_HD static void run_end(state_type t, bool has_neighbours, bool waits, unsigned iterations,
                                                unsigned packets) {
        auto&& env = Env::take_over(t.env);
        block_worker w(env, t);
        if (!t.failed) w.compare_calls(waits);
        w.keep_counts(iterations, packets);
        if (has_neighbours) w.tell_neighbours();
    }
    COLLX_HD void take_counts() {
        const lane_control& c = *control(rank_);
        const unsigned t = env_.index_in_block(), step = env_.threads_in_block();
        COLLX_ROLLED
        for (unsigned k = t; k < max_ranks; k += step) {
            const std::uint64_t sent = c.sent[k], received = c.received[k];
            shared_.sent[k] = message_counts::data(sent);
            shared_.empty[0][k] = message_counts::empty(sent);
            shared_.received[k] = message_counts::data(received);
            shared_.empty[1][k] = message_counts::empty(received);
            shared_.drained[k] = 0;
            shared_.announced[k] = shared_.compared[k] = false;
        }
        if (t == 0) {
            if (lane_ == 0) shared_.number = my_words().calls + (args_.words.are_compared() ? 1 : 0);
            // All loads first, so that they are waited for once.
            const std::uint64_t iterations = c.iterations, packets = c.packets, calls = c.calls;
            // A call that was ended in the middle is not continued: counts no longer match the peers'.
            const std::uint64_t stopped = Env::load_relaxed(&my_words().abort);
            if (stopped != 0 && !is_in_disagreement(stopped))
                report(wait_state::aborted, waits_for::nothing, rank_, stopped);
            shared_.is_stopped = stopped != 0;
            shared_.iterations = iterations;
            shared_.packets = packets;
            shared_.calls = calls;
        }
        env_.sync_block();
        stopped_ = shared_.is_stopped;
    }
    COLLX_HD void keep_counts(std::uint64_t iterations, std::uint64_t packets) {
        env_.sync_block();
        lane_control& c = *control(rank_);
        const unsigned t = env_.index_in_block(), step = env_.threads_in_block();
        COLLX_ROLLED
        for (unsigned k = t; k < max_ranks; k += step) {
            if (lane_ == 0 && args_.own_cuts_at != 0) count_empty_messages(static_cast<int>(k));
            c.sent[k] = message_counts::of(shared_.sent[k], shared_.empty[0][k]);
            c.received[k] = message_counts::of(shared_.received[k], shared_.empty[1][k]);
        }
        if (t != 0) return;
        c.iterations = shared_.iterations + iterations;
        c.packets = shared_.packets + packets;
        if (lane_ == 0) my_words().calls = shared_.number;
    }

    // A program's message without elements is counted by both ends, and nothing is sent. If only one end's has none,
    // the next message tells by its number.
    COLLX_HD void count_empty_messages(int k) {
        const own_cuts& parts = args_.parts();
        if (parts.is_empty_message(false, k)) ++shared_.empty[0][k];
        if (parts.is_empty_message(true, k)) ++shared_.empty[1][k];
    }

    // ------------------------------------------------------------------------------------------ the same call
    // By the blocks of lane 0, of which every rank has one in every call. Each sends all peers the words of its call,
    // without waiting.
    COLLX_HD void say_call() {
        if (lane_ != 0 || !args_.words.are_compared()) return;
        COLLX_ROLLED
        for (unsigned k = env_.index_in_block(); k < static_cast<unsigned>(ranks()); k += env_.threads_in_block()) {
            const unit16 words =
                args_.words.numbered(shared_.number, args_.count_for(false, rank_, static_cast<int>(k)));
            Env::store_line(said_by(static_cast<int>(k), rank_, shared_.number), words);
        }
    }
    // At the end of a call. A rank whose data has arrived has stored its words before that. With LL data may overtake
    // the words, so this rank waits for them (waits). Words that come too late are compared in the next call. Those of
    // a peer that is said_calls ahead are overwritten, and not compared.
    COLLX_HD void compare_calls(bool waits) {
        if (lane_ != 0 || !args_.words.are_compared()) return;
        COLLX_ROLLED
        for (unsigned k = env_.index_in_block(); k < static_cast<unsigned>(ranks()); k += env_.threads_in_block()) {
            const int peer = static_cast<int>(k);
            auto* unheard = reinterpret_cast<unit16*>(my_words().unheard[k]);
            const unit16 expected = expected_of(peer), before = *unheard;
            if (waits)
                poll(waits_for::words, peer, [&] {
                    return call_words::are_not_before(Env::load_line(said_by(rank_, peer, shared_.number)), expected);
                });
            bool is_heard = false;
            COLLX_ROLLED
            for (int i = 0; i < 2; ++i) { // this call's words, then those that were missing when the last one ended
                const bool is_old = i == 1;
                if (is_old && (before.low == 0 || call_words::number_of(before) == call_words::number_of(expected)))
                    continue;
                // Word by word: a choice between two structures would be an address.
                const bool is_said =
                    has_said(peer, {is_old ? before.low : expected.low, is_old ? before.high : expected.high});
                if (!is_old) is_heard = is_said;
            }
            *unheard = is_heard ? unit16{} : expected;
        }
    }
    // Neighbours with separate launches may still be in the last call when this one begins, and read my window. The
    // next algorithm has other signals, which would not report it.
    COLLX_HD void wait_for_neighbours() {
        bool failed = false;
        COLLX_ROLLED
        for (unsigned k = env_.index_in_block(); k < static_cast<unsigned>(ranks()); k += env_.threads_in_block())
            failed |=
                !wait_until(waits_for::neighbours, static_cast<int>(k), &control(rank_)->finished[k], shared_.calls);
        stop_if(env_.any_of_block(failed));
    }
    // After keep_counts, by all threads of the block.
    COLLX_HD void tell_neighbours() {
        const unsigned t = env_.index_in_block(), step = env_.threads_in_block();
        COLLX_ROLLED
        for (unsigned k = t; k < static_cast<unsigned>(ranks()); k += step)
            Env::store_release(&control(static_cast<int>(k))->finished[rank_], shared_.calls + 1);
        if (t == 0) control(rank_)->calls = shared_.calls + 1;
    }

    static constexpr unsigned polls_per_look = 64, looks_per_question = 16, long_wait = 1u << 14;

    COLLX_HD bool may_go_on(waits_for what, int peer, unsigned polls, look_result& look) {
        const std::uint64_t stopped = Env::load_relaxed(&my_words().abort);
        bool aborted = stopped != 0, left = false;
        is_in_disagreement(stopped);
        // A load of the host's memory goes over the bus.
        if (polls % (polls_per_look * looks_per_question) == 0) {
            aborted = aborted || Env::load_relaxed(&args_.host->abort) != 0;
            // What a rank has sent before it left is there by the next time, and ends this wait.
            left = (look.left >> peer & 1) != 0;
            look.left = static_cast<std::uint16_t>(Env::load_acquire(&args_.host->left));
        }
        wait_state said = wait_state::idle;
        std::uint64_t why = stop_word::deadline(rank_, peer);
        if (aborted) {
            // The host ended this kernel in the middle, so the next one would not match its peers.
            if (stopped == 0) Env::store_relaxed(&my_words().abort, stop_word::ended);
            why = stopped != 0 ? stopped : stop_word::ended;
            said = wait_state::aborted;
        } else {
            // Stops all ranks if the peer is in another call.
            if (lane_ == 0 && args_.words.are_compared()) has_said(peer, expected_of(peer));
            const std::uint64_t now = Env::now_ns();
            if (look.began == 0) look.began = now;
            if (left) {
                said = wait_state::peer_left;
                why = stop_word::left(rank_, peer);
            } else if (now - look.began > args_.timeout_ns) {
                said = wait_state::timed_out;
            } else if (polls == long_wait) {
                said = wait_state::waiting;
                look.reported = true;
            }
        }
        if (said == wait_state::idle) return true;
        report(said, what, peer, why);
        if (said == wait_state::timed_out || said == wait_state::peer_left) stop_all(why);
        return said == wait_state::waiting;
    }
    // Whether ranks are in different calls; if so tells the host, too.
    COLLX_HD bool is_in_disagreement(std::uint64_t stopped) {
        if (!stop_word::is_disagreement(stopped)) return false;
        Env::store_relaxed(&args_.host->disagreement, stopped);
        return true;
    }
    COLLX_HD void stop_all(std::uint64_t why) {
        COLLX_ROLLED
        for (int k = 0; k < ranks(); ++k) Env::store_relaxed(&rank_words(args_.exchange[k])->abort, why);
    }

    COLLX_HD unit16* said_by(int at, int who, std::uint64_t number) const {
        return reinterpret_cast<unit16*>(rank_words(args_.exchange[at])->said[number % said_calls][who]);
    }
    COLLX_HD unit16 expected_of(int peer) const {
        return args_.words.numbered(shared_.number, args_.count_for(true, rank_, peer));
    }
    // Whether a peer has sent its words of the call that `expected` is of. Words that differ stop all ranks.
    COLLX_HD bool has_said(int peer, const unit16& expected) {
        const unit16 theirs = Env::load_line(said_by(rank_, peer, call_words::number_of(expected)));
        if (!call_words::are_of_one_call(theirs, expected)) return false;
        if (theirs.low != expected.low || theirs.high != expected.high) disagree(peer, theirs, expected);
        return true;
    }
    // why: a stop_word, where this block gives up.
    COLLX_HD void report(wait_state state, waits_for what, int peer, std::uint64_t why) {
        std::uint64_t* word = args_.report(rank_, lane_, group_);
        // A later call must not hide why an earlier one gave up.
        if (wait_report::unpack(Env::load_relaxed(word)).has_given_up()) return;
        const wait_report said{state, what, peer, step_, turn_, args_.call};
        Env::store_relaxed(word, said.pack());
        if (said.has_given_up()) Env::store_release(&args_.host->gave_up, why);
    }
};

} // namespace device
COLLX_END_NAMESPACE
