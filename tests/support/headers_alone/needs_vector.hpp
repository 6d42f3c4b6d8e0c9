// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A header that lacks an include, for tests/scripts/headers_alone_test.py.
#pragma once

inline std::vector<int> none() { return {}; }
