// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host's side of fused calls: the exchange memories of the ranks that share a machine, and the arguments of a
// launch. A machine allocates memory and starts blocks: cuda_machine (exec/fused.cuh), or the twin on host threads
// (testing/twin.hpp), so that all of this is tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <type_traits>
#include <utility>

#include <collx/core/error.hpp>
#include <collx/exec/device/executor.hpp>
#include <collx/exec/device/fit.hpp>
#include <collx/exec/device/group.hpp>
#include <collx/exec/device/usage.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Options of one call. All ranks of a team take part in one launch, so they are given once.
struct fused_options {
    void* stream = nullptr;                   // a cudaStream_t
    std::int64_t timeout_ns = 10'000'000'000; // of one wait inside the kernel
    int lanes = 0;                            // 0: as many as the machine has room for and the message needs
    std::uint32_t piece_bytes = 0;            // of the wire, per chunk; 0: what fits the slots or stages
    call_words words = {};                    // what ranks with separate launches compare
    // For multicast_protocol: the address of element 0 of all ranks' inputs and outputs in a multicast object.
    const void* multicast_in = nullptr;
    void* multicast_out = nullptr;
};

// What a block waits for, in words.
inline const char* name_of(waits_for w) {
    constexpr const char* names[] = {"nothing", "a message",     "room for a message", "a signal",
                                     "words",   "the last call", "what the call is"};
    return names[static_cast<int>(w)];
}

// What the errors of a team advise. A machine whose team is no program's own has a member `remedies`.
struct team_remedies {
    const char* ended = "make a new team";
    const char* late = "did all ranks of the team make the call? make a new team";
    const char* little_room = "make the team with larger slots, stages and scratch";
};

template <class Machine>
class team {
public:
    // Makes a team of shape.ranks ranks, each with an exchange memory of the machine.
    // Errors: invalid_argument for impossible shapes; what the machine throws when it has no memory.
    team(Machine& machine, const exchange_shape& shape) : team(machine, shape, unmade()) {
        require(shape.ranks >= 1 && shape.ranks <= max_ranks, "a fused team has 1 to 16 ranks");
        require(shape.lanes >= 1, "a fused team has at least one lane");
        require(is_ring(shape.slots) && is_ring(shape.stages), "slots and stages are powers of two from 2 to 64");
        require(shape.slot_bytes % line_bytes == 0 && shape.stage_bytes % line_bytes == 0 &&
                    shape.packet_bytes % line_bytes == 0 && shape.scratch_bytes % line_bytes == 0 &&
                    shape.flag_slot_bytes % pair_bytes == 0 && shape.flag_slot_bytes != 0 && shape.slot_bytes != 0 &&
                    shape.stage_bytes != 0 && shape.packet_bytes != 0,
                "slots, stages, packets and scratch are multiples of 128 bytes, slots with flags of 256");
        for (int r = 0; r < shape.ranks; ++r) exchange_[r] = machine_.allocate(r, shape.bytes());
        const std::size_t reports = report_count() * sizeof(std::uint64_t);
        host_memory_ = machine_.allocate_host(sizeof(host_control) + reports);
        mapped_ = machine_.on_device(host_memory_);
    }
    ~team() {
        for (int r = 0; r < max_ranks; ++r)
            if (exchange_[r] != nullptr) machine_.free(r, exchange_[r]);
        if (host_memory_ != nullptr) machine_.free_host(host_memory_);
    }
    // Frees nothing in the destructor, for a kernel that cannot be ended and uses the memory.
    void abandon() {
        for (std::byte*& p : exchange_) p = nullptr;
        host_memory_ = nullptr;
    }
    team(const team&) = delete;
    team& operator=(const team&) = delete;

    int size() const { return shape_.ranks; }
    const exchange_shape& shape() const { return shape_; }
    Machine& machine() const { return machine_; }

    // Runs `algorithm` for all ranks in one launch. operands(r) gives rank r's views and operator.
    // Protocol: one of those in args.hpp. Groups: strands of a block that run side by side, 1, 2 or 4.
    // Errors: aborted after an earlier failure; unsupported where an element does not fit; what the machine throws.
    template <class Types, class Protocol, int Groups = 1, class Algorithm, class Operands>
    void run(const Algorithm& algorithm, const typename Types::cuts_type& cuts, Operands&& operands,
             const fused_options& o = {}) {
        check_before_launch();
        machine_.template launch<Protocol, Groups>(
            prepare<Types, Protocol, Groups>(algorithm, cuts, std::forward<Operands>(operands), o), o);
    }
    // The same for chunks of equal size.
    template <class Types, class Protocol, int Groups = 1, class Algorithm, class Operands>
    void run(const Algorithm& algorithm, const chunk_layout& in, const chunk_layout& out, Operands&& operands,
             const fused_options& o = {}) {
        run<Types, Protocol, Groups>(algorithm, even_cuts(in, out), std::forward<Operands>(operands), o);
    }

