// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=120 sanitize=nightly
//
// Calls on device memory among processes, over the fake runtime. Processes pass exchange memory to each other by
// handles, map it, use it in kernels of both and unmap it. If a handle is refused the calls are staged. If a process
// dies the kernels of the others end.
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/bootstrap/file_store.hpp>
#include <collx/collx.hpp>
#include <collx/gpu/calls.hpp>
#include <collx/testing/fake_runtime.hpp>

#include "bootstrap/store_support.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"

using namespace collx;
using namespace collx_test;

namespace {

device_settings small() {
    device_settings s;
    s.lanes = 2;
    s.staging_lanes = 2;
    s.staging_bytes = 8192;
    s.slot_bytes = 1024;
    s.stage_bytes = 4096;
    s.packet_bytes = 1024;
    return s;
}

// Runs f(world, world with its runtime, devices) in n processes; rank r has device r. per_host: this many act as one
// host; 0: all. hides: each process sees only its own device, as number 0.
template <class F>
void start_ranks(processes& p, const std::string& directory, int n, F f,
                 unsigned handles = bit_of(device::handle_kind::ipc), int per_host = 0, bool hides = false,
                 bool multicasts = false) {
    for (int r = 0; r < n; ++r)
        p.start(r, [=] {
            if (per_host != 0) ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r / per_host)).c_str(), 1);
            device::fake_gpus g({.devices = hides ? 1 : n,
                                 .first_uuid = hides ? r : 0,
                                 .handles = handles,
                                 .fabric = 7,
                                 .multicasts = multicasts});
            device::fake_runtime runtime(g);
            runtime.use(hides ? 0 : r);
            file_store store(directory + "/store");
            int code = 1;
            {
                communicator w(r, n, store, std::chrono::seconds(40));
                w.set_timeout(collx_test::patient(std::chrono::seconds(40)));
                w.set_checked(false);
                code = f(w, w.with(gpus{runtime}), g);
            }
            if (g.unloaded_launches != 0) return 97; // a launch that loads its kernel may wait for everything that runs
            if (g.freed_while_open != 0) return 98;
            return code != 0 ? code : g.pieces() == 0 ? 0 : 99;
        });
}

constexpr unsigned ipc = bit_of(device::handle_kind::ipc), file = bit_of(device::handle_kind::file),
                   fabric = bit_of(device::handle_kind::fabric);

// Open files of this process; with `memory` only those of the fake's memory.
int open_files(bool memory = false) {
    int n = 0;
    DIR* d = ::opendir("/proc/self/fd");
    for (const dirent* e = nullptr; d != nullptr && (e = ::readdir(d)) != nullptr;) {
        char name[100] = "";
        const auto got = ::readlinkat(::dirfd(d), e->d_name, name, sizeof name - 1);
        n += !memory || (got > 0 && std::strstr(name, "collx-fake-gpu") != nullptr);
    }
    if (d != nullptr) ::closedir(d);
    return n;
}

// Returns 0 if the sums are right.
template <class Comm>
int sums_are_right(communicator& w, Comm c, device::fake_gpus& g, std::size_t n) {
    auto* p = static_cast<int*>(g.allocate(n * sizeof(int), device::fake_runtime(g).current()));
    for (std::size_t i = 0; i < n; ++i) p[i] = w.rank() + static_cast<int>(i % 100);
    const device_view<int> x(p, n);
    int wrong = 0;
    for (int k = 0; k < 3; ++k) {
        all_reduce(c, x, collx::max{});
        all_reduce(c, x);
    }
    synchronize(c);
    const int ranks = w.size();
    for (std::size_t i = 0; i < n; ++i) {
        const int first = (ranks - 1 + static_cast<int>(i % 100)) * ranks * ranks * ranks;
        wrong += p[i] != first;
    }
    g.free(p);
    return wrong == 0 ? 0 : 2;
}

