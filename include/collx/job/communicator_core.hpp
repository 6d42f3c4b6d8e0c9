// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The working parts of a communicator: it runs operations and waits for them, notifies of failures, makes small
// exchanges, and keeps outstanding operations. Verbs use it, programs do not.
#pragma once

#include <collx/core/atomic.hpp>
#include <cstring>
#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/count_table.hpp>
#include <collx/exec/remote.hpp>
#include <collx/exec/task.hpp>
#include <collx/job/failure_watch.hpp>
#include <collx/job/flight_recorder.hpp>
#include <collx/job/job.hpp>
#include <collx/job/one_caller.hpp>
#include <collx/job/outstanding_calls.hpp>
#include <collx/job/parts.hpp>
#include <collx/plan/schedules.hpp>

COLLX_BEGIN_NAMESPACE

struct communicator_core {
    explicit communicator_core(counted_ptr<job> j)
        : communicator_core(j, j->agree_on_world(start_of(*j)), j->rank, j->size, {}) {
        if (settings.checked < 0) settings.checked = checked_by_default;
        if (home->settings.has_topology && !home->machine) detail::topology->merge(*this);
    }

    // The first communicator of a job is part of the job's start and has the same time limit.
    static deadline start_of(const job& j) {
        return j.communicators_made == 0 && j.start_until.at_ns != INT64_MAX ? j.start_until
                                                                             : deadline::in_ns(j.settings.timeout_ns);
    }

    // parent: the communicator that this one is split from; when the parent fails, waiting for missing ranks ends,
    // too. waits: whether to wait until all ranks have come. id: see job::make_links.
    communicator_core(counted_ptr<job> j, std::uint64_t at, int rank, int n, detail::growing_array<int> members_,
                      communicator_core* parent = nullptr, bool waits = true, std::uint64_t id_ = 0);
    communicator_core(const communicator_core&) = delete;
    ~communicator_core();
    // A rank that ended, or that ended this communicator (known of ranks of this host).
    bool is_gone(int r) const { return r != net.rank() && (home->is_gone(members[r]) || net.has_said_end(r)); }
    // The last of its ranks frees the memory. A killed rank cannot give up its share, so each other rank does that
    // for it before it gives up its own.
    void leave();
    // Rank here of a rank of the job, -1 if it is not a member.
    int rank_of(int world_rank) const {
        for (int r = 0; r < net.size(); ++r)
            if (members[r] == world_rank) return r;
        return -1;
    }

    // Rank here of a rank of another communicator, -1 if it is not a member.
    int rank_of(const communicator_core& other, int rank) const { return rank < 0 ? -1 : rank_of(other.members[rank]); }

    // Number of all calls so far, messages between two ranks included.
    std::uint64_t calls() const { return sequence + messages; }

    // ------------------------------------------------------------------ running operations
    // Runs an operation to its end. Throws the failure that ended it.
    template <class Operation>
    void run(Operation& op, std::int64_t timeout_ns) {
        if (recorder) [[unlikely]]
            recorder->watch(&op);
        backoff wait(settings.waiting);
        std::int64_t until = 0;
        for (;;) {
            const task_state p = advance(op);
            if (p == task_state::done) break;
            if (p == task_state::failed) give_up(op.error, op.waiting_for);
            progress_or_move();
            if (p == task_state::moved) {
                wait.reset();
                watch.note_progress(until, timeout_ns);
            } else if (carried) wait.reset();
            else if (wait.pause()) check(until, timeout_ns, op.waiting_for);
        }
        if (recorder) [[unlikely]]
            recorder->watch(nullptr);
    }

    // f runs code of the program in a call (an operator, a hook, an iterator). An exception from it ends the
    // communicator: this rank's part will never be done, and peers would take what it sends next for the rest of that
    // part.
    template <class F>
    decltype(auto) with_user_code(F&& f) {
        try {
            const detail::one_caller::user_code here(caller);
            return f();
        } catch (...) {
            abandon();
            throw;
        }
    }
    template <class Operation>
    task_state advance(Operation& op) {
        return with_user_code([&] { return op.advance(); });
    }
    [[gnu::cold, gnu::noinline]] void abandon() {
        const failure f(errc::aborted, net.rank());
        if (recorder) recorder->fail_all(f, -1);
        net.report(f);
        net.announce_failure();
        take_buffers_back();
    }
    // f makes a call ready or is part of it. It throws collx's errors where all ranks do, or where none has begun.
    // Any other exception, for example for lack of memory, is this rank's alone and ends the communicator: peers
    // would take what this rank sends next for its part in this call.
    template <class F>
    decltype(auto) or_abandon(F&& f) {
        const detail::one_caller::call here(caller, net.rank());
        try {
            return f();
        } catch (const error&) {
            throw;
        } catch (...) {
            abandon();
            throw;
        }
    }

