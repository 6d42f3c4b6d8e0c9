// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No rank outlives the launcher. When the launcher dies, the kernel kills the ranks themselves (PR_SET_PDEATHSIG), but
// not what they started, for example the program behind a shell script. The guard is a process that waits for the end
// of a pipe that only the launcher holds. Then it kills the process groups of all ranks that have not ended.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "system.hpp"

namespace collx::tools::launch {

class guard {
public:
    /// Requires: the last rank has been started, so that no rank holds the pipe.
    void start(const std::vector<pid_t>& groups) {
        auto ends = make_pipe();
        pid_ = ::fork();
        if (pid_ < 0)
            fail_with_errno("cannot start the process that watches the launcher", collx::detail::remedy_for_process);
        if (pid_ == 0) watch(ends.read.get(), groups);
        control_ = std::move(ends.write);
    }
    /// Requires: the rank has not been reaped; afterwards its number may belong to another process.
    void forget(int rank) const {
        if (control_.is_open()) [[maybe_unused]]
            const auto n = ::write(control_.get(), &rank, sizeof rank);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

    ~guard() {
        if (pid_ <= 0) return;
        control_.close();
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    guard() = default;
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

private:
    [[noreturn]] static void watch(int control, std::vector<pid_t> groups) {
        ::setsid(); // out of reach of the terminal's signals
        ::prctl(PR_SET_NAME, "collx_run_guard");
        sigset_t all;
        ::sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, nullptr);
        // The guard must not keep a pipe open.
        const long limit = std::min(::sysconf(_SC_OPEN_MAX), 65536L);
        if (::close_range(0, static_cast<unsigned>(control) - 1, 0) != 0 ||
            ::close_range(static_cast<unsigned>(control) + 1, ~0U, 0) != 0)
            for (int fd = 0; fd < limit; ++fd)
                if (fd != control) ::close(fd);
        int ended = 0;
        while (::read(control, &ended, sizeof ended) == sizeof ended)
            if (ended >= 0 && static_cast<std::size_t>(ended) < groups.size())
                groups[static_cast<std::size_t>(ended)] = 0;
        for (const pid_t group : groups)
            if (group > 0) ::kill(-group, SIGKILL);
        ::_exit(0);
    }

    pid_t pid_ = -1;
    descriptor control_;
};

} // namespace collx::tools::launch
