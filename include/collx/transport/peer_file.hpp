// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes open files between processes of one host, memory of a device among them. Each process shows a handle with the
// address of a socket. Then all send their file to all others at once (SCM_RIGHTS), which only needs a common network
// namespace. Without one, a process takes the file by the numbers of process and file (pidfd_getfd). For this the
// kernel asks for the rights of a debugger, and may refuse (another user, Yama, seccomp).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <collx/core/authentication.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/error.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/detail/unix_socket.hpp>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The content of a handle of kind `file`.
struct file_handle {
    std::int32_t process = 0, file = -1;
    bool is_received = false; // `file` is open in the process that reads this
    unsigned char address_bytes = 0;
    char address[16] = {};      // of a datagram socket; none where address_bytes is 0
    std::uint64_t secret = 0;   // a process that sends to that socket knows it from here
    std::uint64_t numbered = 0; // where `process` is its number: numbered_in()

    static file_handle of(const memory_handle& h) {
        file_handle f;
        std::memcpy(&f, h.bytes, sizeof f);
        return f;
    }
    memory_handle pack() const {
        memory_handle h;
        static_assert(sizeof *this <= sizeof h.bytes);
        std::memcpy(h.bytes, this, sizeof *this);
        return h;
    }
};

// A number of the PID namespace of this process; 0: unknown.
inline std::uint64_t numbered_in() {
    struct stat s {};
    return ::stat("/proc/self/ns/pid", &s) == 0 ? static_cast<std::uint64_t>(s.st_ino) : 0;
}
// Requires: the file stays open until the others have taken it.
inline memory_handle handle_of_file(int file) {
    file_handle f;
    f.process = static_cast<std::int32_t>(::getpid());
    f.file = file;
    f.numbered = numbered_in();
    return f.pack();
}
// Errors: unsupported where the kernel refuses, or the number of the process means another one here; peer_failed where
// the process is gone, or has closed the file; resource.
inline descriptor file_of(const memory_handle& h) {
    const file_handle f = file_handle::of(h);
    const auto none_left = [](int reason) {
        fail(errc::resource, -1, -1, collx::detail::remedy_for_descriptor(reason),
             "taking over a file that shows memory of a device: %s", std::strerror(reason));
    };
    if (f.is_received) {
        descriptor own(::fcntl(f.file, F_DUPFD_CLOEXEC, 0));
        if (!own.is_open()) none_left(errno);
        return own;
    }
    if (const std::uint64_t here = numbered_in(); here != f.numbered && here != 0 && f.numbered != 0) {
        // For want of a descriptor the file may not have come by the socket.
        const descriptor spare(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (const int e = errno; !spare.is_open() && collx::detail::is_out_of_descriptors(e)) none_left(e);
        fail(errc::unsupported, -1, -1,
             "let the ranks of a host share a network namespace or a PID namespace (docker run --pid, "
             "shareProcessNamespace of a pod)",
             "taking over a file of process %d, which is a number of another PID namespace", f.process);
    }
    const descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, f.process, 0)));
    descriptor file(process.is_open() ? static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), f.file, 0)) : -1);
    if (file.is_open()) return file;
    const int e = errno;
    if (collx::detail::is_out_of_descriptors(e)) none_left(e);
    if (e == ESRCH || e == EBADF)
        fail(errc::peer_failed, -1, -1, "see why that process ended",
             "the process %d that shows memory of a device is gone, or has taken it back", f.process);
    fail(errc::unsupported, -1, -1,
         "a common network namespace needs no rights; else the same user, and kernel.yama.ptrace_scope 0, would allow "
         "it",
         "taking over a file of process %d: %s", f.process, std::strerror(e));
}

