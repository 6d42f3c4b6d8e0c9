// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Says which algorithm a call on device memory takes among the devices of a machine, by which row of the table of
// choices, and how long it and the alternatives would take there. Needs no device: the machine may be a value or a
// file, and times come from the simulator. Each rank is one device, whose kernels reach every peer.
//
//   topo::graph g = topo::dgx_h100();
//   sim::fabric devices(g, g.all(topo::site_type::gpu));
//   std::puts(collx::to_text(collx::explain_on_devices(devices, collx::all_reduce, 8 << 20)).c_str());
#pragma once

#include <string>

#include <collx/algo/algorithms.hpp>
#include <collx/comm/explanation.hpp>
#include <collx/plan/kernel_costs.hpp>
#include <collx/sim/simulate.hpp>

COLLX_BEGIN_NAMESPACE

// The properties of a call on device memory that its number of bytes does not tell.
struct device_explain_options {
    bool commutes = true;       // the operator is commutative
    bool deterministic = false; // as the policy
    // A switch can sum this element type, operator and buffers (float with plus; f16 and bf16 with plus, min and max;
    // contiguous, no hooks).
    bool switch_can = true;
    int lanes = 32; // blocks of a kernel, as device_settings
};

namespace detail {

inline const char* words_of(choices::protocol p) {
    return p == choices::protocol::packets ? " by LL words" : p == choices::protocol::multicast ? " by the switch" : "";
}

// Whether the parts move in one exchange, of which all but the root's messages are empty: device_calls::equal_parts().
constexpr bool is_exchange_on_devices(collective c) { return c == collective::gather || c == collective::scatter; }

// The row that a call takes. The rows of the switch come first, as in by_kernel.
inline choice_made row_on_devices(collective c, std::size_t bytes, int ranks, bool may_switch) {
    const choices::situation s{.bytes = bytes, .ranks = ranks};
    if (is_exchange_on_devices(c)) c = collective::send_recv;
    if (may_switch)
        if (const choices::row* const r = choices::find_choice(choices::switched, c, s)) return {choices::switched, r};
    return {choices::device, choices::find_choice(choices::device, c, s)};
}

// The bandwidth of the narrowest way between neighbours.
inline double narrowest(sim::fabric& f) {
    double least = f.between(0, 1).bytes_per_s;
    for (int r = 1; r + 1 < f.ranks(); ++r) least = std::min(least, f.between(r, r + 1).bytes_per_s);
    return least;
}

template <class A>
double on_devices_ns(sim::fabric& f, choices::protocol p, std::size_t bytes, int lanes) {
    const A a{};
    const sim::recording s = sim::record_short(a, f.ranks());
    sim::options o;
    o.bytes = static_cast<double>(bytes);
    o.by_switch = p == choices::protocol::multicast;
    o.pieces = kernel_pieces(p, sched::signals_v<A> != 0, bytes, s.chunks, s.ranks, lanes);
    sim::cost_model m = kernel_costs(p, narrowest(f));
    m.pushes = sched::pushes_parts_v<A> || p == choices::protocol::packets;
    return sim::simulate(s, f, m, o).time_ns;
}

} // namespace detail

// Explains the choice for a call on these devices. bytes: of the whole buffer, as for explain(). Candidates are the
// algorithms of the collective that kernels run by counters, those of sums over windows also by LL words, and the
// switch's where the machine has one that all ranks are linked to. Cost: a simulation of each, some ms for 8 ranks.
// Errors: invalid_argument for fewer than two ranks, or ranks without a way between them.
template <collective C>
explanation explain_on_devices(sim::fabric& devices, std::size_t bytes, const device_explain_options& o = {}) {
    if (devices.ranks() < 2)
        fail(errc::invalid_argument, -1, -1, "give two devices or more", "a call of %d ranks", devices.ranks());
    using choices::protocol;
    const bool has_switch = !devices.switch_of_all().to.empty();
    const bool ordered = reduces(C) && (o.deterministic || !o.commutes);
    const detail::choice_made made =
        detail::row_on_devices(C, bytes, devices.ranks(), has_switch && o.switch_can && !ordered);
    explanation e{.what = C,
                  .bytes = bytes,
                  .ranks = devices.ranks(),
                  .venue = choices::name_of(made.where),
                  .row = detail::conditions_in_words(*made.row),
                  .because = made.row->why,
                  .candidates = {},
                  .basis = "launch and steps as on one H200, links as the machine names them (plan/kernel_costs.hpp)",
                  .no_times = {}};
    algo::algorithms<C>::for_each([&](auto a) {
        using A = decltype(a);
        // The messages of such an exchange are those of `linear`.
        const bool is_exchange = detail::is_exchange_on_devices(C) && std::string(A::name) == "linear";
        const std::string name = is_exchange ? choices::name_of(made.row->use) : A::name;
        const bool is_switch = name == "multicast_two_shot";
        if (name == "zero_copy" || (ordered && sched::reorders_v<A>)) return;
        const auto add = [&](protocol p) {
            const bool is_chosen = detail::is_that_of(*made.row, name.c_str()) && made.row->by == p;
            e.candidates.push_back(
                {name + detail::words_of(p), detail::on_devices_ns<A>(devices, p, bytes, o.lanes), is_chosen});
        };
        if (is_switch) {
            if (has_switch && o.switch_can && !ordered) add(protocol::multicast);
            return;
        }
        add(protocol::simple);
        if (C == collective::all_reduce && sched::signals_v<A> != 0) add(protocol::packets);
    });
    detail::sort_candidates(e, made);
    return e;
}
// The same for a verb: collx::all_reduce, collx::broadcast, collx::all_gather, ...
template <class Verb>
explanation explain_on_devices(sim::fabric& devices, const Verb&, std::size_t bytes,
                               const device_explain_options& o = {}) {
    constexpr collective C = Verb::row.does;
    static_assert(
        C != collective::send_recv && C != collective::barrier && Verb::row.counts == decltype(Verb::row.counts)::none,
        "collx: explain_on_devices() takes a collective whose parts are equal, with bytes: collx::all_reduce, "
        "collx::broadcast, collx::all_gather, ...");
    return explain_on_devices<C>(devices, bytes, o);
}

COLLX_END_NAMESPACE
