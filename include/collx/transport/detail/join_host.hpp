// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rank 0's side of joining: listens while ranks come, checks who they are, hands out the arena, and notifies all ranks
// of a failure. One thread, one poll, everything bounded: a stranger costs its own socket and nothing else.
#pragma once

#include <collx/core/atomic.hpp>
#include <cstdarg>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/start_check.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/detail/join_packet.hpp>
#include <collx/transport/detail/unix_socket.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class join_host {
public:
    static constexpr int most_strangers = 64; // connections that have not sent a valid hello yet
    static constexpr std::int64_t latecomers_ns = 300'000'000;
    static constexpr std::int64_t stranger_limit_ns = 2'000'000'000; // how long they may take

    // The listener comes first, so that ranks find it while rank 0 still makes the arena.
    [[gnu::cold]] join_host(const char* job, int ranks, const deadline& until, const char* settings = "",
                            start_check* check = nullptr)
        : settings_(settings), ranks_(ranks), job_hash_(hash_bytes(job, std::strlen(job), 3)), until_(until),
          check_(check) {
        const socket_name name = name_of_job(job);
        listener_ = packet_socket();
        if (!listener_.is_open())
            fail(errc::resource, 0, -1, remedy_for_descriptor(errno), "cannot make a socket: %s", std::strerror(errno));
        const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
        if (::bind(listener_.get(), address, name.bytes) != 0) {
            if (errno == EADDRINUSE) fail_because_taken(name);
            fail(errc::resource, 0, -1, remedy_for_descriptor(errno), "cannot name a socket: %s", std::strerror(errno));
        }
        if (::listen(listener_.get(), ranks + most_strangers) != 0)
            fail(errc::resource, 0, -1, remedy_for_descriptor(errno), "cannot listen: %s", std::strerror(errno));
    }

    // Returns when all ranks have mapped the arena.
    [[gnu::cold]] void serve(arena& shared) {
        arena_ = &shared;
        while (mapped_ < ranks_ - 1) {
            listen_for_a_while(next_look(check_, next_limit()));
            if (check_ != nullptr) check_->throw_if_ended();
            if (until_.passed() && mapped_ < ranks_ - 1) fail_for_lateness();
        }
        listener_.close(); // before a rank can return and come back for another job of the same name
        shared.header().arrived.fetch_add(1, memory_order::acq_rel);
        join_packet done;
        done.what = join_packet::kind::done;
        for (const guest& g : guests_)
            if (g.rank > 0) (void)send_packet(g.socket.get(), &done, sizeof done);
    }

    // Instead of serve(), where rank 0 could not make the arena.
    [[noreturn]] void refuse(const error& e) { fail_all(e.code(), 0, "rank 0 cannot share memory: %.150s", e.what()); }

