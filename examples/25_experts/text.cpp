// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Apart from the program, which compiles faster so.
#include "../text_reading.hpp"