// From here on pidfd_getfd() fails in this process, as under many containers' filters.
void forbid_taking_files() {
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    sock_fprog program{sizeof code / sizeof code[0], code};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        throw std::runtime_error("no filter of system calls");
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
            if (w.rank() == 1)
                g.closing_takes_us = 50'000; // its peers would free memory that it still has open, if they did not wait
            use_device(c, small());
            if (device_route(c).find("kernels over nvlink, memory by CUDA IPC") != 0) return 3;
            if (const int e = sums_are_right(w, c, g, 1000); e != 0) return e;
            if (const int e = sums_are_right(w, c, g, 30'000); e != 0) return e;
            // Two communicators of the same processes, each with its own mappings.
            auto half = w.split(w.rank() % 2);
            device::fake_runtime r(g);
            return sums_are_right(half, half.with(gpus{r}), g, 500);
        });
        expect_all_well(p, n);
    }
}

TEST_CASE("the kind of handle is the one that all ranks have and can map, and those not chosen are reported") {
    struct {
        unsigned offered, not_opened_by_rank_1, not_made_by_rank_0;
        const char* route;
    } const cases[] = {
        {ipc | file | fabric, 0, 0, "kernels over nvlink, memory by fabric handles"},
        {ipc | file, 0, 0,
         "kernels over nvlink, memory by file descriptors (fabric handles: the driver of rank 0 offers none)"},
        {ipc | file | fabric, fabric, 0,
         "kernels over nvlink, memory by file descriptors (fabric handles: rank 1 could not map memory of rank 0)"},
        {ipc | file | fabric, 0, fabric | file,
         "kernels over nvlink, memory by CUDA IPC (fabric handles: rank 1 could not map memory of rank 0; file "
         "descriptors: "
         "rank 1 could not map memory of rank 0)"},
        {ipc | file | fabric, fabric | file | ipc, 0,
         "staged through the host: rank 1 cannot reach rank 0: its memory could not be mapped: give the containers one "
         "IPC namespace, one network namespace, one user, and hosts of one NVLink fabric nvidia-imex (fabric handles: "
         "rank 1 could not map "
         "memory of rank 0; file descriptors: rank 1 could not map memory of rank 0)"}};
    for (const auto& k : cases) {
        scratch_directory d;
        processes p;
        start_ranks(
            p, d.path, 2,
            [k](communicator& w, auto c, device::fake_gpus& g) {
                g.refuses_opening = w.rank() == 1 ? k.not_opened_by_rank_1 : 0;
                g.refuses_handles = w.rank() == 0 ? k.not_made_by_rank_0 : 0;
                const bool is_staged = k.not_opened_by_rank_1 == (ipc | file | fabric);
                use_device(c, small());
                if (device_route(c) != k.route) throw std::runtime_error(device_route(c));
                // Nothing remains of the kinds that were tried: only this rank's memory, its peer's, and that for the
                // host's words. A file that was passed on has been closed.
                if (!is_staged && g.pieces() != 3) return 6;
                if (open_files(true) != 2) return 7;
                return sums_are_right(w, c, g, 3000);
            },
            k.offered);
        INFO(k.route);
        expect_all_well(p, 2);
    }
}

TEST_CASE("processes join the devices that a switch multicasts to, by files and over the fabric") {
    for (const unsigned handles : {ipc | file, ipc | fabric}) {
        scratch_directory d;
        processes p;
        start_ranks(
            p, d.path, 5,
            [](communicator& w, auto c, device::fake_gpus& g) {
                use_device(c, small());
                if (device_route(c).find("long sums by the switch") == std::string::npos) return 1;
                constexpr std::size_t n = 790'000; // above 3 MiB: plan/choices.hpp
                auto* x = static_cast<float*>(g.allocate(n * sizeof(float), w.rank()));
                for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(w.rank()) + static_cast<float>(i % 100);
                all_reduce(c, device_view<float>(x, n));
                synchronize(c);
                int wrong = 0;
                for (std::size_t i = 0; i < n; ++i) wrong += x[i] != 10 + 5 * static_cast<float>(i % 100);
                g.free(x);
                return wrong == 0 ? 0 : 2;
            },
            handles, 0, false, true);
        expect_all_well(p, 5);
    }
}

