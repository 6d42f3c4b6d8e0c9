// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No rank outlives the launcher. When the launcher dies, the kernel kills the ranks themselves (PR_SET_PDEATHSIG), but
// not what they started, for example the program behind a shell script. The guard is a process that waits for the end
// of a pipe that only the launcher holds. Then it kills the process groups of all ranks that have not ended, and
// removes the job's directories if the launcher was killed and could not do so.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "system.hpp"

namespace collx::tools::launch {

class guard {
public:
    /// Requires: the last rank has been started, so that no rank holds the pipe.
    void start(const std::vector<pid_t>& groups, const std::vector<std::string>& directories) {
        auto ends = make_pipe();
        pid_ = ::fork();
        if (pid_ < 0)
            fail_with_errno("cannot start the process that watches the launcher", collx::detail::remedy_for_process);
        if (pid_ == 0) watch(ends.read.get(), groups, directories);
        control_ = std::move(ends.write);
    }
    /// Requires: the rank has not been reaped; afterwards its number may belong to another process.
    void forget(int rank) const { tell(rank); }
    [[nodiscard]] pid_t pid() const { return pid_; }

    ~guard() {
        if (pid_ <= 0) return;
        tell(launcher_is_ending);
        control_.close();
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    guard() = default;
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

private:
    static constexpr int launcher_is_ending = -1; // it removes the directories itself, once it has read them

    void tell(int word) const {
        if (control_.is_open()) [[maybe_unused]]
            const auto n = ::write(control_.get(), &word, sizeof word);
    }
    [[noreturn]] static void watch(int control, std::vector<pid_t> groups,
                                   const std::vector<std::string>& directories) {
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
        bool is_killed = true;
        while (::read(control, &ended, sizeof ended) == sizeof ended)
            if (ended == launcher_is_ending) is_killed = false;
            else if (ended >= 0 && static_cast<std::size_t>(ended) < groups.size())
                groups[static_cast<std::size_t>(ended)] = 0;
        for (const pid_t group : groups)
            if (group > 0) ::kill(-group, SIGKILL);
        if (is_killed) remove_all(directories);
        ::_exit(0);
    }
    // A rank that was killed may still make a file until the system has ended it.
    static void remove_all(const std::vector<std::string>& directories) {
        for (const std::string& path : directories) {
            std::error_code reason;
            for (int tries = 0; tries < 100; ++tries) {
                std::filesystem::remove_all(path, reason);
                if (!reason && !std::filesystem::exists(path, reason)) break;
                ::usleep(20'000);
            }
        }
    }

    pid_t pid_ = -1;
    descriptor control_;
};

} // namespace collx::tools::launch
