// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sends memory to a socket by reference: vmsplice() shows its pages to a pipe and splice() moves them on to the socket,
// so nothing is copied on the sending side. Until the other end has received these bytes, the system may still read
// them where they are. The sender waits for the acknowledgement before it reuses the memory, or takes it back. Taking
// back is reliable only where the other end is a socket of this system, so nothing goes to another system by reference.
#pragma once

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include <collx/core/descriptor.hpp>
#include <collx/core/signals_blocked.hpp>
#include <collx/transport/detail/counterpart.hpp>
#include <collx/transport/detail/socket_calls.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class page_pipe {
public:
    // Of one call. More is not faster, and all pipes of a user together may hold 64 MiB.
    static constexpr std::size_t most_bytes = 256 * 1024;

    explicit page_pipe(const socket_calls& calls) : calls_(&calls) {
        is_refused_ = calls.vmsplice == nullptr || calls.splice == nullptr || !is_fast();
    }
    // From 6.5 on Linux moves many pages at once; before, each by itself.
    static bool is_fast() {
        static const bool is_new = [] {
            utsname name;
            int major = 0, minor = 0;
            return ::uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
                   (major > 6 || (major == 6 && minor >= 5));
        }();
        return is_new;
    }
    // False for good once the system has refused: what was not sent goes by copy.
    bool is_usable() const { return !is_refused_; }
    // Whether memory may go over this connection by reference at all: whether it can be taken back (take_back()).
    bool is_usable_on(int fd) {
        if (is_asked_ || is_refused_) return !is_refused_;
        is_asked_ = true;
        is_refused_ = !is_unix(fd) && counterpart(fd).ask() != counterpart::state::open;
        return !is_refused_;
    }
    // Resets the connection, so that the peer cannot receive what it still refers to. Closing the socket is not enough:
    // a child of fork() may have it open, too. The other end of a unix socket is notified at once. The other end of TCP
    // is asked for until the reset has reached it, past whatever waits on the way. Then a receiver in its last read
    // finds the reset behind it.
    [[gnu::cold]] static void take_back(int fd) {
        if (is_unix(fd)) return void(::shutdown(fd, SHUT_RDWR));
        counterpart other(fd);
        const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
        if (::connect(fd, &unspecified, sizeof unspecified) != 0) return;
        const deadline until = deadline::in_ns(2'000'000'000);
        while (other.ask() == counterpart::state::open && !until.passed()) nap_ns(50'000);
    }

    // Like send(): how many bytes the socket has taken, -1 for none (errno says why; is_usable() whether it was the
    // memory that was refused). The next call must begin with the first byte that was not taken.
    ssize_t send(int fd, const std::byte* from, std::size_t bytes) {
        std::size_t taken = 0;
        while (taken < bytes) {
            if (held_ == 0 && !hold(from + taken, bytes - taken)) break;
            const ssize_t n = pass_on(fd);
            if (n <= 0) break;
            taken += static_cast<std::size_t>(n);
            held_ -= static_cast<std::size_t>(n);
        }
        return taken != 0 ? static_cast<ssize_t>(taken) : -1;
    }
    // Closes an idle pipe: a user may have few, and each of them has two descriptors.
    void rest() {
        if (held_ == 0 && in_.is_open()) drop();
    }
    // Drops what the socket has not taken.
    void drop() {
        in_.close();
        out_.close();
        held_ = 0;
    }

private:
    static bool is_unix(int fd) {
        int domain = 0;
        socklen_t bytes = sizeof domain;
        return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
    }
    bool hold(const std::byte* from, std::size_t bytes) {
        if (!in_.is_open() && !open()) {
            is_refused_ = true;
            return false;
        }
        iovec part{const_cast<std::byte*>(from), bytes < most_bytes ? bytes : most_bytes};
        const ssize_t n = without_eintr([&] { return calls_->vmsplice(in_.get(), &part, 1, SPLICE_F_NONBLOCK); });
        if (n <= 0) {
            is_refused_ = true;
            return false;
        }
        held_ = static_cast<std::size_t>(n);
        return true;
    }
    ssize_t pass_on(int fd) {
        const sigpipe_blocked while_called; // no flag of splice() prevents that signal
        const ssize_t n =
            without_eintr([&] { return calls_->splice(out_.get(), nullptr, fd, nullptr, held_, SPLICE_F_NONBLOCK); });
        if (n < 0 && errno == EINVAL) is_refused_ = true; // not this kind of socket
        if (n == 0) errno = EAGAIN;
        return n;
    }
    [[gnu::cold]] bool open() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
        out_ = descriptor(ends[0]);
        in_ = descriptor(ends[1]);
        (void)::fcntl(in_.get(), F_SETPIPE_SZ, static_cast<int>(most_bytes)); // else it holds less at a time
        return true;
    }

    const socket_calls* calls_;
    descriptor in_, out_;
    std::size_t held_ = 0; // shown to the pipe and not taken by the socket yet
    bool is_refused_ = false, is_asked_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