// One process's part in the exchange of files on its host.
class file_exchange {
public:
    // No socket is open afterwards where the system has none.
    void open() {
        const sockaddr_un any{AF_UNIX, {}};
        name_ = {};
        name_.bytes = sizeof name_.address;
        socket_ = datagram_socket();
        // A name of the kernel's choice: zero and five digits.
        if (socket_.is_open() &&
            (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(sa_family_t)) != 0 ||
             ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name_.address), &name_.bytes) != 0 ||
             name_.bytes - offsetof(sockaddr_un, sun_path) > sizeof file_handle::address))
            socket_.close();
        if (socket_.is_open()) collx::detail::draw_random(&secret_, sizeof secret_);
    }
    // Adds to this process's handle the address to which files for it may be sent.
    void announce(memory_handle& mine) const {
        if (!socket_.is_open()) return;
        file_handle f = file_handle::of(mine);
        f.address_bytes = static_cast<unsigned char>(name_.bytes - offsetof(sockaddr_un, sun_path));
        std::memcpy(f.address, name_.address.sun_path, f.address_bytes);
        f.secret = secret_;
        mine = f.pack();
    }
    // Called by all processes at once. Sends this one's file (all[me]) to the processes of the other handles, and turns
    // their handles into handles of received files. Null handles are skipped. A handle stays as it is where its process
    // cannot be reached or has not sent by `until`.
    void swap(int me, const std::vector<memory_handle*>& all, const deadline& until) {
        if (!socket_.is_open()) return;
        std::vector<descriptor> unsent(all.size());
        std::vector<char> awaited(all.size());
        int left = 0;
        for (std::size_t k = 0; k < all.size(); ++k) {
            if (all[k] == nullptr || k == static_cast<std::size_t>(me)) continue;
            unsent[k] = connected_to(file_handle::of(*all[k]));
            awaited[k] = unsent[k].is_open() ? 1 : 0; // else neither can reach the other
            left += awaited[k] ? 2 : 0;
        }
        const int file = file_handle::of(*all[static_cast<std::size_t>(me)]).file;
        for (; left > 0 && !until.passed();
             collx::detail::wait_for_event(socket_.get(), POLLIN, deadline::in_ns(2'000'000))) {
            for (std::size_t k = 0; k < all.size(); ++k) {
                if (!unsent[k].is_open()) continue;
                const shown s{file_handle::of(*all[k]).secret, me};
                const bool is_sent = collx::detail::send_packet(unsent[k].get(), &s, sizeof s, file);
                if (!is_sent && errno == EAGAIN) continue; // its queue is full: it receives
                unsent[k].close();
                --left;
                if (!is_sent && std::exchange(awaited[k], char{0})) --left;
            }
            for (;;) {
                shown s{};
                descriptor got;
                const auto p = collx::detail::receive_packet(socket_.get(), &s, sizeof s, &got);
                if (p == collx::detail::packet::none || p == collx::detail::packet::closed) break;
                const auto k = static_cast<std::size_t>(s.rank);
                const bool has_file = p == collx::detail::packet::whole;
                if ((!has_file && p != collx::detail::packet::no_room) || s.secret != secret_ || k >= all.size() ||
                    !awaited[k])
                    continue;
                awaited[k] = 0;
                --left;
                if (!has_file) continue; // file_of() says what is short
                file_handle f = file_handle::of(*all[k]);
                f.is_received = true;
                f.file = got.get();
                *all[k] = f.pack();
                received_.push_back(std::move(got));
            }
        }
    }
    // Called when the received files have been opened.
    void close() {
        received_.clear();
        socket_.close();
    }

private:
    struct shown {
        std::uint64_t secret;
        std::int64_t rank;
    };
    static descriptor datagram_socket() {
        return descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    }
    static descriptor connected_to(const file_handle& f) {
        if (f.address_bytes == 0 || f.address_bytes > sizeof f.address) return {};
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        std::memcpy(to.sun_path, f.address, f.address_bytes);
        descriptor s = datagram_socket();
        const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + f.address_bytes);
        if (s.is_open() && ::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), bytes) != 0) s.close();
        return s;
    }
    descriptor socket_;
    collx::detail::socket_name name_;
    std::uint64_t secret_ = 0;
    std::vector<descriptor> received_;
};

} // namespace device
COLLX_END_NAMESPACE
