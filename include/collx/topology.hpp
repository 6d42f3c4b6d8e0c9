// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Machines that are given as a file: with this header in one source, a header-only program reads the file that
// COLLX_TOPOLOGY names, and its communicators order their ranks by the machine's links. CMake's collx::collx has it.
// Any program that asks for the machine or for the traffic on its links includes it, too. docs/topology.md has more.
#pragma once

#include <collx/comm/machine.hpp>
