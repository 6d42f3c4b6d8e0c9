// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The server of a tcp_store, run by one rank: one thread, one poll, everything bounded. A client that sends wrong
// bytes, none, or half a frame costs only its own socket. With a key, a client without it reads and writes nothing.
// Without a key any process that can connect may do both, so bind the server to 127.0.0.1 or to a private network.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <collx/bootstrap/detail/refused_ranks.hpp>
#include <collx/bootstrap/detail/store_table.hpp>
#include <collx/bootstrap/detail/tcp_client_state.hpp>
#include <collx/bootstrap/names.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/start_thread.hpp>
#include <collx/core/strangers.hpp>

COLLX_BEGIN_NAMESPACE

class tcp_server {
public:
    static constexpr std::size_t most_connections = (1 << 15) + 64; // or the limit of open files, if that is less
    static constexpr std::size_t most_entries = detail::store_table::most_entries;
    // For the rest of a frame, and for the client to read a reply. A first frame: see stranger_limit_ns().
    static constexpr std::int64_t slow_limit_ns = detail::slow_limit_ns;
    // How long the server stays at the end, so that late ranks still receive the verdict of their start.
    static constexpr std::int64_t notify_limit_ns = 500'000'000;

    // Starts to serve. Port 0 takes a free one, see port(). Errors: environment if the address is taken or not local.
    [[gnu::cold]] explicit tcp_server(const kept_text& host = "127.0.0.1", int port = 0, const job_key& key = {})
        : owner_(::getpid()), key_(key) {
        const socket_address a = detail::numeric_address(look_up(host, deadline::in_ns(slow_limit_ns)), port);
        listener_ = detail::tcp_socket(a);
        const int on = 1;
        ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(listener_.get(), a.get(), a.bytes) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0)
            fail(errc::environment, -1, -1, "give the store an address of this host and a free port",
                 "cannot listen on %.80s port %d: %s", host.c_str(), port, std::strerror(errno));
        port_ = socket_address::of(listener_.get()).port();
        stop_ = descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!stop_.is_open())
            fail(errc::resource, -1, -1, detail::remedy_for_descriptor(errno), "cannot make an event: %s",
                 std::strerror(errno));
        thread_ = detail::start_thread<&tcp_server::serve>(this, "collx-store", "of the store");
    }
    tcp_server(const tcp_server&) = delete;
    tcp_server& operator=(const tcp_server&) = delete;
    [[gnu::cold]] ~tcp_server() {
        if (::getpid() != owner_) return; // fork() copied the object, not the thread
        const std::uint64_t one = 1;
        (void)!::write(stop_.get(), &one, sizeof one);
        ::pthread_join(thread_, nullptr);
    }
    int port() const { return port_; }

