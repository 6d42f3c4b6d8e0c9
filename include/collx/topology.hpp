// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Machines described by a file: with this header in one source, a header-only program reads the file that
// COLLX_TOPOLOGY names, and its communicators order their ranks by the machine's links. CMake's collx::collx contains
// it. A program that asks for the machine or for the traffic on its links always includes it. See docs/topology.md.
#pragma once

#include <collx/comm/machine.hpp>
