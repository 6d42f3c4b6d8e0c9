// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A group of ranks that call collectives together. Movable, not copyable. All its ranks make it together; each
// destroys its own alone, without waiting for the others (docs/errors.md has the exceptions).
//
//   collx::communicator world;                   // alone, under a launcher, or inside run_threads
//   auto row = world.split(world.rank() / 4);    // all ranks with the same colour, in their order
//   auto own = world.dup();                      // all ranks again, for a library's own calls
//
// Order: all ranks call the collectives of one communicator in the same order. Different communicators are independent.
// One communicator belongs to one thread at a time. The program's code that a call runs (operators, hooks, iterators)
// must make no other call on it: invalid_argument (job/one_caller.hpp).
#pragma once

#include <collx/core/duration.hpp>
#include <collx/core/pointers.hpp>
#include <utility>

#include <collx/job/communicator_core.hpp>
#include <collx/job/world.hpp>

COLLX_BEGIN_NAMESPACE

class communicator;
namespace detail {
communicator dup_for(const char* what, communicator& base); // comm/split.hpp
} // namespace detail

class communicator {
public:
    // The internals that calls use; not for programs.
    using core = communicator_core;

    // A communicator of all ranks of the job. Throws error (environment, timeout, peer_failed, …) if some do not join.
    communicator() : communicator(detail::this_job()) {}
    // The same over these transports only: collx::communicator world(collx::per_peer{collx::sockets{}}). All ranks
    // name the same transports.
    // Errors: as above · unsupported where they do not reach some rank · invalid_argument in a job that was joined
    //     over other transports.
    explicit communicator(const transports& over) : communicator(detail::this_job(&over)) {}
    explicit communicator(counted_ptr<job> j) : core_(make_sole<communicator_core>(std::move(j))) {
        core_->record_if_wanted();
    }
    // Ranks exchange addresses through `store`, which models Store; include collx/bootstrap/store.hpp.
    template <class Store>
    communicator(int rank, int size, Store& store, duration timeout = detail::time_limit_by_variables(),
                 const transports& over = {})
        : communicator(
              detail::join_by_store(rank, size, store, detail::require_some_time(rank, timeout.count()), over)) {}
    // Ranks that have distributed a unique_id among themselves; each id makes one communicator.
    communicator(const unique_id& id, int rank, int size, duration timeout = detail::time_limit_by_variables(),
                 const transports& over = {})
        : communicator(detail::join_by_id(id, rank, size, detail::require_some_time(rank, timeout.count()), over)) {}

    communicator(communicator&&) noexcept = default;
    communicator& operator=(communicator&&) noexcept = default;

    // The number of this rank, 0 to size() - 1.
    // Errors: invalid_argument where the communicator is empty, as for all members below.
    int rank() const { return live().net.rank(); }
    // The number of ranks.
    int size() const { return live().net.size(); }

    // Sets how long a call may stand still, with nothing arriving or leaving, before it throws timed_out. A call's own
    // .timeout limits the call as a whole. nanoseconds::max(): for ever.
    // Errors: invalid_argument for a time of 0 or less.
    void set_timeout(duration t) { live().settings.timeout_ns = detail::require_some_time(rank(), t.count()); }
    // Sets whether every call first compares its arguments across ranks, for an error that names the differing ranks
    // instead of a hang. All ranks set the same, before the same call. Does not communicate.
    void set_checked(bool on) { live().settings.checked = on; }
    // Whether calls compare their arguments across ranks.
    bool is_checked() const { return live().settings.checked != 0; }

    // Makes a communicator of all ranks with the same colour, in the order of (key, rank). A rank with a negative
    // colour is in none and receives an empty one. Collective: all ranks call it, these too.
    communicator split(int color, int key = 0);
    // Makes a communicator of the ranks that share this rank's memory: those of its host. Its rank() is this rank's
    // number there, as a program needs to choose a device. Ranks with another COLLX_HOST_ID, or in a job without shm,
    // are on other hosts. Otherwise as split(). Example: auto host = world.split_by_host();
    communicator split_by_host(int key = 0);
    // Makes a communicator of the same ranks, with its own channels, windows and order of calls: a library takes one,
    // so that its calls never meet its caller's. It takes over the time limit and checked mode; calls under way and
    // policies stay here. Collective. Cost: as split(): two short exchanges. Errors: the error that has ended this
    // communicator; resource on all ranks where one has no room. Nothing is made then. Ensures: from then on the two
    // fail, abort and shrink independently; each notices dead ranks by its own calls.
    communicator dup() { return split(0); }
    // Makes a communicator of the ranks that still live, in the same order, after peer_failed, timed_out, mismatch or
    // aborted has ended this one. All living ranks call it, each after its own error.
    // Errors: timed_out naming a rank that lives and does not call it; resource.
    // Ensures: all ranks that get one get the same. If one of them has died meanwhile, its first call says so, and it
    //     may be shrunk in turn.
    communicator shrink();
    // Whether it has no ranks: split() gave it to a rank of negative colour, or it was moved from.
    bool is_empty() const { return core_ == nullptr; }

