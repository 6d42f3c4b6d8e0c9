// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Jobs other than the threads and processes of one host: sockets between hosts, stores (TCP, files, the program's own),
// ranks that find each other through the process manager of MPI or Slurm (PMI), unique ids across hosts. A header-only
// program includes this header in one of its sources; CMake's collx::collx contains it. Without it, starting such a job
// throws unsupported and names this header.
#pragma once

#include <collx/core/config.hpp>

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/job/net_start.hpp>
#endif
