// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The side of ranks other than 0 in joining: connects to rank 0, identifies itself, maps what it receives and waits
// until each rank has done the same.
#pragma once

#include <collx/core/atomic.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/start_check.hpp>
#include <collx/core/system_limits.hpp>

#include <collx/transport/detail/join_packet.hpp>
#include <collx/transport/detail/sealed_memory.hpp>
#include <collx/transport/detail/unix_socket.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class join_guest {
public:
    join_guest(const char* job, int rank, int ranks, const deadline& until, const char* settings = "",
               start_check* check = nullptr)
        : settings_(settings), name_(name_of_job(job)), job_hash_(hash_bytes(job, std::strlen(job), 3)), rank_(rank),
          ranks_(ranks), until_(until), check_(check) {}

    // Tries until the deadline. It tries again when there is no listener yet, the queue is full, the listener was of a
    // job that is just ending, or rank 0 had too many strangers at the listener.
    [[gnu::cold]] counted_ptr<arena> join() {
        const char* trouble = "rank 0 did not come";
        for (retry_pause pause(10'000'000);;) {
            socket_ = packet_socket();
            if (!socket_.is_open())
                fail(errc::resource, rank_, -1, remedy_for_descriptor(errno), "cannot make a socket: %s",
                     std::strerror(errno));
            if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name_.address), name_.bytes) == 0) {
                if (peer_of(socket_.get()).uid != ::geteuid())
                    trouble = "a process of another user answers in place of rank 0";
                else if (auto a = talk()) return a;
                else trouble = "rank 0 did not let this process in: is it another version of collx?";
            } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
                fail(errc::resource, rank_, 0, remedy_for_descriptor(errno), "cannot connect to rank 0: %s",
                     std::strerror(errno));
            }
            socket_.close();
            if (check_ != nullptr) check_->throw_if_ended();
            if (!pause.sleep(until_)) fail(errc::timeout, rank_, 0, remedy_of_join(errc::timeout), "%s", trouble);
        }
    }

private:
    // On a busy machine rank 0 may not run for a while. If it ends, this end is notified at once.
    static constexpr std::int64_t verdict_grace_ns = 3'000'000'000;

    // One attempt. nullptr when rank 0 closed before its welcome.
    [[gnu::cold]] counted_ptr<arena> talk() {
        if (!say_hello()) return nullptr;
        counted_ptr<arena> shared;
        deadline until = until_;
        for (;;) {
            join_packet p;
            descriptor fd;
            const packet got = receive_packet(socket_.get(), &p, sizeof p, &fd);
            if (got == packet::none) {
                if (wait_for_event(socket_.get(), POLLIN, next_look(check_, until))) continue;
                if (check_ != nullptr) check_->throw_if_ended();
                if (!until.passed()) continue;
                fail(errc::timeout, rank_, 0, remedy_of_join(errc::timeout),
                     shared ? "rank 0 does not say who is missing" : "rank 0 does not answer");
            }
            if ((got != packet::whole && got != packet::no_room) || !p.is_ours()) {
                if (!shared) return nullptr;
                fail(errc::peer_failed, rank_, 0, remedy_of_join(errc::peer_failed),
                     "rank 0 ended while the ranks were coming together");
            }
            if (p.what == join_packet::kind::failed) fail_as_told(p, rank_, remedy_of_join(static_cast<errc>(p.code)));
            if (p.what == join_packet::kind::done && shared) return shared;
            if (p.what != join_packet::kind::welcome || shared || (!fd.is_open() && got == packet::whole))
                return nullptr;
            shared = map(static_cast<descriptor&&>(fd), p);
            // Rank 0 knows our deadline and will name the missing ranks; its packet gets time to arrive.
            if (check_ == nullptr && until.at_ns < INT64_MAX - verdict_grace_ns) until.at_ns += verdict_grace_ns;
        }
    }

    bool say_hello() {
        join_packet p;
        p.number = job_hash_;
        p.left_ns = until_.left_ns();
        p.rank = rank_;
        p.ranks = ranks_;
        p.pid = ::getpid();
        std::snprintf(p.text, sizeof p.text, "%s", settings_);
        return send_packet(socket_.get(), &p, sizeof p);
    }

    counted_ptr<arena> map(descriptor fd, const join_packet& welcome) {
        join_packet p;
        try {
            if (!fd.is_open())
                fail(errc::resource, rank_, -1, remedy_for_descriptor(EMFILE),
                     "this process may open no more files, not even rank 0's memory");
            auto shared = open_sealed_arena(static_cast<descriptor&&>(fd), welcome.number, rank_, ranks_);
            // Another pid namespace: the number means nothing to other ranks, so no rank may watch it.
            if (welcome.pid != ::getpid()) shared->hide_number();
            shared->header().pid[rank_].store(welcome.pid == ::getpid() ? ::getpid() : -1, memory_order::relaxed);
            shared->header().arrived.fetch_add(1, memory_order::acq_rel);
            p.what = join_packet::kind::mapped;
            (void)send_packet(socket_.get(), &p, sizeof p);
            return shared;
        } catch (const error& e) {
            p.what = join_packet::kind::failed;
            p.code = static_cast<std::uint32_t>(e.code());
            std::snprintf(p.text, sizeof p.text, "%s", e.what());
            (void)send_packet(socket_.get(), &p, sizeof p);
            throw;
        }
    }

    const char* settings_;
    socket_name name_;
    std::uint64_t job_hash_;
    int rank_, ranks_;
    deadline until_;
    start_check* check_;
    descriptor socket_;
};

} // namespace detail

COLLX_END_NAMESPACE
