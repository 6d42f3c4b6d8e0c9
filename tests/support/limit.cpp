// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_limit SECONDS COMMAND...: runs a test and ends it when it has had so many seconds of a machine that does
// nothing else. While others take the cores, time passes as much slower as the test's threads wait longer for one;
// while the test only sleeps, it passes as it does elsewhere, so that a hang is noticed on a busy machine, too. Ends as
// the command does; 124 when the limit ended it.
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
    int pid, parent;
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
bool read_stat(const std::string& folder, char& state, process& p) {
    std::FILE* file = std::fopen((folder + "/stat").c_str(), "re");
    if (file == nullptr) return false;
    char line[256] = "";
    (void)!std::fgets(line, sizeof line, file);
    std::fclose(file);
    const char *open = std::strchr(line, '('), *close = std::strrchr(line, ')');
    if (open == nullptr || close == nullptr || std::sscanf(close + 1, " %c %d", &state, &p.parent) != 2) return false;
    p.name.assign(open + 1, close);
    return true;
}

// The processes below `root` and itself.
std::vector<process> family_of(int root) {
    std::vector<process> all, family;
    for_each_number("/proc", [&](int pid) {
        char state;
        process p{pid, 0, {}};
        if (read_stat("/proc/" + std::to_string(pid), state, p)) all.push_back(std::move(p));
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
            char state;
            process ignored;
            if (read_stat(folder + "/" + std::to_string(thread), state, ignored)) running += state == 'R';
        });
    }
    return running;
}

// By how much less than its due the test gets now.
double shortage(int child) {
    const int all = collx_test::runnable_threads() - 1; // this program reads
    if (all <= collx_test::cores()) return 1;
    const int own = runnable_threads_of(family_of(child));
    if (own == 0) return 1;
    return static_cast<double>(std::max(all, own)) / std::max(own, collx_test::cores());
}

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
    if (limit_s <= 0) return std::fputs("usage: collx_limit SECONDS COMMAND...\n", stderr), 2;
    sigset_t ended, before;
    ::sigemptyset(&ended);
    ::sigaddset(&ended, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &ended, &before);
    const pid_t parent = ::getpid(), child = ::fork();
    if (child < 0) return std::perror("collx_limit: fork"), 126;
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(126);
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        ::execvp(argv[2], argv + 2);
        std::perror(argv[2]);
        ::_exit(127);
    }
    double counted_s = 0;
    const auto begun = clock_type::now();
    for (auto last = begun;;) {
        const timespec look{0, 250'000'000};
        ::sigtimedwait(&ended, nullptr, &look);
        int status = 0;
        if (::waitpid(child, &status, WNOHANG) == child) return end_as(status);
        const auto now = clock_type::now();
        counted_s += std::chrono::duration<double>(now - last).count() / shortage(child);
        last = now;
        if (counted_s >= limit_s) return give_up(child, limit_s, std::chrono::duration<double>(now - begun).count());
    }
}
