// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=120 sanitize=nightly
//
// Calls on device memory among processes, over the fake runtime: exchange memory goes from process to process by
// handles, is mapped, used by kernels of both and unmapped; where a handle is refused the calls go by way of the host;
// a process that dies ends the kernels of the others.
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/bootstrap/file_store.hpp>
#include <collx/collx.hpp>
#include <collx/comm/gpu_calls.hpp>
#include <collx/exec/device/fake_runtime.hpp>

#include "bootstrap/store_support.hpp"
#include "support/processes.hpp"

using namespace collx;
using namespace collx_test;

namespace {

device_settings small() {
    device_settings s;
    s.lanes = 2, s.staging_lanes = 2, s.staging_bytes = 8192;
    s.slot_bytes = 1024, s.stage_bytes = 4096, s.packet_bytes = 1024;
    return s;
}

// f(world, the same with its runtime, devices) in n processes; rank r has device r.
template <class F>
void start_ranks(processes& p, const std::string& directory, int n, F f) {
    for (int r = 0; r < n; ++r)
        p.start(r, [=] {
            device::fake_gpus g({.devices = n});
            device::fake_runtime runtime(g);
            runtime.use(r);
            file_store store(directory + "/store");
            int code = 1;
            {
                communicator w(r, n, store, std::chrono::seconds(40));
                w.set_timeout(std::chrono::seconds(40));
                w.set_checked(false);
                code = f(w, w.with(gpus{runtime}), g);
            }
            return code != 0 ? code : g.pieces() == 0 ? 0 : 99;
        });
}

// 0 where the sums are right.
template <class Comm>
int sums_are_right(communicator& w, Comm c, device::fake_gpus& g, std::size_t n) {
    auto* p = static_cast<int*>(g.allocate(n * sizeof(int), device::fake_runtime(g).current()));
    for (std::size_t i = 0; i < n; ++i) p[i] = w.rank() + static_cast<int>(i % 100);
    const device_view<int> x(p, n);
    int wrong = 0;
    for (int k = 0; k < 3; ++k) all_reduce(c, x, collx::max{}), all_reduce(c, x);
    synchronize(c);
    const int ranks = w.size();
    for (std::size_t i = 0; i < n; ++i) {
        const int first = (ranks - 1 + static_cast<int>(i % 100)) * ranks * ranks * ranks;
        wrong += p[i] != first;
    }
    g.free(p);
    return wrong == 0 ? 0 : 2;
}

void expect_all_well(processes& p, int n) {
    p.wait(60'000);
    for (int r = 0; r < n; ++r) {
        INFO("rank " << r << ": exit code " << p[r].exit_code << " " << p[r].what);
        CHECK(p[r].is_ok());
    }
}

} // namespace

TEST_CASE("processes map each other's device memory by handles") {
    for (const int n : {2, 4}) {
        scratch_directory d;
        processes p;
        start_ranks(p, d.path, n, [](communicator& w, auto c, device::fake_gpus& g) {
            use_device(c, small());
            if (device_route(c).find("kernels over nvlink, memory by CUDA IPC") != 0) return 3;
            if (const int e = sums_are_right(w, c, g, 1000); e != 0) return e;
            if (const int e = sums_are_right(w, c, g, 30'000); e != 0) return e;
            // Two communicators of the same processes, with mappings of their own.
            auto half = w.split(w.rank() % 2);
            device::fake_runtime r(g);
            return sums_are_right(half, half.with(gpus{r}), g, 500);
        });
        expect_all_well(p, n);
    }
}

TEST_CASE("processes go by way of the host where a handle is refused") {
    scratch_directory d;
    processes p;
    start_ranks(p, d.path, 2, [](communicator& w, auto c, device::fake_gpus& g) {
        if (w.rank() == 1) g.refuses_handles = ~0u;
        use_device(c, small());
        if (device_route(c).find("rank 0 cannot reach rank 1: its memory could not be mapped") == std::string::npos)
            return 3;
        return sums_are_right(w, c, g, 5000);
    });
    expect_all_well(p, 2);
}

TEST_CASE("a process that is killed ends the kernels that wait for it") {
    for (const bool by_host : {false, true}) {
        scratch_directory d;
        processes p;
        start_ranks(p, d.path, 3, [by_host](communicator& w, auto c, device::fake_gpus& g) {
            auto s = small();
            s.by_host = by_host;
            use_device(c, s);
            if (w.rank() == 2) ::raise(SIGKILL);
            auto* q = static_cast<float*>(g.allocate(4000, w.rank()));
            try {
                all_reduce(c, device_view<float>(q, 1000));
                synchronize(c);
                return 4;
            } catch (const peer_failed& e) {
                g.free(q);
                return e.peer() == 2 ? 0 : 5;
            }
        });
        p.wait(60'000);
        for (int r = 0; r < 2; ++r) {
            INFO("by_host " << by_host << " rank " << r << ": exit code " << p[r].exit_code << " " << p[r].what);
            CHECK((p[r].exit_code == 0 || p[r].exit_code == 99)); // a peer's kernel may use the memory: it stays
            CHECK(p[r].took_ns < 30'000'000'000);                 // not the deadline of 40 s
        }
        CHECK(p[2].exit_code == 128 + SIGKILL);
    }
}
