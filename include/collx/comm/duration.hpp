// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// std::chrono::duration and its literals without the calendar: libstdc++'s <chrono> brings <sstream> in C++20, 0.2 s
// for every user.
#pragma once

#if __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
