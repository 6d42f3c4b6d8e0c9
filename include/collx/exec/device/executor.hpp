// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The reading of an algorithm's text inside a kernel: one block runs it for one rank and one lane, and each step is a
// loop over packs in which all threads of the block (or of one strand's group) take part. The kind of a step is a
// template argument, so what is left after inlining is the algorithm with its waits, loads and stores: no table, no
// dispatch. docs/design/device.md weighs that against a table of steps.
//
// It knows no CUDA: an environment supplies threads, barriers and words (cuda_env.cuh; twin_env.hpp on the host).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/exec/device/block.hpp>
#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

template <class Env, class Algorithm, class Types, class Protocol, int Groups = 1>
class executor : public sched::verbs<executor<Env, Algorithm, Types, Protocol, Groups>>,
                 public block_worker<Env, fused_args<Algorithm, Types>> {
    using args_type = fused_args<Algorithm, Types>;
    using worker = block_worker<Env, args_type>;
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
    using worker::control, worker::ranks, worker::stop_if, worker::wait_until;

    static constexpr int V = Types::elems;
    using packed = width<V, true>;
    using partial = width<V, false>;
    static constexpr bool words = Protocol::flags_words, lines = Protocol::flags_lines;
    static constexpr bool flagged = words || lines; // data and flags arrive together
    static constexpr bool multicasts = Protocol::multicasts;
    static constexpr bool has_windows = requires { Algorithm::signals; };
    // Bytes of a pack in slots and windows.
    static constexpr std::size_t stride = words ? packet_stride<wire_type, V> : wire_pack::bytes;
    // Packs that a thread has under way: four loads of 16 bytes, fewer where accumulators are wide.
    static constexpr int unroll = flagged ? 1 : sizeof(acc_pack) <= 16 ? 4 : sizeof(acc_pack) <= 32 ? 2 : 1;

public:
    COLLX_HD executor(Env& env, const args_type& a, block_state& shared, int rank, int lane)
        : worker(env, a, shared, rank, lane) {}

    COLLX_HD bool strand(int k) const { return Groups == 1 || k % Groups == env_.group(); }

    // Runs the text for each piece of this lane. All threads of the block call it together.
    COLLX_HD void run() {
        const bool has_neighbours = has_windows && !flagged && !args_.is_one_launch;
        this->take_counts();
        base_ = flagged ? shared_.packets : shared_.iterations;
        if (has_neighbours) this->wait_for_neighbours();
        unsigned turn = 0;
        for (piece_ = static_cast<unsigned>(lane_); piece_ < args_.piece_count;
             piece_ += static_cast<unsigned>(args_.lanes)) {
            this->begin_piece(turn);
            args_.algorithm(*this, rank_, ranks());
            // Whoever sees my words of the next piece knows that this one is read, by all my threads.
            if constexpr (flagged) stop_if(env_.any(failed_));
            ++turn;
        }
        this->keep_counts(flagged || !has_windows ? 0 : turn, flagged && has_windows ? turn : 0);
        if (has_neighbours) this->tell_neighbours();
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
        else if constexpr ((What & (sched::recv | sched::send)) != 0) channel<What>(s);
        else if constexpr ((What & sched::fold) != 0) fold<(What & sched::to_all) != 0>(s);
        else if constexpr ((What & sched::get) != 0) get(s);
        else copy(s);
    }

private:
    COLLX_HD const rank_operands<Types>& mine() const { return args_.rank(rank_); }
    COLLX_HD const typename Types::op_type& op() const { return mine().op; }

    // ------------------------------------------------------------------------------------------ signals
    COLLX_HD void give_signal(int index) {
        if constexpr (flagged) return; // the words say it themselves
        if (args_.skips_signals) return;
        if constexpr (multicasts) Env::fence_alias();
        env_.sync();
        COLLX_ROLLED
        for (unsigned k = env_.index(); k < static_cast<unsigned>(ranks()); k += env_.threads())
            Env::store_release(&control(static_cast<int>(k))->signal[index][rank_], base_ + turn_ + 1);
    }
    COLLX_HD void await_signal(const sched::step& s) {
        if constexpr (flagged) return;
        if (args_.skips_signals || turn_ < s.lag) return; // earlier calls have ended everywhere
        const std::uint64_t least = base_ + turn_ - s.lag + 1;
        const std::uint64_t* words = control(rank_)->signal[s.index];
        bool failed = false;
        if (s.peer_from == sched::all_ranks) {
            COLLX_ROLLED
            for (unsigned k = env_.index(); k < static_cast<unsigned>(ranks()); k += env_.threads())
                failed |= !wait_until(waits_for::signal, static_cast<int>(k), words + k, least);
        } else if (env_.index() == 0) {
            failed = !wait_until(waits_for::signal, s.peer_from, words + s.peer_from, least);
        }
        stop_if(env_.any(failed));
        if constexpr (multicasts) Env::fence_alias();
    }

    // ------------------------------------------------------------------------------------------ packs
    // load(w, i, m) reads what access i of width w needs into registers, finish(w, i, m, held) computes and stores; m
    // elements of it exist. In two phases, for no store may stand between loads that are to be under way together.
    // What is no whole, aligned pack goes element by element, side by side in the threads; with flags by packs.
    template <int U, class Load, class Finish>
    COLLX_ALWAYS_INLINE COLLX_HD void each_pack(std::size_t n, bool fast, Load&& load, Finish&& finish) {
        const unsigned elems = static_cast<unsigned>(n), packs = packs_of(n), whole = fast ? elems / V : 0;
        const unsigned step = env_.threads();
        unsigned i = env_.index();
        if constexpr (V > 1 || flagged) {
            using held = decltype(load(packed(), 0u, 0u));
            if constexpr (U > 1) {
                COLLX_ROLLED
                for (; i + (U - 1) * step < whole; i += U * step) {
                    held h[U];
                    COLLX_UNROLL
                    for (int u = 0; u < U; ++u) h[u] = load(packed(), i + static_cast<unsigned>(u) * step, V);
                    COLLX_UNROLL
                    for (int u = 0; u < U; ++u) finish(packed(), i + static_cast<unsigned>(u) * step, V, h[u]);
                }
            }
            COLLX_ROLLED
            for (; i < whole; i += step) {
                held h = load(packed(), i, static_cast<unsigned>(V));
                finish(packed(), i, static_cast<unsigned>(V), h);
            }
        }
        if constexpr (flagged) {
            COLLX_ROLLED
            for (; i < packs; i += step) {
                const unsigned first = i * V, m = first + V <= elems ? V : first < elems ? elems - first : 0;
                auto h = load(partial(), i, m);
                finish(partial(), i, m, h);
            }
        } else {
            COLLX_ROLLED
            for (i = (V > 1 ? whole * V : 0) + env_.index(); i < elems; i += step) {
                auto h = load(single(), i, 1u);
                finish(single(), i, 1u, h);
            }
        }
    }
    // Where words carry flags an empty message is still a word: its receiver must hear of the sender.
    COLLX_HD static constexpr unsigned packs_of(std::size_t n) {
        const auto packs = static_cast<unsigned>((n + V - 1) / V);
        return flagged && packs == 0 ? 1 : packs;
    }

    // Access i of a local operand: in (with the operator's hook), out, or scratch.
    template <class W>
    COLLX_HD acc_of<W> read(place from, std::size_t at, unsigned i, unsigned m) const {
        const std::size_t first = at + std::size_t{i} * W::n;
        if (from == place::in) return access::template read_in<W>(mine(), ranks(), first, m);
        if (from == place::out) return access::template read_out<W>(mine(), first, m);
        return load_pack<Env, acc_type, W::n>(scratch() + first);
    }
    template <class W>
    COLLX_HD void write(place to, std::size_t at, unsigned i, unsigned m, const acc_of<W>& acc) const {
        const std::size_t first = at + std::size_t{i} * W::n;
        if (to == place::out) access::template write_out<W>(mine(), first, m, acc);
        else if (to == place::tmp) store_pack<Env>(scratch() + first, acc);
    }
    // Access i of a slot or a window without flags.
    template <class W>
    COLLX_HD static wire_of<W> load_wire(const std::byte* from, unsigned i) {
        return load_pack<Env, wire_type, W::n>(from + std::size_t{i} * wire_of<W>::bytes);
    }
    template <class W>
    COLLX_HD static void store_wire(std::byte* to, unsigned i, const acc_of<W>& acc) {
        store_pack<Env>(to + std::size_t{i} * wire_of<W>::bytes, access::to_wire(acc));
    }
    COLLX_HD bool is_aligned_at(place p, std::size_t at) const {
        if (p == place::in) return access::in_is_aligned(mine(), at);
        if (p == place::out) return access::out_is_aligned(mine(), at);
        return true;
    }
    COLLX_HD acc_type* scratch() const {
        return reinterpret_cast<acc_type*>(args_.lane_of(rank_, lane_) + args_.shape.scratch_at());
    }
    COLLX_HD part of(place p, int rank, int chunk) const {
        return cut(args_.cuts, p == place::out, rank, chunk, piece_, args_.piece_elems);
    }
    // Scratch, slots and windows have whole packs per chunk; scratch chunks are of the input's sizes.
    COLLX_HD part local(place p, int chunk) const {
        part l = of(p, rank_, chunk);
        if (p == place::tmp) l.at = static_cast<std::size_t>(chunk) * cell_packs() * V;
        return l;
    }
    COLLX_HD bool has_elements(const sched::ref& r) const {
        COLLX_ROLLED
        for (int i = 0; i < r.chunks.count; ++i)
            if (args_.cuts.size(r.where == place::out, rank_, r.chunks.at(i, args_.chunks)) >
                piece_ * args_.piece_elems)
                return true;
        return false;
    }
    COLLX_HD std::size_t cell_packs() const { return (args_.piece_elems + V - 1) / V; }

    COLLX_HD static constexpr unsigned pairs_of(std::size_t n) { // of lines
        return (packs_of(n) + pair_packs - 1) / pair_packs;
    }

    // ------------------------------------------------------------------------------------------ memory of the team
    // The slot at rank `at` for a message of rank `from`.
    COLLX_HD std::byte* slot_of(int at, int from, std::uint64_t message) const {
        std::byte* lane = args_.lane_of(at, lane_);
        if constexpr (lines) return lane + args_.shape.line_slot_at(from, message);
        else if constexpr (words) return lane + args_.shape.word_slot_at(from, message);
        else return lane + args_.shape.slot_at(from, message);
    }
    COLLX_HD std::byte* window_at(int rank, int segment, int chunk) const {
        return args_.lane_of(rank, lane_) + args_.shape.stage_at(segment, base_ + turn_) +
               static_cast<std::size_t>(chunk) * cell_packs() * stride;
    }
    // What `from` pushed to `at`.
    COLLX_HD std::byte* packets_at(int at, int from) const {
        return args_.lane_of(at, lane_) + args_.shape.packet_at(from, base_ + turn_);
    }
    COLLX_HD std::uint32_t window_flag() const { return static_cast<std::uint32_t>(base_ + turn_ + 1); }

    COLLX_HD wire_pack receive_words(const std::byte* from, std::uint32_t flag, int peer) {
        wire_pack w{};
        if (!failed_ &&
            !this->poll(waits_for::packet, peer, [&] { return try_load_packet<Env, wire_type, V>(from, flag, w); }))
            failed_ = true; // voted upon when the step ends
        return w;
    }
    // Old words must not come to carry the right flag after 2^32 messages: now and then a whole cell is written.
    COLLX_HD void refresh(std::byte* to, std::size_t bytes, unsigned packs, std::uint32_t flag) const {
        if (flag % refresh_period >= 2 * args_.shape.slots) return;
        COLLX_ROLLED
        for (auto i = packs + env_.index(); (i + 1) * stride <= bytes; i += env_.threads())
            store_packet<Env>(to + i * stride, wire_pack{}, flag);
    }
    static constexpr std::uint32_t refresh_period = 1u << 24;

    // ------------------------------------------------------------------------------------------ steps
    template <sched::action What>
    COLLX_HD void channel(const sched::step& s);
    template <sched::action What>
    COLLX_HD void transfer(const sched::step& s, int i, const std::byte* rx, std::byte* tx, std::uint32_t rx_flag,
                           std::uint32_t tx_flag);
    template <sched::action What>
    COLLX_HD void transfer_lines(const sched::step& s, int i, const std::byte* rx, std::byte* tx, std::uint64_t rx_flag,
                                 std::uint64_t tx_flag);
    template <sched::action What, class W>
    COLLX_HD acc_of<W> work(const sched::step& s, std::size_t to, unsigned i, unsigned m, const acc_of<W>& got,
                            const acc_of<W>& own);
    // Where the own operand and the result of chunk i of a step lie.
    template <sched::action What>
    struct operands_of {
        static constexpr bool keeps = (What & sched::copy) != 0;
        static constexpr bool reads = (What & (sched::reduce | sched::reduce_after)) != 0 || (What & sched::recv) == 0;
        std::size_t from = 0, to = 0, count;
        bool fast;
        COLLX_HD operands_of(const executor& ex, const sched::step& s, int i) {
            part own{}, result{};
            if constexpr (reads) own = ex.local(s.src.where, s.src.chunks.at(i, ex.args_.chunks));
            if constexpr (keeps || !reads) result = ex.local(s.dst.where, s.dst.chunks.at(i, ex.args_.chunks));
            from = own.at, to = result.at, count = reads ? own.count : result.count;
            fast = (!reads || ex.is_aligned_at(s.src.where, from)) && (!keeps || ex.is_aligned_at(s.dst.where, to));
        }
    };
    template <sched::action What, class W>
    COLLX_HD wire_pack through(const sched::step& s, const operands_of<What>& x, unsigned p, unsigned m,
                               const wire_pack& w);
    COLLX_HD void copy(const sched::step& s);
    COLLX_HD void push(const sched::step& s, int chunk, part from);
    COLLX_HD void get(const sched::step& s);
    template <bool ToAll>
    COLLX_HD void fold(const sched::step& s);

    std::uint64_t base_ = 0; // iterations of this lane before this call
    std::size_t piece_ = 0;
    bool failed_ = false; // this thread, not yet voted upon
};

} // namespace device
COLLX_END_NAMESPACE

#include <collx/exec/device/steps_channel.hpp>
#include <collx/exec/device/steps_window.hpp>
