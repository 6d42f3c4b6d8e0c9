// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Says which algorithm a call would take on this communicator, by which row of the table of choices, and how long it
// and the alternatives would take here. Nothing runs and no other rank is asked: one rank may call it alone. A
// separate header, because it records every algorithm of the collective.
//
//   std::puts(collx::to_text(collx::explain(world, collx::all_reduce, 1 << 20)).c_str());
//
// Times need the machine's costs: COLLX_MACHINE names a file that collx_perf --fit wrote (sim/machine_file.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include <collx/algo/algorithms.hpp>
#include <collx/algo/on_rings.hpp>
#include <collx/bootstrap/environment.hpp>
#include <collx/comm/bound_communicator.hpp>
#include <collx/comm/explanation.hpp>
#include <collx/plan/call_shape.hpp>
#include <collx/plan/host_selector.hpp>
#include <collx/plan/row_of_call.hpp>
#include <collx/sim/machine_file.hpp>

COLLX_BEGIN_NAMESPACE

// The properties of a call that its number of bytes does not tell.
struct explain_options {
    bool commutes = true;          // the operator is commutative
    bool deterministic = false;    // as the policy
    bool shared_buffers = false;   // all buffers are collx's shared memory, on every rank
    const char* machine = nullptr; // a file; null: as COLLX_MACHINE says
};

namespace detail {

inline problem problem_of(communicator_core& c, collective what, std::size_t bytes, const explain_options& o) {
    const bool reduces = collx::reduces(what), serial = reduces && o.deterministic;
    return {.bytes = bytes,
            .ranks = c.net.size(),
            .zero_copy = o.shared_buffers && c.net.size() > 1 && c.net.is_one_host(),
            .oversubscribed = c.is_oversubscribed(),
            .windows = c.net.is_one_host(),
            .ordered = serial || (reduces && !o.commutes),
            .serial = serial,
            .may_copy_once = c.net.may_single_copy(),
            .hosts = c.net.crowded_hosts(),
            .links = c.known_links()};
}

// The number of cores that the ranks of this host may use together, as they announced when they joined.
inline int cores_of(const communicator_core& c) {
    int cores = 0;
    if (c.home && c.home->memory)
        for (const auto& word : c.home->memory->header().cores)
            cores += std::popcount(word.load(memory_order::acquire));
    return cores > 0 ? cores : usable_cores();
}

// Reads the costs of this machine. False: there are none, and `why` has the reason. Errors of the file are not thrown.
inline bool costs_here(const communicator_core& c, const explain_options& o, sim::machine_costs& m, std::string& why) {
    const char* const file = o.machine != nullptr ? o.machine : environment().get("COLLX_MACHINE");
    if (file == nullptr) {
        why = "COLLX_MACHINE is not set (collx_perf --fit FILE writes a machine's costs)";
        return false;
    }
    try {
        m = sim::read_machine_file(file);
        sim::require_this_machine(m, sim::name_of_this_cpu(), cores_of(c), file);
        return true;
    } catch (const error& e) {
        why = e.what();
        return false;
    }
}

inline constexpr int most_predicted_ranks = 256; // schedules of more ranks take long to record

// Predicts a call inside hosts and by sockets between them; not a number where the file lacks the costs of either.
template <class A>
double among_hosts_ns(const A& a, explanation& e, const communicator_core& c, const problem& p,
                      const sim::machine_costs& m, bool is_chosen) {
    const bool is_shared = p.ranks > m.on.count;
    const sim::costs* const mixed = m.find(sim::medium::mixed, is_shared);
    const sim::costs* const inside = mixed != nullptr ? mixed : m.find(sim::medium::channels, is_shared);
    const sim::costs* const between = m.find(sim::medium::sockets, is_shared);
    if (inside == nullptr || between == nullptr) return std::numeric_limits<double>::quiet_NaN();
    if (is_chosen) e.residual = std::max(inside->residual, between->residual);
    return sim::predicted_ns(predict_among_hosts(a, p, c.net.slot_bytes(), m.on), *inside, *between);
}

// Predicts a call in one host, or by sockets between ranks of one host each; not a number where the file lacks the
// costs.
template <class A>
double one_medium_ns(const A& a, explanation& e, const communicator_core& c, const problem& p,
                     const sim::machine_costs& m, bool is_chosen) {
    const predicted_call call = predict_call(a, p, c.net.slot_bytes(), m.on);
    const sim::costs* const costs = m.find(call.by, p.ranks > m.on.count);
    if (costs == nullptr) return std::numeric_limits<double>::quiet_NaN();
    if (is_chosen) e.residual = costs->residual;
    return sim::predicted_ns(call.is, *costs);
}

// Adds a chosen algorithm that runs host by host. add_candidates() has only algorithms that need no map of the hosts.
template <collective C>
void add_chosen_among_hosts(explanation& e, const communicator_core& c, const problem& p, const choice_made& made,
                            const sim::machine_costs* m) {
    if (made.where != choices::hosts || p.hosts == nullptr) return;
    const node_view at = (p.links != nullptr && p.links->hosts != nullptr ? *p.links->hosts : *p.hosts).view();
    choices::with_choice<choices::hosts, C>(situation_on(at, p), [&](auto chosen) {
        constexpr choices::name use = chosen.use;
        if constexpr (use != choices::none) {
            explanation::candidate k{.name = std::string(choices::name_of(use)) + choices::variant_of(use),
                                     .is_chosen = true};
            if (m != nullptr && p.ranks <= most_predicted_ranks) {
                auto a = algorithm_among_hosts<use, C>(at);
                sched::set_root(a, p.root);
                k.predicted_ns = among_hosts_ns(a, e, c, p, *m, true);
            }
            e.candidates.push_back(k);
        }
    });
}

// Adds a chosen algorithm along a machine's rings in one host, with the counts of a ring or chain in any order.
template <collective C>
void add_chosen_of_links(explanation& e, const communicator_core& c, const problem& p, const choice_made& made,
                         const sim::machine_costs* m) {
    if (made.where != choices::links || p.hosts != nullptr || p.links == nullptr) return;
    explanation::candidate k{.name = std::string(choices::name_of(made.row->use)) + choices::variant_of(made.row->use) +
                                     " of the machine",
                             .is_chosen = true};
    const auto predict = [&](const auto& a) {
        if (m != nullptr && p.ranks <= most_predicted_ranks) k.predicted_ns = one_medium_ns(a, e, c, p, *m, true);
    };
    if constexpr (C == collective::all_reduce)
        predict(algo::on_rings<algo::ring_all_reduce>{p.links->rings, p.links->ring_count});
    else if constexpr (C == collective::all_gather) predict(algo::ring_all_gather{});
    else if constexpr (C == collective::reduce_scatter) predict(algo::ring_reduce_scatter{});
    else if constexpr (C == collective::broadcast) predict(algo::chain_broadcast{});
    else if constexpr (C == collective::reduce) predict(algo::chain_reduce{});
    e.candidates.push_back(k);
}

// Adds the algorithms of C that may run here, with the times that are known.
template <collective C>
void add_candidates(explanation& e, const communicator_core& c, const problem& p, const choice_made& made,
                    const sim::machine_costs* m) {
    algo::algorithms<C>::for_each([&](auto a) {
        using A = decltype(a);
        const bool uses_windows = sched::signals_v<A> != 0;
        const bool is_made_of_others = made.where == choices::links || made.where == choices::hosts;
        const bool is_chosen = is_that_of(*made.row, A::name) && !is_made_of_others;
        if ((uses_windows && !p.windows) || (p.ordered && sched::reorders_v<A>)) return;
        if (std::string(A::name) == "zero_copy" && !p.zero_copy) return;
        explanation::candidate k{.name = A::name, .is_chosen = is_chosen};
        if (m != nullptr && p.ranks <= most_predicted_ranks)
            k.predicted_ns = p.hosts != nullptr ? among_hosts_ns(a, e, c, p, *m, is_chosen)
                                                : one_medium_ns(a, e, c, p, *m, is_chosen);
        e.candidates.push_back(k);
    });
}

} // namespace detail

