// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Data that is only moved, of the other widths.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_moving_calls<std::uint8_t>(const call_request&);
template std::unique_ptr<timed_calls> make_moving_calls<std::uint16_t>(const call_request&);
template std::unique_ptr<timed_calls> make_moving_calls<std::uint64_t>(const call_request&);

} // namespace collx::tools::perf
