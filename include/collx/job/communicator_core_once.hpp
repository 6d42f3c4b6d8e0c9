// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of communicator_core.hpp: a communicator's beginning and end, and the checks of a long wait. Part of
// every program, or compiled once in collx::collx.
#pragma once

#include <cstdio>
#include <exception>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/job/flight_recorder_once.hpp>

COLLX_BEGIN_NAMESPACE

[[gnu::cold]] COLLX_ONCE communicator_core::communicator_core(counted_ptr<job> j, std::uint64_t at, int rank, int n,
                                                              detail::growing_array<int> members_,
                                                              communicator_core* parent, bool waits, std::uint64_t id_)
    : home(std::move(j)), offset(at), id(id_), settings(home->settings),
      net(home->make_links(at, rank, n, members_, id)), schedules(net), members(std::move(members_)) {
    try {
        if (members.empty())
            for (int r = 0; r < n; ++r) members.push_back(r);
        if (!home->is_threads && net.is_one_host()) {
            detail::growing_array<int> pids;
            for (int r : members) pids.push_back(home->process_of(r));
            net.set_processes(std::move(pids), settings.single_copy);
        }
        if (net.is_one_host())
            exchange_window = net.make_window({.signals = 1, .segments = 0, .depth = 2, .stage_bytes = 0});
        if (settings.record != 0) record_calls(settings.record, settings.record_directory.c_str());
        if (waits) attach(parent);
        else if (!net.is_one_host()) detail::by_channels->open_tree(net); // notifications of failures need a path
        if (waits && parent == nullptr) {
            home->settle_cores();
            settings.waiting = home->settings.waiting, settings.ranks_per_core = home->settings.ranks_per_core;
        }
        net.share_cores(settings.ranks_per_core), schedules.share_cores(settings.ranks_per_core);
        if (settings.is_talkative) home->note_made(net, members, parent == nullptr);
    } catch (...) { // memory may run out anywhere
        // Ranks that did attach must not wait for this rank.
        const failure why = parent != nullptr ? parent->net.failed() : failure();
        const int who = why ? rank_of(*parent, why.rank()) : -1;
        net.report(who >= 0 ? failure(why.code(), who, why.short_of()) : failure(errc::aborted, rank));
        leave();
        throw;
    }
}

[[gnu::cold]] COLLX_ONCE communicator_core::~communicator_core() {
    if (end) end->has_come = true;
    if (recorder) recorder->set_observer({});          // what the observer refers to may be gone
    if (helper) helper->leave();                       // first of all
    if (home->mark.is_child()) (void)device.release(); // the device part's thread is the parent's
    device = sole_ptr<detail::device_part>();          // the device part uses what follows
    for (auto& p : pending)                            // handles of the program may live on
        p.op->state = task_state::failed, p.op->error = failure(errc::aborted, net.rank()), p.op->is_left = true;
    for (auto p = std::move(failed); p;) { // one by one: they may be many
        p->is_left = true;
        p = std::move(p->failed_before);
    }
    if (!pending.empty() && !home->mark.is_child() && !net.failed()) abandon(); // no call will move them on
    if (!home->mark.is_child()) leave();
    else if (net.remote() != nullptr) net.remote()->forget();
}

[[gnu::cold]] COLLX_ONCE bool communicator_core::note_dropped(const char* what, const char* remedy) const noexcept {
    if (std::uncaught_exceptions() != 0 || home->mark.is_child() || net.failed()) return false;
    std::fprintf(stderr, "collx: warning: rank %d: %s (%s)\n", net.rank(), what, remedy);
    return true;
}

COLLX_ONCE const counted_ptr<detail::communicator_end>& communicator_core::watch_end() {
    if (!end) end = make_counted<detail::communicator_end>();
    return end;
}

[[gnu::cold]] COLLX_ONCE void communicator_core::record_calls(int last, const char* directory) {
    const call_observer observer = recorder ? recorder->observer() : call_observer{};
    for (auto& p : pending) p.op->recorded = 0; // ordinals of the old record
    recorder = sole_ptr<detail::flight_recorder>();
    if (last != 0) recorder = make_sole<detail::flight_recorder>(*this, last, directory, observer);
    settings.record = last, settings.record_directory = directory;
}

