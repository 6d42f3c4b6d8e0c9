// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// reduce_scatter, reduce_scatter_v: the reduction of all ranks' buffers, each rank receives its part.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct reduce_scatter_v_fn : takes<call_form::counted> {
    using takes<call_form::counted>::operator();

    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, Op op = {},
                    const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::reduce_scatter>(
            comm, in, out, op, o, part_counts(counts, detail::growing_array<std::size_t>()));
    }
    // In place: the result lies at this rank's part of x.
    template <Communicates Comm, HostBuffer X, CountList Counts = count_list, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, const Counts& counts, Op op = {}, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X, true>(x);
            const auto v = buffer(*kept.out);
            require_reduce_op<Op, element_of<decltype(v)>>();
            return run_in_place<Mode, verb::reduce_scatter_v>(comm, v, op, o, kept, tables_of(comm, kept, counts));
        });
    }
    template <Communicates Comm, DeviceBuffer X, CountList Counts = count_list, OpArgument Op = plus>
    void operator()(Comm&&, X&&, const Counts&, Op = {}, const device_call_options& = {}) const {
        refuse_device_in_place<X>();
    }
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, Op op = {},
                    const call_options& o = {}) const {
        require_output<Out, In>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            const auto a = buffer(*kept.in);
            require_reduce_op<Op, element_of<decltype(a)>>();
            return run_out_of_place<Mode, verb::reduce_scatter_v>(comm, a, buffer(*kept.out), op, o, kept,
                                                                  tables_of(comm, kept, counts));
        });
    }
    // Options may take the operator's place, and then the operator is the sum.
    //   collx::reduce_scatter_v(world, gradient, shard, shard_sizes, {.timeout = 5s});
    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const device_call_options& o) const {
        return (*this)(comm, std::forward<In>(in), std::forward<Out>(out), counts, plus{}, o);
    }
    template <Communicates Comm, HostBuffer X, CountList Counts = count_list>
    auto operator()(Comm&& comm, X&& x, const Counts& counts, const call_options& o) const {
        return (*this)(comm, std::forward<X>(x), counts, plus{}, o);
    }
    template <Communicates Comm, DeviceBuffer X, CountList Counts = count_list>
    void operator()(Comm&&, X&&, const Counts&, const device_call_options&) const {
        refuse_device_in_place<X>();
    }
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const call_options& o) const {
        return (*this)(comm, std::forward<In>(in), std::forward<Out>(out), counts, plus{}, o);
    }

private:
    template <class Comm, class Kept, class Counts>
    static count_tables* tables_of(Comm& comm, const Kept& kept, const Counts& counts) {
        auto& c = base_of(comm).internals();
        count_tables& t = kept.tables(c);
        t.first.assign(c.net.rank(), c.net.size(), counts, "reduce_scatter_v");
        return &t;
    }
};

} // namespace detail

// Reduces the ranks' buffers and gives each rank a part of the result.
// Shape: `in` has n m elements on every rank, `out` has m; rank r receives the reduction of part r. One buffer: in
//     place, at part r.
// Cost: n - 1 parts written to shared memory per rank, as many read.
// Order: rank order by default; any associative operator.
// Errors: as all_reduce; invalid_argument where the size does not divide by the ranks.
// Example: collx::reduce_scatter(world, gradient, my_shard);
COLLX_VERB_BY(reduce_scatter, reducing_fn)

// The same with parts of different sizes.
// Shape: rank r receives counts[r] elements of the reduction (the same table on every rank); parts lie one after the
//     other in `in`. One buffer: in place, at part r, as in reduce_scatter (MPI_IN_PLACE would move it to the front).
// Errors: as all_reduce; mismatch (checked) if the tables differ.
// Example: collx::reduce_scatter_v(world, gradient, shard_sizes);
COLLX_VERB(reduce_scatter_v)

COLLX_END_NAMESPACE
