// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// barrier: no rank leaves before all have entered.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct barrier_fn {
    static constexpr verb_row row = row_of(verb::barrier);
    void operator()(refused_call<call_form::signal>, ...) const;
    // For streams: later work in each stream begins when all streams have reached the barrier. The options have a
    // fixed type, because braces alone mean call_options.
    template <Communicates Comm, std::same_as<device_call_options> O>
    auto operator()(Comm&& comm, const O& o) const {
        return with_device_calls<Mode>(
            comm, [](auto& calls, auto& c, const O& with) { calls.barrier(c, with); }, o);
    }
    template <Communicates Comm>
    auto operator()(Comm&& comm, const call_options& o = {}) const {
        return in_mode<Mode>(comm, [&] {
            if (o.root != 0) [[unlikely]]
                refuse_needless_root(base_of(comm).internals(), o.root, "barrier");
            const contiguous_view<std::byte> none(nullptr, 0);
            return run_call<Mode, verb::barrier>(base_of(comm).internals(), policies_of(comm), none, none, no_op{},
                                                 {.what = verb::barrier, .timeout_ns = o.timeout.count()});
        });
    }
};

} // namespace detail

// No rank leaves before all have entered.
// Cost: one signal each; no data.
// Ensures: whatever any rank wrote to shared memory before the call is visible to all after it.
// Errors: timed_out naming a rank that has not entered, mismatch (checked), peer_failed, aborted.
// Example: collx::barrier(world, {.timeout = 5s});
COLLX_VERB(barrier)

COLLX_END_NAMESPACE