[[gnu::cold]] COLLX_ONCE void communicator_core::take_settings(const communicator_core& from) {
    const bool is_new =
        !(settings.record == from.settings.record && settings.record_directory == from.settings.record_directory);
    settings = from.settings;
    if (made_for != nullptr) return; // its calls are none of the program's
    if (is_new) record_calls(settings.record, kept_text(settings.record_directory).c_str());
    if (recorder && from.recorder) recorder->set_observer(from.recorder->observer());
}

[[gnu::cold]] COLLX_ONCE void communicator_core::leave() {
    if (net.remote() != nullptr) net.remote()->say_bye();
    home->watch.find_dead([&](int world_rank) {
        if (const int r = rank_of(world_rank); r >= 0) (void)net.give_up_share(r);
        return false;
    });
    if (net.give_up_share(net.rank())) net.give_back_memory();
}

[[gnu::cold]] COLLX_ONCE void communicator_core::look_around(std::int64_t now, std::int64_t limit,
                                                             awaited waiting_for) {
    next_watch_ns = now + 2'000'000;
    net.say_waiting(now, limit, waiting_for);
    if (recorder) recorder->look(waiting_for);
    const int dead = find_dead(now, waiting_for);
    // Look once more before giving up: what the peer sent before it ended may have come after the last look.
    if (dead >= 0 && dead == suspect) give_up(failure(errc::peer_failed, dead), dead);
    suspect = dead;
    if (dead >= 0) next_watch_ns = now;
}

[[gnu::cold]] COLLX_ONCE failure communicator_core::find_late(std::int64_t now, std::int64_t limit,
                                                              awaited waiting_for) const {
    const chain_end last = waiting_for < 0 ? chain_end{-1} : net.find_late(now, limit, waiting_for);
    if (last.rank >= 0 && !last.is_circle) return failure(errc::timeout, last.rank);
    if (last.is_certain) return failure::circle_of(last.rank);
    // A rank that waits for several ranks names the only silent one, if there is one. So do strands, which have named
    // others.
    int silent = -1, count = 0;
    for (int other = 0; other < net.size(); ++other)
        if (other != net.rank() && now - net.waits().of(other).said_at_ns() > waiting_word::fresh_ns(limit))
            silent = other, ++count;
    if (count == 1) return failure(errc::timeout, silent);
    return last.is_circle && count == 0 ? failure::circle_of(last.rank) : failure(errc::timeout, waiting_for);
}

[[gnu::cold]] COLLX_ONCE int communicator_core::find_dead(std::int64_t now, int waiting_for) {
    if (net.remote() != nullptr)
        if (const int gone = net.remote()->find_gone(waiting_for, now); gone >= 0) return gone;
    if (home->is_threads) return find_failed_thread();
    if (home->watch.watched() == 0) return -1;
    int guilty = -1;
    home->watch.find_dead([&](int world_rank) {
        const int r = rank_of(world_rank);
        if (r < 0) return false;
        const bool died = !home->has_left(world_rank);
        if (died && died_since_ns == 0) died_since_ns = now;
        if (r != waiting_for && waiting_for != every_rank && !(died && now - died_since_ns > 100'000'000)) return false;
        guilty = r;
        return true;
    });
    return guilty;
}

COLLX_ONCE int communicator_core::find_failed_thread() const {
    for (int r = 0; r < net.size(); ++r)
        if (home->has_failed(members[static_cast<std::size_t>(r)])) return r;
    return -1;
}

[[gnu::cold]] COLLX_ONCE void communicator_core::give_up(failure f, int waiting_for) {
    net.report(f);
    net.announce_failure();
    const failure first = net.failed();
    if (recorder) recorder->fail_all(first ? first : f, waiting_for);
    try {
        explain(first ? first : f, waiting_for);
    } catch (error& e) {
        e.set_sequence(calls());
        throw;
    }
}

[[gnu::cold]] COLLX_ONCE void communicator_core::give_up_on(const operation& op) {
    if (helper) helper->rethrow(op);
    give_up(op.error, op.waiting_for);
}

