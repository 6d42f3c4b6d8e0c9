// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 serial sanitize=no
//
// A call makes no system call: a kernel filter ends the process at the first one.
#include "comm/support.hpp"
#include "support/skip.hpp"
#include <collx/transport/memory.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

using namespace collx_test;

namespace {

// From here on only exit is allowed; any other system call ends the process with SIGSYS.
bool forbid_system_calls() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const sock_fprog program{sizeof filter / sizeof filter[0], filter};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs f in a child and returns its exit code, or 128 + signal.
template <class F>
int in_child(F&& f) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(f());
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

constexpr int cannot_filter = 77, right = 11;

} // namespace

TEST_CASE("a call makes no system call") {
    const auto call = [](bool also_one) -> int {
        collx::communicator w(
            collx::make_counted<collx::job>(collx::make_memory_arena(1), 0, 1, collx::job_settings{}, true));
        long x = 1;
        std::vector<float> y(50'000, 1.0f);
        for (int i = 0; i < 3; ++i) {
            collx::all_reduce(w, collx::value(x));
            collx::all_reduce(w, y);
            collx::barrier(w);
        }
        if (!forbid_system_calls()) return cannot_filter;
        for (int i = 0; i < 1000; ++i) {
            collx::all_reduce(w, collx::value(x));
            collx::all_reduce(w, y);
            collx::barrier(w);
        }
        if (also_one) (void)::syscall(SYS_getppid);
        ::_exit(x == 1 && y[0] == 1.0f ? right : 1); // at once: destructors would free memory
    };
    const int code = in_child([&] { return call(false); });
    if (code == cannot_filter) return collx_test::skip("seccomp is not allowed here");
    CHECK(code == right);
    CHECK(in_child([&] { return call(true); }) == 128 + SIGSYS); // the filter works
}

TEST_CASE("two ranks that spin make no system call either") {
    // Each rank has its own core, so ranks only spin. The core may still be taken from one of them, so the spin limit
    // is unlimited.
    if (collx::usable_cores() < 2) return collx_test::skip("needs two cores");
    const int code = in_child([] {
        collx::job_settings s;
        s.waiting.spins = UINT32_MAX;
        const auto memory = collx::make_memory_arena(2);
        std::atomic<int> ready{0}, good{0};
        struct side {
            decltype(memory)* arena;
            collx::job_settings settings;
            std::atomic<int>*ready, *good;
            int rank;
        } sides[2] = {{&memory, s, &ready, &good, 0}, {&memory, s, &ready, &good, 1}};
        const auto body = [](void* p) -> void* {
            auto& me = *static_cast<side*>(p);
            collx::communicator w(collx::make_counted<collx::job>(*me.arena, me.rank, 2, me.settings, true));
            long x = me.rank;
            std::vector<float> y(5000, 1.0f), z(5000);
            for (int i = 0; i < 3; ++i) {
                collx::all_reduce(w, collx::value(x), collx::max{});
                collx::all_reduce(w, y, z);
            }
            const bool filtered = forbid_system_calls();
            if (!filtered) ::_exit(cannot_filter);
            me.ready->fetch_add(1);
            while (me.ready->load() < 2) collx::cpu_relax();
            for (int i = 0; i < 200; ++i) {
                collx::all_reduce(w, collx::value(x), collx::max{});
                collx::all_reduce(w, y, z);
            }
            if (x == 1 && z[4999] == 2.0f) me.good->fetch_add(1);
            else ::_exit(1); // or both wait for ever
            while (me.good->load() < 2) collx::cpu_relax();
            ::_exit(right);
        };
        pthread_t other;
        if (::pthread_create(&other, nullptr, body, &sides[1]) != 0) return 1;
        body(&sides[0]);
        return 1;
    });
    if (code == cannot_filter) return collx_test::skip("seccomp is not allowed here");
    CHECK(code == right);
}
