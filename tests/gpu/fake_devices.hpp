// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the tests of calls on device memory: ranks with a fake device each, and memory on it.
#pragma once

#include "comm/support.hpp"

#include <collx/gpu/calls.hpp>
#include <collx/testing/fake_runtime.hpp>

namespace collx_test {

using namespace collx;
using device::fake_gpus, device::fake_runtime, device::gpu_access;

inline device_settings small(bool staged = false) {
    device_settings s;
    s.staged = staged;
    s.lanes = 2;
    s.staging_lanes = 2;
    s.slot_bytes = 1024;
    s.stage_bytes = 4096;
    s.packet_bytes = 1024;
    s.staging_bytes = 8192;
    return s;
}

template <class T>
class device_memory {
public:
    device_memory(fake_gpus& g, int device, std::size_t n, T fill = {})
        : gpus_(g), p_(static_cast<T*>(g.allocate(n * sizeof(T) + 1, device))), n_(n) {
        for (std::size_t i = 0; i < n; ++i) p_[i] = fill;
    }
    device_memory(const device_memory&) = delete;
    ~device_memory() { gpus_.free(p_); }
    device_view<T> collx_buffer() const { return {p_, n_}; }
    T* data() const { return p_; }
    T& operator[](std::size_t i) const { return p_[i]; }

private:
    fake_gpus& gpus_;
    T* p_;
    std::size_t n_;
};

// Runs f(world, runtime) on n ranks, rank r with device r.
template <class F>
void on_gpus(int n, fake_gpus& g, F&& f) {
    on_ranks(n, [&](communicator& w) {
        fake_runtime r(g);
        r.use(w.rank());
        w.set_checked(false); // so that the host waits for no rank
        f(w, r);
    });
}

// The kernel launches of all ranks during f.
template <class F>
int kernels_of(communicator& w, fake_gpus& g, F&& f) {
    barrier(w);
    const int before = g.fused_launches.load();
    barrier(w);
    f();
    barrier(w);
    const int after = g.fused_launches.load();
    barrier(w); // the next kernels of other ranks do not count
    return after - before;
}

inline float value(int rank, std::size_t i) { return static_cast<float>((rank + 1) * 3 + static_cast<int>(i % 11)); }

inline void fill(const device_memory<float>& x, int rank, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) x[i] = value(rank, i);
}

} // namespace collx_test

using namespace collx;
using namespace collx_test;
