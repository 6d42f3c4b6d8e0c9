// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of bytes.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_reducing_calls<std::int8_t>(const call_request&);
template std::unique_ptr<timed_calls> make_reducing_calls<std::uint8_t>(const call_request&);

} // namespace collx::tools::perf
