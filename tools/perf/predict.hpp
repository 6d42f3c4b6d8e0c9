// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The predictions of collx::explain for the points that are measured.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "operation.hpp"

namespace collx::inline v0 {
class communicator;
}

namespace collx::tools::perf {

/// Returns the microseconds of each algorithm that the costs in `file` predict; the library's choice is "". Errors:
/// std::runtime_error with the file's line and the remedy if the file says nothing of this machine.
std::map<std::string, double> predicted_us(communicator& world, operation op, std::size_t bytes, bool shared,
                                           const std::string& file);

} // namespace collx::tools::perf