    // Runs calls that were prepared and do not depend on one another in one launch, in this order on every block.
    template <class... Calls>
    void run_group(const fused_options& o, const Calls&... calls) {
        check_before_launch();
        machine_.launch_group(detail::list_of(calls...), max_lanes(calls...), shape_.ranks, o);
    }
    template <class Protocol, int Groups, class Algorithm, class Types>
    void run(const fused_call<Protocol, Groups, Algorithm, Types>& call, const fused_options& o) {
        check_before_launch();
        machine_.template launch<Protocol, Groups>(call.args, o);
    }

    // The same for a call_array, or a call_mix.
    template <class Calls>
    void run_array(const Calls& calls, const fused_options& o) {
        check_before_launch();
        machine_.launch_array(calls, o);
    }

    // Makes the arguments of a launch, without launching.
    template <class Types, class Protocol, int Groups = 1, class Algorithm, class Operands>
    fused_args<Algorithm, Types> prepare(Algorithm algorithm, const typename Types::cuts_type& cuts,
                                         Operands&& operands, const fused_options& o = {}) const {
        if constexpr (Protocol::flags_lines)
            if (!machine_.lines_arrive_whole())
                fail(errc::unsupported, -1, -1, "use packet_protocol or simple_protocol",
                     "lines of 128 bytes are not known to arrive whole between the ranks of this team");
        static_assert(std::is_trivially_copyable_v<Algorithm>,
                      "collx: a kernel gets its algorithm as a copy of its bytes: give it plain members");
        sched::set_window_depth(algorithm, static_cast<int>(shape_.stages));
        require_bounds<typename Types::cuts_type>(algorithm);
        if constexpr (Protocol::multicasts)
            if (!machine_.has_multicast(o))
                fail(errc::unsupported, -1, -1, "use simple_protocol",
                     "no switch multicasts between the ranks of this team, or the call has no multicast addresses");
        fused_args<Algorithm, Types> a;
        a.multicast_in = static_cast<const std::byte*>(o.multicast_in);
        a.multicast_out = static_cast<std::byte*>(o.multicast_out);
        if constexpr (requires { machine_.exchange_of_all(); }) a.exchange_of_all = machine_.exchange_of_all();
        a.algorithm = algorithm;
        a.shape = shape_;
        a.places = lane_places(shape_, Protocol());
        a.cuts = cuts;
        a.chunks = algorithm.chunks(shape_.ranks);
        const usage u = usage_of(algorithm, shape_.ranks);
        require_scratch<Protocol>(algorithm, u, shape_.ranks, a.chunks);
        a.is_one_launch = machine_.is_one_launch();
        a.skips_signals = a.is_one_launch && u.peers_buffers && !u.windows && !u.channels;
        cut_pieces<Types, Protocol>(a, u, cuts.largest(shape_.ranks, a.chunks), o);
        a.words = o.words;
        a.timeout_ns = static_cast<std::uint64_t>(o.timeout_ns);
        for (int r = 0; r < shape_.ranks; ++r) {
            a.exchange[r] = exchange_[r];
            if (r < a.operand_count)
                ::new (static_cast<void*>(a.operands + static_cast<unsigned>(r) * sizeof(rank_operands<Types>)))
                    rank_operands<Types>(operands(r));
        }
        a.host = reinterpret_cast<host_control*>(mapped_);
        a.reports = reinterpret_cast<std::uint64_t*>(mapped_ + sizeof(host_control));
        return a;
    }

    // Refuses an algorithm that these kernels do not run for this number of ranks. Ask before its chunks and steps are.
    template <class Cuts = even_cuts, class Algorithm>
    void require_bounds(const Algorithm& algorithm) const {
        device::require_bounds(algorithm, shape_, std::is_same_v<Cuts, even_cuts> ? sched::most_chunks : max_ranks);
    }

    // Whether an element has room where words with flags lie.
    template <class T>
    bool fits_packet() const {
        return packet_stride<T, 1> <= shape_.packet_bytes && packet_stride<T, 1> <= shape_.flag_slot_bytes;
    }

    // Tells kernels that wait to give up. They end soon; the team cannot be used again.
    void abort() { machine_.store_host(&reinterpret_cast<host_control*>(host_memory_)->abort, 1); }

    // Tells kernels which ranks make no more calls (bit k: rank k): a kernel that waits for one gives up, unless what
    // it waits for is there. Requires: the kernels of these ranks have ended.
    void note_left(std::uint64_t ranks) {
        machine_.store_host(&reinterpret_cast<host_control*>(host_memory_)->left, ranks);
    }

