// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a connection begins, on both sides, one step at a time and without waiting: hello, and in a job with a key
// answer, proof, accepted (core/authentication.hpp). Everything has a fixed size. Before its proof, what the other side
// sends is only compared. Knows nothing of what the connection is for.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstdint>

#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/detail/stream_frame.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

enum class greeted : unsigned char {
    not_yet,
    done,
    gone,    // the other end closed, or the system did (error())
    insecure // it has another key or asks for another protection
};

// Reads or writes words of known size, and never further: what follows belongs to the stream. not_yet, done or gone.
class words_on_wire {
public:
    explicit words_on_wire(const socket_calls& calls) : calls_(&calls) {}
    greeted read(int fd, void* to, std::size_t bytes) {
        return move(to, bytes, [&](one_part& m) { return calls_->recvmsg(fd, &m, MSG_DONTWAIT); });
    }
    greeted write(int fd, const void* from, std::size_t bytes) {
        return move(from, bytes, [&](one_part& m) {
            const ssize_t n = calls_->sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == ENOTCONN) errno = EAGAIN; // still connecting
            return n;
        });
    }
    int error() const { return error_; } // of the system, 0: none

private:
    template <class Call>
    greeted move(const void* at, std::size_t bytes, Call&& call) {
        while (done_ < bytes) {
            one_part m(static_cast<const char*>(at) + done_, bytes - done_);
            const ssize_t n = without_eintr([&] { return call(m); });
            if (n < 0 && would_block(errno)) return greeted::not_yet;
            if (n <= 0) {
                error_ = n < 0 ? errno : 0;
                return greeted::gone;
            }
            done_ += static_cast<std::size_t>(n);
        }
        done_ = 0;
        return greeted::done;
    }

    const socket_calls* calls_;
    std::size_t done_ = 0;
    int error_ = 0;
};

// The answer on the wire: it has a frame's head, so that a stream which expects frames understands a refusal, too.
struct listener_answer {
    stream_frame head{.what = stream_frame::kind::answer};
    auth_answer words;
};
static_assert(sizeof(listener_answer) == 80);

// The connecting side, in a job with a key or without (then a hello is enough). `key` must outlive it.
class greeting {
public:
    greeting(descriptor socket, const stream_hello& h, const job_key& key, const socket_calls& calls)
        : socket_(static_cast<descriptor&&>(socket)), hello_(h), key_(&key), wire_(calls) {
        if (key) draw_random(hello_.nonce, sizeof hello_.nonce);
    }
    [[gnu::cold]] greeted move() {
        for (;;) {
            const greeted done = step();
            if (done != greeted::done || state_ == state::over) return done;
        }
    }
    int error() const { return wire_.error(); } // of the system, 0: none
    int fd() const { return socket_.get(); }
    descriptor release_socket() { return static_cast<descriptor&&>(socket_); }
    secret session() const { return *key_ ? key_->session(hello_, answer_.words) : secret(); }

private:
    enum class state : unsigned char { hello, head, words, proof, accepted, over };

    // done: the next state is reached.
    greeted step() {
        const int fd = socket_.get();
        greeted g = greeted::gone;
        switch (state_) {
            case state::hello:
                g = wire_.write(fd, &hello_, sizeof hello_);
                if (g != greeted::done || *key_) break;
                state_ = state::over;
                return g;
            case state::head:
                g = wire_.read(fd, &answer_.head, sizeof answer_.head);
                if (g == greeted::done && !is_head(stream_frame::kind::answer)) return greeted::insecure;
                break;
            case state::words:
                g = wire_.read(fd, &answer_.words, sizeof answer_.words);
                if (g != greeted::done) break;
                if (!key_->is_right(hello_, answer_.words)) {
                    (void)wire_.write(fd, &proof_, sizeof proof_); // an empty proof, so that the other side knows, too
                    return greeted::insecure;
                }
                proof_ = key_->prove(hello_, answer_.words);
                break;
            case state::proof: g = wire_.write(fd, &proof_, sizeof proof_); break;
            case state::accepted:
                g = wire_.read(fd, &answer_.head, sizeof answer_.head);
                if (g == greeted::done && !is_head(stream_frame::kind::accepted)) return greeted::insecure;
                break;
            case state::over: return greeted::done;
        }
        if (g == greeted::done) state_ = static_cast<state>(static_cast<int>(state_) + 1);
        return g;
    }
    bool is_head(stream_frame::kind k) const {
        return answer_.head.magic == stream_frame::magic_value && answer_.head.what == k;
    }

