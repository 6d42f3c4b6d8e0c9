// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a command as the ranks of one job on this machine and waits for the last rank: the core of collx_run, and of
// tools that start their own ranks. One loop handles all events: signals (ended ranks among them), the ranks' output,
// the keyboard, the clock. Must not know what the ranks do.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "launch/guard.hpp"
#include "launch/job.hpp"
#include "launch/key.hpp"
#include "launch/output.hpp"
#include "launch/signals.hpp"
#include "launch/spawn.hpp"
#include "launch/system.hpp"

namespace collx::tools {

/// How a job ended: the status to exit with, and whether a rank failed. With keep_going both 0 and true are possible.
struct job_end {
    int status;
    bool has_failed;
};

namespace launch {

class launcher {
public:
    launcher(const launch_options& options, signal_queue& signals)
        : options_(options), signals_(signals), job_(options, now_ns()) {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1); // what ranks leave behind becomes our child, so that we find and end it
    }

    launcher(const launcher&) = delete;
    launcher& operator=(const launcher&) = delete;
    // A rank still runs here only after an exception.
    ~launcher() {
        job_.send_to_all(SIGKILL);
        for (const int rank : job_.running()) ::waitpid(job_.pids()[static_cast<std::size_t>(rank)], nullptr, 0);
    }

    job_end run() {
        start_ranks();
        while (!is_finished()) {
            wait_and_serve();
            say(job_.on_time(now_ns()));
            end_leftovers();
        }
        const int lost_by = out_.lost_by() != 0 ? out_.lost_by() : own_err_.lost_by(), status = job_.exit_status();
        if (lost_by == 0) return {status, job_.has_failed()};
        std::fprintf(stderr, "%s: the output of the ranks is not complete: %s\n", options_.launcher.c_str(),
                     std::strerror(lost_by));
        return {status != 0 ? status : 1, job_.has_failed()};
    }

private:
    // ------------------------------------------------------------------------------------------ starting
    void start_ranks() {
        const auto processors = options_.bind_cores ? processors_for_ranks() : std::vector<int>();
        rank_setup setup{&options_,
                         0,
                         random_job_name(),
                         ::getpid(),
                         signals_.mask_before(),
                         reserve_descriptors(options_.ranks),
                         -1,
                         -1,
                         -1,
                         -1,
                         -1};
        auto failures = make_pipe();
        const descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
        setup.failures = failures.write.get();
        for (int rank = 0; rank < options_.ranks; ++rank) {
            setup.rank = rank;
            if (!processors.empty()) setup.processor = processors[static_cast<std::size_t>(rank)];
            start_rank(setup, nothing.get());
        }
        failures_ = std::move(failures.read);
        make_non_blocking(failures_);
        guard_.start(job_.pids(), options_.directories);
    }

    [[nodiscard]] std::vector<int> processors_for_ranks() const {
        auto processors = processors_cores_first();
        if (processors.size() < static_cast<std::size_t>(options_.ranks))
            throw std::invalid_argument("--bind core needs a processor for each of the " +
                                        std::to_string(options_.ranks) + " ranks, but only " +
                                        std::to_string(processors.size()) + " may be used; leave it out.");
        return processors;
    }

    void start_rank(rank_setup& setup, int nothing) {
        pipe_ends in, out, err;
        setup.in = nothing;
        if (setup.rank == 0) {
            setup.in = -1;
            if (::isatty(STDIN_FILENO) == 1) {
                in = make_pipe();
                setup.in = in.read.get();
            }
        }
        if (options_.prefix) {
            out = make_pipe();
            setup.out = out.write.get();
            err = make_pipe();
            setup.err = err.write.get();
        }
        job_.started(spawn_rank(setup));
        if (in.write.is_open()) keyboard_.start(std::move(in.write));
        if (!options_.prefix) return;
        streams_.emplace_back(setup.rank, std::move(out.read), out_);
        streams_.emplace_back(setup.rank, std::move(err.read), err_);
    }

    // ------------------------------------------------------------------------------------------ the loop
    struct waiter {
        std::vector<pollfd> fds;
        std::vector<std::pair<void (launcher::*)(std::size_t), std::size_t>> actions;
        void add(int fd, short events, void (launcher::*action)(std::size_t), std::size_t index = 0) {
            fds.push_back({fd, events, 0});
            actions.emplace_back(action, index);
        }
    };

