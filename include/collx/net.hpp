// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Jobs other than threads and the processes that collx_run starts on one host: sockets between hosts, stores (TCP,
// files, the program's own), the process managers of MPI and Slurm, unique ids across hosts. A header-only program
// includes this header in one of its sources; CMake's collx::collx contains it. Without it, starting such a job throws
// unsupported and names this header.
#pragma once

#include <collx/core/config.hpp>

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/job/net_start.hpp>
#endif