COLLX_ONCE void communicator_core::advance_pending() {
    for (std::size_t i = 0; i < pending.size();) {
        bool is_first = true;
        for (std::size_t j = 0; j < i && is_first; ++j) is_first = pending[j].queue != pending[i].queue;
        operation& op = *pending[i].op;
        try {
            if (is_first && !op.is_dropped) {
                const task_state s = advance(op);
                // Recorded before another thread can see that the operation has ended.
                if (op.recorded != 0 && (s == task_state::done || s == task_state::failed)) [[unlikely]]
                    recorder->ended(op, s);
                op.state = s;
            }
        } catch (...) { // a later wait for it reports that this rank gave up
            const counted_ptr<operation> ended = pending[i].op;
            set_aside(i);
            const bool is_in_thread = caller.is_in_turn(); // no call of the program would get the exception
            if (is_in_thread) helper->keep_exception(*ended);
            ended->error = failure(errc::aborted, net.rank()), ended->state = task_state::failed;
            if (is_in_thread) continue;
            throw;
        }
        moves += is_first && op.state != task_state::blocked;
        if (op.state == task_state::failed) net.report(op.error);
        if (op.state == task_state::done) pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
        else if (op.state == task_state::failed || op.is_dropped) set_aside(i);
        else ++i;
    }
}
[[gnu::cold]] COLLX_ONCE void communicator_core::set_aside(std::size_t i) noexcept {
    pending[i].op->failed_before = std::move(failed);
    failed = pending[i].op;
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
}

COLLX_ONCE bool communicator_core::wait_for(operation& op, std::int64_t timeout_ns, bool may_fail) {
    const detail::one_caller::call here(caller, net.rank());
    backoff wait(settings.waiting);
    const std::int64_t until = may_fail ? 0 : later(now_ns(), timeout_ns);
    for (looking l;;) {
        advance_pending();
        // Stop polling here: the next call may pre-post its receive buffer.
        const bool is_last = op.state == task_state::done && pending.empty();
        carried = !is_last && net.move();
        if (op.state == task_state::done) return true;
        if (op.state == task_state::failed) give_up_on(op);
        if (moves != l.seen_moves || carried) {
            wait.reset();
            l.note(moves, timeout_ns);
            if (may_fail) continue;
        } else if (!wait.pause()) {
            continue;
        }
        if (!may_fail && now_ns() >= until) return false;
        // Time may pass here: only a wait that may fail has a deadline that ends the communicator.
        check(l.until, may_fail ? timeout_ns : INT64_MAX, op.waiting_for);
    }
}

COLLX_ONCE std::size_t communicator_core::progress() {
    require_own();
    const detail::one_caller::call here(caller, net.rank());
    if (progress_pending() == 0) return 0;
    try {
        look(progress_look, 0, pending.front().op->waiting_for);
        return pending.size();
    } catch (const error&) { // later waits get it from the operations
    }
    const failure f = net.failed();
    for (auto& p : pending) p.op->state = task_state::failed, p.op->error = f;
    while (!pending.empty()) set_aside(0);
    return 0;
}

[[gnu::cold]] COLLX_ONCE void communicator_core::attach(communicator_core* parent) {
    const bool is_start = parent == nullptr && home->communicators_made == 1 && home->start_until.at_ns != INT64_MAX;
    const std::int64_t left_ns = home->start_until.left_ns(), limit_ns = !is_start ? 0 : left_ns > 1 ? left_ns : 1;
    const auto meet = [&] {
        if (!net.is_one_host())
            return detail::exchange_by_channels(
                *this, &id, sizeof id, [](int, const std::byte*) {}, limit_ns, parent);
        net.control().attached.fetch_add(1, memory_order::acq_rel);
        const auto have_all_come = [&] { return net.control().attached.load(memory_order::acquire) == net.size(); };
        wait_until(have_all_come, limit_ns, every_rank, parent);
    };
    try {
        meet();
    } catch (const error&) {
        // If a rank that got past this point failed before others got here, the next call reports it. What else has
        // ended this communicator ends its parent, in which ranks have other numbers.
        const failure f = net.failed();
        if (!f.has_all_come()) {
            if (parent != nullptr && parent->net.failed()) parent->give_up(parent->net.failed(), -1);
            if (parent == nullptr || !f) throw;
            parent->give_up(failure(f.code(), parent->rank_of(*this, f.rank()), f.short_of()), -1);
        }
    }
    net.note_all_came();
}

COLLX_END_NAMESPACE
