// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state of a launch: which ranks run, which failed first and how, when the rest is ended. It makes the decisions
// and the messages; launcher.hpp waits and copies. Time is an argument.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "../format.hpp"
#include "signals.hpp"
#include "spawn.hpp"

namespace collx::tools::launch {

inline constexpr int status_timeout = 124; // as timeout(1)
inline constexpr int status_cannot_run = 126, status_not_found = 127;

/// exit(3) gives 3, a signal 128 + number, as in a shell.
inline int shell_status(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/// exited with status 3, was killed by SIGSEGV (Segmentation fault), core dumped
inline std::string ending_text(int wait_status) {
    if (!WIFSIGNALED(wait_status)) return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
    return "was killed by " + signal_text(WTERMSIG(wait_status)) + (WCOREDUMP(wait_status) ? ", core dumped" : "");
}

inline std::string ranks_text(const std::vector<int>& ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list_text(ranks);
}

struct ended_rank {
    int rank;
    int status;
};

class job {
public:
    job(const launch_options& options, std::int64_t start_ns) : options_(options), start_ns_(start_ns) {}

    void started(pid_t pid) {
        pids_.push_back(pid);
        running_.push_back(true);
    }
    [[nodiscard]] const std::vector<pid_t>& pids() const { return pids_; }
    [[nodiscard]] std::vector<int> running() const {
        std::vector<int> out;
        for (std::size_t r = 0; r < running_.size(); ++r)
            if (running_[r]) out.push_back(static_cast<int>(r));
        return out;
    }
    [[nodiscard]] bool anybody_runs() const {
        return std::find(running_.begin(), running_.end(), true) != running_.end();
    }
    /// Returns the rank of a process, -1 for any other.
    [[nodiscard]] int rank_of(pid_t pid) const {
        for (std::size_t r = 0; r < pids_.size(); ++r)
            if (pids_[r] == pid && running_[r]) return static_cast<int>(r);
        return -1;
    }
    [[nodiscard]] int exit_status() const { return status_ != 0 || somebody_succeeded_ ? status_ : forgiven_status_; }
    /// Whether a rank failed, was ended or could not be started, also where the status is 0.
    [[nodiscard]] bool has_failed() const { return status_ != 0 || forgiven_status_ != 0; }
    [[nodiscard]] bool is_ending() const { return kill_at_ns_.has_value(); }

    /// When on_time() must be called, if ever.
    [[nodiscard]] std::optional<std::int64_t> deadline_ns() const {
        if (!anybody_runs()) return {};
        if (kill_at_ns_) return killed_ ? std::nullopt : kill_at_ns_;
        if (options_.timeout_ns > 0) return start_ns_ + options_.timeout_ns;
        return {};
    }

    /// Handles ranks that ended since the last call. Their order is unknown, so a crash takes precedence over an exit,
    /// which may be its consequence.
    std::string ranks_ended(const std::vector<ended_rank>& ended, std::int64_t now_ns) {
        const ended_rank* first = nullptr;
        for (const auto& e : ended) {
            running_[static_cast<std::size_t>(e.rank)] = false;
            if (e.status == 0) somebody_succeeded_ = true;
            if (e.status == 0) continue;
            if (first == nullptr || (WIFSIGNALED(e.status) && !WIFSIGNALED(first->status))) first = &e;
        }
        if (first == nullptr || status_ != 0) return {};
        const bool goes_on = options_.keep_going && !is_ending();
        if (!goes_on) status_ = shell_status(first->status);
        else if (forgiven_status_ == 0) forgiven_status_ = shell_status(first->status);
        std::string text = "rank " + std::to_string(first->rank) + " (pid " + std::to_string(pid_of(first->rank)) +
                           ") " + ending_text(first->status) + " after " + elapsed(now_ns);
        for (const auto& e : ended)
            if (&e != first && e.status != 0)
                text += "; at the same time rank " + std::to_string(e.rank) + " " + ending_text(e.status);
        if (!goes_on) return text + end_the_rest(now_ns);
        return anybody_runs() ? text + "; " + ranks_text(running()) + " may go on" : text;
    }

    std::string cannot_run(const exec_failure& failure, std::int64_t now_ns) {
        if (status_ != 0) return {};
        status_ = failure.error == ENOENT ? status_not_found : status_cannot_run;
        end_the_rest(now_ns);
        if (failure.where == exec_failure::stage::bind)
            return "cannot bind rank " + std::to_string(failure.rank) + " to its core: " + std::strerror(failure.error);
        const std::string& program = options_.command.front();
        std::string text = "cannot run '" + program + "': " + std::strerror(failure.error);
        if (failure.error == ENOENT && program.find('/') == std::string::npos)
            text += ::access(program.c_str(), X_OK) == 0 ? " in PATH; did you mean './" + program + "'?" : " in PATH";
        else if (failure.error == ENOENT && ::access(program.c_str(), F_OK) == 0)
            text += "; the program is there, but not what its first line or its header names to run it";
        return text;
    }

    /// Handles the time limit, and the end of the grace period.
    std::string on_time(std::int64_t now_ns) {
        const auto due = deadline_ns();
        if (!due || now_ns < *due) return {};
        const std::string who = ranks_text(running());
        if (kill_at_ns_) {
            killed_ = true;
            send_to_all(SIGKILL);
            return who + " did not end within " + duration_text(static_cast<double>(options_.grace_ns)) +
                   " of SIGTERM and " + (running().size() == 1 ? "was" : "were") + " killed";
        }
        if (status_ == 0) status_ = status_timeout;
        end_the_rest(now_ns);
        return "the time limit of " + duration_text(static_cast<double>(options_.timeout_ns)) +
               " has passed; still running: " + who + ", now ended";
    }

    /// Forwards a signal for the launcher to all ranks. A second Ctrl-C, SIGTERM or SIGHUP ends ranks that do not react
    /// to the first, which may be a warning to save what they have.
    std::string forward(int signal, std::int64_t now_ns) {
        std::int64_t unasked = 0;
        std::int64_t& asked_ns = signal == SIGINT    ? interrupted_ns_
                                 : signal == SIGTERM ? terminated_ns_
                                 : signal == SIGHUP  ? hung_up_ns_
                                                     : unasked;
        const bool again = asked_ns != 0 && now_ns - asked_ns > 300'000'000;
        asked_ns = now_ns;
        if (signal == SIGTERM) term_sent_ns_ = now_ns;
        send_to_all(signal);
        // A stopped process takes notice of a signal only when it goes on.
        if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT) send_to_all(SIGCONT);
        if (!again || is_ending() || !anybody_runs()) return {};
        if (status_ == 0) status_ = 128 + signal;
        return (signal == SIGINT ? "interrupted" : signal_text(signal)) + " again" + end_the_rest(now_ns);
    }

    void send_to_all(int signal) const {
        for (std::size_t r = 0; r < pids_.size(); ++r)
            if (running_[r]) ::kill(-pids_[r], signal);
    }

private:
    [[nodiscard]] pid_t pid_of(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::string elapsed(std::int64_t now_ns) const {
        return duration_text(static_cast<double>(now_ns - start_ns_));
    }

    std::string end_the_rest(std::int64_t now_ns) {
        if (!anybody_runs()) return {};
        kill_at_ns_ = now_ns + options_.grace_ns;
        // Ranks that are already ending because of a forwarded SIGTERM get no second one. (They may have survived it.)
        if (!term_sent_ns_ || now_ns - *term_sent_ns_ > options_.grace_ns) send_to_all(SIGTERM);
        send_to_all(SIGCONT); // a stopped process does not see SIGTERM
        const auto left = running();
        return "; ending " + ranks_text(left);
    }

    const launch_options& options_;
    std::int64_t start_ns_;
    std::vector<pid_t> pids_;
    std::vector<bool> running_;
    std::optional<std::int64_t> kill_at_ns_, term_sent_ns_;
    std::int64_t interrupted_ns_ = 0, terminated_ns_ = 0, hung_up_ns_ = 0; // when each was forwarded last
    bool killed_ = false;
    int status_ = 0;
    int forgiven_status_ = 0; // with keep_going: of the first rank that failed
    bool somebody_succeeded_ = false;
};

} // namespace collx::tools::launch
