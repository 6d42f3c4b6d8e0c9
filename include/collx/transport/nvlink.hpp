// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Devices that load and store each other's memory over NVLink. The driver does not name the link, but only NVLink has
// native atomics between devices, so that tells it from PCI Express without NVML.
#pragma once

#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

struct nvlink {
    static constexpr const char* name = "nvlink";
    static constexpr bool carries(const gpu_access& a) { return a.can_access && a.native_atomics; }
};

} // namespace device
COLLX_END_NAMESPACE