    // What a block waits for, or why it gave up.
    wait_report report(int rank, int lane, int group = 0) const {
        const auto* words = reinterpret_cast<const std::uint64_t*>(host_memory_ + sizeof(host_control));
        const std::size_t at =
            (static_cast<std::size_t>(rank) * static_cast<unsigned>(shape_.lanes) + static_cast<unsigned>(lane)) *
                max_groups +
            static_cast<unsigned>(group);
        return wait_report::unpack(machine_.load_host(words + at));
    }

    // Throws what made a kernel give up: timeout with the ranks, the step and the piece, or aborted. Call it after
    // waiting for the stream; calls do it before they launch.
    // Cost: two loads of the host's memory while all is well.
    void check() const {
        check_agreement();
        if (machine_.load_host(&reinterpret_cast<const host_control*>(host_memory_)->gave_up) == 0) return;
        for (const wait_state worst : {wait_state::peer_left, wait_state::timed_out, wait_state::aborted})
            for (int r = 0; r < shape_.ranks; ++r)
                for (int l = 0; l < shape_.lanes; ++l)
                    for (int g = 0; g < max_groups; ++g)
                        if (const wait_report w = report(r, l, g); w.state == worst) blame(r, l, w);
    }

    // Throws mismatch where kernels found that ranks are in different calls.
    void check_agreement() const {
        const auto* h = reinterpret_cast<const host_control*>(host_memory_);
        const std::uint64_t found = machine_.load_host(&h->disagreement);
        if (found == 0) return;
        const int rank = stop_word::rank(found), peer = stop_word::peer(found); // rank: the one that noticed
        int mine_is = -1;
        if constexpr (requires { machine_.rank(); }) mine_is = machine_.rank();
        for (int k = 0; k < shape_.ranks; ++k) {
            std::uint64_t theirs[2], mine[2];
            for (int i = 0; i < 2; ++i) {
                theirs[i] = machine_.load_host(&h->differs[k][i]);
                mine[i] = machine_.load_host(&h->differs[k][2 + i]);
            }
            if ((mine[0] | mine[1]) != 0) fail_for_words(mine_is, k, theirs, mine);
        }
        fail(errc::mismatch, mine_is, mine_is == rank ? peer : rank,
             "give all ranks the same counts, types and order of calls", "ranks %d and %d are in different calls", rank,
             peer);
    }

private:
    // Owns nothing yet. A constructor that delegates to this one and then fails is followed by the destructor.
    struct unmade {};
    team(Machine& machine, const exchange_shape& shape, unmade) : machine_(machine), shape_(shape) {}

    // A rank with its own launches has checked already, and knows more causes than its kernels say. A failure that came
    // since then is thrown by its next check.
    void check_before_launch() const {
        if constexpr (!requires { machine_.rank(); }) check();
    }
    // A rank that is waited for may itself wait for another: the rank to name is at the end of the chain.
    [[noreturn]] void blame(int rank, int lane, wait_report found) const {
        char call[40] = "";
        if (found.call != 0)
            std::snprintf(call, sizeof call, "call %u of the group%s: ", found.call,
                          found.call == wait_report::last_call ? " or later" : "");
        if (found.state == wait_state::peer_left) fail_for_left(call, rank, found.peer);
        for (int hops = 0; hops < shape_.ranks; ++hops) {
            wait_report next;
            for (int g = 0; g < max_groups && next.state == wait_state::idle; ++g) next = report(found.peer, lane, g);
            if (next.state == wait_state::idle) break;
            rank = found.peer;
            found = next;
        }
        if (found.state == wait_state::aborted && is_aborted())
            fail(errc::aborted, rank, found.peer, advice().ended,
                 "%sa kernel gave up waiting for %s from rank %d, for the team was aborted", call, name_of(found.what),
                 found.peer);
        // Another rank ended this one. If it waited for this rank, the guilty one is at the end of this rank's own
        // wait.
        const std::uint64_t why = machine_.load_host(&reinterpret_cast<const host_control*>(host_memory_)->gave_up);
        const int who = stop_word::rank(why), whom = stop_word::peer(why);
        if (found.state == wait_state::aborted && stop_word::is_left(why)) fail_for_left(call, who, whom);
        if (found.state == wait_state::aborted && stop_word::is_deadline(why) &&
            (whom != rank || found.what == waits_for::nothing))
            fail(errc::timeout, rank, whom, advice().late,
                 "%sa kernel of rank %d waited too long for rank %d, and ended the others'", call, who, whom);
        fail(errc::timeout, rank, found.peer, advice().late,
             "%sa kernel waited too long for %s from rank %d, at step %u of piece %u on lane %d", call,
             name_of(found.what), found.peer, found.step, found.piece, lane);
    }
    [[noreturn]] static void fail_for_left(const char* call, int rank, int peer) {
        fail(errc::peer_failed, rank, peer, "make as many calls on all ranks before the communicator ends",
             "%sa kernel of rank %d waited for rank %d, which has ended its communicator", call, rank, peer);
    }
    static constexpr team_remedies advice() {
        if constexpr (requires { Machine::remedies; }) return Machine::remedies;
        else return {};
    }
    bool is_aborted() const {
        return machine_.load_host(&reinterpret_cast<const host_control*>(host_memory_)->abort) != 0;
    }

