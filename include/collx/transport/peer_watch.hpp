// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Detects the death of ranks that are processes of one host: a pidfd per peer, polled without waiting. Ranks that are
// threads, and processes whose numbers mean nothing here (another pid namespace), are never found dead. All
// communicators of a process ask the same watch, from any thread.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include <collx/core/descriptor.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/yielding_lock.hpp>
#include <collx/transport/arena.hpp>

COLLX_BEGIN_NAMESPACE

class peer_watch {
public:
    // Watches no process.
    peer_watch() = default;

    // Watches all ranks but `rank`. Requires: made right after joining, while all are known to live. A pidfd taken then
    // stays with its process; a process number kept for later might then name another process. Cost: one descriptor and
    // about a microsecond per peer. Without descriptors (ulimit -n) peers are checked by number.
    [[gnu::cold]] peer_watch(const arena& shared, int rank, int ranks) {
        for (int r = 0; r < ranks; ++r) {
            const int pid = shared.process_of(r, rank);
            if (r == rank || (pid <= 0 && pid != arena_header::has_left) || pid == ::getpid()) continue;
            if (pid == arena_header::has_left) {
                polled_.push_back({-1, 0, 0});
                peers_.push_back({descriptor(), r, pid, true});
                continue;
            }
            descriptor fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
            const bool is_gone = !fd.is_open() && errno == ESRCH;
            polled_.push_back({fd.get(), POLLIN, 0});
            peers_.push_back({static_cast<descriptor&&>(fd), r, pid, is_gone});
        }
    }

    // Renumbers the peers: rank_at[r] instead of r; empty: no change.
    void rename(const detail::growing_array<int>& rank_at) {
        for (peer& p : peers_)
            if (!rank_at.empty()) p.rank = rank_at[p.rank];
    }

    // The lowest rank of a dead peer, -1 if all live. Waits only for other threads in here. Cost: one system call.
    int find_dead() {
        return find_dead([](int) { return true; });
    }
    // The same among the peers for which counts(rank) is true: some may have ended because their work was done.
    template <class Counts>
    int find_dead(Counts&& counts) {
        if (peers_.empty()) return -1;
        const detail::lock_held mine(asking_.lock);
        if (::poll(polled_.data(), polled_.size(), 0) < 0 && errno != EINTR) // after that the next call finds it
            for (pollfd& p : polled_) (void)::poll(&p, 1, 0); // more peers than this process may now open files
        for (std::size_t i = 0; i < peers_.size(); ++i) {
            peer& p = peers_[i];
            if (!p.is_dead)
                p.is_dead =
                    p.pidfd.is_open() ? (polled_[i].revents & POLLIN) != 0 : ::kill(p.pid, 0) != 0 && errno == ESRCH;
            polled_[i].revents = 0;
            if (p.is_dead && counts(p.rank)) return p.rank;
        }
        return -1;
    }
    std::size_t watched() const { return peers_.size(); }

private:
    struct peer {
        descriptor pidfd;
        int rank, pid;
        bool is_dead;
    };
    detail::growing_array<peer> peers_;
    detail::growing_array<pollfd> polled_; // same order
    // Set while a thread uses peers_ and polled_. A watch is moved before its first use.
    struct asking {
        asking() = default;
        asking(asking&&) noexcept {}
        asking& operator=(asking&&) noexcept { return *this; }
        detail::yielding_lock lock;
    } asking_;
};

COLLX_END_NAMESPACE
