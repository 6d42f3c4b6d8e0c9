// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of bfloat16.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_reducing_calls<bf16>(const call_request&);

} // namespace collx::tools::perf
