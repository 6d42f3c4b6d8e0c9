// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See links.cpp and default_sum.cpp.
#pragma once

#include "grid.hpp"

namespace three_axes {

// Returns the same ranks in a new order: those of one host are consecutive, and follow its links there. Collective.
collx::communicator neighbours_together(collx::communicator& world);

// Says which algorithm an all_reduce of `bytes` bytes would take by default, and why.
std::string default_sum(collx::communicator& comm, std::size_t bytes);

// Prints which links an axis takes, what it sends there, and what collx would choose for its sums (this program uses
// rings). If the machine is known, also prints the slowest path of the axis. Called by one rank alone.
void explain(collx::communicator& world, grid& g, axis a, const std::vector<int>& host, const job& j);

// Prints which links the axes of eight ranks take on a machine whose links differ.
void place_on_dgx_1v();

} // namespace three_axes
