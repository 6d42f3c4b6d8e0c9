// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's membership in a job: its number, the arena that it shares with others, the watch over its peers.
// Communicators are made in a job. A job is joined once per process (or per thread in run_threads) and lives as long
// as any communicator in it.
#pragma once

#include <cstring>

#include <sys/mman.h>

#include <collx/core/atomic.hpp>
#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/links.hpp>
#include <collx/transport/peer_watch.hpp>
#include <collx/transport/per_peer.hpp>
#include <collx/transport/wait.hpp>

COLLX_BEGIN_NAMESPACE

#ifndef NDEBUG
// Whether communicators begin in checked mode: they do in builds with assertions.
inline constexpr bool checked_by_default = true;
#else
inline constexpr bool checked_by_default = false;
#endif

namespace detail {
// An object that a job keeps until its end and does not look into.
struct job_attachment {
    virtual ~job_attachment() = default;
};
} // namespace detail

// What holds for all communicators of a job unless they say otherwise.
struct job_settings {
    std::int64_t timeout_ns = 60'000'000'000;
    int checked = -1; // 1: yes, 0: no, -1: checked_by_default of the program
    wait_policy waiting{};
    single_copy_mode single_copy = single_copy_mode::automatic;
    int sharing = 0;            // ranks that share this machine's cores; 0: not known
    bool waits_as_told = false; // `waiting` was asked for by name
    int ranks_per_core = 1;     // on this host, rounded up
    bool has_topology = false;  // COLLX_TOPOLOGY is set
    int record = 0;             // how many of each communicator's last calls are recorded
    kept_text record_directory; // directory of the files of records; empty: in memory
    bool is_talkative = false;  // COLLX_DEBUG=INFO
    transports over{};          // the transports that the program lets its ranks use
    bool oversubscribed() const { return ranks_per_core > 1; }
    void share_among(int cores) { ranks_per_core = sharing > cores ? (sharing + cores - 1) / cores : 1; }
    bool operator==(const job_settings&) const = default;
};

namespace detail {

// A word that fork() sets to zero in the child, because a child must not use its parent's ranks.
class fork_mark {
public:
    fork_mark() {
        void* p = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            fail(errc::resource, -1, -1, remedy_for_mapping(errno), "cannot map a page: %s", std::strerror(errno));
        word_ = static_cast<volatile std::uint32_t*>(p);
        ::madvise(p, page_bytes, MADV_WIPEONFORK);
        *word_ = 1;
    }
    fork_mark(const fork_mark&) = delete;
    ~fork_mark() { ::munmap(const_cast<std::uint32_t*>(word_), page_bytes); }
    bool is_child() const { return *word_ == 0; }

private:
    volatile std::uint32_t* word_;
};

// Where the first rank of a host publishes the places of the communicators that the whole job makes, one after the
// other.
struct notice_board {
    static constexpr int lines = 32;
    struct line {
        atomic<std::uint64_t> number; // 1 + the number of the creation that this line is about
        std::uint64_t offset;
    };
    line at[lines];
};
static_assert(sizeof(notice_board) <= page_bytes);

} // namespace detail

// The hosts of a job that has several, as one rank sees them.
struct host_map {
    detail::growing_array<int> place_of; // rank of the job -> place among those of this host, -1: elsewhere
    detail::growing_array<int> rank_at;  // place on this host -> rank of the job
    detail::growing_array<int> host_of;  // rank of the job -> host
};

