// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of floats. Comparisons are made with this type, so it also has every algorithm by name.
#include "typed_calls.hpp"

namespace collx::tools::perf {

template std::unique_ptr<timed_calls> make_reducing_calls<float>(const call_request&);

} // namespace collx::tools::perf
