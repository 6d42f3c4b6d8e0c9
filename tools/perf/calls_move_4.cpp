// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Four bytes that are only moved, and every algorithm that moves them.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_moving_calls<float>(const call_request&);

} // namespace collx::tools::perf
