// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator of the ranks of an MPI communicator, so that an MPI program can take one collective after the other to
// collx. Needs mpi.h: link collx::mpi, or compile with mpicxx. MPI serves to agree on a name, nothing else.
// collx-header: needs=mpi
#pragma once

#include <mpi.h>

#include <chrono>
#include <vector>

#include <collx/bootstrap/unique_id.hpp>
#include <collx/comm/communicator.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// MPI's own handler ends the program by default; a program that has set another one gets an exception.
inline void check_mpi(int code, int rank, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
    fail(errc::environment, rank, -1, "see MPI's own messages", "%s failed: %.200s", call, text);
}

} // namespace detail

// Collective over `mpi`, which must stay unused by other threads meanwhile and is not needed afterwards. Rank numbers
// are the same. Errors: environment when MPI is not initialised or fails · unsupported, on all ranks, when they are not
// all on one host · those of communicator. Cost: a broadcast of 128 bytes and a gathering of 8 bytes a rank.
inline communicator from_mpi(MPI_Comm mpi, std::chrono::nanoseconds timeout = std::chrono::seconds(60)) {
    int is_ready = 0, is_over = 0, rank = -1, size = 0;
    if (MPI_Initialized(&is_ready) != MPI_SUCCESS || MPI_Finalized(&is_over) != MPI_SUCCESS || is_ready == 0 ||
        is_over != 0)
        fail(errc::environment, -1, -1, "call from_mpi between MPI_Init and MPI_Finalize", "MPI is not running");
    if (mpi == MPI_COMM_NULL) fail(errc::invalid_argument, -1, -1, "", "from_mpi of MPI_COMM_NULL");
    detail::check_mpi(MPI_Comm_rank(mpi, &rank), -1, "MPI_Comm_rank");
    detail::check_mpi(MPI_Comm_size(mpi, &size), rank, "MPI_Comm_size");

    // All ranks see all hosts, so that all come to the same verdict.
    unsigned long long here = detail::host_id();
    std::vector<unsigned long long> hosts(static_cast<std::size_t>(size));
    detail::check_mpi(MPI_Allgather(&here, 1, MPI_UNSIGNED_LONG_LONG, hosts.data(), 1, MPI_UNSIGNED_LONG_LONG, mpi),
                      rank, "MPI_Allgather");
    for (int r = 1; r < size; ++r)
        if (hosts[static_cast<std::size_t>(r)] != hosts[0])
            fail(errc::unsupported, rank, r, "start all ranks on one host: this version has no transport between hosts",
                 "MPI ranks 0 and %d are on different hosts", r);

    unique_id id;
    if (rank == 0) id = unique_id::make();
    detail::check_mpi(MPI_Bcast(id.bytes, static_cast<int>(unique_id::most_bytes), MPI_CHAR, 0, mpi), rank,
                      "MPI_Bcast");
    return communicator(id, rank, size, timeout);
}

COLLX_END_NAMESPACE
