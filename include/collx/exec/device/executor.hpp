// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The executor inside a kernel: one block runs it for one rank and one lane. Each step is a loop over packs in which
// all threads of the block (or of one strand's group) take part. The kind of a step is part of its type, so after
// inlining only the algorithm with its waits, loads and stores is left: no table, no dispatch. docs/design/device.md
// weighs that against a table of steps.
//
// It knows no CUDA: an environment supplies threads, barriers and words (cuda_env.cuh; testing/twin_env.hpp on the
// host).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/exec/device/chunk_move.hpp>
#include <collx/exec/device/executor_kind.hpp>
#include <collx/exec/device/messages.hpp>
#include <collx/exec/device/usage.hpp>
#include <collx/sched/executor.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

template <class Kind>
class executor : public sched::verbs<executor<Kind>>, public message_worker<typename Kind::Env> {
    using Env = typename Kind::Env;
    using Algorithm = typename Kind::Algorithm;
    using Types = typename Kind::Types;
    using Protocol = typename Kind::Protocol;
    static constexpr int Groups = Kind::Groups;
    using args_type = fused_args<Algorithm, Types>;
    using thread_state = device::thread_state<Env>;
    using worker = message_worker<Env>;
    using access = operand_access<Env, Types>;
    using acc_pack = typename Types::acc_pack;
    template <class W>
    using acc_of = typename access::template acc_pack<W>;
    template <class W>
    using wire_of = typename access::template wire_pack<W>;
    using acc_type = typename Types::acc_type;
    using wire_pack = typename Types::wire_pack;
    using wire_type = typename Types::wire_type;
    using place = sched::place;
    using worker::args_, worker::env_, worker::rank_, worker::lane_, worker::shared_, worker::turn_;
    using worker::ranks, worker::stop_if;

    static constexpr int V = Types::elems;
    using packed = width<V, true>;
    using partial = width<V, false>; // with flags
    static constexpr bool words = Protocol::flags_words, lines = Protocol::flags_lines;
    static constexpr bool flagged = words || lines; // data and flags arrive together
    static constexpr bool multicasts = Protocol::multicasts;
    static constexpr bool has_windows = sched::signals_v<Algorithm> != 0;
    // Bytes of a pack in slots and windows.
    static constexpr std::size_t stride = words ? packet_stride<wire_type, V> : wire_pack::bytes;
    // Packs that a thread has under way: four loads of 16 bytes, fewer where accumulators are wide. One where a hook
    // works on elements that were wider than their wire: with two sm_100 runs out of registers. One-byte elements wait
    // in a register each.
    static constexpr bool widens_for_hook = access::has_post && sizeof(typename Types::in_type) > sizeof(wire_type);
    static constexpr int unroll = flagged                                           ? 1
                                  : sizeof(acc_pack) <= 16 && sizeof(acc_type) != 1 ? 4
                                  : sizeof(acc_pack) <= 32 && !widens_for_hook      ? 2
                                                                                    : 1;

public:
    COLLX_HD executor(Env& env, const args_type& a, block_state& shared, int rank, int lane)
        : worker(env, a, shared, rank, lane) {}
    // Continues where another executor of this thread stands: inside a piece.
    COLLX_HD executor(Env& env, const thread_state& t)
        : worker(env, t), base_(flagged ? shared_.packets : shared_.iterations), failed_(t.failed) {}

    COLLX_HD bool strand(int k) const { return Groups == 1 || k % Groups == env_.group(); }

    // Runs the algorithm for each piece of this lane. All threads of the block call it together.
    COLLX_HD void run() {
        const bool has_neighbours = has_windows && !flagged && !args_.is_one_launch;
        this->template begin_call<words && has_windows>(has_neighbours);
        base_ = flagged ? shared_.packets : shared_.iterations;
        unsigned turn = 0;
        for (std::size_t piece = static_cast<unsigned>(lane_); piece < args_.piece_count;
             piece += static_cast<unsigned>(args_.lanes)) {
            this->begin_piece(turn);
            args().algorithm(*this, rank_, ranks());
            // A peer that sees my words of the next piece knows that all my threads have read this one.
            if constexpr (flagged) stop_if(env_.any(failed_));
            ++turn;
        }
        this->end_call(has_neighbours, flagged && has_windows, flagged || !has_windows ? 0 : turn,
                       flagged && has_windows ? turn : 0);
    }

