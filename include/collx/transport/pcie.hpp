// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Devices that load and store each other's memory over PCI Express: the same kernels as over NVLink, on a slower link.
#pragma once

#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

struct pcie {
    static constexpr const char* name = "pcie";
    static constexpr bool carries(const gpu_access& a) { return a.can_access && !a.native_atomics; }
};

} // namespace device
COLLX_END_NAMESPACE
