// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages of survivors on several hosts (remote_survivors.hpp), and the check whether a rank still has a listener.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include <collx/transport/detail/left_communicators.hpp>
#include <collx/transport/socket_hub.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Begins every message; the members follow, a bit per rank.
struct survival_word {
    enum class kind : std::uint32_t { here = 1, accept, waits, propose, commit, late, out };
    static constexpr std::uint32_t tag = 0x5u << 24 | 0x70'1e;
    kind what;
    std::int32_t ballot; // number of the proposal: coordinator + 1; 0: none
    std::int32_t rank;   // waits, late: the rank that did not come
    std::int32_t zero = 0;
};
static_assert(sizeof(survival_word) == meeting_of_survivors::head_bytes);

// Checks whether the listener of a rank still exists.
class listener_probe {
public:
    enum class answer { unknown, open, closed };

    answer ask(socket_hub& hub, int job_rank, std::int64_t now, std::int64_t patience_ns) {
        if (!asking_.is_open()) {
            if (now < next_ns_) return answer::unknown;
            next_ns_ = now + pause_ns_;
            pause_ns_ = pause_ns_ < 500'000'000 ? 2 * pause_ns_ : pause_ns_;
            asking_ = hub.connect_to(job_rank);
            since_ns_ = now;
            if (!asking_.is_open()) return means_gone(attempt_after(errno)) ? answer::closed : answer::unknown;
        }
        if (events_now(asking_.get(), POLLOUT) == 0)
            return now - since_ns_ > patience_ns ? answer::closed : answer::unknown;
        int trouble = 0;
        socklen_t bytes = sizeof trouble;
        (void)::getsockopt(asking_.get(), SOL_SOCKET, SO_ERROR, &trouble, &bytes);
        asking_.close();
        return means_gone(attempt_after(trouble)) ? answer::closed : trouble == 0 ? answer::open : answer::unknown;
    }

private:
    descriptor asking_;
    std::int64_t since_ns_ = 0, next_ns_ = 0, pause_ns_ = 10'000'000;
};

} // namespace detail

COLLX_END_NAMESPACE
