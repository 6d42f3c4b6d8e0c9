// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank's listener for other hosts while the job starts. Over a binomial tree of connections all ranks learn where
// each rank listens and on which host it is. That takes 2 log2(n) messages one after the other, none of them through
// the store. The connections are those of remote_links.hpp, so the rules for strangers, proofs and notifications of
// failures are the same.
#pragma once

#include <utility>

#include <collx/bootstrap/host.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/job/tree_exchange.hpp>
#include <collx/transport/remote_links.hpp>
#include <collx/transport/wait.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What exchange_over_tree() needs of a communicator, before there is one.
class listener_meeting {
public:
    listener_meeting(counted_ptr<socket_hub> hub, int rank, int n, const deadline& until, start_check* check)
        : net{{std::move(hub), remote_members{1, rank, all_ranks(n), {.depth = 4, .slot_bytes = 64 * 1024}, 1}},
              n,
              {},
              {}},
          until_(until), check_(check) {
        net.links.begin(failed_);
    }
    ~listener_meeting() { net.links.say_bye(); }

    // Keeps one end for each peer, because an end counts its messages.
    struct ends {
        int size() const { return n; }
        int rank() const { return links.rank(); }
        std::size_t slot_bytes() const { return 64 * 1024; }
        sending_end& tx(int, int peer) {
            for (auto& [p, end] : sending)
                if (p == peer) return end;
            return sending.emplace_back(peer, links.tx(0, peer)).second;
        }
        receiving_end& rx(int, int peer) {
            for (auto& [p, end] : receiving)
                if (p == peer) return end;
            return receiving.emplace_back(peer, links.rx(0, peer)).second;
        }
        remote_links links;
        int n;
        detail::growing_array<std::pair<int, sending_end>> sending;
        detail::growing_array<std::pair<int, receiving_end>> receiving;
    };
    ends net;
    static constexpr std::uint64_t agreed = 0; // no call yet

    template <class Condition>
    void wait_until(Condition&& holds, std::int64_t, awaited peer, listener_meeting* = nullptr) {
        for (backoff wait(wait_policy{.spins = 4}); !holds();) {
            if (net.links.move()) {
                wait.reset();
                continue;
            }
            if (!wait.pause()) continue;
            if (check_ != nullptr) check_->throw_if_ended();
            if (const failure f(failed_.load(memory_order::acquire)); f) give_up(f, peer);
            const std::int64_t now = now_ns();
            if (const int gone = net.links.find_gone(peer, now); gone >= 0)
                give_up(failure(errc::peer_failed, gone), gone);
            // Waits longer for a peer that itself waits for others, so that the error names the rank that is late.
            if (until_.at_ns != INT64_MAX && now > until_.at_ns + patience_ns(peer))
                give_up(failure(errc::timeout, peer), peer);
        }
    }
    [[noreturn, gnu::cold]] void give_up(failure f, int) {
        std::uint64_t none = 0;
        failed_.compare_exchange_strong(none, f.word, memory_order::acq_rel);
        const failure first(failed_.load(memory_order::acquire));
        // All ranks are alive and can still be notified: ranks that come a little later get the reason instead of a
        // dead peer.
        if (first.code() == errc::security) net.links.announce_failure(remote_links::audience::wanted, 2'000'000'000);
        else net.links.announce_failure(false);
        const int who = first.rank(), me = net.rank();
        if (first.code() == errc::timeout)
            fail(errc::timeout, me, who, "is it alive, and can the hosts reach each other at COLLX_ADDRESS?",
                 "rank %d did not come to exchange addresses", who);
        if (first.code() == errc::peer_failed)
            fail(errc::peer_failed, me, who, "see its output; can the hosts reach each other at COLLX_ADDRESS?",
                 "rank %d ended, or cannot be reached, while addresses were exchanged", who);
        if (first.code() == errc::security)
            fail(errc::security, me, who, security_remedy,
                 "rank %d did not prove to have this job's key while addresses were exchanged", who);
        if (first.code() == errc::resource)
            fail(errc::resource, me, who, "raise its limit of open files (ulimit -n)",
                 "rank %d has no descriptor left for a connection while addresses were exchanged", who);
        fail(first.code(), me, who, "see the output of that rank", "rank %d failed while addresses were exchanged",
             who);
    }

private:
    std::int64_t patience_ns(int peer) const {
        constexpr std::int64_t level_ns = 20'000'000;
        if (peer < net.rank()) return 24 * level_ns;
        std::int64_t levels = 0;
        for (int below = peer - net.rank(); below > 1; below /= 2) levels += level_ns;
        return levels;
    }
    static detail::growing_array<int> all_ranks(int n) {
        detail::growing_array<int> ranks;
        for (int r = 0; r < n; ++r) ranks.push_back(r);
        return ranks;
    }
    atomic<std::uint64_t> failed_{0};
    deadline until_;
    start_check* check_;
};

// Opened only if there are other hosts. linger_ns: see socket_hub.
class listener {
public:
    listener(listener&&) = default;
    ~listener() { remove_unix_file(listener_.get()); } // it was not taken over
    explicit listener(std::int64_t linger_ns, job_protection by, const socket_calls& calls = system_socket_calls,
                      int lanes = 1)
        : linger_ns_(linger_ns), calls_(&calls), by_(std::move(by)), lanes_(lanes) {}

