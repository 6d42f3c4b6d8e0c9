// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See links.cpp and default_sum.cpp.
#pragma once

#include "grid.hpp"

namespace three_axes {

// The same ranks, numbered so that those of one host follow each other, and within a host along its links. Collective.
collx::communicator neighbours_together(collx::communicator& world);

// Which algorithm an all_reduce of so many bytes would take by default, and why.
std::string default_sum(collx::communicator& comm, std::size_t bytes);

// Prints which links an axis takes, what it sends there, what collx would choose for its sums (this program takes
// rings), and on a machine that is known the slowest way that it goes. By one rank alone.
void explain(collx::communicator& world, grid& g, axis a, const std::vector<int>& host, const job& j);

// Which links the axes of eight ranks take on a machine whose links are not all alike.
void place_on_dgx_1v();

} // namespace three_axes
