// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_limit SECONDS COMMAND...: runs a test and ends it after SECONDS of time on an otherwise idle machine. While
// other processes take the cores, the clock runs slower, in proportion to how long the test's threads wait for a
// core. While the test only sleeps, the clock runs at normal speed, so a hang is noticed on a busy machine, too. The
// exit code is that of the command, or 124 when the limit ended it.
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "patience.hpp"

namespace {

using clock_type = std::chrono::steady_clock;

struct process {
    int pid = 0, parent = 0;
    char state = '?';
    long long used_ticks = 0;
    std::string name;
};

// Calls f(entry) for each numbered entry of a folder of /proc.
template <class F>
void for_each_number(const std::string& folder, F&& f) {
    DIR* all = ::opendir(folder.c_str());
    if (all == nullptr) return;
    while (const dirent* one = ::readdir(all))
        if (one->d_name[0] >= '0' && one->d_name[0] <= '9') f(std::atoi(one->d_name));
    ::closedir(all);
}

// Reads "pid (name) state parent ..." of a process or thread that may be gone.
bool read_stat(const std::string& folder, process& p) {
    std::FILE* file = std::fopen((folder + "/stat").c_str(), "re");
    if (file == nullptr) return false;
    char line[512] = "";
    (void)!std::fgets(line, sizeof line, file);
    std::fclose(file);
    const char *open = std::strchr(line, '('), *close = std::strrchr(line, ')');
    long long used[4] = {}; // by its threads, and by children it has waited for
    if (open == nullptr || close == nullptr ||
        std::sscanf(close + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld", &p.state, &p.parent,
                    &used[0], &used[1], &used[2], &used[3]) != 6)
        return false;
    p.name.assign(open + 1, close);
    p.used_ticks = used[0] + used[1] + used[2] + used[3];
    return true;
}

// `root` and all its descendants.
std::vector<process> family_of(int root) {
    std::vector<process> all, family;
    for_each_number("/proc", [&](int pid) {
        process p;
        p.pid = pid;
        if (read_stat("/proc/" + std::to_string(pid), p)) all.push_back(std::move(p));
    });
    std::vector<int> known{root};
    for (std::size_t i = 0; i < known.size(); ++i)
        for (const process& p : all) {
            if (p.pid == known[i]) family.push_back(p);
            if (p.parent == known[i]) known.push_back(p.pid);
        }
    return family;
}

int runnable_threads_of(const std::vector<process>& family) {
    int running = 0;
    for (const process& p : family) {
        const std::string folder = "/proc/" + std::to_string(p.pid) + "/task";
        for_each_number(folder, [&](int thread) {
            process t;
            if (read_stat(folder + "/" + std::to_string(thread), t)) running += t.state == 'R';
        });
    }
    return running;
}

// The share of the cores that the test's threads could use and got since the last call, from 0 to 1.
class share_of_cores {
public:
    explicit share_of_cores(int child) : child_(child) {}
    double since_last_time(double passed_s) {
        const std::vector<process> family = family_of(child_);
        long long used = 0;
        for (const process& p : family) used += p.used_ticks;
        const double got_s = static_cast<double>(used - used_before_) / static_cast<double>(::sysconf(_SC_CLK_TCK));
        used_before_ = used;
        const int wanted = std::min(runnable_threads_of(family), collx_test::cores());
        return wanted == 0 ? 1 : std::clamp(got_s / (wanted * passed_s), 0.0, 1.0);
    }

private:
    int child_;
    long long used_before_ = 0;
};

int end_as(int status) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(WTERMSIG(status), SIG_DFL);
    std::raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

int give_up(int child, double limit_s, double here_s) {
    std::printf(
        "\ncollx_limit: ended after %.0f s, which were %.0f s of a machine that does nothing else. There were:\n",
        here_s, limit_s);
    for (const process& p : family_of(child)) {
        std::printf("  process %d (%s)\n", p.pid, p.name.c_str());
        ::kill(p.pid, SIGKILL);
    }
    std::fflush(stdout);
    return 124;
}

} // namespace

int main(int argc, char** argv) {
    const double limit_s = argc > 2 ? std::atof(argv[1]) : 0;
    if (limit_s <= 0) {
        std::fputs("usage: collx_limit SECONDS COMMAND...\n", stderr);
        return 2;
    }
    sigset_t ended, before;
    ::sigemptyset(&ended);
    ::sigaddset(&ended, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &ended, &before);
    const pid_t parent = ::getpid(), child = ::fork();
    if (child < 0) {
        std::perror("collx_limit: fork");
        return 126;
    }
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(126);
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        ::execvp(argv[2], argv + 2);
        std::perror(argv[2]);
        ::_exit(127);
    }
    double counted_s = 0;
    share_of_cores share(child);
    const auto begun = clock_type::now();
    for (auto last = begun;;) {
        const timespec look{1, 0};
        ::sigtimedwait(&ended, nullptr, &look);
        int status = 0;
        if (::waitpid(child, &status, WNOHANG) == child) return end_as(status);
        const auto now = clock_type::now();
        const double passed_s = std::chrono::duration<double>(now - last).count();
        counted_s += passed_s * share.since_last_time(passed_s);
        last = now;
        if (counted_s >= limit_s) return give_up(child, limit_s, std::chrono::duration<double>(now - begun).count());
    }
}