    // Waits for something that is not an operation. Moves outstanding operations on meanwhile, because the awaited
    // rank may wait for them.
    template <class Condition>
    [[gnu::cold]] void wait_until(Condition&& holds, std::int64_t timeout_ns, awaited waiting_for,
                                  communicator_core* parent = nullptr) {
        std::int64_t until = 0;
        for (backoff wait(settings.waiting); !holds();) {
            progress_or_move();
            if (parent != nullptr && !parent->pending.empty()) parent->progress_pending();
            if (carried) {
                wait.reset();
            } else if (wait.pause()) {
                if (parent != nullptr) parent->require_alive();
                check(until, timeout_ns, waiting_for);
            }
        }
    }

    // ns: the time limit of one call; 0: the communicator's.
    void require_time_limit(std::int64_t ns) const {
        if (ns < 0) [[unlikely]]
            fail(errc::invalid_argument, net.rank(), -1,
                 "leave .timeout out for the communicator's limit, or say nanoseconds::max() for ever",
                 "a time limit of %lld ns, which every wait would be past", static_cast<long long>(ns));
    }
    // The slow checks of a wait. `until` begins as 0. Throws what ends the wait.
    [[gnu::cold]] void check(std::int64_t& until, std::int64_t timeout_ns, awaited waiting_for) {
        watch.check(until, timeout_ns, waiting_for);
    }

    // Makes the failure known to all ranks and throws the one that was reported first.
    [[noreturn]] void give_up(failure f, int waiting_for);
    // Does the same for an operation that failed. If the program's own code threw, throws that exception instead.
    [[noreturn]] void give_up_on(const operation& op);
    [[noreturn]] void explain(failure f, int waiting_for) const;
    // Waits until no peer reads or writes buffers of this rank's zero-copy calls, which have failed.
    // Requires: the failure is reported, so that no peer begins to.
    void take_buffers_back() noexcept;

    // Reports work that the program began or collected and then dropped. Destructors cannot throw, so they print one
    // line on stderr. They print nothing while an exception is on its way or after the communicator has ended, since
    // the user then learns that. Returns whether the line was printed.
    bool note_dropped(const char* what, const char* remedy) const noexcept;
    // Lets objects that may live longer see that this communicator is gone.
    const counted_ptr<detail::communicator_end>& watch_end();

    // What is known of the links between these ranks, null: nothing. Never waits, because calls on several
    // communicators may begin in any order. The links are looked up when the communicator is made, or by each rank
    // alone where making it does not wait for the others (shrink()).
    const links_choice* known_links() {
        if (!home->machine) [[likely]]
            return nullptr;
        if (!links_found) detail::topology->look_up(*this, false);
        return by_links;
    }

    bool is_oversubscribed() const { return settings.oversubscribed(); }

    void begin_collective() {
        require_alive();
        ++sequence;
    }
    // A forked child has no communicator, and no part in what is under way on its parent's.
    void require_own() const {
        if (home->mark.is_child())
            fail(errc::forked, net.rank(), -1, "fork before the first communicator is made",
                 "this process is a fork() of the rank");
    }
    // Called before each call. A communicator that failed stays failed.
    void require_alive() {
        require_own();
        if (const failure f = net.failed(); f) give_up(f, -1);
    }

    // All ranks make the same collective calls with the same arguments in the same order. Each call mixes in a number
    // that stands for it, so the result depends on all calls so far. Messages and signals carry bits of it. Ranks
    // that have disagreed once disagree from then on: they notice at the first message or signal that one gets from
    // the other.
    std::uint64_t agree(std::uint64_t call) {
        const std::uint64_t mixed = (agreed ^ call) * 0x9e37'79b9'7f4a'7c15;
        return agreed = mixed << 29 | mixed >> 35;
    }

    // Every rank shows up to 120 bytes to the others. Same window and argument as in one_shot: a rank that has seen
    // all signals of one exchange knows that all ranks have read the one before.
    template <class Visit>
    void exchange(const void* mine, std::size_t bytes, Visit&& visit, std::int64_t timeout_ns = 0) {
        show_all(mine, bytes, detail::line_visitor::of(visit), timeout_ns);
    }
    // The same with a value of a trivially copyable type: visit(rank, its value).
    template <class T, class Visit>
    void exchange_each(const T& mine, Visit&& visit, std::int64_t timeout_ns = 0) {
        exchange(
            &mine, sizeof mine,
            [&](int r, const std::byte* line) {
                T its;
                std::memcpy(&its, line, sizeof its);
                visit(r, its);
            },
            timeout_ns);
    }
    void show_all(const void* mine, std::size_t bytes, const detail::line_visitor& visit, std::int64_t timeout_ns);