    template <sched::action What>
    COLLX_ALWAYS_INLINE COLLX_HD void emit(const sched::step& s) {
        static_assert(
            !lines || !has_windows,
            "collx: lines of 128 bytes travel through channels. Use packet_protocol or simple_protocol for an "
            "algorithm over windows.");
        if (this->has_stopped()) return;
        this->begin_step();
        if constexpr (What == sched::signal) give_signal(s.index);
        else if constexpr (What == sched::wait) await_signal(s);
        else if constexpr ((What & sched::fold) != 0) fold<(What & sched::to_all) != 0>(s);
        else if constexpr (words && has_windows && What == sched::copy) copy_or_push(s);
        else hand_over<!has_windows || (What & (sched::recv | sched::send)) != 0>(s);
    }

private:
    COLLX_HD const args_type& args() const { return static_cast<const args_type&>(args_); }
    COLLX_HD const rank_operands<Types>& mine() const { return args().rank(rank_); }
    COLLX_HD const typename Types::op_type& op() const { return mine().op; }

    // ------------------------------------------------------------------------------------------ signals
    COLLX_HD void give_signal(int index) {
        if constexpr (flagged) return; // the flags beside the words replace signals
        if (args_.skips_signals) return;
        if constexpr (multicasts) Env::fence_alias();
        worker::run_signal(this->state(false), index);
    }
    COLLX_HD void await_signal(const sched::step& s) {
        if constexpr (flagged) return;
        if (args_.skips_signals || turn_ < s.lag) return; // earlier calls have ended everywhere
        stop_if(worker::run_await(this->state(false), s.index, s.peer_from, s.lag));
        if constexpr (multicasts) Env::fence_alias();
    }

    // ------------------------------------------------------------------------------------------ packs
    // body(w, U, i, step, m) moves U accesses of width w, the first at element i and each `step` elements after the one
    // before. m elements of each exist; where they go one by one, those before element m. It makes all loads before the
    // stores, so that the loads are under way together. Packs begin at element `first`, which is aligned in all memory
    // that is touched; no_packs: there is no such element. The block goes over the packs U at a time. The rest is
    // divided anew, so that one body does for all: a U-th of it to as many threads, and less than U packs as elements.
    // Elements outside of whole, aligned packs go one by one, side by side in the threads and N in each. The last
    // threads begin, because they have least to do. With flags all go by packs.
    template <int U, int N = narrow_unroll(sizeof(acc_type)), class Body>
    COLLX_ALWAYS_INLINE COLLX_HD void each_pack(std::size_t n, unsigned first, Body&& body, int of_rank = 0) {
        using one = std::integral_constant<int, 1>;
        const unsigned elems = static_cast<unsigned>(n), step = env_.threads(), me = env_.index();
        if constexpr (flagged) {
            const unsigned packs = packs_of(n), whole = first == 0 ? elems / V : 0;
            unsigned i = spreads ? thread_for(of_rank, packs) : me;
            COLLX_ROLLED
            for (; i < whole; i += step) body(packed(), one(), i * V, step * V, static_cast<unsigned>(V));
            COLLX_ROLLED
            for (; i < packs; i += step) {
                const unsigned at = i * V, m = at + V <= elems ? V : at < elems ? elems - at : 0;
                body(partial(), one(), at, step * V, m);
            }
        } else {
            if constexpr (V > 1) {
                unsigned begin = first < elems ? first : 0; // the first element that goes by packs
                unsigned whole = first < elems ? (elems - first) / V : 0;
                const unsigned block = U * step, even = whole - whole % block, rest = (whole - even) / U;
                COLLX_ROLLED
                for (unsigned at = 0; at <= even; at += block) {
                    const unsigned apart = at < even ? step : rest;
                    if (me < apart)
                        body(packed(), std::integral_constant<int, U>(), begin + (at + me) * V, apart * V,
                             static_cast<unsigned>(V));
                }
                whole = even + rest * U;
                if (whole == 0) begin = 0;
                unsigned to = begin, from = 0;
                COLLX_ROLLED
                for (int side = 0; side < 2; ++side) {
                    COLLX_ROLLED
                    for (unsigned i = from + step - 1 - me; i < to; i += N * step)
                        body(narrow(), std::integral_constant<int, N>(), i, step, to);
                    from = begin + whole * V;
                    to = elems;
                }
            } else {
                COLLX_ROLLED
                for (unsigned i = me; i < elems; i += N * step)
                    body(narrow(), std::integral_constant<int, N>(), i, step, elems);
            }
        }
    }
    static constexpr unsigned no_packs = ~0u;
    // Elements of the access at element i; where they go one by one, whether there is one.
    template <class W>
    COLLX_HD static unsigned count_at(unsigned i, unsigned m) {
        if constexpr (flagged || W::is_whole) return m;
        else return i < m ? 1 : 0;
    }
    // With flags: the pack at which this thread begins with the part of one of several ranks. Short parts of different
    // ranks go to different threads, because none of them waits for another.
    static constexpr bool spreads =
        words && may_push_v<Algorithm> && Algorithm::op == collective::all_reduce && sched::pushes_parts_v<Algorithm>;
    COLLX_HD unsigned thread_for(int part, unsigned packs) const {
        const unsigned step = env_.threads(), skipped = static_cast<unsigned>(part) * packs % step, me = env_.index();
        return me >= skipped ? me - skipped : me + step - skipped;
    }
    // With flags an empty message is still a word: its receiver waits for one from the sender.
    COLLX_HD static constexpr unsigned packs_of(std::size_t n) {
        const auto packs = static_cast<unsigned>((n + V - 1) / V);
        return flagged && packs == 0 ? 1 : packs;
    }

