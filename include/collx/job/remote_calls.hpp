// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gives the engine what it needs where ranks do not share all memory (exec/remote.hpp). Part of a program that includes
// collx/net.hpp or brings its own transport, or compiled once in collx::collx.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/provided.hpp>
#include <collx/exec/remote.hpp>
#include <collx/exec/remote_once.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/job/tree_exchange.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

[[gnu::cold]] inline void exchange_of_core(communicator_core& c, const void* mine, std::size_t bytes,
                                           const line_visitor& visit, std::int64_t timeout_ns,
                                           communicator_core* parent) {
    exchange_over_tree(c, mine, bytes, visit, timeout_ns, parent);
}

inline constexpr remote_calls calls_of_channels{find_remote, remote_steps::want, remote_steps::run, open_tree<links>,
                                                exchange_of_core};
inline const bool works_by_channels = provided(by_channels, &calls_of_channels);

} // namespace detail

COLLX_END_NAMESPACE
