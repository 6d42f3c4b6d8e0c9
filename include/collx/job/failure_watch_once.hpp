// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of failure_watch.hpp.
#pragma once

#include <collx/core/clock.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] COLLX_ONCE void failure_watch::check(std::int64_t& until, std::int64_t timeout_ns, awaited waiting_for) {
    if (const failure f = core_.net.failed()) core_.give_up(f, -1);
    for (const communicator_core* other = core_.failure_parent; other != nullptr; other = other->failure_parent)
        if (const failure f = other->net.failed())
            core_.give_up(failure(f.code(), core_.rank_of(*other, f.rank()), f.short_of()), -1);
    const std::int64_t now = now_ns(), limit = timeout_ns > 0 ? timeout_ns : core_.settings.timeout_ns;
    if (until == 0) {
        next_watch_ns_ = 0;
        suspect_ = -1;
    }
    if (until <= 0) until = later(now, limit);
    if (now >= next_watch_ns_) look_around(now, limit, waiting_for);
    if (now < until) return;
    const failure late = find_late(now, limit, waiting_for);
    // The next strand of this rank, or of the ranks it waits for, may know more.
    if (late.is_circle() && now < until + waiting_word::fresh_ns(limit) / 2) return;
    core_.give_up(late, waiting_for);
}

[[gnu::cold]] COLLX_ONCE void failure_watch::look_around(std::int64_t now, std::int64_t limit, awaited waiting_for) {
    next_watch_ns_ = now + 2'000'000;
    core_.net.say_waiting(now, limit, waiting_for);
    if (core_.recorder) core_.recorder->look(waiting_for);
    if (core_.home->connector) core_.home->connector->serve();
    const int dead = find_dead(now, waiting_for);
    // Look once more before giving up: what the peer sent before it ended may have come after the last look.
    if (dead >= 0 && dead == suspect_) core_.give_up(failure(errc::peer_failed, dead), dead);
    suspect_ = dead;
    if (dead >= 0) next_watch_ns_ = now;
}

[[gnu::cold]] COLLX_ONCE failure failure_watch::find_late(std::int64_t now, std::int64_t limit,
                                                          awaited waiting_for) const {
    const links& net = core_.net;
    const chain_end last = waiting_for < 0 ? chain_end{-1} : net.find_late(now, limit, waiting_for);
    if (last.rank >= 0 && !last.is_circle) return failure(errc::timeout, last.rank);
    if (last.is_certain) return failure::circle_of(last.rank);
    // A rank that waits for several ranks names the only silent one, if there is one. So do strands, which have named
    // others.
    int silent = -1, count = 0;
    for (int other = 0; other < net.size(); ++other)
        if (other != net.rank() && now - net.waits().of(other).said_at_ns() > waiting_word::fresh_ns(limit)) {
            silent = other;
            ++count;
        }
    if (count == 1) return failure(errc::timeout, silent);
    return last.is_circle && count == 0 ? failure::circle_of(last.rank) : failure(errc::timeout, waiting_for);
}

[[gnu::cold]] COLLX_ONCE int failure_watch::find_dead(std::int64_t now, int waiting_for) {
    job& home = *core_.home;
    if (core_.net.remote() != nullptr)
        if (const int gone = core_.net.remote()->find_gone(waiting_for, now); gone >= 0) return gone;
    if (home.is_threads)
        if (const int failed = find_failed_thread(); failed >= 0) return failed;
    if (const int left = find_left(waiting_for); left >= 0) return left;
    if (home.is_threads || home.watch.watched() == 0) return -1;
    int guilty = -1;
    home.watch.find_dead([&](int world_rank) {
        const int r = core_.rank_of(world_rank);
        if (r < 0) return false;
        const bool died = !home.has_left(world_rank);
        if (died && died_since_ns_ == 0) died_since_ns_ = now;
        if (r != waiting_for && waiting_for != every_rank && !(died && now - died_since_ns_ > 100'000'000))
            return false;
        guilty = r;
        return true;
    });
    return guilty;
}

COLLX_ONCE int failure_watch::find_failed_thread() const {
    for (int r = 0; r < core_.net.size(); ++r)
        if (core_.home->has_failed(core_.members[r])) return r;
    return -1;
}

COLLX_ONCE int failure_watch::find_left(int waiting_for) const {
    const links& net = core_.net;
    if (core_.is_in_last_call || net.has_said_end(net.rank()))
        return -1; // ranks that make no more calls may still meet
    for (int r = 0; r < net.size(); ++r)
        if ((r == waiting_for || waiting_for == every_rank) && net.has_said_end(r)) return r;
    return -1;
}

} // namespace detail
COLLX_END_NAMESPACE
