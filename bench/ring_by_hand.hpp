// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective written by hand for the neighbours in a ring: bare sockets, and besides only what no program can leave
// out, the sum of what arrives and the copy of a rank's own part. No messages, no checks, no schedule: a rank sends as
// far as it has something to send, receives what is there, and adds it while it is in the cache. In an all-to-all only
// the numbers of bytes are right, not who gets them.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "forked.hpp"
#include "perf/operation.hpp"

namespace collx::bench {

class ring_by_hand {
    using operation = tools::perf::operation;

public:
    struct neighbours {
        int to, from; // sockets; the same one where there are two ranks
    };
    struct manner {
        std::size_t write_bytes, stage_bytes; // of one call; that are added at once
        bool shares_cores;
    };
    static bool knows(operation op) {
        return op == operation::all_reduce || op == operation::reduce_scatter || op == operation::all_gather ||
               op == operation::broadcast || op == operation::all_to_all;
    }
    ring_by_hand(operation op, std::size_t bytes, int me, int ranks, neighbours by, manner how)
        : op_(op), me_(me), n_(ranks), by_(by), chunk_(bytes / static_cast<std::size_t>(ranks) / 4 * 4),
          write_(how.write_bytes), stage_bytes_(how.stage_bytes), shares_cores_(how.shares_cores) {
        const std::size_t all = chunk_ * static_cast<std::size_t>(ranks) + 4;
        in_ = pages(all, false);
        out_ = pages(all, false);
        tmp_ = pages(all, false);
        stage_ = pages(stage_bytes_, false);
        steps_ = op == operation::all_reduce ? 2 * (n_ - 1) : tools::perf::is_rooted(op) ? n_ : n_ - 1;
    }
    void operator()(int calls) {
        for (int k = 0; k < calls; ++k) once(k % n_);
    }

private:
    void begin(int root) {
        const std::size_t length = static_cast<std::size_t>(steps_) * chunk_;
        const bool chain = tools::perf::is_rooted(op_); // of chunks, from the root to the rank before it
        to_send_ = chain && (me_ + 1) % n_ == root ? 0 : length;
        to_receive_ = chain && me_ == root ? 0 : length;
        // How far what is sent may be ahead of what has come.
        ahead_ = op_ == operation::all_to_all || (chain && me_ == root) ? length : chain ? 0 : chunk_;
    }
    // A broadcast has another root in each call, so that no root runs ahead of the others.
    void once(int root) {
        begin(root);
        sent_ = received_ = staged_ = 0;
        bool has_own = op_ != operation::all_gather && op_ != operation::all_to_all;
        while (sent_ < to_send_ || received_ < to_receive_) {
            const bool moved = send() | receive();
            if (!has_own) {
                has_own = true;
                std::memcpy(chunk(out_, me_), chunk(in_, me_), chunk_);
            } else if (!moved && shares_cores_) ::sched_yield();
        }
    }
    // The chunk that comes in that step; the one that is sent then came one step before.
    int coming(std::size_t step) const {
        if (tools::perf::is_rooted(op_)) return static_cast<int>(step);
        const int first = op_ == operation::reduce_scatter ? me_ - 2 : me_ - 1;
        return ((first - static_cast<int>(step)) % n_ + n_) % n_;
    }
    bool adds(std::size_t step) const {
        return (op_ == operation::all_reduce || op_ == operation::reduce_scatter) && static_cast<int>(step) < n_ - 1;
    }
    std::byte* chunk(std::byte* of, int c) const { return of + static_cast<std::size_t>(c) * chunk_; }
    // Where what comes in that step is put.
    std::byte* kept(std::size_t step) const {
        const bool is_partial = adds(step) && static_cast<int>(step) < n_ - 2;
        return chunk(is_partial ? tmp_ : out_, coming(step));
    }
    bool send() {
        const std::size_t limit = std::min(to_send_, received_ + ahead_);
        if (sent_ >= limit) return false;
        const std::size_t step = sent_ / chunk_, at = sent_ % chunk_;
        const std::byte* from = in_ + sent_; // all-to-all: other chunks' places, the same bytes
        if (op_ != operation::all_to_all && ahead_ == chunk_)
            from = step > 0 ? kept(step - 1) + at
                            : chunk(in_, op_ == operation::reduce_scatter ? (me_ + n_ - 1) % n_ : me_) + at;
        else if (ahead_ == 0) from = out_ + sent_;
        const std::size_t most = std::min({write_, limit - sent_, ahead_ == chunk_ ? chunk_ - at : limit});
        const ssize_t n = ::send(by_.to, from, most, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) throw std::runtime_error("send failed");
        if (n > 0) sent_ += static_cast<std::size_t>(n);
        return n > 0;
    }
    bool receive() {
        if (received_ >= to_receive_) return false;
        const std::size_t step = received_ / chunk_, at = received_ % chunk_;
        const bool sums = adds(step);
        std::byte* const to = sums ? stage_ + staged_ : kept(step) + at;
        const std::size_t most =
            std::min(chunk_ - at - staged_, sums ? stage_bytes_ - staged_ : std::max(write_, stage_bytes_));
        const ssize_t n = ::recv(by_.from, to, most, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) throw std::runtime_error("recv failed");
        if (n < 0) return false;
        if (!sums) {
            received_ += static_cast<std::size_t>(n);
            return true;
        }
        staged_ += static_cast<std::size_t>(n);
        const std::size_t whole = staged_ / 4 * 4;
        add(reinterpret_cast<float*>(kept(step) + at), reinterpret_cast<const float*>(chunk(in_, coming(step)) + at),
            reinterpret_cast<const float*>(stage_), whole / 4);
        std::memmove(stage_, stage_ + whole, staged_ - whole);
        staged_ -= whole;
        received_ += whole;
        return true;
    }
    static void add(float* __restrict to, const float* __restrict a, const float* __restrict b, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
    }

    operation op_;
    int me_, n_, steps_ = 0;
    neighbours by_;
    std::size_t chunk_, write_, stage_bytes_;
    bool shares_cores_;
    std::byte *in_, *out_, *tmp_, *stage_;
    std::size_t to_send_, to_receive_, ahead_, sent_ = 0, received_ = 0, staged_ = 0;
};

} // namespace collx::bench