    // Operands from element `at` on: in rank r's input, in its output, or in my scratch. Where all of them hold one
    // type an operand is a pointer, so that there is one kind of access; else each access looks at the place.
    struct plain_operand {
        typename Types::in_type* p;
    };
    struct any_operand {
        rank_operands<Types> r;
        place where;
        std::size_t at;
    };
    static constexpr bool has_scratch = sched::has_scratch_v<Algorithm>;
    static constexpr bool is_plain =
        access::is_plain && (!has_scratch || std::is_same_v<acc_type, typename Types::in_type>);
    using operand = std::conditional_t<is_plain, plain_operand, any_operand>;
    COLLX_HD operand operand_at(const rank_operands<Types>& r, place where, std::size_t at) const {
        if constexpr (is_plain) {
            const typename Types::in_type* p = where == place::in ? r.in.data() : r.out.data();
            if constexpr (has_scratch) p = where == place::tmp ? scratch() : p;
            return {const_cast<typename Types::in_type*>(p) + at};
        } else {
            return {r, where, at};
        }
    }
    COLLX_HD bool is_aligned_at(const operand& o, unsigned shift = 0) const {
        if constexpr (is_plain) return is_aligned<typename Types::in_type, V>(o.p + shift);
        else if (o.where == place::in) return access::in_is_aligned(o.r, o.at + shift);
        else return o.where != place::out || access::out_is_aligned(o.r, o.at + shift);
    }
    template <class W>
    COLLX_HD acc_of<W> read(const operand& o, std::size_t skip, unsigned m) const { // from element `skip` on, with hook
        if constexpr (is_plain) {
            return access::template read_plain<W>(o.p + skip, m);
        } else {
            if (o.where == place::in) return access::template read_in<W>(o.r, ranks(), o.at + skip, m);
            if (has_scratch && o.where == place::tmp) return access::template read_held<W>(scratch() + o.at + skip, m);
            return access::template read_out<W>(o.r, o.at + skip, m);
        }
    }
    template <class W>
    COLLX_HD void write(const operand& o, std::size_t skip, unsigned m, const acc_of<W>& acc) const {
        if constexpr (is_plain) access::template write_plain<W>(o.p + skip, m, acc);
        else if (has_scratch && o.where == place::tmp) access::template write_held<W>(scratch() + o.at + skip, m, acc);
        else access::template write_out<W>(o.r, o.at + skip, m, acc);
    }
    // Loads from element i on of a slot or a window without flags, which has whole packs.
    template <class W>
    COLLX_HD static wire_of<W> load_wire(const std::byte* from, std::size_t i, unsigned m) {
        return access::template read_raw<W>(reinterpret_cast<const wire_type*>(from) + i, m);
    }
    template <class W>
    COLLX_HD static void store_wire(std::byte* to, std::size_t i, unsigned m, const wire_of<W>& w) {
        access::template write_raw<W>(reinterpret_cast<wire_type*>(to) + i, m, w);
    }
    COLLX_HD acc_type* scratch() const {
        return reinterpret_cast<acc_type*>(args_.lane_of(rank_, lane_) + args_.shape.scratch_at());
    }
    // Scratch, slots and windows have whole packs per chunk; scratch chunks have the input's sizes.
    COLLX_HD part local(place p, int chunk) const {
        return part_of(args().cuts, p, rank_, chunk, piece(), args_.piece_elems, cell_elems());
    }
    COLLX_HD std::size_t piece() const {
        return static_cast<unsigned>(lane_) + std::size_t{turn_} * static_cast<unsigned>(args_.lanes);
    }
    COLLX_HD std::uint32_t cell_elems() const { return static_cast<std::uint32_t>(cell_packs() * V); }
    COLLX_HD std::size_t cell_packs() const { return (args_.piece_elems + V - 1) / V; }