private:
    using connection = detail::tcp_client_state;
    using entry = detail::store_table::entry;
    entry* find(const kept_text& key) { return table_.find(key); }

    [[gnu::cold]] void serve() noexcept {
        try {
            detail::growing_array<pollfd> polled;
            for (;;) {
                polled.clear();
                polled.push_back({stop_.get(), POLLIN, 0});
                polled.push_back({now_ns() >= accept_after_ns_ ? listener_.get() : -1, POLLIN, 0});
                std::int64_t limit_ns = polled[1].fd < 0 ? accept_after_ns_ : INT64_MAX;
                for (const connection& c : connections_) {
                    const int wanted = !c.out.empty() ? POLLOUT : POLLIN;
                    polled.push_back({c.socket.get(), static_cast<short>(wanted), 0});
                    if (c.limit_ns < limit_ns) limit_ns = c.limit_ns;
                }
                if (is_ending()) {
                    polled[0].fd = -1;
                    limit_ns = end_ns_ < limit_ns ? end_ns_ : limit_ns;
                }
                (void)::poll(polled.data(), polled.size(), detail::poll_ms({limit_ns}, 1000));
                if (polled[0].revents != 0) begin_to_end();
                for (std::size_t i = 2; i < polled.size(); ++i)
                    if (polled[i].revents != 0) attend(connections_[i - 2], polled[i].revents);
                expire();
                while (report_lost_rank()) {
                }
                if (is_ending() && (is_settled() || now_ns() >= end_ns_)) return;
                detail::erase_if(connections_, [](const connection& c) { return !c.socket.is_open(); });
                if ((polled[1].revents & POLLIN) != 0) accept_some();
            }
        } catch (...) { // out of memory: clients see closed connections
            connections_.clear();
            listener_.close();
        }
    }

    [[gnu::cold]] void attend(connection& c, int events) {
        if ((events & POLLOUT) != 0) return flush(c);
        if ((events & POLLIN) == 0) return c.socket.close(); // closed by the client, perhaps during a get
        // Another request ends a waiting get.
        if (!c.awaited.empty() && !c.has_hung_up()) answer(c, detail::tcp_status::timeout, "", 0);
        if (c.out.empty()) listen_to(c);
    }

    // ------------------------------------------------------------------ the end, and ranks that are lost
    bool is_ending() const { return end_ns_ != INT64_MAX; }
    // No rank needs this server any more: no start has failed, and each rank of a start has sent bye.
    bool is_settled() const {
        for (const connection& c : connections_)
            if (c.socket.is_open() && !c.watched.empty()) return false;
        return !is_failing_;
    }
    void begin_to_end() {
        end_ns_ = now_ns() + notify_limit_ns;
        for (connection& c : connections_)
            if (c.socket.is_open() && !c.awaited.empty()) answer(c, detail::tcp_status::ended, "", 0);
    }
    // Rings the bell of one rank whose connection was lost without a bye. True: there may be more such ranks.
    [[gnu::cold]] bool report_lost_rank() {
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            connection& c = connections_[i];
            if (c.socket.is_open() || c.has_left || !c.is_known || c.rank < 0) continue;
            c.has_left = true;
            c.watched.empty() ? note_lost(c.rank) : ring(kept_text(c.watched), c.rank);
            return true;
        }
        return false;
    }
    // A rank was lost before it had a bell: rings the bell of the first client that listens to one.
    [[gnu::cold]] void note_lost(std::int64_t rank) {
        for (const connection& c : connections_)
            if (c.socket.is_open() && c.is_known && c.rank == rank) return; // it has come again
        if (lost_.size() < detail::refused_ranks::most) lost_.push_back(rank);
        for (connection& c : connections_)
            if (c.socket.is_open() && !c.bell.empty()) return report_lost_at(kept_text(c.bell));
    }
    void report_lost_at(const kept_text& bell) {
        ring(bell, lost_[0]);
        lost_.clear();
    }
    // There is one verdict: see store_alarm.hpp.
    void ring(const kept_text& bell, std::int64_t rank) {
        is_failing_ = true;
        ring(bell, detail::verdict_of_death(rank));
    }
    void ring(const kept_text& bell, kept_text verdict) {
        const kept_text second = detail::second_bell(bell);
        if (const entry* held = find(second)) verdict = held->value;
        else if (table_.put(nullptr, second, verdict)) answer_waiting(second);
        if (find(bell) == nullptr && table_.put(nullptr, bell, verdict)) answer_waiting(bell);
    }
    // A rank is counted once its get waits, so each rank that is counted also receives the message that all have come.
    [[gnu::cold]] void arrive(connection& c, const kept_text& bell, const kept_text& heard, std::int64_t wait_ns) {
        get(c, detail::second_bell(bell), heard, wait_ns);
        const kept_text key = detail::joined({bell, "/joined"});
        entry* held = find(key);
        std::int64_t sum = 0;
        if (held != nullptr) (void)detail::read_sum(held->value, sum);
        if (table_.put(held, key, detail::joined({++sum})) && sum == c.ranks) ring(bell, kept_text(detail::start_done));
    }
    // Clients that wait for the key, as its value or as their bell, get the value.
    [[gnu::cold]] void answer_waiting(const kept_text& key) {
        const entry* held = find(key);
        if (held == nullptr || waiting_for(key) == 0) return;
        const kept_text value = held->value;
        // The rank of this process comes last: if it ended first, the messages to the others would be lost with it.
        for (const bool is_own : {false, true})
            for (connection& c : connections_) {
                if (!c.socket.is_open() || c.awaited.empty() || (c.rank == 0) != is_own) continue;
                if (c.awaited == key) answer(c, detail::tcp_status::ok, value, 0);
                else if (c.bell == key) answer(c, detail::tcp_status::rung, value, 0);
            }
    }

    [[gnu::cold]] void expire() {
        const std::int64_t now = now_ns();
        for (connection& c : connections_) {
            if (c.limit_ns > now || !c.socket.is_open()) continue;
            if (c.awaited.empty()) c.socket.close();
            else answer(c, detail::tcp_status::timeout, "", 0);
        }
    }

    [[gnu::cold]] void accept_some() {
        std::size_t most = detail::most_strangers(), strangers = 0;
        for (const connection& c : connections_) strangers += !c.is_known;
        for (int i = 0; i < 64; ++i) {
            connection c;
            c.socket = descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!c.socket.is_open()) {
                if (errno == EINTR || errno == ECONNABORTED) continue;
                const bool is_out_of_files = errno != EAGAIN;
                if (is_out_of_files && !drop_oldest_stranger()) accept_after_ns_ = now_ns() + 50'000'000;
                return;
            }
            if (strangers >= most || connections_.size() >= most_connections) {
                if (!drop_oldest_stranger()) return;
                --strangers;
            }
            ++strangers;
            detail::send_at_once(c.socket.get());
            c.limit_ns = now_ns() + detail::stranger_limit_ns(strangers);
            connections_.push_back(static_cast<connection&&>(c));
        }
    }
    [[gnu::cold]] bool drop_oldest_stranger() {
        for (auto c = connections_.begin(); c != connections_.end(); ++c)
            if (!c->is_known) {
                connections_.erase(c);
                return true;
            }
        return false;
    }

    // Reads at most the rest of one frame, so that no client can make the server keep more.
    [[gnu::cold]] void listen_to(connection& c) {
        char part[16 * 1024];
        for (;;) {
            const std::size_t wanted = c.bytes_missing();
            if (wanted == 0) return handle(c);
            const ssize_t n = detail::without_eintr([&] {
                return ::recv(c.socket.get(), part, wanted < sizeof part ? wanted : sizeof part, MSG_DONTWAIT);
            });
            if (n < 0 && errno == EAGAIN) return;
            if (n <= 0) return c.socket.close();
            if (c.in.empty() && c.is_known) c.limit_ns = now_ns() + slow_limit_ns;
            c.in.append({part, static_cast<std::size_t>(n)});
            if (!c.is_proving && c.in.size() >= sizeof(detail::tcp_request) && !c.head().is_sound())
                return c.socket.close();
        }
    }
    [[gnu::cold]] void handle(connection& c) {
        if (c.is_proving) return take_proof(c);
        const auto r = c.head();
        if (r.word == detail::tcp_word::keyed_hello) return challenge(c, r.number);
        if (key_ && !c.is_known) return refuse(c, detail::tcp_status::has_key, r.number);
        const kept_text key = c.in.substr(sizeof r, r.key_bytes), value = c.in.substr(sizeof r + r.key_bytes);
        c.in.clear();
        c.is_known = true;
        if (r.word == detail::tcp_word::hello) {
            set_rank(c, r.number);
            return answer(c, detail::tcp_status::ok, "", 0);
        }
        if (r.word == detail::tcp_word::bye) {
            c.has_left = true;
            return c.watched.clear();
        }
        if (r.word == detail::tcp_word::watch) {
            set_rank(c, r.number & INT32_MAX);
            c.watched = key;
            c.has_left = false;
            c.ranks = r.number >> 32;
            return answer(c, detail::tcp_status::ok, "", 0);
        }
        if (r.word == detail::tcp_word::get) return get(c, key, value, r.number);
        if (r.word == detail::tcp_word::arrive) return arrive(c, key, value, r.number);
        entry* held = find(key);
        if (r.word == detail::tcp_word::claim && held != nullptr)
            return answer(c, detail::tcp_status::ok, held->value, 0);
        std::int64_t sum = 0;
        if (r.word == detail::tcp_word::add) {
            if (held != nullptr && !detail::read_sum(held->value, sum))
                return answer(c, detail::tcp_status::not_a_number, "", 0);
            sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(r.number));
        }
        const bool is_kept = table_.put(held, key, r.word == detail::tcp_word::add ? detail::joined({sum}) : value),
                   is_claimed = r.word == detail::tcp_word::claim;
        // The reply to a set goes out before the waiting clients get the value, because they may then end the job, and
        // with it this server. A claimed value is a verdict: there the waiting clients come first.
        if (is_claimed && is_kept) answer_waiting(key);
        answer(c, is_kept ? detail::tcp_status::ok : detail::tcp_status::full, is_claimed ? value : "",
               is_claimed ? 1 : sum);
        if (is_claimed && value.starts_with("f")) is_failing_ = true;
        if (is_kept && !is_claimed) answer_waiting(key);
    }
    void set_rank(connection& c, std::int64_t rank) {
        c.rank = rank;
        detail::erase_if(lost_, [&](std::int64_t r) { return r == rank; }); // it has come again
    }
    [[gnu::cold]] void get(connection& c, const kept_text& key, const kept_text& bell, std::int64_t wait_ns) {
        if (const entry* held = find(key)) return answer(c, detail::tcp_status::ok, held->value, 0);
        if (!bell.empty() && !lost_.empty()) report_lost_at(bell);
        if (const entry* rung = bell.empty() ? nullptr : find(bell))
            return answer(c, detail::tcp_status::rung, rung->value, 0);
        if (now_ns() < odd_until_ns_) return answer(c, detail::tcp_status::odd_rank, "", odd_rank_);
        if (is_ending()) return answer(c, detail::tcp_status::ended, "", 0);
        c.awaited = key;
        c.bell = bell;
        ++waiting_for(key);
        if (!bell.empty()) ++waiting_for(bell);
        c.limit_ns = deadline::in_ns(wait_ns > 0 ? wait_ns : 0).at_ns;
    }

    // ------------------------------------------------------------------ proofs
    [[gnu::cold]] void challenge(connection& c, std::int64_t rank) {
        if (!key_) return refuse(c, detail::tcp_status::has_no_key, rank);
        if (c.is_known) return c.socket.close();
        c.hello = c.in.as<decltype(c.hello)>();
        c.in.clear();
        c.is_proving = true;
        c.said = key_.answer(c.hello);
        const std::int64_t limit_ns = c.limit_ns; // of the whole proof
        answer(c, detail::tcp_status::answer, "", 0, {reinterpret_cast<const char*>(&c.said), sizeof c.said});
        c.limit_ns = limit_ns;
    }
    [[gnu::cold]] void take_proof(connection& c) {
        const auto p = c.in.as<detail::auth_proof>();
        c.in.clear();
        c.is_proving = false;
        if (!key_.is_right(c.hello, c.said, p)) return refuse(c, detail::tcp_status::wrong_key, c.hello.head.number);
        c.is_known = true;
        set_rank(c, c.hello.head.number);
        answer(c, detail::tcp_status::ok, "", 0);
    }
    // Sends the reason and closes the connection.
    [[gnu::cold]] void refuse(connection& c, detail::tcp_status why, std::int64_t rank) {
        answer(c, why, "", 0);
        c.socket.close();
        if (rank >= 0) note_refused(rank, now_ns());
    }
    [[gnu::cold]] void note_refused(std::int64_t rank, std::int64_t now) {
        for (const connection& c : connections_)
            if (c.socket.is_open() && c.is_known && c.rank == rank)
                return; // the rank is connected: this was another process
        if (!refused_.is_in_the_way(rank, now)) return;
        odd_rank_ = rank;
        odd_until_ns_ = now + detail::refused_ranks::heard_for_ns;
        for (connection& c : connections_)
            if (c.socket.is_open() && !c.awaited.empty()) answer(c, detail::tcp_status::odd_rank, "", rank);
    }

    // How many clients wait for keys of this hash, so that most sets need not search all connections. A client that
    // closes its connection stays counted, which only costs a search.
    std::uint32_t& waiting_for(const kept_text& key) {
        return waiting_[detail::hash_bytes(key.data(), key.size(), 0) % most_hashes];
    }

    [[gnu::cold]] void answer(connection& c, detail::tcp_status status, const kept_text& value, std::int64_t number,
                              name_view words = {}) {
        detail::tcp_reply r;
        r.status = status;
        r.value_bytes = static_cast<std::uint32_t>(value.size());
        r.number = number;
        if (!c.awaited.empty()) --waiting_for(c.awaited);
        if (!c.bell.empty()) --waiting_for(c.bell);
        c.awaited.clear();
        c.bell.clear();
        c.out = {reinterpret_cast<const char*>(&r), sizeof r};
        c.out += value;
        c.out += words;
        c.limit_ns = now_ns() + slow_limit_ns;
        flush(c);
    }
    [[gnu::cold]] void flush(connection& c) {
        const ssize_t n = detail::without_eintr(
            [&] { return ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
        if (n < 0 && errno != EAGAIN) return c.socket.close();
        if (n > 0) c.out.erase(0, static_cast<std::size_t>(n));
        if (c.out.empty()) c.limit_ns = INT64_MAX;
    }

    pid_t owner_;
    pthread_t thread_{};
    descriptor listener_, stop_;
    int port_ = 0;
    job_key key_;
    detail::refused_ranks refused_;
    std::int64_t odd_rank_ = -1, odd_until_ns_ = 0, end_ns_ = INT64_MAX;
    detail::growing_array<std::int64_t> lost_; // ranks whose connection was lost before they had a bell
    bool is_failing_ = false;
    detail::growing_array<connection> connections_;
    detail::store_table table_;
    static constexpr std::size_t most_hashes = 1 << 14;
    detail::growing_array<std::uint32_t> waiting_ = detail::growing_array<std::uint32_t>(most_hashes);
    std::int64_t accept_after_ns_ = 0;
};

COLLX_END_NAMESPACE