// Explains the choice for a call. The second argument is a verb, as collx::all_reduce. bytes: of the whole buffer, on
// the wire: of each rank's buffer for all_reduce, broadcast and reduce, of all parts together for the others. Cost:
// records the schedules of all ranks for each algorithm of the collective: 0.1 ms for 8 ranks, 0.1 s for 256. Errors:
// none for files that cannot be used: no_times then says what is wrong, with file, line and remedy.
template <class Verb>
explanation explain(communicator& world, const Verb&, std::size_t bytes, const explain_options& o = {}) {
    static_assert(
        requires { Verb::row.does; }, "collx: explain() takes a collective: collx::all_reduce, "
                                      "collx::broadcast, collx::all_gather, ...");
    constexpr detail::verb_row row = Verb::row;
    static_assert(
        row.does != collective::send_recv && row.counts == detail::counts_known_by::none,
        "collx: a message, or a call with counts per rank, has one algorithm: nothing is chosen by its size.");
    communicator_core& c = world.internals();
    const problem p = detail::problem_of(c, row.does, bytes, o);
    const detail::choice_made made = detail::row_of_call(row.does, p);
    explanation e{.what = row.does,
                  .bytes = bytes,
                  .ranks = p.ranks,
                  .venue = choices::name_of(made.where),
                  .row = detail::conditions_in_words(*made.row),
                  .because = made.row->why,
                  .candidates = {},
                  .basis = {},
                  .no_times = {}};
    sim::machine_costs m;
    const bool has_costs = detail::costs_here(c, o, m, e.no_times);
    e.line_ns = has_costs ? m.line_ns : 0;
    const sim::machine_costs* const costs = has_costs ? &m : nullptr;
    detail::add_candidates<row.does>(e, c, p, made, costs);
    detail::add_chosen_among_hosts<row.does>(e, c, p, made, costs);
    detail::add_chosen_of_links<row.does>(e, c, p, made, costs);
    detail::sort_candidates(e, made);
    if (has_costs && std::isnan(e.chosen().predicted_ns))
        e.no_times = p.ranks > detail::most_predicted_ranks ? "calls of more than 256 ranks are not predicted"
                     : made.where == choices::rails
                         ? "calls by the rails of a machine are not predicted"
                         : "the machine file has no costs for this medium and so many ranks (collx_perf --fit FILE)";
    return e;
}

COLLX_END_NAMESPACE