    descriptor socket_;
    stream_hello hello_;
    const job_key* key_;
    words_on_wire wire_;
    listener_answer answer_;
    auth_proof proof_;
    state state_ = state::hello;
};

// The accepting side, in a job with a key or without (then a sound hello is enough).
class guest {
public:
    guest(descriptor d, std::int64_t accepted_at_ns, const socket_calls& calls)
        : socket(static_cast<descriptor&&>(d)), since_ns(accepted_at_ns), wire_(calls) {}

    descriptor socket;
    std::int64_t since_ns;
    stream_hello hello{};

    [[gnu::cold]] greeted move(const char (&token)[stream_hello::token_bytes], protection asked, const job_key& key) {
        for (;;) {
            const greeted done = step(token, asked, key);
            if (done != greeted::done || state_ == state::over) return done;
        }
    }
    secret session(const job_key& key) const { return key ? key.session(hello, answer_.words) : secret(); }
    // Whether it knows the job's name, but asks for another protection than we do, or has another key.
    bool has_other_protection() const { return has_other_protection_; }
    bool is_being_told() const { return state_ == state::refused; }
    // Whether the lower rank has closed the connection. It sends nothing before it is welcomed.
    bool has_given_up() const { return hello.from_side == stream_hello::side::lower && has_hung_up(); }
    // Whether the other end sends nothing more.
    bool has_hung_up() const { return events_now(socket.get(), POLLRDHUP) != 0; }

private:
    enum class state : unsigned char { hello, answer, proof, accepted, over, refused };

    greeted step(const char (&token)[stream_hello::token_bytes], protection asked, const job_key& key) {
        const int fd = socket.get();
        greeted g = greeted::gone;
        switch (state_) {
            case state::hello:
                g = wire_.read(fd, &hello, sizeof hello);
                if (g != greeted::done) return g;
                if (!hello.is_sound(token)) return greeted::gone;
                if (hello.protected_by != static_cast<std::uint64_t>(asked)) return refuse(asked);
                if (!key) {
                    state_ = state::over;
                    return g;
                }
                answer_.words = key.answer(hello);
                break;
            case state::answer: g = wire_.write(fd, &answer_, sizeof answer_); break;
            case state::proof:
                g = wire_.read(fd, &proof_, sizeof proof_);
                has_other_protection_ = g == greeted::done && !key.is_right(hello, answer_.words, proof_);
                if (has_other_protection_) return greeted::insecure;
                break;
            case state::accepted: {
                const stream_frame accepted{.what = stream_frame::kind::accepted};
                g = wire_.write(fd, &accepted, sizeof accepted);
                break;
            }
            case state::over: return greeted::done;
            case state::refused: return drain();
        }
        if (g == greeted::done) state_ = static_cast<state>(static_cast<int>(state_) + 1);
        return g;
    }
    // The guest seems to be of this job, so it gets the reason for the refusal. What it sent behind its hello is read
    // and discarded: closing the socket over unread bytes would discard our frame.
    greeted refuse(protection asked) {
        const stream_frame refused{.what = stream_frame::kind::refused, .tag = static_cast<std::uint32_t>(asked)};
        (void)wire_.write(socket.get(), &refused, sizeof refused);
        (void)::shutdown(socket.get(), SHUT_WR);
        state_ = state::refused;
        has_other_protection_ = true;
        return drain();
    }
    greeted drain() {
        char nothing[4096];
        for (int turn = 0; turn < 64; ++turn) {
            const ssize_t n = ::recv(socket.get(), nothing, sizeof nothing, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && !would_block(errno))) return greeted::gone;
            if (n < 0) break;
        }
        return greeted::not_yet;
    }

    words_on_wire wire_;
    listener_answer answer_;
    auth_proof proof_;
    state state_ = state::hello;
    bool has_other_protection_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
