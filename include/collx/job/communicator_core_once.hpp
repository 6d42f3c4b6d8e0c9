// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of communicator_core.hpp: a communicator's beginning and end, and the checks of a long wait. Part of
// every program, or compiled once in collx::collx.
#pragma once

#include <collx/core/locked_mutex.hpp>
#include <cstdio>
#include <cstring>
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
        if (waits) attach(parent);
        else if (!net.is_one_host()) detail::by_channels->open_tree(net); // notifications of failures need a path
        if (waits && parent == nullptr) {
            home->settle_cores();
            settings.waiting = home->settings.waiting;
            settings.ranks_per_core = home->settings.ranks_per_core;
        }
        net.share_cores(settings.ranks_per_core);
        schedules.share_cores(settings.ranks_per_core);
        if (settings.is_talkative) home->note_made(net, members, parent == nullptr);
    } catch (...) { // memory may run out anywhere
        // Ranks that did attach must not wait for this rank. Ranks in attach() learn the reason from the parent,
        // because the rank that failed may be no member of this communicator.
        const failure why = parent != nullptr ? parent->net.failed() : failure();
        const int who = why ? rank_of(*parent, why.rank()) : -1;
        net.report(who >= 0 ? failure(why.code(), who, why.short_of()) : failure(errc::aborted, rank));
        if (parent != nullptr) {
            const failure f = net.failed();
            parent->net.report(failure(f.code(), parent->rank_of(*this, f.rank()), f.short_of()));
            parent->net.announce_failure();
        }
        leave();
        throw;
    }
}

[[gnu::cold]] COLLX_ONCE communicator_core::~communicator_core() {
    if (end) {
        const detail::locked_mutex here(end->mutex);
        end->has_come = true;
    }
    if (recorder) recorder->set_observer({}); // what the observer refers to may be gone
    if (helper) helper->leave();              // before what the progress thread uses ends
    pending.leave_all(failure(errc::aborted, net.rank()));
    if (home->mark.is_child()) {
        (void)device.release(); // its thread is the parent's
        if (net.remote() != nullptr) net.remote()->forget();
        return;
    }
    if (!pending.empty()) { // no call will move them on
        if (net.failed()) take_buffers_back();
        else abandon();
    }
    net.say_end();
    if (net.remote() != nullptr) net.remote()->say_bye();
    device = sole_ptr<detail::device_part>(); // waits for peers, which do not wait for this rank
    leave();
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
    settings.record = last;
    settings.record_directory = directory;
}

[[gnu::cold]] COLLX_ONCE void communicator_core::record_if_wanted() {
    if (settings.record != 0)
        or_abandon([&] { record_calls(settings.record, kept_text(settings.record_directory).c_str()); });
}

