// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Jobs beyond threads and the processes that collx_run starts on one host: sockets between hosts, stores (TCP, files,
// one's own), the process managers of MPI and Slurm, unique ids across hosts. Included in one source of a header-only
// program, it serves all of it; CMake's collx::collx has it. Without it such a job throws unsupported and names this
// header.
#pragma once

#include <collx/core/config.hpp>

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/job/net_start.hpp>
#endif
