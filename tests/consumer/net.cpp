// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets a header-only program join jobs beyond one launcher's processes on one host: one source includes it for all.
#include <collx/net.hpp>
