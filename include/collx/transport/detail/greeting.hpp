// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a connection begins in a job with a key, on both sides, one step at a time and without waiting: hello, answer,
// proof, accepted (core/authentication.hpp). Everything has a fixed size. Before its proof, what the other side sends
// is only compared. Knows nothing of what the connection is for.
#pragma once

#include <poll.h>
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

// Reads words of known size from a socket, and never further: what follows belongs to the stream.
class word_reader {
public:
    explicit word_reader(const socket_calls& calls) : calls_(&calls) {}
    // not_yet, done or gone.
    greeted read(int fd, void* to, std::size_t bytes) {
        while (got_ < bytes) {
            one_part m(static_cast<char*>(to) + got_, bytes - got_);
            const ssize_t n = without_eintr([&] { return calls_->recvmsg(fd, &m, MSG_DONTWAIT); });
            if (n < 0 && would_block(errno)) return greeted::not_yet;
            if (n <= 0) {
                error_ = n < 0 ? errno : 0;
                return greeted::gone;
            }
            got_ += static_cast<std::size_t>(n);
        }
        got_ = 0;
        return greeted::done;
    }
    int error() const { return error_; }

private:
    const socket_calls* calls_;
    std::size_t got_ = 0;
    int error_ = 0;
};
// Writes words to a socket.
class word_writer {
public:
    explicit word_writer(const socket_calls& calls) : calls_(&calls) {}
    greeted write(int fd, const void* from, std::size_t bytes) {
        while (sent_ < bytes) {
            const one_part m(static_cast<const char*>(from) + sent_, bytes - sent_);
            const ssize_t n = without_eintr([&] { return calls_->sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT); });
            if (n < 0 && (would_block(errno) || errno == ENOTCONN)) return greeted::not_yet; // still connecting
            if (n < 0) {
                error_ = errno;
                return greeted::gone;
            }
            sent_ += static_cast<std::size_t>(n);
        }
        sent_ = 0;
        return greeted::done;
    }
    int error() const { return error_; }

private:
    const socket_calls* calls_;
    std::size_t sent_ = 0;
    int error_ = 0;
};

// The answer on the wire: it has a frame's head, so that a stream which expects frames understands a refusal, too.
struct listener_answer {
    stream_frame head{.what = stream_frame::kind::answer};
    auth_answer words;
};
static_assert(sizeof(listener_answer) == 80);

// The connecting side. `key` must outlive it.
class greeting {
public:
    greeting(descriptor socket, const stream_hello& h, const job_key& key, const socket_calls& calls)
        : socket_(static_cast<descriptor&&>(socket)), hello_(h), key_(&key), in_(calls), out_(calls) {
        draw_random(hello_.nonce, sizeof hello_.nonce);
    }
    [[gnu::cold]] greeted move() {
        for (;;) {
            const greeted done = step();
            if (done != greeted::done || state_ == state::over) return done;
        }
    }
    int error() const { return in_.error() != 0 ? in_.error() : out_.error(); } // of the system, 0: none
    bool is_refused() const { return error() == ECONNREFUSED; }
    // Whether the system could not reach the peer; an end that closed is not enough.
    bool is_unreachable() const { return out_.error() != 0 && out_.error() != EPIPE && out_.error() != ECONNRESET; }
    int fd() const { return socket_.get(); }
    descriptor release_socket() { return static_cast<descriptor&&>(socket_); }
    secret session() const { return key_->session(hello_, answer_.words); }

private:
    enum class state : unsigned char { hello, head, words, proof, accepted, over };

    // done: the next state is reached.
    greeted step() {
        const int fd = socket_.get();
        greeted g = greeted::gone;
        switch (state_) {
            case state::hello: g = out_.write(fd, &hello_, sizeof hello_); break;
            case state::head:
                g = in_.read(fd, &answer_.head, sizeof answer_.head);
                if (g == greeted::done && !is_head(stream_frame::kind::answer)) return greeted::insecure;
                break;
            case state::words:
                g = in_.read(fd, &answer_.words, sizeof answer_.words);
                if (g != greeted::done) break;
                if (!key_->is_right(hello_, answer_.words)) {
                    (void)out_.write(fd, &proof_, sizeof proof_); // an empty proof, so that the other side knows, too
                    return greeted::insecure;
                }
                proof_ = key_->prove(hello_, answer_.words);
                break;
            case state::proof: g = out_.write(fd, &proof_, sizeof proof_); break;
            case state::accepted:
                g = in_.read(fd, &answer_.head, sizeof answer_.head);
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
    word_reader in_;
    word_writer out_;
    listener_answer answer_;
    auth_proof proof_;
    state state_ = state::hello;
};

// The accepting side, in a job with a key or without (then a sound hello is enough).
class guest {
public:
    guest(descriptor d, std::int64_t accepted_at_ns, const socket_calls& calls)
        : socket(static_cast<descriptor&&>(d)), since_ns(accepted_at_ns), in_(calls), out_(calls) {}

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
    bool has_given_up() const {
        char first;
        return hello.from_side == stream_hello::side::lower &&
               ::recv(socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    }

    // Whether the other end sends nothing more.
    bool has_hung_up() const {
        pollfd p{socket.get(), POLLRDHUP, 0};
        return ::poll(&p, 1, 0) > 0;
    }

private:
    enum class state : unsigned char { hello, answer, proof, accepted, over, refused };

    greeted step(const char (&token)[stream_hello::token_bytes], protection asked, const job_key& key) {
        const int fd = socket.get();
        greeted g = greeted::gone;
        switch (state_) {
            case state::hello:
                g = in_.read(fd, &hello, sizeof hello);
                if (g != greeted::done) return g;
                if (!hello.is_sound(token)) return greeted::gone;
                if (hello.protected_by != static_cast<std::uint64_t>(asked)) return refuse(asked);
                if (!key) {
                    state_ = state::over;
                    return g;
                }
                answer_.words = key.answer(hello);
                break;
            case state::answer: g = out_.write(fd, &answer_, sizeof answer_); break;
            case state::proof:
                g = in_.read(fd, &proof_, sizeof proof_);
                has_other_protection_ = g == greeted::done && !key.is_right(hello, answer_.words, proof_);
                if (has_other_protection_) return greeted::insecure;
                break;
            case state::accepted: {
                const stream_frame accepted{.what = stream_frame::kind::accepted};
                g = out_.write(fd, &accepted, sizeof accepted);
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
        (void)out_.write(socket.get(), &refused, sizeof refused);
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

    word_reader in_;
    word_writer out_;
    listener_answer answer_;
    auth_proof proof_;
    state state_ = state::hello;
    bool has_other_protection_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
