// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A team of ranks whose collectives are single kernels: the ranks of one device, each with its own buffers. A call
// names the buffers of all ranks, is put into a stream and returns; nothing is allocated and nothing waits, so it may
// be captured into a graph. The verbs take a team in the place of a communicator:
//
//   collx::gpu_team team(4);                                               // gpu/team.cuh
//   collx::all_reduce(team, gradients, collx::plus{}, {.stream = stream}); // gradients[r]: rank r's, on the device
//
// Machine says where blocks run (exec/device/team.hpp); this file knows no CUDA.
#pragma once

#include <cstddef>
#include <utility>

#include <collx/algo/one_shot.hpp>
#include <collx/gpu/fused_calls.hpp>
#include <collx/gpu/team_refusals.hpp>

COLLX_BEGIN_NAMESPACE

template <class Machine>
class fused_team : detail::team_refusals<Machine> {
    using refusals = detail::team_refusals<Machine>;

public:
    using is_fused_team = void;
    using refusals::all_gather, refusals::all_gather_v, refusals::all_reduce, refusals::all_to_all;
    using refusals::all_to_all_v, refusals::broadcast, refusals::exclusive_scan, refusals::gather, refusals::gather_v;
    using refusals::reduce, refusals::reduce_scatter, refusals::reduce_scatter_v, refusals::scan, refusals::scatter;
    using refusals::scatter_v, refusals::send_recv;
    using options = device::fused_options;

    // Errors: unsupported without a device; resource without memory; invalid_argument for shapes that cannot be.
    explicit fused_team(const device::exchange_shape& shape, Machine machine = Machine())
        : machine_(std::move(machine)), team_(machine_, shape) {}
    explicit fused_team(int ranks) : fused_team(shape_for(ranks)) {}

    int size() const { return team_.size(); }
    Machine& machine() { return machine_; }
    device::team<Machine>& ranks() { return team_; }

    // Waits for the stream; then throws what made a kernel give up (timed_out, aborted).
    void synchronize(const options& o = {}) {
        machine_.synchronize(o);
        team_.check();
    }

    // The same calls, not launched: for group.
    fused_calls<Machine> calls() { return {machine_, team_}; }

    // One kernel for several calls, which must not depend on one another.
    // Example: team.group({.stream = s}, team.calls().all_reduce(x, x), team.calls().all_gather_v(y, z));
    template <class... Calls>
    void group(const options& o, const Calls&... prepared) {
        team_.run_group(o, prepared...);
    }

