// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a connection to another rank begins: the attempt, the hello and the proof of the job's key, what became of them,
// and when the next attempt is due. Nothing here waits. Who wants the connection owns one of these for each, says what
// an attempt that failed means there, and writes the error.
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include <collx/core/clock.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/detail/greeting.hpp>
#include <collx/transport/detail/sealed_socket.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What has become of an attempt to connect.
enum class attempt : unsigned char {
    not_yet,
    done,
    busy,        // the listener has a long queue
    cut,         // the other end closed: strangers pushed this one out, or another connection replaces it
    refused,     // there is no listener any more
    unreachable, // the system does not get there
    insecure,    // the other end has another key or protection, or is a process of another user
    lacking      // this process gets no descriptor, port or memory
};

// error: the system's for a connection; 0: the other end closed it.
[[gnu::cold]] inline attempt attempt_after(int error) {
    switch (error) {
        case 0:
        case EPIPE:
        case ECONNRESET: return attempt::cut;
        case EAGAIN: return attempt::busy;
        case ECONNREFUSED:
        case ENOENT: return attempt::refused; // of a unix socket whose file its rank has removed
        case EKEYREJECTED: return attempt::insecure;
        default: return is_out_of_descriptors(error) ? attempt::lacking : attempt::unreachable;
    }
}

// Whether it says that the rank has ended, or its host.
constexpr bool means_gone(attempt how) { return how == attempt::refused || how == attempt::unreachable; }

class connecting {
public:
    // What a connection is made of when its attempt is done. Nothing was read of what follows.
    struct parts {
        descriptor socket;
        sole_ptr<wire_layer> sealed;
    };

    // Begins an attempt in place of any other. hub: of this rank; it outlives the attempt. h: is said first.
    template <class Hub>
    [[gnu::cold]] attempt begin(Hub& hub, int job_rank, const stream_hello& h) {
        stop();
        descriptor s = hub.connect_to(job_rank);
        if (!s.is_open()) return end(errno);
        greeting_ = make_sole<greeting>(std::move(s), h, hub.protected_by().key, hub.calls());
        return move();
    }
    // Requires: an attempt is under way.
    [[gnu::cold]] attempt move() {
        switch (greeting_->move()) {
            case greeted::not_yet: return attempt::not_yet;
            case greeted::done: return attempt::done;
            case greeted::insecure: return end(EKEYREJECTED);
            default: return end(greeting_->error());
        }
    }
    // Requires: the attempt is done.
    template <class Hub>
    [[gnu::cold]] parts take(const Hub& hub) {
        const sole_ptr<greeting> g = std::move(greeting_);
        return {g->release_socket(), seal_connection(hub.protected_by().level, g->session(), true, hub.calls())};
    }
    void stop() { greeting_ = nullptr; }
    bool is_under_way() const { return static_cast<bool>(greeting_); }
    int fd() const { return greeting_->fd(); } // of the attempt under way
    int error() const { return error_; }       // of the last attempt that ended

    bool is_due() const { return now_ns() >= try_at_ns_; }
    void put_off(std::int64_t ns) { try_at_ns_ = now_ns() + ns; }
    // Says when the next attempt is due after one that ended so. False: the peer is gone. may_come: the peer connects
    // by itself. Then its connection may wait at our listener with the last messages of a process that has ended, so
    // only the second refusal counts.
    [[gnu::cold]] bool try_again(attempt how, bool may_come) {
        if (means_gone(how) && (how == attempt::unreachable || !may_come || ++refusals_ >= 2)) return false;
        put_off(how == attempt::cut ? pause_ns : 1'000'000);
        return true;
    }
    static constexpr std::int64_t pause_ns = 50'000'000; // after an attempt, where nothing calls for another

private:
    attempt end(int error) {
        stop();
        error_ = error;
        return attempt_after(error);
    }

    sole_ptr<greeting> greeting_;
    std::int64_t try_at_ns_ = 0;
    int error_ = 0, refusals_ = 0;
};

} // namespace detail

COLLX_END_NAMESPACE
