// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of collx that every program needs, compiled once: start-up, sockets, the recording of the default
// algorithms. A program that defines COLLX_COMPILED for all its sources includes this header in exactly one of them.
// CMake's collx::collx does both:
//
//   find_package(collx REQUIRED)
//   target_link_libraries(app PRIVATE collx::collx)
//
// Without COLLX_COMPILED all of it is inline, and including it is harmless.
#pragma once

#include <collx/call/check_call_once.hpp>
#include <collx/call/checks_once.hpp>
#include <collx/call/compare_signatures.hpp>
#include <collx/call/count_faults_once.hpp>
#include <collx/call/neighbor_edges_once.hpp>
#include <collx/call/persistent_once.hpp>
#include <collx/call/prepared_call_once.hpp>
#include <collx/call/ready_call_once.hpp>
#include <collx/call/short_calls_once.hpp>
#include <collx/comm/group_memory_once.hpp>
#include <collx/comm/one_sided_once.hpp>
#include <collx/comm/remote_window_once.hpp>
#include <collx/comm/run_threads_once.hpp>
#include <collx/exec/relayed_task_once.hpp>
#include <collx/exec/task_once.hpp>
#include <collx/job/communicator_core_once.hpp>
#include <collx/job/failure_texts_once.hpp>
#include <collx/job/failure_watch_once.hpp>
#include <collx/job/job_once.hpp>
#include <collx/job/machine.hpp>
#include <collx/job/net_start.hpp>
#include <collx/job/outstanding_calls_once.hpp>
#include <collx/job/remote_calls.hpp>
#include <collx/job/start.hpp>
#include <collx/plan/channel_selector.hpp>
#include <collx/plan/instances.hpp>
#include <collx/plan/private_selector.hpp>
#include <collx/plan/schedules_once.hpp>
#include <collx/plan/selector.hpp>

#if defined(COLLX_COMPILED)
COLLX_BEGIN_NAMESPACE
COLLX_CHOICES(/* defined */)
// Initialised while compiling: communicators may be made before main(). Weak, and no constants: a header-only library
// in the same process defines these variables, too, and provides its components in them.
[[gnu::weak]] constinit const selection* selections_over_channels = detail::over_channels;
namespace detail {
[[gnu::weak]] constinit const net_component* net_starter = &net_of_sockets;
[[gnu::weak]] constinit const remote_calls* by_channels = &calls_of_channels;
[[gnu::weak]] constinit const topology_component* topology = &topology_of_file;
} // namespace detail
COLLX_END_NAMESPACE
#endif