    // Ends the communicator for all ranks: every call under way or to come throws aborted. Local and immediate; any
    // thread may call it.
    void abort() {
        live().require_own();
        live().net.report(failure(errc::aborted, rank()));
        (void)live().net.move_remote(); // has a lock of its own: this thread may be in no call
    }

    // Advances outstanding operations without waiting. Returns how many are left; none after a failure, which test()
    // and wait() of each then throw.
    std::size_t progress() { return live().progress(); }

    // What this rank has moved so far: messages and bytes through channels, bytes written to and read from windows.
    links::traffic sent() const {
        const detail::one_caller::alone here(live().caller);
        links::traffic t = live().net.sent();
        live().schedules.add_moved(t);
        return t;
    }
    // Messages and bytes that this rank has sent to one rank through channels.
    links::traffic sent_to(int peer) const {
        const detail::one_caller::alone here(live().caller);
        return live().net.sent_to(peer);
    }
    std::uint64_t sequence() const { return live().calls(); } // number of the last call

    // Keeps records of the last `last` calls from now on; 0: none. With a directory they lie in a file there, which
    // outlives a process that is killed and which collx_calls reads. COLLX_RECORD and COLLX_RECORD_DIR do this for all
    // communicators; split(), dup() and shrink() pass it on. Local: other ranks need not do the same.
    // Cost: a test per call where nothing is recorded (docs/errors.md says what a record costs).
    // Errors: invalid_argument for less than 0 or more than 1048576 · resource where the file cannot be made.
    // Example: world.record_calls(64); ... for (const auto& r : world.recent_calls()) std::puts(r.verb);
    void record_calls(int last, const char* directory = "") {
        const detail::one_caller::call here(live().caller, rank());
        live().require_own();
        if (last < 0 || last > detail::flight_recorder::most_records)
            fail(errc::invalid_argument, rank(), -1, "use 0 to 1048576", "record_calls(%d)", last);
        live().record_calls(last, directory);
    }
    // The recorded calls of this rank, the oldest first; calls under way come with the rank that they wait for.
    detail::growing_array<call_record> recent_calls() const {
        const detail::one_caller::alone here(live().caller);
        if (!live().recorder) return {};
        live().recorder->look(-1);
        return live().recorder->recent();
    }
    // Shows each recorded call to a function of the program when it begins and when it ends, also if it fails, but for
    // a call whose record was overwritten before it ended; see call_observer. What the function throws ends the
    // communicator, as for an operator, unless the call has failed. Errors: invalid_argument where no calls are
    // recorded.
    void on_calls(const call_observer& observer) {
        const detail::one_caller::call here(live().caller, rank());
        live().require_own();
        if (!live().recorder)
            fail(errc::invalid_argument, rank(), -1, "record_calls() first, or set COLLX_RECORD",
                 "on_calls() on a communicator whose calls are not recorded");
        live().recorder->set_observer(observer);
    }
    // The job that its ranks belong to.
    counted_ptr<const job> membership() const { return live().home; }

    // The same communicator with policies bound: all_reduce(comm.with(ring_all_reduce{}), x).
    template <class... Policies>
    auto with(Policies... p) &;

    // For collx's own headers, not for programs.
    core& internals() { return live(); }

private:
    friend communicator detail::dup_for(const char* what, communicator& base);
    explicit communicator(sole_ptr<communicator_core> c) : core_(std::move(c)) {}
    core& live() const {
        if (core_ == nullptr)
            fail(errc::invalid_argument, -1, -1,
                 "ask is_empty(): split() gave it to a rank of negative colour, or it was moved from",
                 "this communicator is empty");
        return *core_;
    }
    sole_ptr<communicator_core> core_;
};

COLLX_END_NAMESPACE
