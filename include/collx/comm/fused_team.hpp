// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A team of ranks whose collectives are single kernels: the ranks of one device, each with its own buffers. A call
// names the buffers of all ranks, is put into a stream and returns; nothing is allocated and nothing waits, so it may
// be captured into a graph. The verbs take a team in the place of a communicator:
//
//   collx::gpu_team team(4);                                               // comm/gpu_team.cuh
//   collx::all_reduce(team, gradients, collx::plus{}, {.stream = stream}); // gradients[r]: rank r's, on the device
//
// Machine says where blocks run (exec/device/team.hpp); this file knows no CUDA.
#pragma once

#include <cstddef>
#include <utility>

#include <collx/algo/one_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/device/team.hpp>

COLLX_BEGIN_NAMESPACE

template <class Machine>
class fused_team {
public:
    using is_fused_team = void;
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

    // Shape: the same number of elements on every rank. in and out may be the same buffers.
    // Cost: up to `short_bytes` one exchange of words with flags; above, every input read once and every output written
    // once, which is the least there can be.
    // Order: rank order; any associative operator; all ranks hold the same bits.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void all_reduce(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        const std::size_t n = same_size(in, "input");
        require_size(out, n, "output");
        const auto cut = [n](int chunks) { return chunk_layout::even(n, chunks, 16); };
        if (n * sizeof(element<Out>) <= short_bytes)
            return run<device::packet_protocol>(algo::one_shot_all_reduce{}, in, out, op, o, cut, cut);
        run<device::simple_protocol>(algo::zero_copy_all_reduce{}, in, out, op, o, cut, cut);
    }
    // out[r] holds all parts in rank order.
    template <RankBuffers In, RankBuffers Out>
    void all_gather(In&& in, Out&& out, const options& o = {}) {
        const std::size_t n = same_size(in, "input");
        require_size(out, n * static_cast<unsigned>(size()), "output");
        const auto from = [n](int chunks) { return chunk_layout::blocks(n, chunks).packed(); };
        const auto to = [n](int chunks) { return chunk_layout::blocks(n, chunks); };
        run<device::simple_protocol>(algo::zero_copy_all_gather{}, in, out, device::move_only{}, o, from, to);
    }
    // Rank r receives part r of the reduction.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void reduce_scatter(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        const std::size_t n = same_size(out, "output");
        require_size(in, n * static_cast<unsigned>(size()), "input");
        const auto from = [n](int chunks) { return chunk_layout::blocks(n, chunks); };
        const auto to = [n](int chunks) { return chunk_layout::blocks(n, chunks).packed(); };
        run<device::simple_protocol>(algo::zero_copy_reduce_scatter{}, in, out, op, o, from, to);
    }
    // Part d of rank r's input becomes part r of rank d's output. Not in place.
    template <RankBuffers In, RankBuffers Out>
    void all_to_all(In&& in, Out&& out, const options& o = {}) {
        const std::size_t n = same_size(in, "input"), each = n / static_cast<unsigned>(size());
        require_size(out, n, "output");
        if (each * static_cast<unsigned>(size()) != n)
            fail(errc::invalid_argument, -1, -1, "pass one block of the same size for each rank",
                 "%zu elements are not %d equal blocks", n, size());
        const auto cut = [each](int chunks) { return chunk_layout::blocks(each, chunks); };
        run<device::simple_protocol>(algo::zero_copy_all_to_all{}, in, out, device::move_only{}, o, cut, cut);
    }
    template <RankBuffers In, RankBuffers Out>
    void broadcast(In&& in, Out&& out, int root, const options& o = {}) {
        require_root(root);
        const std::size_t n = same_size(in, "input");
        require_size(out, n, "output");
        const auto cut = [n](int chunks) { return chunk_layout::blocks(n, chunks); };
        run<device::simple_protocol>(algo::zero_copy_broadcast{.root = root}, in, out, device::move_only{}, o, cut,
                                     cut);
    }
    // Only the root's output is written.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    void reduce(In&& in, Out&& out, int root, const Op& op = {}, const options& o = {}) {
        require_root(root);
        const std::size_t n = same_size(in, "input");
        require_size(out, n, "output");
        const auto cut = [n](int chunks) { return chunk_layout::blocks(n, chunks); };
        run<device::simple_protocol>(algo::zero_copy_reduce{.root = root}, in, out, op, o, cut, cut);
    }

    // Any text of algo/ instead of the default choice; cut(chunks) says how buffers fall into chunks.
    // Example: team.run<device::simple_protocol>(algo::ring_all_reduce{}, x, x, plus{}, {}, cut, cut);
    template <class Protocol, int Groups = 1, class Wire = void, class Algorithm, class In, class Out, class Op,
              class CutIn, class CutOut>
    void run(const Algorithm& a, In& in, Out& out, const Op& op, const options& o, CutIn&& cut_in, CutOut&& cut_out) {
        using in_view = buffer_t<decltype(in[0])>;
        using out_view = buffer_t<decltype(out[0])>;
        require_output<decltype(out[0])>();
        if constexpr (!std::is_same_v<Op, device::move_only>) {
            require_reduce_op<Op, element<In>>();
            if constexpr (Algorithm::needs_commutative) require_commutative<Op, element<In>>();
        }
        using wire = std::conditional_t<std::is_void_v<Wire>, element<Out>, Wire>;
        using types = device::call_types<in_view, out_view, Op, wire>;
        const int chunks = a.chunks(size());
        team_.template run<types, Protocol, Groups>(
            a, cut_in(chunks), cut_out(chunks),
            [&](int r) {
                const auto k = static_cast<std::size_t>(r);
                const device::rank_operands<types> x{buffer(in[k]), buffer(out[k]), op};
                require_memory(r, x.in, "input");
                require_memory(r, x.out, "output");
                return x;
            },
            o);
    }

    // Messages up to here are exchanged as words with flags: they cost one synchronisation, but each rank reads them
    // all. A first guess: nothing has been measured yet.
    static constexpr std::size_t short_bytes = 64 * 1024;

    // Lanes for every multiprocessor, rings of a few tens of MiB in all.
    static device::exchange_shape shape_for(int ranks) {
        device::exchange_shape s;
        s.ranks = ranks;
        s.lanes = ranks >= 1 && ranks <= device::max_ranks ? 132 / ranks : 1;
        return s;
    }