    [[gnu::cold]] kept_text open(const host_description& h) {
        mine_ = address_to_listen(h.address);
        directory_ = is_unix_address(h.address) ? unix_directory(h.address) : kept_text();
        listener_ = socket_hub::listen_on(mine_, *calls_);
        const kept_text at = mine_.is_unix() ? joined({"unix:", unix_name_of(mine_)}) : h.address;
        return joined({at, " ", mine_.port()});
    }
    // check: is asked, while ranks wait for each other, whether the start has ended.
    void tell(start_check* check) { check_ = check; }
    // See meet_at(). Afterwards `hub` knows where all ranks listen.
    [[gnu::cold]] detail::growing_array<std::uint64_t> meet(const kept_text& token, int rank, int size,
                                                            std::uint64_t host, const kept_text& address_up,
                                                            const deadline& until) {
        detail::growing_array<socket_address> peers(static_cast<std::size_t>(size));
        if (rank != 0) peers[rank & (rank - 1)] = address_from(address_up);
        hub = make_counted<socket_hub>(std::move(listener_), token, peers, linger_ns_, *calls_, by_);
        detail::growing_array<std::uint64_t> hosts(peers.size());
        {
            listener_meeting all(hub, rank, size, until, check_);
            const card mine(host, mine_);
            exchange_over_tree(
                all, &mine, sizeof mine,
                [&](int r, const std::byte* at) {
                    card c;
                    std::memcpy(static_cast<void*>(&c), at, sizeof c);
                    hosts[r] = c.host;
                    peers[r] = c.address(directory_);
                },
                0);
        }
        hub->learn(std::move(peers));
        hub->set_lanes(lanes_);
        return hosts;
    }
    // Replaces meet() where ranks have another way to exchange what open() has returned.
    [[gnu::cold]] void learn(const kept_text& token, const detail::growing_array<kept_text>& addresses) {
        detail::growing_array<socket_address> peers;
        for (const kept_text& a : addresses) peers.push_back(address_from(a));
        hub = make_counted<socket_hub>(std::move(listener_), token, std::move(peers), linger_ns_, *calls_, by_);
        hub->set_lanes(lanes_);
        hub->end_start(); // the other way has compared the keys
    }
    counted_ptr<socket_hub> hub;

    // An address that is not in use: a free port of a numeric address, or a new name for a unix socket.
    [[gnu::cold]] static socket_address address_to_listen(const kept_text& at) {
        if (is_unix_address(at)) return unix_address(unix_directory(at), new_unix_name());
        return numeric_address(at, 0);
    }

private:
    // "ADDRESS PORT" as another rank published it.
    [[gnu::cold]] socket_address address_from(const kept_text& text) const {
        const std::size_t blank = text.rfind(' ');
        const char* at = text.c_str() + (blank == kept_text::npos ? 0 : blank + 1);
        const kept_text host = text.substr(0, blank == kept_text::npos ? 0 : blank);
        if (const name_view name = name_view(host).substr(host.size() < 5 ? host.size() : 5);
            is_unix_address(host) && is_unix_name(name))
            return unix_address(directory_, name);
        return numeric_address(host, static_cast<int>(read_digits(at, 65535)));
    }
    // What one rank publishes in the exchange: its host, and where it listens.
    struct card {
        std::uint64_t host = 0;
        std::uint32_t bytes = 0;
        unsigned char socket[sizeof(sockaddr_in6)] = {};
        static_assert(sizeof socket == offsetof(sockaddr_un, sun_path) + 1 + unix_name_bytes);

        card() = default;
        card(std::uint64_t h, const socket_address& mine) : host(h) {
            const socket_address a = mine.is_unix() ? unix_address("", unix_name_of(mine)) : mine;
            bytes = a.bytes <= sizeof socket ? a.bytes : 0;
            std::memcpy(socket, &a.address, bytes);
        }
        // Comes from another process, so it is checked.
        socket_address address(const kept_text& directory) const {
            socket_address a;
            a.bytes = bytes <= sizeof socket ? bytes : 0;
            std::memcpy(&a.address, socket, a.bytes);
            if (!a.is_unix()) return a;
            const name_view name = a.bytes == sizeof socket ? unix_name_of(a) : name_view();
            return is_unix_name(name) ? unix_address(directory, name) : socket_address();
        }
    };
    std::int64_t linger_ns_;
    const socket_calls* calls_;
    job_protection by_;
    int lanes_;
    start_check* check_ = nullptr;
    descriptor listener_;
    socket_address mine_;
    kept_text directory_; // of unix sockets that are files
};

} // namespace detail

COLLX_END_NAMESPACE
