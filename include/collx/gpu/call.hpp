// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One call on device memory, before its way is chosen: its communicator, options, stream and shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/call/check_call.hpp>
#include <collx/comm/device_call.hpp>
#include <collx/gpu/group.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A call whose stream and device have been checked.
template <class Runtime, class Comm>
struct device_started {
    using runtime = Runtime;
    using group = gpu_group<Runtime>;
    using alone = device_started; // how staged code takes any call, also one of a group
    using policies = std::remove_cvref_t<decltype(policies_of(std::declval<Comm&>()))>;

    device_started(Comm& x, const device_call_options& opts, bool is_collective = true, bool waits = true)
        : comm(x), c(base_of(x)), o(opts), g(group::of(c, runtime_of<policies>::make(policies_of(x)), opts.stream)),
          stream(g.begin(c, opts, is_collective, waits)), is_counted_(is_collective) {}
    device_started(const device_started&) = delete;
    ~device_started() {
        // A call that throws between its kernels leaves some in the stream, and ~gpu_group() must wait for them.
        if (!has_ended_) {
            try {
                g.end(o, stream);
            } catch (const error&) { // an error of the driver, which the call throws, too
            }
        }
        if (is_counted_) --c.internals().sequence; // refused: the other ranks do not count this call
    }
    communicator_core& core() const { return c.internals(); }
    std::int64_t timeout_ns() const { return timeout_of(c, o); }
    // Launches a prepared kernel. in and out are the views that it uses.
    template <class Call, class In, class Out>
    void put(const Call& call, const device::fused_options& with, const In&, const Out&) const {
        g.team().run(call, with);
    }
    void end() const {
        made();
        g.end(o, stream);
        has_ended_ = true;
    }
    // Its kernel is launched by another object, which ends it, or later. So no event is recorded here.
    void launches_nothing() const { has_ended_ = true; }
    void made() const {
        if (is_counted_) g.count_made();
        is_counted_ = false;
    }

    Comm& comm;
    communicator& c;
    const device_call_options& o;
    group& g;
    device::stream_facts stream;

private:
    mutable bool has_ended_ = false;
    mutable bool is_counted_; // counted by the communicator, though it may still be refused
};

// The number of elements, and how the buffers of a rank are divided into parts.
struct device_shape {
    std::size_t in = 0, out = 0; // elements of the views
    std::size_t count = 0;       // of one part, or of all where there are no parts
    bool in_parts = false, out_parts = false;
    std::size_t in_at = 0, out_at = 0; // in place: where this rank's only part lies
    bool in_packed = false, out_packed = false;
};

// Checks a call as check_call() does, and also that kernels of this rank can use its memory.
template <verb V, class Call, class In, class Out>
call_facts check_on_device(const Call& call, const In& in, const Out& out, bool is_in_place = false,
                           count_tables* tables = nullptr) {
    constexpr verb_row row = row_of(V);
    const int me = call.g.rank(), root = call.o.root;
    const call_facts f = check_call(call.core(), row,
                                    {.in = facts_on_device(in),
                                     .out = facts_on_device(out),
                                     .is_in_place = is_in_place,
                                     .is_same_type = std::is_same_v<element_of<In>, element_of<Out>>,
                                     .root = root,
                                     .tables = tables});
    if (is_in_place || has_input(row, me, root)) call.g.require_memory(in, "input");
    if (!is_in_place && has_output(row, me, root)) call.g.require_memory(out, "output");
    return f;
}

inline device_shape device_shape_of(const call_facts& f, std::size_t in, std::size_t out, bool is_in_place, int rank) {
    const verb_row& row = row_of(f.what);
    const std::size_t count = f.cuts.elems, at = is_in_place ? own_place(row, count, rank) : 0;
    return {.in = in,
            .out = out,
            .count = count,
            .in_parts = row.in == extent::parts,
            .out_parts = row.out == extent::parts,
            .in_at = row.in == extent::part ? at : 0,
            .out_at = row.out == extent::part ? at : 0,
            .in_packed = f.cuts.in_packed,
            .out_packed = f.cuts.out_packed};
}

} // namespace detail
COLLX_END_NAMESPACE
