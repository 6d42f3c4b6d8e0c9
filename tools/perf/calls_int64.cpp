// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of 64-bit whole numbers.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_reducing_calls<std::int64_t>(const call_request&);
template std::unique_ptr<timed_calls> make_reducing_calls<std::uint64_t>(const call_request&);

} // namespace collx::tools::perf