TEST_CASE("a mapping that loses what is written is found before a call relies on it") {
    struct {
        unsigned offered, loses_at_rank_1;
        const char* route;
    } const cases[] = {{ipc | file, file,
                        "kernels over nvlink, memory by CUDA IPC (fabric handles: the driver of rank 0 offers none; "
                        "file descriptors: rank 0 finds wrong data of rank 1)"},
                       {ipc, ipc,
                        "staged through the host: rank 0 cannot reach rank 1: what is written to its memory, or read "
                        "there, arrives wrong: switch off the IOMMU"}};
    for (const auto& k : cases) {
        scratch_directory d;
        processes p;
        start_ranks(
            p, d.path, 2,
            [k](communicator& w, auto c, device::fake_gpus& g) {
                if (w.rank() == 1) g.loses_stores = k.loses_at_rank_1;
                use_device(c, small());
                if (device_route(c).find(k.route) != 0) throw std::runtime_error(device_route(c));
                return sums_are_right(w, c, g, 3000);
            },
            k.offered);
        INFO(k.route);
        expect_all_well(p, 2);
    }
}

TEST_CASE("processes that see one device each reach each other's, or say which variable hides them") {
    for (const bool is_refused : {false, true}) {
        scratch_directory d;
        processes p;
        const int n = is_refused ? 2 : 3; // of three ranks, the other two would form a domain
        start_ranks(
            p, d.path, n,
            [is_refused](communicator& w, auto c, device::fake_gpus& g) {
                if (is_refused && w.rank() == 1) g.refuses_opening = ipc;
                use_device(c, small());
                const char* route = is_refused
                                        ? "staged through the host: rank 1 cannot reach rank 0: its device is not "
                                          "visible here and its memory could not be mapped: list it in CUDA_VISIBLE"
                                        : "kernels over peer access to hidden devices, memory by CUDA IPC";
                if (device_route(c).find(route) != 0) throw std::runtime_error(device_route(c));
                return sums_are_right(w, c, g, 3000);
            },
            ipc, 0, true);
        expect_all_well(p, n);
    }
}

