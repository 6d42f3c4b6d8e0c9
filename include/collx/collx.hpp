// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx: collective operations composed at compile time from a transport, an algorithm and a reduction operator.
// This header is the whole library for host programs: communicators, every collective, types and operators. Algorithms
// that a program names are in collx/algo/, each in its own header.
#pragma once

// First the headers that refuse what is no tensor or no operator: compilers list the includes that lead to an error.
#include <collx/core/buffer.hpp>
#include <collx/core/op_traits.hpp>

#include <collx/call/work.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/barrier.hpp>
#include <collx/comm/basic_communicator.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/comm/gather.hpp>
#include <collx/comm/group.hpp>
#include <collx/comm/neighbor.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_local.hpp>
#include <collx/comm/reduce_scatter.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/comm/scan.hpp>
#include <collx/comm/scatter.hpp>
#include <collx/comm/send_recv.hpp>
#include <collx/comm/shared_memory.hpp>
#include <collx/comm/shrink.hpp>
#include <collx/comm/split.hpp>
#include <collx/comm/wait_several.hpp>

#if !defined(__CUDACC__) // a .cu file that uses shared vectors includes that header itself
#include <collx/comm/shared_vector.hpp>
#endif

// Named here so that the compiler's note shows the header to a program that has not included it.
COLLX_BEGIN_NAMESPACE
namespace progress {
struct calls;  // <collx/comm/progress.hpp>
struct thread; // <collx/comm/progress.hpp>
} // namespace progress
COLLX_END_NAMESPACE
