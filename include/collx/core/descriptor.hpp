// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Helpers for code that calls the system: a descriptor that closes itself, a call repeated after a signal, a poll with
// a deadline, retry pauses, a hash that is the same in all processes. Knows neither sockets nor files.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <collx/core/clock.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Replaces one of the descriptors 0, 1 and 2 by another. A program that was started without one of these writes to
// standard output all the same, and would write into shared memory or to a peer.
[[gnu::cold]] inline int above_standard(int fd) {
    const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    ::close(fd);
    if (moved < 0) errno = EMFILE; // of fcntl it may be EINVAL; the caller reports it as that of the call that made fd
    return moved;
}

} // namespace detail

// Owns one file descriptor, none of the standard ones.
class descriptor {
public:
    descriptor() = default;
    explicit descriptor(int fd) : fd_(fd >= 0 && fd <= 2 ? detail::above_standard(fd) : fd) {}
    descriptor(descriptor&& other) noexcept : fd_(other.release()) {}
    descriptor& operator=(descriptor&& other) noexcept {
        if (this != &other) {
            close();
            fd_ = other.release();
        }
        return *this;
    }
    ~descriptor() { close(); }

    int get() const { return fd_; }
    bool is_open() const { return fd_ >= 0; }
    int release() {
        const int fd = fd_;
        fd_ = -1;
        return fd;
    }
    void close() {
        if (fd_ >= 0) ::close(fd_); // Linux closes it even when close() fails with EINTR
        fd_ = -1;
    }

private:
    int fd_ = -1;
};

namespace detail {

// Repeats a system call that a signal handler of the program interrupted.
template <class Call>
auto without_eintr(Call&& call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) return result;
    }
}

// Converts a deadline for poll(): milliseconds rounded up, at most `longest_ms`.
[[gnu::cold]] inline int poll_ms(const deadline& until, int longest_ms) {
    const std::int64_t left_ns = until.left_ns();
    if (left_ns <= 0) return 0;
    const std::int64_t ms = (left_ns - 1) / 1'000'000 + 1;
    return ms < longest_ms ? static_cast<int>(ms) : longest_ms;
}

// Which of these events, or POLLERR or POLLHUP, a descriptor has now; 0: none.
inline short events_now(int fd, short wanted) {
    pollfd p{fd, wanted, 0};
    return ::poll(&p, 1, 0) > 0 ? p.revents : short{0};
}

// Waits for an event of one descriptor. False when the deadline passes first.
[[gnu::cold]] inline bool wait_for_event(int fd, short events, const deadline& until) {
    for (;;) {
        pollfd p{fd, events, 0};
        if (::poll(&p, 1, poll_ms(until, 1000)) > 0) return true;
        if (until.passed()) return false;
    }
}

[[gnu::cold]] inline void nap_ns(std::int64_t ns) {
    const timespec t{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    ::nanosleep(&t, nullptr);
}

// Pauses between attempts. Each is twice as long, with jitter so that many ranks do not retry at the same time.
class retry_pause {
public:
    explicit retry_pause(std::int64_t longest_ns)
        : longest_ns_(longest_ns),
          state_(static_cast<std::uint64_t>(now_ns()) ^ static_cast<std::uint64_t>(::getpid()) << 32) {}
    // False when the deadline has passed. A test that checks the times replaces `nap`.
    [[gnu::cold]] bool sleep(const deadline& until, void (*nap)(std::int64_t ns) = nap_ns) {
        const std::int64_t left_ns = until.left_ns();
        if (left_ns <= 0) return false;
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        const std::int64_t ns =
            pause_ns_ / 2 + static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(pause_ns_));
        nap(ns < left_ns ? ns : left_ns);
        if (pause_ns_ < longest_ns_) pause_ns_ *= 2;
        return true;
    }

private:
    std::int64_t pause_ns_ = 100'000, longest_ns_;
    std::uint64_t state_;
};

// FNV-1a with a final mix. For names only: it does not protect against forgery.
constexpr std::uint64_t hash_bytes(const char* text, std::size_t bytes, std::uint64_t seed) {
    std::uint64_t h = 0xcbf29ce484222325 ^ seed * 0x9e3779b97f4a7c15;
    for (std::size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<unsigned char>(text[i])) * 0x100000001b3;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    return h ^ h >> 29;
}

} // namespace detail

COLLX_END_NAMESPACE
