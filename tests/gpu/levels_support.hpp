// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the tests of calls in two levels: ranks that are threads but act as several hosts, and the number of
// bytes that a call stages.
#pragma once

#include "fake_devices.hpp"
#include "support/patience.hpp"

namespace collx_test {

using memory = device_memory<int>;
using hosts = std::vector<int>;

inline const std::vector<hosts> shapes = {{0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1, 1},
                                          {0, 1, 0, 1}, {0, 1, 1, 2, 2, 0, 1, 0}};

inline int part(int from, int to, std::size_t i) { return from * 1'000'003 + to * 10'007 + static_cast<int>(i); }

// Runs f(world, runtime, settings with small buffers) on threads spread as `at` says, with a device each.
template <class F>
void on_device_hosts(const hosts& at, fake_gpus& g, F&& f) {
    const long before = checks.load();
    run_threads(at, [&](communicator& w) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
        w.set_checked(false);
        fake_runtime r(g);
        r.use(w.rank());
        f(w, r, small());
    });
    CHECK(checks.load() - before >= static_cast<long>(at.size()));
}

// The bytes that one call stages on all ranks together: out of the devices, and into them.
struct bytes {
    long out, in;
    bool operator==(const bytes&) const = default;
};
template <class F>
bytes staged_by(communicator& w, fake_runtime r, F&& call) {
    auto& group = detail::gpu_group<fake_runtime>::of(w, r, nullptr);
    const auto before = group.staged_so_far();
    call();
    const auto after = group.staged_so_far();
    group.synchronize(w, nullptr);
    std::vector<long> x{static_cast<long>(after.out_bytes - before.out_bytes),
                        static_cast<long>(after.in_bytes - before.in_bytes)};
    collx::all_reduce(w, x);
    return {x[0], x[1]};
}

} // namespace collx_test
