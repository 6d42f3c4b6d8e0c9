// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies from many pipes to one terminal or file, line by line. While a reader is slow, the ranks' pipes are not read;
// the launcher never blocks, because signals and time limits must work while a pager shows its first page.
#pragma once

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "../terminal.hpp"
#include "system.hpp"

namespace collx::tools::launch {

/// Splits a stream of bytes into lines. A line longer than `most_bytes` is broken, so that memory stays bounded. Where
/// its own line break comes directly after such a part, no empty line follows.
class line_splitter {
public:
    static constexpr std::size_t most_bytes = 1 << 20;

    /// Calls emit(line) for each complete line, without its line break.
    template <class Emit>
    void feed(std::string_view bytes, Emit&& emit) {
        while (!bytes.empty()) {
            const auto end = bytes.find('\n');
            partial_ += bytes.substr(0, end);
            const bool is_broken = end == std::string_view::npos;
            if (is_broken && partial_.size() < most_bytes) return;
            if (!partial_.empty() || !was_broken_) emit(std::string_view(partial_));
            partial_.clear();
            was_broken_ = is_broken;
            if (is_broken) return;
            bytes.remove_prefix(end + 1);
        }
    }
    /// Emits the last line, if it has no line break.
    template <class Emit>
    void finish(Emit&& emit) {
        if (!partial_.empty()) emit(std::string_view(partial_));
        partial_.clear();
    }

private:
    std::string partial_;
    bool was_broken_ = false; // what was emitted last is not the end of its line
};

/// Standard output or standard error of the launcher, written only when that cannot block.
class sink {
public:
    explicit sink(int fd) : fd_(fd), colour_(may_colour(fd)) {
        struct stat s {};
        // poll() promises room for PIPE_BUF bytes in a pipe; a file takes everything.
        chunk_ = ::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) ? std::size_t{1} << 20 : PIPE_BUF;
    }

    void add_line(int rank, std::string_view line) {
        const std::string prefix = "[" + std::to_string(rank) + "] ";
        pending_ += colour_ ? coloured(prefix, rank) : prefix;
        pending_ += line;
        pending_ += '\n';
    }
    void add(std::string_view text) { pending_ += text; }

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] bool has_work() const { return !broken_ && written_ < pending_.size(); }
    [[nodiscard]] bool is_full() const { return pending_.size() - written_ > (std::size_t{1} << 20); }
    /// The reader has closed its end (EPIPE), or the disk is full: what is added is dropped.
    [[nodiscard]] bool is_broken() const { return broken_; }
    /// Why output was lost, as errno; 0: none was, or its reader did not want it.
    [[nodiscard]] int lost_by() const { return lost_by_; }

    /// Call when poll() says that the descriptor is writable.
    void write_some() {
        for (int round = 0; round < 64 && has_work(); ++round) {
            pollfd p{fd_, POLLOUT, 0};
            if (round > 0 && ::poll(&p, 1, 0) != 1) break;
            const std::size_t size = std::min(chunk_, pending_.size() - written_);
            const auto n = ::write(fd_, pending_.data() + written_, size);
            if (n >= 0) {
                written_ += static_cast<std::size_t>(n);
            } else if (errno != EINTR && errno != EAGAIN) {
                broken_ = true;
                if (errno != EPIPE) lost_by_ = errno;
            } else {
                break;
            }
        }
        if (broken_ || written_ == pending_.size() || written_ > (std::size_t{1} << 20)) {
            pending_.erase(0, broken_ ? std::string::npos : written_);
            written_ = 0;
        }
    }

private:
    int fd_;
    bool colour_;
    bool broken_ = false;
    int lost_by_ = 0;
    std::size_t chunk_ = PIPE_BUF;
    std::string pending_;
    std::size_t written_ = 0;
};

/// If both descriptors are one terminal or file, lines keep their order only in a common queue.
inline bool same_file(int a, int b) {
    struct stat x {
    }, y{};
    return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/// One rank's standard output or standard error.
class rank_stream {
public:
    rank_stream(int rank, descriptor fd, sink& to) : rank_(rank), fd_(std::move(fd)), to_(&to) {
        make_non_blocking(fd_);
    }

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] bool is_open() const { return fd_.is_open(); }
    [[nodiscard]] const sink& destination() const { return *to_; }

    /// Call when poll() reports something.
    void read_some() {
        const auto emit = [this](std::string_view line) { to_->add_line(rank_, line); };
        char buffer[1 << 16];
        const auto n =
            ::read(fd_.get(), buffer, rest_ < 0 ? sizeof buffer : std::min(sizeof buffer, std::size_t(rest_)));
        if (n > 0) lines_.feed({buffer, static_cast<std::size_t>(n)}, emit);
        if (n > 0 && rest_ >= 0) rest_ -= static_cast<int>(n);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || rest_ == 0) close();
    }
    /// All processes of the job have ended: what is in the pipe is the rest. It is read when the reader has room for
    /// it.
    void end() {
        if (rest_ < 0 && ::ioctl(fd_.get(), FIONREAD, &rest_) != 0) rest_ = 0;
        if (rest_ <= 0) close();
    }
    void close() {
        lines_.finish([this](std::string_view line) { to_->add_line(rank_, line); });
        fd_.close();
    }

private:
    int rank_;
    descriptor fd_;
    sink* to_;
    line_splitter lines_;
    int rest_ = -1; // bytes, -1: no end is known
};

/// Sends what is typed to rank 0. Only for a terminal: ranks are in background process groups, which may not read from
/// it. Rank 0 inherits a file or pipe instead, so that the launcher consumes nothing that rank 0 does not read.
class keyboard_relay {
public:
    void start(descriptor to) {
        to_ = std::move(to);
        make_non_blocking(to_);
    }
    [[nodiscard]] bool is_open() const { return to_.is_open(); }
    void close() { to_.close(); }

    // Reading from the background would stop the launcher.
    [[nodiscard]] bool wants_read() const {
        return to_.is_open() && typed_.empty() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
    }
    [[nodiscard]] bool wants_write() const { return to_.is_open() && !typed_.empty(); }
    [[nodiscard]] int write_fd() const { return to_.get(); }

    void read_some() {
        char buffer[4096];
        const auto n = ::read(STDIN_FILENO, buffer, sizeof buffer);
        if (n > 0) typed_.assign(buffer, static_cast<std::size_t>(n));
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) to_.close();
    }
    void write_some() {
        const auto n = ::write(to_.get(), typed_.data(), typed_.size());
        if (n > 0) typed_.erase(0, static_cast<std::size_t>(n));
        if (n < 0 && errno != EAGAIN && errno != EINTR) to_.close();
    }

private:
    descriptor to_;
    std::string typed_;
};

} // namespace collx::tools::launch
