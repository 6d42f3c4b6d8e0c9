// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport of processes on one host: the same arena as memory.hpp, over a sealed memfd that rank 0 hands to the
// others. The memfd has no name in any file system, so /dev/shm and its limit play no part and nothing outlives the
// processes, whatever kills them. Knows no schedule and no communicator.
#pragma once

#include <sys/uio.h>

#include <collx/core/atomic.hpp>
#include <collx/core/pointers.hpp>

#include <collx/transport/detail/join_guest.hpp>
#include <collx/transport/detail/join_host.hpp>
#include <collx/transport/detail/sealed_memory.hpp>
#include <collx/transport/peer_watch.hpp>

COLLX_BEGIN_NAMESPACE

// Brings `ranks` processes of one user together in one arena. Every rank calls it. `job` names the launch; it and
// `settings` (words NAME=VALUE, at most 239 bytes) are the same on all ranks. check: called while waiting; null: none.
// Ensures: on return all ranks have mapped the arena and written their process numbers. Otherwise all ranks that came
// throw the same error.
// Errors: timeout (names the missing ranks) · mismatch (sizes differ, a rank twice, a job of this name is starting) ·
//         environment (no job name) · peer_failed (a rank ended meanwhile) · resource (descriptors, address space).
// Cost: about a quarter of a millisecond per rank; one descriptor, one mapping.
[[gnu::cold]] inline counted_ptr<arena> join_shm(const char* job, int rank, int ranks, const deadline& until,
                                                 std::size_t bytes = default_arena_bytes, const char* settings = "",
                                                 start_check* check = nullptr) {
    if (ranks < 1 || ranks > max_local_ranks)
        fail(errc::invalid_argument, rank, -1, "", "a host has 1 to %d ranks, not %d", max_local_ranks, ranks);
    if (rank < 0 || rank >= ranks)
        fail(errc::invalid_argument, rank, -1, "ranks are 0 to size - 1", "rank %d of %d ranks", rank, ranks);
    if (ranks > 1 && (job == nullptr || job[0] == '\0'))
        fail(errc::environment, rank, -1,
             "start the ranks with collx_run, or set COLLX_JOB to one new name for all ranks", "the job has no name");
    if (rank > 0) return detail::join_guest(job, rank, ranks, until, settings, check).join();
    if (ranks == 1) {
        auto alone = detail::make_sealed_arena(1, bytes);
        alone->header().pid[0].store(::getpid(), memory_order::relaxed);
        alone->header().arrived.store(1, memory_order::release);
        return alone;
    }
    detail::join_host host(job, ranks, until, settings, check);
    counted_ptr<arena> shared;
    try {
        shared = detail::make_sealed_arena(ranks, bytes);
    } catch (const error& e) {
        host.refuse(e);
    }
    shared->header().pid[0].store(::getpid(), memory_order::relaxed);
    host.serve(*shared);
    return shared;
}

// Whether this process may read another's memory (cross-memory attach; containers and ptrace settings often forbid it).
// Reads a word at an address from the peer and compares it with the value that the peer put there. No other probe
// proves anything.
inline bool cma_probe(int pid, const std::uint64_t* there, std::uint64_t expected) {
    std::uint64_t here = ~expected;
    iovec local{&here, sizeof here}, remote{const_cast<std::uint64_t*>(there), sizeof here};
    return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof here) && here == expected;
}

COLLX_END_NAMESPACE