    [[nodiscard]] waiter what_to_wait_for() const {
        waiter w;
        w.add(signals_.fd(), POLLIN, &launcher::on_signals);
        if (failures_.is_open()) w.add(failures_.get(), POLLIN, &launcher::on_failures);
        for (std::size_t i = 0; i < streams_.size(); ++i)
            if (streams_[i].is_open() && !streams_[i].destination().is_full())
                w.add(streams_[i].fd(), POLLIN, &launcher::on_output, i);
        if (out_.has_work()) w.add(out_.fd(), POLLOUT, &launcher::on_writable_out);
        if (err_.has_work()) w.add(err_.fd(), POLLOUT, &launcher::on_writable_err);
        if (keyboard_.wants_read()) w.add(STDIN_FILENO, POLLIN, &launcher::on_keyboard);
        if (keyboard_.wants_write()) w.add(keyboard_.write_fd(), POLLOUT, &launcher::on_keyboard_pipe);
        return w;
    }

    void wait_and_serve() {
        auto w = what_to_wait_for();
        if (::poll(w.fds.data(), w.fds.size(), wait_ms()) <= 0) return;
        for (std::size_t i = 0; i < w.fds.size(); ++i)
            if (w.fds[i].revents != 0) (this->*w.actions[i].first)(w.actions[i].second);
    }

