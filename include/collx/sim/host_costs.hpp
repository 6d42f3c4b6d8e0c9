// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Predicts how long one call takes whose ranks are on several hosts. Messages inside hosts have their own costs (those
// of channels where they were not fitted); messages between hosts have the costs of sockets. Counts are those of
// sim/call_costs.hpp, separate for each kind of message; rounds are counted along the longest chain of each kind.
#pragma once

#include <collx/sched/facts.hpp>
#include <collx/sim/call_costs.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// The work inside hosts, which includes the call itself, and between them.
struct work_by_hosts {
    work inside, between;
};

namespace detail {

// The work of messages for which pass(from, to) holds, of ranks that share the cores of one machine.
template <class Pass>
work work_of_some(const sched::schedule& s, const call_shape& c, const cores& on, const Pass& pass) {
    return summed(
        s, c, on,
        [&](double* mine, int r, const sched::step& st, double bytes) {
            const bool receives = (st.what & sched::recv) != 0 && pass(st.peer_from, r);
            const bool sends = (st.what & sched::send) != 0 && pass(r, st.peer_to);
            mine[step] += c.pieces * (receives + sends);
            mine[byte] += bytes * (receives + sends);
            if (receives && (st.what & (sched::reduce | sched::reduce_after)) != 0) mine[reduced_byte] += bytes;
        },
        pass);
}

} // namespace detail

// The work of a call. at: the host of each rank. Steps over windows count nothing: there are none between hosts.
inline work_by_hosts work_of_hosts(const sched::schedule& s, const call_shape& c, const cores& on,
                                   const node_view& at) {
    const auto is_inside = [&](int a, int b) { return at.node_of(a) == at.node_of(b); };
    work_by_hosts w{sim::detail::work_of_some(s, c, on, is_inside),
                    sim::detail::work_of_some(s, c, on, [&](int a, int b) { return !is_inside(a, b); })};
    w.between.of[call] = w.between.of[task] = 0;
    return w;
}

// Nanoseconds of a call, by the costs inside hosts and those of sockets.
inline double predicted_ns(const work_by_hosts& w, const costs& inside, const costs& sockets) {
    return predicted_ns(w.inside, inside) + predicted_ns(w.between, sockets);
}

} // namespace sim
COLLX_END_NAMESPACE
