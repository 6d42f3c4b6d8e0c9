// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts one rank: what happens between fork and exec. A rank gets its own process group, so that a signal also reaches
// what it starts. It dies with the launcher, and reports through a pipe if its program cannot be run.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "foreign_variables.hpp"
#include "system.hpp"

namespace collx::tools {

struct launch_options {
    std::string launcher = "collx_run"; // begins each of the launcher's own lines
    int ranks = 1;
    std::vector<std::string> command;
    std::vector<std::pair<std::string, std::string>> environment = {};
    bool prefix = true; // `[rank] ` before each line; otherwise ranks write to our own descriptors
    bool bind_cores = false;
    // Ranks of each simulated host, to try out what several machines do. Consecutive ranks share a host, as launchers
    // place them. Empty, or one number: no simulation.
    std::vector<int> hosts = {};
    std::string store;       // with hosts: the directory of the ranks' store
    int key = -1;            // with hosts: the descriptor of their key, -1: they have one, or none
    bool keep_going = false; // when a rank fails, the others are not ended
    // Of this job alone; removed by their owners, or where the launcher is killed.
    std::vector<std::string> directories = {};
    std::int64_t timeout_ns = 0; // 0: none
    std::int64_t grace_ns = 2'000'000'000;
};

namespace launch {

inline constexpr int most_ranks = 1024;

// Written by a rank that cannot become the program; smaller than PIPE_BUF, so writes of several ranks do not mix.
struct exec_failure {
    enum class stage : int { bind, program } where;
    int rank;
    int error;
};

struct rank_setup {
    const launch_options* options;
    int rank;
    std::string job;
    pid_t launcher;
    sigset_t signal_mask;
    rlimit open_files;
    int processor;    // -1: any
    int in, out, err; // -1: inherit
    int failures;
};

namespace detail {

inline void set_host(const rank_setup& s) {
    const std::vector<int>& hosts = s.options->hosts;
    std::size_t host = 0;
    int first = 0;
    while (s.rank >= first + hosts[host]) first += hosts[host++];
    ::unsetenv("COLLX_JOB");
    ::setenv("COLLX_STORE", ("file:" + s.options->store).c_str(), 1);
    ::setenv("COLLX_HOST_ID", ("host" + std::to_string(host)).c_str(), 1);
    ::setenv("COLLX_LOCAL_RANK", std::to_string(s.rank - first).c_str(), 1);
    ::setenv("COLLX_LOCAL_SIZE", std::to_string(hosts[host]).c_str(), 1);
    if (s.options->key >= 0) ::setenv("COLLX_KEY_FD", std::to_string(s.options->key).c_str(), 1);
}

inline void set_variables(const rank_setup& s) {
    for (const char* name : foreign_variables) ::unsetenv(name);
    const std::string rank = std::to_string(s.rank), size = std::to_string(s.options->ranks);
    ::setenv("COLLX_RANK", rank.c_str(), 1);
    ::setenv("COLLX_SIZE", size.c_str(), 1);
    if (s.options->hosts.size() > 1) {
        set_host(s);
    } else {
        ::setenv("COLLX_LOCAL_RANK", rank.c_str(), 1);
        ::setenv("COLLX_LOCAL_SIZE", size.c_str(), 1);
        ::setenv("COLLX_JOB", s.job.c_str(), 1);
    }
    for (const auto& [name, value] : s.options->environment) ::setenv(name.c_str(), value.c_str(), 1);
}

[[noreturn]] inline void give_up(const rank_setup& s, exec_failure::stage where) {
    const exec_failure failure{where, s.rank, errno};
    [[maybe_unused]] const auto n = ::write(s.failures, &failure, sizeof failure);
    ::_exit(127);
}

// Runs in the child. The launcher has one thread, so allocating here is safe.
[[noreturn]] inline void become_rank(const rank_setup& s) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != s.launcher) ::_exit(127); // the launcher died before the line above
    if (s.in >= 0) ::dup2(s.in, STDIN_FILENO);
    if (s.out >= 0) ::dup2(s.out, STDOUT_FILENO);
    if (s.err >= 0) ::dup2(s.err, STDERR_FILENO);
    ::setrlimit(RLIMIT_NOFILE, &s.open_files);
    if (s.processor >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(s.processor, &one);
        if (::sched_setaffinity(0, sizeof one, &one) != 0) give_up(s, exec_failure::stage::bind);
    }
    set_variables(s);
    std::vector<char*> arguments;
    for (const auto& a : s.options->command) arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    ::sigprocmask(SIG_SETMASK, &s.signal_mask, nullptr);
    ::execvp(arguments[0], arguments.data());
    give_up(s, exec_failure::stage::program);
}

} // namespace detail

/// Errors: refused when there is no room for another process.
inline pid_t spawn_rank(const rank_setup& setup) {
    const pid_t pid = ::fork();
    if (pid < 0) fail_with_errno("cannot start rank " + std::to_string(setup.rank), collx::detail::remedy_for_process);
    if (pid == 0) detail::become_rank(setup);
    ::setpgid(pid, pid); // here too, so that the first signal finds the group; fails harmlessly after exec
    return pid;
}

/// Makes room for two pipes per rank. Returns the limit that ranks must get back.
inline rlimit reserve_descriptors(int ranks) {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlim_t needed = 4 * static_cast<rlim_t>(ranks) + 32;
    if (before.rlim_cur < needed) {
        rlimit raised = before;
        raised.rlim_cur = std::min(needed, before.rlim_max);
        ::setrlimit(RLIMIT_NOFILE, &raised);
    }
    return before;
}

} // namespace launch
} // namespace collx::tools
