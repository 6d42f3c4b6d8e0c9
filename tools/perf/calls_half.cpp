// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of IEEE half precision.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_reducing_calls<f16>(const call_request&);

} // namespace collx::tools::perf