    // At most half a second, because no event reports that the launcher has come to the terminal's foreground.
    [[nodiscard]] int wait_ms() const {
        std::int64_t ns = 500'000'000;
        const auto until = [&](std::int64_t deadline) {
            ns = std::min(ns, std::max<std::int64_t>(0, deadline - now_ns()));
        };
        if (const auto deadline = job_.deadline_ns()) until(*deadline);
        if (all_ended_ns_ != 0) ns = std::min<std::int64_t>(ns, 20'000'000); // leftovers are found by polling
        return static_cast<int>((ns + 999'999) / 1'000'000);
    }

    // ------------------------------------------------------------------------------------------ what happens
    void on_signals(std::size_t) {
        bool child = false;
        for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
            if (signal == SIGCHLD) child = true;
            else on_signal(signal);
        }
        if (child) reap();
    }

    void on_signal(int signal) {
        if (!job_.anybody_runs()) abandoned_ = abandoned_ || signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
        say(job_.forward(signal, now_ns()));
        if (signal == SIGTSTP) ::raise(SIGSTOP); // Ctrl-Z stops us too; SIGCONT comes back through this function
    }

    void reap() {
        std::vector<ended_rank> ended;
        for (;;) { // one turn per ended child
            siginfo_t info{};
            if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
            const int rank = job_.rank_of(info.si_pid);
            if (rank >= 0) guard_.forget(rank);
            int status = 0;
            if (::waitpid(info.si_pid, &status, 0) == info.si_pid && rank >= 0) ended.push_back({rank, status});
        }
        if (ended.empty()) return;
        on_failures(0); // a rank that could not run its program has reported why
        for (const auto& e : ended)
            if (e.rank == 0) keyboard_.close();
        say(job_.ranks_ended(ended, now_ns()));
        if (!job_.anybody_runs()) all_ended_ns_ = now_ns();
    }

    void on_failures(std::size_t) {
        exec_failure failure{};
        for (int i = 0; i < most_ranks && failures_.is_open(); ++i) {
            const auto n = ::read(failures_.get(), &failure, sizeof failure);
            if (n == sizeof failure) say(job_.cannot_run(failure, now_ns()));
            else if (n == 0) failures_.close(); // every rank has started its program
            else break;
        }
    }

    void on_output(std::size_t i) {
        if (streams_[i].destination().is_broken()) streams_[i].close(); // the rank learns from its next write
        else streams_[i].read_some();
    }
    void on_writable_out(std::size_t) { out_.write_some(); }
    void on_writable_err(std::size_t) { err_.write_some(); }
    void on_keyboard(std::size_t) { keyboard_.read_some(); }
    void on_keyboard_pipe(std::size_t) { keyboard_.write_some(); }

    void say(const std::string& text) {
        if (!text.empty()) message_sink().add(options_.launcher + ": " + text + "\n");
    }

    // ------------------------------------------------------------------------------------------ ending
    // Processes that ranks left behind get the time of --grace to finish (a filter that drains), then they are killed.
    // While our own reader is slow, it is not their fault that they have not.
    void end_leftovers() {
        if (all_ended_ns_ == 0) return;
        reap();
        if (out_.is_full() || err_.is_full()) left_alone_ns_ = now_ns();
        if (lingered_ns() < options_.grace_ns) return;
        const auto left = leftovers();
        for (const pid_t pid : left) ::kill(pid, SIGKILL);
        if (!left.empty() && !std::exchange(has_told_of_leftovers_, true))
            say("ended what the ranks had left running: " + std::to_string(left.size()) +
                (left.size() == 1 ? " process" : " processes") + ", after " +
                duration_text(static_cast<double>(options_.grace_ns)) + " (--grace)");
        // A process that still holds a pipe is not a descendant of ours.
        if (lingered_ns() > options_.grace_ns + 1'000'000'000)
            for (auto& s : streams_)
                if (s.is_open()) s.end();
    }
    [[nodiscard]] std::int64_t lingered_ns() const { return now_ns() - std::max(all_ended_ns_, left_alone_ns_); }

    [[nodiscard]] std::vector<pid_t> leftovers() const {
        std::vector<pid_t> out;
        std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
        for (pid_t pid = 0; children >> pid;)
            if (pid != guard_.pid()) out.push_back(pid);
        return out;
    }

    [[nodiscard]] bool is_finished() const {
        if (all_ended_ns_ == 0) return false;
        if (abandoned_) return true;
        const bool reading = std::any_of(streams_.begin(), streams_.end(), [](const auto& s) { return s.is_open(); });
        if (reading || out_.has_work() || err_.has_work()) return false;
        return leftovers().empty() || lingered_ns() > options_.grace_ns + 1'000'000'000;
    }

    sink& message_sink() { return err_; }

    const launch_options& options_;
    signal_queue& signals_;
    sink out_{STDOUT_FILENO}, own_err_{STDERR_FILENO};
    sink& err_ = same_file(STDOUT_FILENO, STDERR_FILENO) ? out_ : own_err_;
    std::vector<rank_stream> streams_;
    keyboard_relay keyboard_;
    descriptor failures_;
    job job_;
    guard guard_;
    std::int64_t all_ended_ns_ = 0;  // 0: a rank still runs
    std::int64_t left_alone_ns_ = 0; // when output waited for its reader
    bool has_told_of_leftovers_ = false;
    bool abandoned_ = false; // the user does not want to wait for the output's reader
};

// A temporary directory, for example for the store of ranks that act as several hosts. Removed with the object; where
// the launcher is killed, by its guard (launch_options::directories).
class meeting_place {
public:
    explicit meeting_place(bool is_needed) {
        if (!is_needed) return;
        const char* tmp = std::getenv("TMPDIR");
        path_ = std::string(tmp != nullptr && *tmp == '/' ? tmp : "/tmp") + "/collx_run-XXXXXX";
        if (::mkdtemp(path_.data()) == nullptr)
            fail_with_errno("cannot make a directory like " + path_,
                            [](int) { return "let TMPDIR name one in which this user may"; });
    }
    meeting_place(const meeting_place&) = delete;
    ~meeting_place() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

inline void require_hosts(const launch_options& options) {
    int sum = 0;
    for (const int ranks : options.hosts) {
        if (ranks < 1)
            throw std::invalid_argument("Each host has at least one rank, not " + std::to_string(ranks) + ".");
        sum += ranks;
    }
    if (!options.hosts.empty() && sum != options.ranks)
        throw std::invalid_argument("The hosts have " + std::to_string(sum) + " ranks together, and -n says " +
                                    std::to_string(options.ranks) + ".");
}

} // namespace launch

/// Starts options.ranks processes and waits for all of them. The status is 0, that of the rank that failed first (128 +
/// number for a signal), 124 after the time limit, 126 or 127 if the program cannot be run.
/// Requires: this process has one thread, no other children and standard descriptors. Errors: std::exception with a
/// sentence; then no rank runs.
/// `signals`: made before what its owner has to remove at the end, for example a directory, so that no signal prevents
/// it.
inline job_end run_ranks(const launch_options& options, launch::signal_queue& signals) {
    if (options.ranks < 1 || options.ranks > launch::most_ranks)
        throw std::invalid_argument("The number of ranks must be from 1 to " + std::to_string(launch::most_ranks) +
                                    ", not " + std::to_string(options.ranks) + ".");
    if (options.command.empty() || options.command.front().empty())
        throw std::invalid_argument("No program was given.");
    launch::require_hosts(options);
    const launch::meeting_place place(options.hosts.size() > 1);
    launch_options complete = options;
    complete.store = place.path();
    if (!place.path().empty()) complete.directories.push_back(place.path());
    launch::inherited_key key;
    bool needs_key = options.hosts.size() > 1;
    for (const char* name : {"COLLX_KEY_FD", "COLLX_KEY_FILE", "COLLX_KEY"})
        needs_key = needs_key && std::getenv(name) == nullptr;
    for (const auto& assignment : options.environment)
        needs_key = needs_key && assignment.first.rfind("COLLX_KEY", 0) != 0;
    if (needs_key) {
        key.make();
        complete.key = key.fd();
    }
    launch::launcher launcher(complete, signals);
    return launcher.run();
}

} // namespace collx::tools
