// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts the ranks of a measurement as processes of this host: the program itself again, with the variables that a
// launcher sets. No rank outlives the program that started it. If a rank fails, the others are ended.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <collx/core/system_limits.hpp>

#include "support/launch/foreign_variables.hpp"

#include "options.hpp"

namespace collx::tools::perf {

namespace detail {

[[noreturn]] inline void become_rank(int rank, int ranks, const std::string& job, pid_t parent, char** argv) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1); // the parent died before the line above
    const std::string me = std::to_string(rank), all = std::to_string(ranks);
    ::setenv("COLLX_RANK", me.c_str(), 1);
    ::setenv("COLLX_SIZE", all.c_str(), 1);
    ::setenv("COLLX_JOB", job.c_str(), 1);
    for (const char* name : launch::foreign_variables) ::unsetenv(name);
    ::execv("/proc/self/exe", argv);
    std::fprintf(stderr, "collx_perf: cannot start rank %d: %s\n", rank, std::strerror(errno));
    ::_exit(127);
}

inline std::string ending(int status) {
    if (WIFSIGNALED(status))
        return std::string("was ended by signal ") + std::to_string(WTERMSIG(status)) + " (" +
               ::strsignal(WTERMSIG(status)) + ")";
    return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

/// Waits for all ranks. `code`: 1 if one could not be started. After the first failure the others have a moment to say
/// what they saw. Returns the exit code of the whole.
inline int wait_for_ranks(std::vector<pid_t>& pids, int code, int expected) {
    std::size_t left = pids.size();
    bool is_ending = code != 0;
    int grace_ms = 1000;
    while (left != 0) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, is_ending ? WNOHANG : 0);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        if (pid == 0) {
            if (grace_ms == 0)
                for (pid_t p : pids)
                    if (p > 0) ::kill(p, SIGKILL);
            const timespec t{0, 10'000'000};
            ::nanosleep(&t, nullptr);
            grace_ms = std::max(0, grace_ms - 10);
            continue;
        }
        const auto at = std::find(pids.begin(), pids.end(), pid);
        if (at == pids.end()) continue;
        *at = 0;
        --left;
        if (status == 0) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == expected) {
            if (code == 0) code = expected;
            continue;
        }
        // Without a reader of the output, as in `collx_perf ... | head`, the ranks end and nothing is wrong with them.
        const bool has_no_reader = WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
        if (!is_ending && !has_no_reader)
            std::fprintf(stderr, "collx_perf: rank %d %s; ending the others\n", static_cast<int>(at - pids.begin()),
                         ending(status).c_str());
        is_ending = true;
        // A rank that found the command line wrong is the cause; others that end after it fail because it has left.
        const bool is_usage = WIFEXITED(status) && WEXITSTATUS(status) == exit_usage;
        if (code != exit_usage) code = is_usage ? exit_usage : exit_failed;
    }
    return code;
}

} // namespace detail

/// Runs `ranks` copies of this program and waits for them. Returns the exit code for this process: 0, the code
/// `expected` if ranks ended with it (wrong results are no reason to end the others), 2 if a rank did, or 1.
inline int run_ranks(int ranks, char** argv, int expected) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const pid_t parent = ::getpid();
    const std::string job =
        "perf-" + std::to_string(parent) + "-" + std::to_string(now.tv_sec) + "-" + std::to_string(now.tv_nsec);
    ::signal(SIGCHLD, SIG_DFL); // inherited as ignored, it would hide how ranks end
    std::vector<pid_t> pids;
    int code = 0;
    for (int r = 0; r < ranks && code == 0; ++r) {
        const pid_t pid = ::fork();
        if (pid == 0) detail::become_rank(r, ranks, job, parent, argv);
        if (pid > 0) pids.push_back(pid);
        else {
            const int reason = errno;
            std::fprintf(stderr, "collx_perf: cannot start rank %d: %s (%s)\n", r, std::strerror(reason),
                         collx::detail::remedy_for_process(reason));
            code = 1;
        }
    }
    return detail::wait_for_ranks(pids, code, expected);
}

} // namespace collx::tools::perf