[[gnu::cold]] COLLX_ONCE void communicator_core::take_settings(const communicator_core& from) {
    settings = from.settings;
    if (made_for != nullptr) return; // its calls are none of the program's
    record_if_wanted();
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

[[gnu::cold]] COLLX_ONCE void communicator_core::give_up(failure f, int waiting_for) {
    net.report(f);
    net.announce_failure(f.code() == errc::peer_failed && calls() <= 1);
    take_buffers_back();
    const failure first = net.failed();
    if (recorder) recorder->fail_all(first ? first : f, waiting_for);
    try {
        explain(first ? first : f, waiting_for);
    } catch (error& e) {
        e.set_sequence(calls());
        pending.fail_all(first ? first : f); // the buffers of all its calls are the program's again
        throw;
    }
}

// A peer is in these buffers for one step of its call, unless code of the program that runs there (an operator) waits:
// the limit ends that.
[[gnu::cold]] COLLX_ONCE void communicator_core::take_buffers_back() noexcept {
    if (!net.is_one_host()) return; // no zero-copy calls
    const deadline until = deadline::in_ns(settings.timeout_ns);
    for (int r = 0; r < net.size(); ++r)
        for (backoff wait(settings.waiting); r != net.rank() && net.is_in_buffers(r);)
            if (wait.pause() && (is_gone(r) || until.passed())) break;
}

[[gnu::cold]] COLLX_ONCE void communicator_core::give_up_on(const operation& op) {
    if (helper) helper->rethrow(op);
    give_up(op.error, op.waiting_for);
}

COLLX_ONCE bool communicator_core::wait_for(operation& op, std::int64_t timeout_ns, bool may_fail,
                                            detail::failure_watch::looking& l) {
    const detail::one_caller::call here(caller, net.rank());
    backoff wait(settings.waiting);
    const std::int64_t until = may_fail ? 0 : watch.later(now_ns(), timeout_ns);
    for (;;) {
        pending.advance();
        // Stop polling here: the next call may pre-post its receive buffer.
        const bool is_last = op.state == task_state::done && pending.empty();
        carried = !is_last && net.move();
        if (op.state == task_state::done) return true;
        if (op.state == task_state::failed) give_up_on(op);
        if (pending.moves() != l.seen_moves || carried) {
            wait.reset();
            l.note(pending.moves(), timeout_ns);
            if (may_fail) continue;
        } else if (!wait.pause() && (may_fail || now_ns() < until)) {
            continue;
        }
        // Time may pass here: only a wait that may fail has a deadline that ends the communicator.
        check_for_failure(op, l, may_fail ? timeout_ns : INT64_MAX);
        if (!may_fail && now_ns() >= until) return false;
    }
}

COLLX_ONCE std::size_t communicator_core::progress() {
    require_own();
    const detail::one_caller::call here(caller, net.rank());
    if (progress_pending() == 0) return 0;
    try {
        look(progress_look, 0, pending.begin()->op->waiting_for);
        return pending.size();
    } catch (const error&) { // later waits get it from the operations
    }
    pending.fail_all(net.failed());
    return 0;
}

COLLX_ONCE void communicator_core::show_all(const void* mine, std::size_t bytes, const detail::line_visitor& visit,
                                            std::int64_t timeout_ns) {
    or_abandon([&] {
        (void)agree(bytes);
        if (!net.is_one_host()) return detail::by_channels->exchange(*this, mine, bytes, visit, timeout_ns, nullptr);
        const std::uint64_t i = exchanges++, tag = signal_word::tag(agreed);
        auto& line = exchange_window.line(net.rank(), 0, i);
        std::memcpy(line.payload, mine, bytes);
        line.word.store(signal_word::of(i + 1, tag), memory_order::release);
        std::int64_t until = 0;
        const auto has_come = [&](int r, std::uint64_t& word) {
            word = exchange_window.line(r, 0, i).word.load(memory_order::acquire);
            return signal_word::has_reached(word, i + 1);
        };
        // All ranks are waited for. One that has left will not come, even if others are late, too.
        const auto find_left_or = [&](int r) {
            std::uint64_t word;
            for (int k = r; k < net.size(); ++k)
                if (net.has_said_end(k) && !has_come(k, word)) return k;
            return r;
        };
        for (int r = 0; r < net.size(); ++r) {
            auto& other = exchange_window.line(r, 0, i);
            std::uint64_t word;
            for (backoff b(settings.waiting); !has_come(r, word);) {
                if (!pending.empty()) progress_pending(); // another rank may wait for them before it comes here
                if (b.pause()) check(until, timeout_ns, find_left_or(r));
            }
            if (!signal_word::fits(word, i + 1, tag)) give_up(failure(errc::mismatch, r), r);
            visit(r, other.payload);
        }
    });
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
        wait_until(have_all_come, limit_ns, detail::failure_watch::every_rank, parent);
    };
    try {
        meet();
    } catch (const error&) {
        // If a rank that got past this point failed before others got here, the next call reports it. What else has
        // ended this communicator ends its parent, in which ranks have other numbers.
        // If the parent's failure has ended the wait, messages of this meeting may be still to come, but on one host.
        const failure f = net.failed();
        if (!f.has_all_come() || !(f || net.is_one_host())) {
            // The rank that gave this communicator up has ended the parent, too, and only there is the reason known.
            // Its goodbye here may come before both. A rank that died says nothing more; the parent may not see that.
            constexpr std::int64_t most_ns = 10'000'000'000;
            const std::int64_t part_ns = settings.timeout_ns / 16;
            const bool has_left = f && f.code() == errc::peer_failed;
            if (parent != nullptr && f && (has_left || f.code() == errc::aborted) && f.rank() != net.rank()) {
                const deadline until = has_left ? deadline::in_ns(part_ns < most_ns ? part_ns : most_ns) : deadline();
                parent->wait_until([&] { return parent->net.failed() || until.passed(); }, 0,
                                   parent->rank_of(*this, f.rank()));
            }
            if (parent != nullptr && parent->net.failed()) parent->give_up(parent->net.failed(), -1);
            if (parent == nullptr || !f) throw;
            parent->give_up(failure(f.code(), parent->rank_of(*this, f.rank()), f.short_of()), -1);
        }
    }
    net.note_all_came();
}

COLLX_END_NAMESPACE