    // ------------------------------------------------------------------ outstanding operations
    // Takes up an operation that continues after the call has returned. If it throws, nothing of the operation is
    // left.
    void start(const counted_ptr<operation>& op, int queue) {
        pending.add(op, queue);
        if (recorder) [[unlikely]]
            recorder->started(*op);
        try {
            progress_pending();
        } catch (...) { // from an operator, perhaps of another operation
            pending.drop(op.get());
            throw;
        }
        if (helper) helper->wake();
    }
    // Moves all operations on that can move, and bytes from and to other hosts. Returns how many operations are left.
    std::size_t progress_pending() {
        pending.advance();
        carried = net.move();
        return pending.size();
    }
    // Moves bytes from and to other hosts, once per turn of all operations (control words beside them are no
    // progress). A large message waits for its receiver to look, but not for long (docs/design/sockets.md).
    void progress_or_move() {
        if (pending.empty()) carried = net.move();
        else progress_pending();
    }
    // Waits for an operation that was started before. may_fail: whether an expired time limit ends the communicator;
    // otherwise the function returns false then. l: new for each wait; for several that may not fail the same one, so
    // that short waits find out together what a long one does.
    bool wait_for(operation& op, std::int64_t timeout_ns, bool may_fail, detail::failure_watch::looking& l);
    // One look of a wait that looks from time to time.
    void look(detail::failure_watch::looking& l, std::int64_t timeout_ns, awaited waiting_for) {
        watch.look(l, pending.moves(), timeout_ns, waiting_for);
    }
    // The same of a wait for op: what op threw in the progress thread comes before the failure that followed from it.
    void check_for_failure(const operation& op, detail::failure_watch::looking& l, std::int64_t timeout_ns) {
        if (helper && net.failed()) [[unlikely]]
            helper->rethrow(op);
        look(l, timeout_ns, pending.awaited_by(op));
    }
    // Calls progress_pending() and checks for notifications of failures: after one, outstanding operations have
    // failed, too.
    std::size_t progress();

    // No rank returns before all have come. So a rank that ends meanwhile, even properly, will never come.
    void attach(communicator_core* parent);

    // Begins a new record of the last `last` calls; 0: stops recording.
    void record_calls(int last, const char* directory);
    // Begins the record that the settings ask for. Only communicators of the program have one.
    void record_if_wanted();
    // Takes the settings of the communicator that this one is made from.
    void take_settings(const communicator_core& from);

    counted_ptr<job> home;
    detail::one_caller caller;
    std::uint64_t offset, id;
    job_settings settings;
    links net;
    schedule_cache schedules;
    detail::growing_array<int> members; // rank here -> rank of the job
    detail::outstanding_calls pending{*this};
    counted_ptr<detail::communicator_end> end; // made on first use
    detail::count_tables tables;               // for blocking v-variants
    window_memory exchange_window;
    std::uint32_t shrinks = 0;
    // The proposal that this rank has accepted in a shrink() across hosts that has not ended (0: none).
    std::int32_t accepted_ballot = 0;
    detail::growing_array<std::uint64_t> accepted_members;
    sole_ptr<detail::device_part> device;         // made by the first call on device memory
    sole_ptr<detail::job_attachment> links_found; // by_links is part of it
    const links_choice* by_links = nullptr;
    sole_ptr<detail::flight_recorder> recorder; // null: calls are not recorded
    sole_ptr<detail::progress_link> helper;     // null: only calls move outstanding operations on
    // A communicator of these ranks, or of more, whose failure also ends waits here: those of proxies and windows heed
    // the program's.
    communicator_core* failure_parent = nullptr;
    const char* made_for = nullptr; // the part of collx whose own communicator this is; null: the program's
    static constexpr char of_window[] = "window", of_device_window[] = "device window";
    std::uint64_t exchanges = 0, sequence = 0, messages = 0, asyncs = 0, splits = 0;
    std::uint64_t agreed = 0; // see agree()
    bool carried = false;     // whether the last look moved anything from or to other hosts
    // Set before the call in which all ranks meet at the end: those that said that they make no more calls come, too.
    bool is_in_last_call = false;
    detail::failure_watch::looking progress_look;
    detail::failure_watch watch{*this};
};

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/job/communicator_core_once.hpp>
#include <collx/job/failure_texts_once.hpp>
#include <collx/job/failure_watch_once.hpp>
#include <collx/job/outstanding_calls_once.hpp>
#endif
