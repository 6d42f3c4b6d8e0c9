// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=120 sanitize=no
//
// Files that processes pass each other: by their numbers, without descriptors, and where numbers mean other processes.
#include <collx/transport/peer_file.hpp>

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <functional>
#include <string>

#include <catch2/catch.hpp>

#include "support/skip.hpp"

namespace {

using collx::errc;
namespace device = collx::device;

// What two processes share, and what the second says.
struct page {
    device::memory_handle shown;
    bool is_shown, is_over;
    errc code;
    char text[400];
};
struct shared_page {
    page* p =
        static_cast<page*>(::mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ~shared_page() { ::munmap(p, sizeof(page)); }
};

// Runs f in a child; with `apart` in a PID namespace of its own. Returns its exit code, or -1.
int run_child(bool apart, const std::function<int()>& f) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (apart) {
            if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
            const pid_t first = ::fork(); // number 1 there
            if (first == 0) ::_exit(f());
            int status = 0;
            ::waitpid(first, &status, 0);
            ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
        }
        ::_exit(f());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
int note(page* to, const std::function<void()>& f) {
    try {
        f();
    } catch (const collx::error& e) {
        to->code = e.code();
        std::snprintf(to->text, sizeof to->text, "%s", e.what());
        return 1;
    }
    return 0;
}
int memory_file() {
    const int fd = ::memfd_create("peer_file_test", 0);
    (void)!::ftruncate(fd, 64);
    return fd;
}

} // namespace

TEST_CASE("without a free descriptor the error says so, for a file that came and for one that is taken") {
    for (const bool has_come : {true, false}) {
        shared_page shared;
        const int code = run_child(false, [&] {
            const int fd = memory_file();
            device::file_handle f = device::file_handle::of(device::handle_of_file(fd));
            f.is_received = has_come;
            rlimit low{};
            ::getrlimit(RLIMIT_NOFILE, &low);
            low.rlim_cur = static_cast<rlim_t>(fd) + 1;
            ::setrlimit(RLIMIT_NOFILE, &low);
            return note(shared.p, [&] { (void)device::file_of(f.pack()); });
        });
        INFO(shared.p->text);
        CHECK(code == 1);
        CHECK(shared.p->code == errc::resource);
        CHECK(std::string(shared.p->text).find("(raise the limit of open files (ulimit -n))") != std::string::npos);
    }
}

TEST_CASE("a file of a process with the same number in another PID namespace is refused, not another file taken") {
    shared_page shared;
    const pid_t showing = ::fork(); // shows a file in its own namespace until the other has looked
    if (showing == 0)
        ::_exit(run_child(true, [&] {
            shared.p->shown = device::handle_of_file(memory_file());
            __atomic_store_n(&shared.p->is_shown, true, __ATOMIC_RELEASE);
            for (int i = 0; i < 10'000 && !__atomic_load_n(&shared.p->is_over, __ATOMIC_ACQUIRE); ++i) ::usleep(1000);
            return 0;
        }));
    const int code = run_child(true, [&] {
        (void)memory_file(); // would have the same number, too
        for (int i = 0; i < 5'000 && !__atomic_load_n(&shared.p->is_shown, __ATOMIC_ACQUIRE); ++i) ::usleep(1000);
        if (!shared.p->is_shown) return 77;
        return note(shared.p, [&] { (void)device::file_of(shared.p->shown); });
    });
    __atomic_store_n(&shared.p->is_over, true, __ATOMIC_RELEASE);
    int status = 0;
    ::waitpid(showing, &status, 0);
    if (code == 77) return collx_test::skip("this process may make no PID namespaces");
    INFO(shared.p->text);
    CHECK(code == 1);
    CHECK(shared.p->code == errc::unsupported);
    CHECK(std::string(shared.p->text).find("a number of another PID namespace") != std::string::npos);
}