    // Shape: the same number of elements on every rank. in and out may be the same buffers.
    // Cost: up to `short_bytes` one exchange of LL words; above, every input read once and every output written
    // once, which is the least there can be.
    // Order: rank order; any associative operator; all ranks hold the same bits.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void all_reduce(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        const auto c = calls();
        const std::size_t n = c.same_size(in, "input");
        c.require_size(out, n, "output");
        if (n * sizeof(element<Out>) > short_bytes) return team_.run(c.all_reduce(in, out, op, o), o);
        const auto l = chunk_layout::blocks(n, 1);
        using algorithm = detail::algorithm_of<short_sums.use, collective::all_reduce>;
        team_.run(
            c.template make<device::packet_protocol, 1, void>(algorithm(), in, out, op, o, device::even_cuts(l, l)), o);
    }
    // out[r] holds all parts in rank order; all_gather_v: of any sizes.
    template <RankBuffers In, RankBuffers Out>
    void all_gather(In&& in, Out&& out, const options& o = {}) {
        team_.run(calls().all_gather(in, out, o), o);
    }
    template <RankBuffers In, RankBuffers Out>
    void all_gather_v(In&& in, Out&& out, const options& o = {}) {
        team_.run(calls().all_gather_v(in, out, o), o);
    }
    // Rank r receives part r of the reduction; reduce_scatter_v: as many elements as out[r] has.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void reduce_scatter(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        team_.run(calls().reduce_scatter(in, out, op, o), o);
    }
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void reduce_scatter_v(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        team_.run(calls().reduce_scatter_v(in, out, op, o), o);
    }
    // out[root] holds all parts in rank order; the other outputs may be empty.
    template <RankBuffers In, RankBuffers Out>
    void gather(In&& in, Out&& out, int root, const options& o = {}) {
        team_.run(calls().gather(in, out, root, o), o);
    }
    template <RankBuffers In, RankBuffers Out>
    void gather_v(In&& in, Out&& out, int root, const options& o = {}) {
        team_.run(calls().gather_v(in, out, root, o), o);
    }
    // Rank r receives part r of in[root]; the other inputs may be empty. scatter_v: as many elements as out[r] has.
    template <RankBuffers In, RankBuffers Out>
    void scatter(In&& in, Out&& out, int root, const options& o = {}) {
        team_.run(calls().scatter(in, out, root, o), o);
    }
    template <RankBuffers In, RankBuffers Out>
    void scatter_v(In&& in, Out&& out, int root, const options& o = {}) {
        team_.run(calls().scatter_v(in, out, root, o), o);
    }
    // Part d of rank r's input becomes part r of rank d's output; all_to_all_v: counts[r][d] elements. Not in place.
    template <RankBuffers In, RankBuffers Out>
    void all_to_all(In&& in, Out&& out, const options& o = {}) {
        team_.run(calls().all_to_all(in, out, o), o);
    }
    template <RankBuffers In, RankBuffers Out, class Counts>
    void all_to_all_v(In&& in, Out&& out, const Counts& counts, const options& o = {}) {
        team_.run(calls().all_to_all_v(in, out, counts, o), o);
    }
    // Messages between ranks, all in one kernel: a range of fused_message.
    template <RankBuffers In, RankBuffers Out, class Messages>
    void send_recv(In&& in, Out&& out, const Messages& messages, const options& o = {}) {
        team_.run(calls().send_recv(in, out, messages, o), o);
    }
    template <RankBuffers In, RankBuffers Out>
    void broadcast(In&& in, Out&& out, int root, const options& o = {}) {
        team_.run(calls().broadcast(in, out, root, o), o);
    }
    // Only the root's output is written.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void reduce(In&& in, Out&& out, int root, const Op& op = {}, const options& o = {}) {
        team_.run(calls().reduce(in, out, root, op, o), o);
    }
    // Rank r receives the reduction of the ranks up to itself; exclusive_scan: before it, and rank 0 receives nothing.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void scan(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        team_.run(calls().scan(in, out, op, o), o);
    }
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void exclusive_scan(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        team_.run(calls().exclusive_scan(in, out, op, o), o);
    }
    // What follows in the stream begins when all ranks have come; one launch does so by itself.
    void barrier(const options& o = {}) { team_.run(calls().barrier(o), o); }

    // Any text of algo/ instead of the default choice; cut(chunks) says how buffers fall into chunks.
    // Example: team.run<device::simple_protocol>(algo::ring_all_reduce{}, x, x, plus{}, {}, cut, cut);
    template <class Protocol, int Groups = 1, class Wire = void, class Algorithm, class In, class Out, class Op,
              class CutIn, class CutOut>
    void run(const Algorithm& a, In& in, Out& out, const Op& op, const options& o, CutIn&& cut_in, CutOut&& cut_out) {
        const int chunks = a.chunks(size());
        team_.run(calls().template make<Protocol, Groups, Wire>(a, in, out, op, o,
                                                                device::even_cuts(cut_in(chunks), cut_out(chunks))),
                  o);
    }

    // Sums up to here are exchanged as LL words.
    static constexpr choices::row short_sums = choices::rows[choices::next_row(choices::team, collective::all_reduce)];
    static_assert(short_sums.by == choices::protocol::packets);
    static constexpr std::size_t short_bytes = short_sums.up_to;

    // Lanes for every multiprocessor, rings of a few tens of MiB in all.
    static device::exchange_shape shape_for(int ranks) {
        device::exchange_shape s;
        s.ranks = ranks;
        s.lanes = ranks >= 1 && ranks <= device::max_ranks ? 132 / ranks : 1;
        return s;
    }

private:
    template <class X>
    using element = typename fused_calls<Machine>::template element<X>;

    Machine machine_;
    device::team<Machine> team_;
};

COLLX_END_NAMESPACE