    template <class... Calls>
    static int max_lanes(const Calls&... calls) {
        int most = 1;
        ((most = calls.args.lanes > most ? calls.args.lanes : most), ...);
        return most;
    }
    static bool is_ring(unsigned n) { return n >= 2 && n <= max_slots && (n & (n - 1)) == 0; }
    static void require(bool holds, const char* text) {
        if (!holds) fail(errc::invalid_argument, -1, -1, "see collx::device::exchange_shape", "%s", text);
    }
    std::size_t report_count() const {
        return static_cast<std::size_t>(shape_.ranks) * static_cast<unsigned>(shape_.lanes) * max_groups;
    }

    // Makes pieces as long as slots, stages and scratch allow, but not longer than it takes to give every lane one.
    template <class Types, class Protocol, class Args>
    void cut_pieces(Args& a, const usage& u, std::size_t most_elems, const fused_options& o) const {
        using wire = typename Types::wire_type;
        constexpr auto V = static_cast<std::size_t>(Types::elems);
        constexpr std::size_t stride =
            Protocol::flags_words ? packet_stride<wire, Types::elems> : Types::wire_pack::bytes;
        const auto chunks = static_cast<std::size_t>(a.chunks);
        std::size_t packs = longest_piece_bytes / stride != 0 ? longest_piece_bytes / stride : 1;
        const auto limit = [&](std::size_t bytes, std::size_t each) {
            packs = bytes / each < packs ? bytes / each : packs;
        };
        const auto together = static_cast<std::size_t>(u.message_chunks);
        if (u.channels && Protocol::flags_lines) // chunks begin with a pair of lines
            limit(shape_.flag_slot_bytes / pair_bytes / together * pair_packs, 1);
        else if (u.channels)
            limit(Protocol::flags_words ? shape_.flag_slot_bytes : shape_.slot_bytes, stride * together);
        if (u.windows && Protocol::flags_words) limit(shape_.packet_bytes, stride);
        if (u.windows && !Protocol::flags_words) limit(shape_.stage_bytes, stride * chunks);
        if (u.scratch) limit(shape_.scratch_bytes, V * sizeof(typename Types::acc_type) * chunks);
        if (packs == 0)
            fail(errc::unsupported, -1, -1, advice().little_room, "one element of %zu bytes per chunk does not fit",
                 sizeof(wire));
        if (o.piece_bytes != 0) limit(o.piece_bytes < stride ? stride : o.piece_bytes, stride);
        if (o.lanes < 0 || o.lanes > shape_.lanes)
            fail(errc::invalid_argument, -1, -1, "0 leaves the number to the team",
                 "%d lanes, and the exchange memory has %d", o.lanes, shape_.lanes);
        int lanes = machine_.lanes(shape_);
        lanes = o.lanes != 0 && o.lanes < lanes ? o.lanes : lanes;
        // A block of 512 threads moves 8 KiB at once. For words that each rank reads from all others a quarter of that
        // is faster: for 8 ranks a block then loads 2 KiB from each (H200, 8 ranks: 8 KiB by one block take 10.8 us, 2
        // KiB 6.8).
        const std::size_t share =
            (most_elems + V * static_cast<unsigned>(lanes) - 1) / (V * static_cast<unsigned>(lanes));
        const std::size_t some = Protocol::flags_words && u.windows ? least_piece_packs / 4 : least_piece_packs;
        const std::size_t least = packs < some ? packs : some;
        if (o.piece_bytes == 0 && share < packs) packs = share > least ? share : least;
        a.piece_elems = static_cast<std::uint32_t>(packs * V);
        const std::size_t count = (most_elems + a.piece_elems - 1) / a.piece_elems;
        a.piece_count = count != 0 ? count : 1;
        a.lanes = count < static_cast<unsigned>(lanes) ? static_cast<int>(count != 0 ? count : 1) : lanes;
    }
    static constexpr std::size_t longest_piece_bytes = 256 * 1024, least_piece_packs = 512;

    Machine& machine_;
    exchange_shape shape_;
    std::byte* exchange_[max_ranks] = {};
    std::byte *host_memory_ = nullptr, *mapped_ = nullptr; // mapped_: host_memory_ as the device sees it
};

} // namespace device
COLLX_END_NAMESPACE
