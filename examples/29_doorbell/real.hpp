// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See real.cpp.
#pragma once

#include <cstddef>

namespace lesson {
void tell_of_real_device(std::size_t bytes);
}
