// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The variables that who starts ranks takes out of their environment before it sets its own.
#pragma once

namespace collx::tools::launch {

/// A store, a host and a place there that an outer launcher named would contradict this job's name. A way to start that
/// was exported for another program (COLLX_BOOTSTRAP=single) would make each rank a job of its own.
inline constexpr const char* foreign_variables[] = {"COLLX_STORE", "COLLX_HOST_ID", "COLLX_LOCAL_RANK",
                                                    "COLLX_LOCAL_SIZE", "COLLX_BOOTSTRAP"};

} // namespace collx::tools::launch
