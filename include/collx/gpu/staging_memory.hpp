// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pinned memory through which the calls of a communicator are staged, and the counts of the kernels that copy.
#pragma once

#include <cstddef>

#include <collx/gpu/proxy.hpp>
#include <collx/gpu/route.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <device::GpuRuntime Runtime>
class staging_memory {
public:
    void make(Runtime& r, const device_settings& s) {
        counts_ = reinterpret_cast<device::staging_counts*>(
            r.allocate(sizeof(device::staging_counts) * device::max_staging_lanes));
        const std::size_t bytes = (s.staging_bytes + 127) / 128 * 128;
        host_ = r.allocate_host(sizeof(device::staging_words) + 2 * device::staging_turns * bytes);
        buffers_.words = reinterpret_cast<device::staging_words*>(host_);
        buffers_.lanes = s.staging_lanes;
        buffers_.bytes = bytes;
        buffers_.in = host_ + sizeof(device::staging_words);
        buffers_.out = buffers_.in + device::staging_turns * bytes;
        words_there_ = reinterpret_cast<device::staging_words*>(r.mapped(host_));
    }
    void free(Runtime& r) {
        if (counts_ != nullptr) r.free(reinterpret_cast<std::byte*>(counts_));
        if (host_ != nullptr) r.free_host(host_);
        abandon();
    }
    // Frees nothing, because a kernel that cannot be ended may still use it.
    void abandon() { *this = {}; }

    const gpu_proxy::buffers& buffers() const { return buffers_; }
    device::staging_words* words_on_device() const { return words_there_; }
    device::staging_counts* counts() const { return counts_; }

private:
    std::byte* host_ = nullptr;
    gpu_proxy::buffers buffers_;                   // without words: nothing is staged
    device::staging_words* words_there_ = nullptr; // as the device sees them
    device::staging_counts* counts_ = nullptr;
};

} // namespace detail
COLLX_END_NAMESPACE