TEST_CASE("files reach the other processes without the rights of a debugger, and by these where there is no socket") {
    processes probe;
    probe.start(0, [] { return ::unshare(CLONE_NEWNET) == 0 ? 0 : 1; });
    probe.wait(60'000);
    for (const bool has_socket : {true, false}) {
        if (!has_socket && !probe[0].is_ok()) return skip("only root makes a network namespace, some systems none");
        scratch_directory d;
        processes p;
        start_ranks(
            p, d.path, 4,
            [has_socket](communicator& w, auto c, device::fake_gpus& g) {
                if (has_socket) forbid_taking_files();
                else if (w.rank() == 1 && ::unshare(CLONE_NEWNET) != 0) return 8;
                use_device(c, small());
                if (device_route(c).find("kernels over nvlink, memory by file descriptors") != 0)
                    throw std::runtime_error(device_route(c));
                if (open_files(true) != 2) return 7;
                return sums_are_right(w, c, g, 3000);
            },
            ipc | file);
        INFO("socket " << has_socket);
        expect_all_well(p, 4);
    }
}

TEST_CASE("handles of a process that is gone, of another fabric, or taken back") {
    using device::handle_kind;
    struct shown {
        device::memory_handle handles[device::handle_kinds];
        std::atomic<int> state;
    };
    auto* page =
        static_cast<shown*>(::mmap(nullptr, sizeof(shown), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(page != MAP_FAILED);
    processes p;
    const auto wait_for = [page](int state) {
        for (const deadline limit = deadline::in_ns(collx_test::patient(60'000'000'000));
             page->state.load() < state && !limit.passed();)
            ::usleep(500);
    };
    p.start(0, [=] {
        device::fake_gpus g({.handles = ipc | file | fabric, .fabric = 7});
        const device::fake_runtime r(g);
        device::gpu_mapping m[device::handle_kinds];
        for (const auto k : {handle_kind::ipc, handle_kind::file, handle_kind::fabric}) {
            auto& x = m[static_cast<int>(k)];
            x = r.allocate_shared(4096, k);
            x.at[9] = static_cast<std::byte>(40 + static_cast<int>(k));
            page->handles[static_cast<int>(k)] = r.export_memory(x);
        }
        page->state = 1;
        wait_for(2);
        for (auto& x : m) r.free_shared(x);
        page->state = 3;
        wait_for(4);
        return 0;
    });
    wait_for(1);
    device::fake_gpus g({.handles = ipc | file | fabric, .fabric = 7}), elsewhere({.fabric = 8});
    const device::fake_runtime r(g);
    std::vector<device::gpu_mapping> opened;
    const int files = open_files();
    for (const auto k : {handle_kind::ipc, handle_kind::file, handle_kind::fabric})
        opened.push_back(r.open_memory(page->handles[static_cast<int>(k)], k, 4096));
    CHECK(open_files() == files); // a mapping needs no open file
    CHECK_THROWS_WITH(device::fake_runtime(elsewhere).open_memory(page->handles[2], handle_kind::fabric, 4096),
                      Catch::Contains("another fabric"));
    page->state = 2;
    wait_for(3);
    for (const auto k : {handle_kind::ipc, handle_kind::file, handle_kind::fabric}) // freed by their owner
        CHECK_THROWS_AS(r.open_memory(page->handles[static_cast<int>(k)], k, 4096), collx::error);
    page->state = 4;
    p.wait(60'000);
    CHECK(p[0].is_ok());
    for (const auto k : {handle_kind::ipc, handle_kind::file, handle_kind::fabric}) {
        auto& x = opened[static_cast<std::size_t>(k)];
        CHECK(static_cast<int>(x.at[9]) == 40 + static_cast<int>(k)); // a mapping outlives its maker
        CHECK_THROWS_AS(r.open_memory(page->handles[static_cast<int>(k)], k, 4096), collx::error);
        r.close_memory(x);
    }
    CHECK_THROWS_AS(r.open_memory(page->handles[1], handle_kind::file, 4096), collx::peer_failed);
    CHECK(g.pieces() == 0);
    ::munmap(page, sizeof(shown));
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
    for (const bool staged : {false, true}) {
        scratch_directory d;
        processes p;
        start_ranks(p, d.path, 3, [staged](communicator& w, auto c, device::fake_gpus& g) {
            auto s = small();
            s.staged = staged;
            auto* q = static_cast<float*>(g.allocate(4000, w.rank()));
            try { // a slow rank may still be in use_device() when rank 2 dies
                use_device(c, s);
                if (w.rank() == 2) ::raise(SIGKILL);
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
            INFO("staged " << staged << " rank " << r << ": exit code " << p[r].exit_code << " " << p[r].what);
            CHECK((p[r].exit_code == 0 || p[r].exit_code == 99));      // a peer's kernel may use the memory: it is kept
            CHECK(p[r].took_ns < collx_test::patient(30'000'000'000)); // well before the deadline of 40 s
        }
        CHECK(p[2].exit_code == 128 + SIGKILL);
    }
}

TEST_CASE("processes on two hosts: in two levels, and one that is killed is named on both") {
    for (const bool dies : {false, true}) {
        scratch_directory d;
        processes p;
        start_ranks(
            p, d.path, 4,
            [dies](communicator& w, auto c, device::fake_gpus& g) {
                use_device(c, small());
                if (device_route(c).find("kernels inside 2 domains of 2 ranks") != 0 ||
                    device_route(c).find("here kernels over nvlink, memory by file descriptors") == std::string::npos)
                    throw std::runtime_error(device_route(c));
                if (!dies) return sums_are_right(w, c, g, 5000);
                auto* q = static_cast<float*>(g.allocate(400'000, w.rank()));
                try { // a slow rank may still be in the correct calls when rank 3 dies
                    if (const int e = sums_are_right(w, c, g, 5000); e != 0) return e;
                    if (w.rank() == 3) ::raise(SIGKILL);
                    all_reduce(c, device_view<float>(q, 100'000));
                    synchronize(c);
                    return 4;
                } catch (const peer_failed& e) {
                    g.free(q);
                    return e.peer() == 3 ? 0 : 10 + e.peer();
                }
            },
            ipc | file, 2);
        p.wait(60'000);
        for (int r = 0; r < 4; ++r) {
            INFO("dies " << dies << " rank " << r << ": exit code " << p[r].exit_code << " " << p[r].what);
            if (dies && r == 3) CHECK(p[r].exit_code == 128 + SIGKILL);
            else CHECK((p[r].exit_code == 0 || (dies && p[r].exit_code == 99)));
            CHECK(p[r].took_ns < collx_test::patient(30'000'000'000)); // well before the deadline of 40 s
        }
    }
}