private:
    struct guest {
        descriptor socket;
        std::int64_t limit_ns = 0;
        int rank = -1, pid = -1;
        bool has_mapped = false;
    };

    // Reads what ranks send, until `limit`.
    [[gnu::cold]] void listen_for_a_while(const deadline& limit) {
        polled_.clear();
        polled_.push_back({listener_.get(), POLLIN, 0});
        for (const guest& g : guests_) polled_.push_back({g.socket.get(), POLLIN, 0});
        (void)::poll(polled_.data(), polled_.size(), poll_ms(limit, 1000));
        for (std::size_t i = polled_.size(); i-- > 1;)
            if (polled_[i].revents != 0 && !hear(guests_[i - 1])) remove(i - 1);
        drop_slow_strangers();
        if ((polled_[0].revents & POLLIN) != 0) accept_guests();
    }

    [[noreturn, gnu::cold]] void fail_because_taken(const socket_name& name) {
        descriptor probe = packet_socket();
        ucred holder{};
        if (probe.is_open() &&
            ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) == 0)
            holder = peer_of(probe.get());
        fail(errc::mismatch, 0, -1, "give each job a COLLX_JOB of its own and each process a COLLX_RANK of its own",
             "process %d of user %lu is rank 0 of a job with this name already", static_cast<int>(holder.pid),
             static_cast<unsigned long>(holder.uid));
    }

    [[gnu::cold]] deadline next_limit() const {
        deadline d = until_;
        for (const guest& g : guests_)
            if (g.rank < 0 && g.limit_ns < d.at_ns) d.at_ns = g.limit_ns;
        return d;
    }

    void remove(std::size_t i) {
        if (guests_[i].rank < 0) --strangers_;
        guests_.erase_at(i);
    }
    [[gnu::cold]] bool drop_oldest_stranger() {
        for (std::size_t i = 0; i < guests_.size(); ++i)
            if (guests_[i].rank < 0) {
                remove(i);
                return true;
            }
        return false;
    }
    [[gnu::cold]] void drop_slow_strangers() {
        const std::int64_t now = now_ns();
        for (std::size_t i = guests_.size(); i-- > 0;)
            if (guests_[i].rank < 0 && guests_[i].limit_ns <= now) remove(i);
    }

    [[gnu::cold]] void accept_guests() {
        for (int i = 0; i < most_strangers; ++i) {
            guest g;
            g.socket = descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!g.socket.is_open()) {
                if (errno == EINTR || errno == ECONNABORTED) continue;
                if (!is_out_of_descriptors(errno)) return;
                if (!drop_oldest_stranger() && !has_failed_)
                    fail_all(errc::resource, 0, "rank 0 has no descriptor left for another rank: %s",
                             std::strerror(errno));
                continue;
            }
            if (peer_of(g.socket.get()).uid != ::geteuid()) continue;
            if (strangers_ >= most_strangers)
                drop_oldest_stranger(); // a rank sends its hello at once, so the oldest silent one is no rank
            g.limit_ns = now_ns() + stranger_limit_ns;
            ++strangers_;
            guests_.push_back(static_cast<guest&&>(g));
            if (!hear(guests_.back())) remove(guests_.size() - 1);
        }
    }

    // Reads what has come, at most as much as an honest guest ever sends. False when the guest is to be dropped.
    [[gnu::cold]] bool hear(guest& g) {
        for (int packets = 0; packets < 3; ++packets) {
            join_packet p;
            const packet got = receive_packet(g.socket.get(), &p, sizeof p);
            if (got == packet::none) return true;
            const bool is_good = got == packet::whole && p.is_ours();
            if (g.rank < 0) {
                if (!is_good || !welcome(g, p)) return false;
            } else if (has_failed_) {
                return false;
            } else if (!is_good) {
                // A guest that leaves after the deadline has waited for the verdict for too long.
                if (until_.passed() && mapped_ < ranks_ - 1) fail_for_lateness();
                fail_all(errc::peer_failed, g.rank, "rank %d (process %d) ended while the ranks were coming together",
                         g.rank, g.pid);
            } else if (p.what == join_packet::kind::failed) {
                p.text[sizeof p.text - 1] = '\0';
                fail_all(is_errc(p.code) ? static_cast<errc>(p.code) : errc::protocol, g.rank,
                         "rank %d cannot join: %.150s", g.rank, p.text);
            } else if (p.what == join_packet::kind::mapped && !g.has_mapped) {
                g.has_mapped = true;
                ++mapped_;
            }
        }
        return true;
    }

    [[gnu::cold]] bool welcome(guest& g, const join_packet& hello) {
        if (hello.what != join_packet::kind::hello || hello.number != job_hash_) return false;
        if (hello.rank <= 0 || hello.rank >= hello.ranks) return false; // join_shm() never sends this
        if (has_failed_) {
            ++told_;
            return send_packet(g.socket.get(), &verdict_, sizeof verdict_) && false;
        }
        g.pid = peer_of(g.socket.get()).pid;
        if (hello.ranks != ranks_) {
            set_rank(g, hello.rank);
            fail_all(errc::mismatch, hello.rank, "rank %d (process %d) says %d ranks, rank 0 says %d", hello.rank,
                     g.pid, hello.ranks, ranks_);
        }
        if (std::strncmp(hello.text, settings_, sizeof hello.text - 1) != 0) {
            set_rank(g, hello.rank);
            fail_for_settings(g, hello);
        }
        for (const guest& other : guests_) {
            if (other.rank != hello.rank) continue;
            set_rank(g, hello.rank);
            --told_; // one more to notify than there are ranks
            fail_all(errc::mismatch, hello.rank, "two processes say they are rank %d: %d and %d", hello.rank, other.pid,
                     g.pid);
        }
        if (hello.left_ns > 0 && hello.left_ns < until_.left_ns()) until_ = deadline::in_ns(hello.left_ns);
        join_packet p;
        p.what = join_packet::kind::welcome;
        p.number = arena_->bytes();
        p.ranks = ranks_;
        p.pid = g.pid == hello.pid ? hello.pid : -1;
        if (!send_packet(g.socket.get(), &p, sizeof p, arena_->fd())) return false;
        set_rank(g, hello.rank);
        return true;
    }
    [[noreturn, gnu::cold]] void fail_for_settings(const guest& g, const join_packet& hello) {
        join_packet theirs = hello; // its text is cut and printed, nothing more
        theirs.text[sizeof theirs.text - 1] = '\0';
        std::size_t at = 0, word = 0; // where the first word begins that differs
        for (; settings_[at] != '\0' && settings_[at] == theirs.text[at]; ++at)
            if (settings_[at] == ' ') word = at + 1;
        const auto length = [&](const char* text) { return static_cast<int>(std::strcspn(text + word, " ")); };
        const char* const says = settings_ + word;
        const bool is_of_keys = std::strncmp(says, "protection=", 11) == 0 || std::strncmp(says, "key=", 4) == 0;
        fail_all(is_of_keys ? errc::security : errc::mismatch, g.rank, "rank %d says %.*s, rank 0 says %.*s", g.rank,
                 length(theirs.text), theirs.text + word, length(settings_), settings_ + word);
    }
    void set_rank(guest& g, int rank) {
        g.rank = rank;
        --strangers_;
    }

    [[noreturn, gnu::cold]] void fail_for_lateness() {
        char missing[120];
        int first = -1;
        list_ranks(missing, sizeof missing, ranks_, [&](int r) {
            bool is_there = r == 0;
            for (const guest& g : guests_) is_there = is_there || (g.rank == r && g.has_mapped);
            if (!is_there && first < 0) first = r;
            return !is_there;
        });
        fail_all(errc::timeout, first, "%d of %d ranks did not come: %s", ranks_ - 1 - mapped_, ranks_, missing);
    }

    // One failure ends the start of all ranks, with the same text. Guests that are here receive it at once, ranks that
    // are just coming for a moment longer.
    COLLX_NOMERGE [[noreturn, gnu::cold, gnu::format(printf, 4, 5)]] void fail_all(errc code, int peer,
                                                                                   const char* format, ...) {
        verdict_.what = join_packet::kind::failed;
        verdict_.code = static_cast<std::uint32_t>(code);
        verdict_.rank = peer;
        verdict_.ranks = ranks_;
        va_list args;
        va_start(args, format);
        std::vsnprintf(verdict_.text, sizeof verdict_.text, format, args);
        va_end(args);
        has_failed_ = true;
        for (const guest& g : guests_) {
            if (g.rank <= 0) continue;
            (void)send_packet(g.socket.get(), &verdict_, sizeof verdict_);
            ++told_;
        }
        const deadline moment = deadline::in_ns(code == errc::timeout ? 0 : latecomers_ns);
        while (told_ < ranks_ - 1 && !moment.passed()) listen_for_a_while(moment);
        fail(code, 0, peer, remedy_of_join(code), "%s", verdict_.text);
    }

    const char* settings_;
    int ranks_;
    std::uint64_t job_hash_;
    deadline until_;
    start_check* check_;
    descriptor listener_;
    arena* arena_ = nullptr;
    growing_array<guest> guests_;
    growing_array<pollfd> polled_;
    int strangers_ = 0, mapped_ = 0;
    join_packet verdict_;
    bool has_failed_ = false;
    int told_ = 0; // ranks that know the verdict
};

} // namespace detail

COLLX_END_NAMESPACE