class job {
public:
    job(counted_ptr<arena> a, int me, int n, job_settings s, bool threads)
        : settings(s), memory(std::move(a)), rank(me), size(n), is_threads(threads),
          watch(!threads && n > 1 ? peer_watch(*memory, me, n) : peer_watch()) {
        say_cores();
    }
    // A job on several hosts. The ranks of this host share `a`.
    job(counted_ptr<arena> a, int me, int n, job_settings s, bool threads, host_map here,
        counted_ptr<any_connector> way_out)
        : settings(s), memory(std::move(a)), rank(me), size(n), is_threads(threads),
          watch(!threads && here.rank_at.size() > 1
                    ? peer_watch(*memory, here.place_of[me], static_cast<int>(here.rank_at.size()))
                    : peer_watch()),
          hosts(std::move(here)), connector(std::move(way_out)) {
        watch.rename(hosts.rank_at);
        say_cores();
    }
    job(const job&) = delete;
    // Tells the others that this rank ended properly, unless its thread has said that it failed.
    [[gnu::cold]] ~job() {
        if (!mark.is_child() && !has_failed(rank))
            memory->header().pid[place(rank)].store(arena_header::has_left, memory_order::release);
    }
    // Place of a rank among those of this host, -1: it is on another host.
    int place(int other) const { return hosts.place_of.empty() ? other : hosts.place_of[other]; }
    int process_of(int other) const { return memory->process_of(place(other), place(rank)); }
    // Whether a rank ended with all its calls returned. Its data are then there, even for ranks that are still busy.
    bool has_left(int other) const {
        return place(other) >= 0 &&
               memory->header().pid[place(other)].load(memory_order::acquire) == arena_header::has_left;
    }

    job_settings settings;
    counted_ptr<arena> memory;
    int rank, size;
    bool is_threads;
    peer_watch watch;
    detail::fork_mark mark;
    std::uint64_t communicators_made = 0; // by the whole job, in step on all ranks
    const char* found_by = "alone";
    deadline start_until;                 // time limit of the job's start; the first communicator must be there by then
    host_map hosts;                       // empty: one host
    counted_ptr<any_connector> connector; // null: one host
    // Answers ranks that come late to a decided shrink(), even when the communicator that it made is gone.
    detail::growing_array<sole_ptr<detail::job_attachment>> late_answers;

    // The machine under the job, merged over its ranks (job/machine.hpp); null: not known.
    sole_ptr<detail::job_attachment> machine;

    // Says that this rank, a thread, ended with an exception. Holds for all its communicators, also for those that
    // only its peers still hold.
    void say_failed() { memory->header().pid[place(rank)].store(arena_header::has_failed, memory_order::release); }
    bool has_failed(int other) const {
        return place(other) >= 0 &&
               memory->header().pid[place(other)].load(memory_order::acquire) == arena_header::has_failed;
    }

    // Whether a rank will do nothing more: its process has ended or left the job, or its thread has failed. Once true
    // it stays true.
    bool is_gone(int other) {
        return has_left(other) || has_failed(other) || watch.find_dead([&](int r) { return r == other; }) == other;
    }

    detail::notice_board& board() const { return *reinterpret_cast<detail::notice_board*>(memory->board()); }

    // Makes the links of a communicator of these ranks of the job (empty: all). They have shared memory only between
    // ranks of one host. id: the same on all ranks, and that of no other communicator of the job (0: made from the
    // number of the world).
    links make_links(std::uint64_t at, int my_rank, int n, const detail::growing_array<int>& members,
                     std::uint64_t& id) const;
    links_layout layout_of(const detail::growing_array<int>& members) const;

    // Returns the place of the next communicator of all ranks. The first rank of a host takes it, the others read it
    // from the board.
    std::uint64_t agree_on_world(const deadline& until);

    // In place of an offset: there was no room for a communicator.
    static constexpr std::uint64_t no_place = UINT64_MAX;
    [[noreturn]] static void fail_no_place(int rank, int leader);
    // Takes address space for one communicator and sets its user count. Returns its offset. me: named by errors.
    static std::uint64_t take_links(arena& a, const links_layout& layout, int me);

    // Launchers bind ranks to cores, and differently from rank to rank, so only all ranks together know how many
    // cores they have. Called when all have come, so that all get the same answer.
    void settle_cores();
    // With COLLX_DEBUG=INFO, rank 0 of a communicator prints what it is. members: ranks of the job.
    void note_made(const links& net, const detail::growing_array<int>& members, bool is_world) const;

private:
    void say_cores();
    void settle_given_up();
    detail::growing_array<std::uint64_t> given_up_; // numbers of communicators that did not exist when the time was up
    struct places {
        detail::growing_array<int> place_of; // rank of the communicator -> place among its ranks on this host
        int count = 0;
        bool is_crowded = false; // some host has several of them
    };
    places places_among(const detail::growing_array<int>& members) const;
};

namespace detail {
// The job of this thread while run_threads runs it. A process has one job for all its threads.
inline thread_local counted_ptr<job> thread_job;
} // namespace detail

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/job/job_once.hpp>
#endif
