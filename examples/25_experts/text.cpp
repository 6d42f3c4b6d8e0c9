// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A separate source, so that the program compiles faster.
#include "../text_reading.hpp"