    // Pairs of lines.
    COLLX_HD static constexpr unsigned pairs_of(std::size_t n) { return (packs_of(n) + pair_packs - 1) / pair_packs; }

    // ------------------------------------------------------------------------------------------ memory of the team
    COLLX_HD std::byte* window_at(int rank, int segment, int chunk) const {
        return args_.lane_of(rank, lane_) + window_offset(segment, chunk);
    }
    COLLX_HD std::size_t window_offset(int segment, int chunk) const { // in any rank's lane
        return args_.places.windows + args_.shape.stage_number(segment, base_ + turn_) * args_.shape.stage_bytes +
               static_cast<std::size_t>(chunk) * cell_packs() * stride;
    }
    // The words that `from` pushed to `at`, of a window's segment.
    COLLX_HD std::byte* packets_at(int segment, int at, int from) const {
        return args_.lane_of(at, lane_) + args_.places.packets +
               args_.shape.cell_number(segment, from, base_ + turn_) * args_.shape.packet_bytes;
    }
    COLLX_HD std::uint32_t window_flag() const { return static_cast<std::uint32_t>(base_ + turn_ + 1); }

    COLLX_HD wire_pack receive_words(const std::byte* from, std::uint32_t flag, int peer) {
        wire_pack w{};
        if (!failed_ &&
            !this->poll(waits_for::packet, peer, [&] { return try_load_packet<Env, wire_type, V>(from, flag, w); }))
            failed_ = true; // voted upon when the step ends
        return w;
    }
    // Loads what ranks first, first + 1, … (before `end`) pushed for pack p, except my own words. All are loaded before
    // the first flag is looked at: one round trip for four ranks, not one for each. (With eight at once registers
    // spill; so of long packs fewer are loaded.)
    static constexpr int peers_at_once = packet_lines<wire_type, V> > 4 ? 1 : packet_lines<wire_type, V> > 2 ? 2 : 4;
    static_assert(peers_at_once > 0); // the loop over peers would not end
    COLLX_HD void receive_of_peers(int first, int end, unsigned p, waiting_pack<wire_type, V> (&got)[peers_at_once]) {
        if (failed_) return;
        const std::byte* from = packets_at(0, rank_, first) + p * stride;
        const std::uint32_t flag = window_flag();
        int missing = first;
        failed_ = !this->poll(waits_for::packet, missing, [&] {
            packet_words<wire_type, V> sent[peers_at_once];
            const std::byte* at = from;
            COLLX_UNROLL
            for (int b = 0; b < peers_at_once; ++b) { // beyond the end the last rank's again
                sent[b].template load<Env>(at);
                if (first + b + 1 < end) at += args_.shape.packet_bytes;
            }
            int late = -1;
            COLLX_UNROLL
            for (int b = 0; b < peers_at_once; ++b)
                if (!sent[b].has(flag) && first + b != rank_ && first + b < end) late = first + b;
            if (late >= 0) {
                missing = late;
                return false;
            }
            COLLX_UNROLL
            for (int b = 0; b < peers_at_once; ++b) sent[b].put_into(got[b]);
            return true;
        });
    }
    // Old words must not carry the right flag again after 2^32 messages: from time to time a whole cell is written.
    COLLX_HD void refresh(std::byte* to, std::size_t bytes, unsigned packs, std::uint32_t flag) const {
        if (!refreshes(flag)) return;
        COLLX_ROLLED
        for (auto i = packs + env_.index(); (i + 1) * stride <= bytes; i += env_.threads())
            store_packet<Env>(to + i * stride, wire_pack{}, flag);
    }
    COLLX_HD bool refreshes(std::uint32_t flag) const { return flag % refresh_period < 2 * args_.shape.slots; }
    static constexpr std::uint32_t refresh_period = 1u << 24;

