// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_run, started as a program: its output, its status, and whether processes are left.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/skip.hpp"

namespace collx_test {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

inline bool have_binary() {
    const char* path = std::getenv("RUN_BINARY");
    if (path != nullptr && *path != '\0') return true;
    collx_test::skip("RUN_BINARY does not name the tool collx_run, which was not built.");
    return false;
}

struct result {
    int status = -1; // as a shell reports it
    std::string out, err;
};

// A running collx_run. Collects the output until both pipes end, for at most 20 s.
class tool {
public:
    explicit tool(std::vector<std::string> arguments, int in = -1) {
        int out[2], err[2];
        REQUIRE(pipe2(out, O_CLOEXEC) == 0);
        REQUIRE(pipe2(err, O_CLOEXEC) == 0);
        arguments.insert(arguments.begin(), std::getenv("RUN_BINARY"));
        std::vector<char*> argv;
        for (auto& a : arguments) argv.push_back(a.data());
        argv.push_back(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            if (in < 0) in = open("/dev/null", O_RDONLY);
            dup2(in, 0);
            dup2(out[1], 1);
            dup2(err[1], 2);
            for (const int s : {SIGHUP, SIGINT, SIGTERM}) signal(s, SIG_DFL); // ignored below nohup, for one
            execv(argv[0], argv.data());
            _exit(127);
        }
        close(out[1]);
        close(err[1]);
        out_ = out[0];
        err_ = err[0];
    }
    tool(const tool&) = delete;
    ~tool() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(out_);
        close(err_);
    }

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] const result& seen() const { return seen_; }

    // Reads until `text` has appeared on standard output.
    bool wait_for(const std::string& text) {
        return collect([&] { return seen_.out.find(text) != std::string::npos; });
    }
    result finish() {
        REQUIRE(collect([] { return false; }));
        int status = 0;
        REQUIRE(waitpid(pid_, &status, 0) == pid_);
        pid_ = -1;
        seen_.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return seen_;
    }

private:
    template <class Enough>
    bool collect(Enough enough) {
        const auto deadline = steady::now() + 60s;
        bool open[2] = {true, true};
        while (!enough()) {
            if (!open[0] && !open[1]) return true;
            if (steady::now() > deadline) return false;
            pollfd fds[2] = {{open[0] ? out_ : -1, POLLIN, 0}, {open[1] ? err_ : -1, POLLIN, 0}};
            poll(fds, 2, 100);
            char buffer[1 << 16];
            for (int i = 0; i < 2; ++i) {
                if (fds[i].revents == 0) continue;
                const auto n = read(fds[i].fd, buffer, sizeof buffer);
                if (n <= 0) open[i] = false;
                else (i == 0 ? seen_.out : seen_.err).append(buffer, static_cast<std::size_t>(n));
            }
        }
        return true;
    }

    pid_t pid_ = -1;
    int out_ = -1, err_ = -1;
    result seen_;
};

inline result run(std::vector<std::string> arguments, int in = -1) { return tool(std::move(arguments), in).finish(); }

inline result run_shell(const std::string& ranks, const std::string& script, std::vector<std::string> options = {}) {
    std::vector<std::string> all{"-n", ranks};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"--", "sh", "-c", script});
    return run(std::move(all));
}

inline std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find('\n', at), text.size());
        out.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The numbers after "pid=" in the output.
inline std::vector<pid_t> pids_in(const std::string& text) {
    std::vector<pid_t> out;
    for (auto at = text.find("pid="); at != std::string::npos; at = text.find("pid=", at + 1))
        out.push_back(std::atoi(text.c_str() + at + 4));
    return out;
}

// Whether a process is gone or a zombie. A killed orphan stays a zombie until its new parent collects it.
inline bool is_dead(pid_t pid) {
    if (kill(pid, 0) != 0) return true;
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0) return true;
    char text[512] = {};
    const auto n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return true;
    const std::string stat(text);
    return stat.size() > stat.rfind(')') + 2 && stat[stat.rfind(')') + 2] == 'Z';
}

inline bool all_dead_within(const std::vector<pid_t>& pids, std::chrono::nanoseconds limit) {
    const auto deadline = steady::now() + limit;
    while (!std::all_of(pids.begin(), pids.end(), is_dead)) {
        if (steady::now() > deadline) return false;
        usleep(5000);
    }
    return true;
}

} // namespace collx_test
