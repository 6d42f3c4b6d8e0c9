// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A team of the ranks of one device, each with its own buffers. A collective is one kernel: a call names the buffers
// of all ranks, launches the kernel in a stream and returns. It allocates nothing and waits for nothing, so it may be
// captured into a graph. The verbs take a team in place of a communicator:
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

COLLX_BEGIN_NAMESPACE

template <class Machine>
class fused_team : public detail::team_verbs<fused_team<Machine>> {
public:
    // The concept FusedTeam requires it.
    using is_fused_team = void;
    // The options of its calls.
    using options = device::fused_options;

    // Errors: unsupported without a device; resource without memory; invalid_argument for impossible shapes.
    explicit fused_team(const device::exchange_shape& shape, Machine machine = Machine())
        : machine_(std::move(machine)), team_(machine_, shape) {}
    explicit fused_team(int ranks) : fused_team(shape_for(ranks)) {}

    // The number of ranks.
    int size() const { return team_.size(); }
    // The machine, which launches the kernels.
    Machine& machine() { return machine_; }
    // The team below the verbs, which prepares and runs kernels.
    device::team<Machine>& ranks() { return team_; }

    // Waits for the stream, then throws the error that made a kernel give up (timed_out, aborted).
    void synchronize(const options& o = {}) {
        machine_.synchronize(o);
        team_.check();
    }

    // The same calls, prepared but not launched: for group().
    fused_calls<Machine> calls() { return {machine_, team_}; }

    // Launches one kernel for several calls, which must not depend on one another.
    // Example: team.group({.stream = s}, team.calls().all_reduce(x, x), team.calls().all_gather_v(y, z));
    template <class... Calls>
    void group(const options& o, const Calls&... prepared) {
        team_.run_group(o, prepared...);
    }

    // Launches a call of a verb. arguments: those of fused_calls::on().
    template <detail::verb V, class... Arguments>
    void on(const options& o, Arguments&&... arguments) {
        if constexpr (V == detail::verb::all_reduce)
            if (run_short(o, arguments...)) return;
        team_.run(calls().template on<V>(o, arguments...), o);
    }

    // Runs any algorithm of algo/ instead of the default choice. cut_in(chunks), cut_out(chunks): how buffers are cut.
    // Example: team.run<device::simple_protocol>(algo::ring_all_reduce{}, x, x, plus{}, {}, cut, cut);
    template <class Protocol, int Groups = 1, class Wire = void, class Algorithm, class In, class Out, class Op,
              class CutIn, class CutOut>
    void run(const Algorithm& a, In& in, Out& out, const Op& op, const options& o, CutIn&& cut_in, CutOut&& cut_out) {
        team_.require_bounds(a);
        const int chunks = a.chunks(size());
        const device::even_cuts cuts(cut_in(chunks), cut_out(chunks));
        const auto c = calls();
        c.require_room(in, a, cuts, false);
        c.require_room(out, a, cuts, true);
        team_.run(c.template make<Protocol, Groups, Wire>(a, in, out, op, o, cuts), o);
    }

    // The table's row for short sums, which are exchanged as LL words.
    static constexpr choices::row short_sums = choices::rows[choices::next_row(choices::team, collective::all_reduce)];
    static_assert(short_sums.by == choices::protocol::packets);
    // The most bytes of a short sum.
    static constexpr std::size_t short_bytes = short_sums.up_to;

    // The default shape: lanes for every multiprocessor, rings of a few tens of MiB in all.
    static device::exchange_shape shape_for(int ranks) {
        device::exchange_shape s;
        s.set_ranks(ranks);
        s.lanes = ranks >= 1 && ranks <= device::max_ranks ? 132 / ranks : 1;
        return s;
    }

private:
    template <class In, class Out, class Op>
    bool run_short(const options& o, In& in, Out& out, int, const Op& op) {
        const auto c = calls();
        using element = typename fused_calls<Machine>::template element<Out>;
        const std::size_t n = c.template check<detail::verb::all_reduce>(in, out, 0);
        if (n * sizeof(element) > short_bytes || !team_.template fits_packet<element>()) return false;
        const auto l = chunk_layout::blocks(n, 1);
        using algorithm = detail::algorithm_of<short_sums.use, collective::all_reduce>;
        team_.run(
            c.template make<device::packet_protocol, 1, void>(algorithm(), in, out, op, o, device::even_cuts(l, l)), o);
        return true;
    }

    Machine machine_;
    device::team<Machine> team_;
};

COLLX_END_NAMESPACE