    // ------------------------------------------------------------------------------------------ steps that move
    template <bool Channels>
    COLLX_ALWAYS_INLINE COLLX_HD void hand_over(const sched::step& s);
    template <bool Channels>
    COLLX_NOINLINE COLLX_HD static move_result run_move(thread_state t, chunk_move m);
    template <bool Channels>
    COLLX_HD std::uint32_t move(const chunk_move& m);
    COLLX_HD message_ends ends_of(const chunk_move& m) const;
    COLLX_HD void leave(const chunk_move& m, std::uint32_t at);
    COLLX_HD transfer plan(const chunk_move& m) const;
    COLLX_HD void use_slots(const chunk_move& m, transfer& x);
    COLLX_HD void use_windows(const chunk_move& m, transfer& x) const;
    COLLX_HD operand own_operand(const transfer& x) const { return operand_at(args().rank(x.owner), x.src_at, x.from); }
    COLLX_HD operand result_operand(const transfer& x) const { return operand_at(mine(), x.dst_at, x.to); }
    // Operands, windows and results are all of one type and no element changes: bytes are moved.
    static constexpr bool moves_as_is =
        is_plain && access::is_wire_in && !access::has_post && (!has_scratch || std::is_same_v<acc_type, wire_type>);
    COLLX_HD void carry_as_is(const transfer& x);
    template <bool Channels>
    COLLX_HD void carry(const transfer& x);
    COLLX_HD void carry_words(const transfer& x);
    COLLX_HD void carry_lines(const transfer& x);
    template <class W>
    COLLX_HD acc_of<W> combined(const transfer& x, const acc_of<W>& got, const acc_of<W>& own, unsigned m) const;
    template <class W>
    COLLX_HD wire_pack through(const transfer& x, const operand& own, const operand& result, unsigned p, unsigned m,
                               const wire_pack& w) const;

    // ------------------------------------------------------------------------------------------ steps over windows
    COLLX_HD void push(const sched::step& s);
    COLLX_HD void push_pack(int segment, int first, int last, unsigned i, const wire_pack& x) const;
    COLLX_HD void refresh_pushed(int segment, int first, int last, std::size_t n) const;
    // Whether it is a copy is known only after inlining, when the compiler has already optimised a copy's body.
    COLLX_HD void copy_or_push(const sched::step& s) {
        if constexpr (may_copy_v<Algorithm>)
            if (!sched::is_window(s.dst.where)) return hand_over<false>(s);
        push(s);
    }
    template <class W>
    using fold_pack = std::conditional_t<access::is_wire_in, wire_of<W>, acc_of<W>>;
    template <class W>
    using waiting_operand = waiting_pack<std::conditional_t<access::is_wire_in, wire_type, acc_type>, W::n>;
    template <class W>
    COLLX_HD static acc_of<W> opened(const waiting_operand<W>& x) {
        if constexpr (access::is_wire_in) return access::from_wire(x.get());
        else return x.get();
    }
    template <class W>
    COLLX_HD acc_of<W> fold_words(const sched::step& s, std::size_t in_at, unsigned i, unsigned m);
    COLLX_HD wire_pack reduced_by_switch(std::size_t at) const;
    template <class W, int U>
    COLLX_HD void store_also(int segment, int chunk, unsigned i, unsigned step, unsigned end,
                             const waiting_pack<wire_type, W::n> (&x)[U]);
    template <bool ToAll>
    COLLX_HD void fold(const sched::step& s);

    std::uint64_t base_ = 0; // iterations of this lane before this call
    bool failed_ = false;    // this thread, not yet voted upon
};

} // namespace device
COLLX_END_NAMESPACE

#include <collx/exec/device/steps_move.hpp>
#include <collx/exec/device/steps_window.hpp>
