// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of floats: the type that comparisons are made with, so also every algorithm by name.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_reducing_calls<float>(const call_request&);

} // namespace collx::tools::perf
