// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A ring algorithm among some ranks of a communicator, along a route that leads through others: ranks between two
// members pass their messages on. All ranks make the call, with buffers of one size. Ranks that only pass messages on,
// or are not on the route, keep their buffers as they are.
//
//   members 0 2 4 6, route 0 (3) 2 (1) (5) 6 (7) 4:   rank 0 sends to 3, 3 passes it on to 2, 2 sends to 1, ...
#pragma once

#include <cstdint>

#include <collx/sched/relay_route.hpp>
#include <collx/sched/schedule.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// Runs the algorithm as the member at stop `stop`: its neighbours in the ring are the ranks next to it on the route.
template <class Ex>
class member_executor : public verbs<member_executor<Ex>> {
public:
    COLLX_HD constexpr member_executor(Ex& ex, const route_view& route, int stop)
        : ex_(ex), route_(route), stop_(stop), position_(route.position(stop)) {}

    COLLX_EXEC_CHECK_DISABLE
    template <action What>
    COLLX_HD constexpr void emit(sched::step s) {
        static_assert((What & (get | fold | to_all | sched::signal | sched::wait)) == 0,
                      "collx: only messages can be passed on; windows span all ranks.");
        const int k = route_.members();
        if constexpr ((What & recv) != 0)
            s.peer_from =
                (s.peer_from + 1) % k == position_ ? route_.rank_after(stop_, -1) : route_.member(s.peer_from);
        if constexpr ((What & send) != 0)
            s.peer_to = s.peer_to == (position_ + 1) % k ? route_.rank_after(stop_, 1) : route_.member(s.peer_to);
        ex_.template emit<What>(s);
    }

private:
    Ex& ex_;
    route_view route_;
    int stop_, position_;
};

// Runs it as a rank between that member and the next: passes on the messages to the next member.
template <class Ex>
class relay_executor : public verbs<relay_executor<Ex>> {
public:
    COLLX_HD constexpr relay_executor(Ex& ex, const route_view& route, int stop)
        : ex_(ex), route_(route), stop_(stop), next_((route.position(stop) + 1) % route.members()) {}

    COLLX_EXEC_CHECK_DISABLE
    template <action What>
    COLLX_HD constexpr void emit(const sched::step& s) {
        if constexpr ((What & send) != 0) {
            if (s.peer_to != next_) return;
            const chunk_set& chunks = s.src.where != place::none ? s.src.chunks : s.dst.chunks;
            ex_.step(recv | send, from(route_.rank_after(stop_, -1)), to(route_.rank_after(stop_, 1)), passing(chunks));
        }
    }

private:
    Ex& ex_;
    route_view route_;
    int stop_, next_;
};

} // namespace sched

namespace algo {

// Shape, Cost: those of Inner for the members; a rank that passes messages on sends what it receives.
// Order: operands are combined along the route: reductions need a commutative operator. Averages divide by the members.
//   comm.with(on_route<ring_all_reduce>{route})
template <class Inner>
struct on_route {
    static_assert(Inner::op == collective::all_reduce,
                  "collx: on_route is for all_reduce; the chunks of other collectives belong to ranks.");
    static constexpr collective op = Inner::op;
    static constexpr const char* name = Inner::name;
    static constexpr int min_depth = sched::min_depth_v<Inner>;
    static constexpr bool needs_commutative = true;
    route_view route{};

    constexpr bool fits(int n) const { return route.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return route.hash(); }
    COLLX_HD constexpr int chunks(int) const { return Inner{}.chunks(route.members()); }
    constexpr int contributors(int) const { return route.members(); }
    constexpr int member(int i) const { return route.member(i); }
    constexpr int tmp_chunks(int) const requires sched::has_scratch_v<Inner> {
        return sched::tmp_chunks_of(Inner{}, route.members());
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        const int stop = route.stop_of(r);
        if (stop < 0) return;
        if (route.is_member(stop)) {
            sched::member_executor<Ex> member(ex, route, stop);
            Inner{}(member, route.position(stop), route.members());
        } else {
            sched::relay_executor<Ex> relay(ex, route, stop);
            Inner{}(relay, route.position(stop), route.members());
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