private:
    template <class X>
    using element = std::remove_cv_t<typename buffer_t<decltype(std::declval<X&>()[0])>::value_type>;

    template <class X>
    std::size_t same_size(X& x, const char* which) const {
        if (static_cast<std::size_t>(x.size()) != static_cast<std::size_t>(size()))
            fail(errc::invalid_argument, -1, -1, "pass one buffer for each rank of the team",
                 "%zu %s buffers for %d ranks", static_cast<std::size_t>(x.size()), which, size());
        const std::size_t n = buffer(x[0]).size();
        require_size(x, n, which);
        return n;
    }
    template <class X>
    void require_size(X& x, std::size_t n, const char* which) const {
        if (static_cast<std::size_t>(x.size()) != static_cast<std::size_t>(size()))
            fail(errc::invalid_argument, -1, -1, "pass one buffer for each rank of the team",
                 "%zu %s buffers for %d ranks", static_cast<std::size_t>(x.size()), which, size());
        for (int r = 0; r < size(); ++r)
            if (const std::size_t m = buffer(x[static_cast<std::size_t>(r)]).size(); m != n)
                fail(errc::mismatch, r, -1, "pass buffers of the same size on every rank",
                     "the %s buffer has %zu elements, expected %zu", which, m, n);
    }
    void require_root(int root) const {
        if (root < 0 || root >= size())
            fail(errc::invalid_argument, -1, root, "roots are ranks of this team", "root %d of %d ranks", root, size());
    }
    template <class View>
    void require_memory(int rank, const View& v, const char* which) {
        if constexpr (requires { v.pointer(0); })
            if (v.size() != 0) machine_.require_memory(rank, v.pointer(0), which);
    }

    Machine machine_;
    device::team<Machine> team_;
};

COLLX_END_NAMESPACE
