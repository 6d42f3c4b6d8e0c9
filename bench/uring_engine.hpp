// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The other way to drive sockets: io_uring, with one send and one receive under way per direction and lane, and the
// completions looked for without sleeping. For raw_sockets --uring, which asks whether it would pay.
#pragma once

#include <liburing.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace collx::bench {

class uring_engine {
public:
    // wait: sleep in the kernel until something is done, instead of looking again.
    explicit uring_engine(bool wait) : wait_(wait) {
        io_uring_params p{};
        p.flags = IORING_SETUP_SINGLE_ISSUER | (wait ? IORING_SETUP_DEFER_TASKRUN : IORING_SETUP_COOP_TASKRUN);
        if (const int e = ::io_uring_queue_init_params(64, &ring_, &p); e < 0)
            throw std::runtime_error("io_uring: " + std::string(std::strerror(-e)));
    }
    uring_engine(const uring_engine&) = delete;
    ~uring_engine() { ::io_uring_queue_exit(&ring_); }

    // Moves all of both; Stretch has fd, at, bytes, done and left().
    template <class Stretch>
    void move(std::vector<Stretch>& sends, std::vector<Stretch>& receives, std::size_t write_bytes,
              std::size_t read_bytes) {
        int under_way = 0;
        const auto submit = [&](Stretch& x, bool is_send) {
            if (x.left() == 0) return;
            io_uring_sqe* e = ::io_uring_get_sqe(&ring_);
            if (is_send) ::io_uring_prep_send(e, x.fd, x.at + x.done, std::min(write_bytes, x.left()), MSG_NOSIGNAL);
            else ::io_uring_prep_recv(e, x.fd, x.at + x.done, std::min(read_bytes, x.left()), 0);
            ::io_uring_sqe_set_data64(e, reinterpret_cast<std::uintptr_t>(&x) | static_cast<unsigned>(is_send));
            ++under_way;
        };
        for (auto& x : sends) submit(x, true);
        for (auto& x : receives) submit(x, false);
        while (under_way != 0) {
            if (wait_) ::io_uring_submit_and_wait(&ring_, 1);
            else ::io_uring_submit_and_get_events(&ring_);
            for (io_uring_cqe* c = nullptr; ::io_uring_peek_cqe(&ring_, &c) == 0;) {
                const std::uint64_t word = ::io_uring_cqe_get_data64(c);
                auto& x = *reinterpret_cast<Stretch*>(word & ~std::uint64_t{1});
                const int n = c->res;
                ::io_uring_cqe_seen(&ring_, c);
                --under_way;
                if (n < 0 && n != -EAGAIN && n != -EINTR) throw std::runtime_error(std::strerror(-n));
                x.done += n > 0 ? static_cast<std::size_t>(n) : 0;
                submit(x, (word & 1) != 0);
            }
        }
    }

private:
    io_uring ring_{};
    bool wait_;
};

} // namespace collx::bench
