// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The server of a tcp_store, run by one rank: one thread, one poll, everything bounded. A connection that says
// nonsense, nothing, or half of something costs only its own socket. With a key, who cannot prove to have it reads and
// writes nothing; without one, whoever can connect may, so keep it on 127.0.0.1 or a network of one's own.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <collx/bootstrap/detail/joined.hpp>
#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/names.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/signals_blocked.hpp>

COLLX_BEGIN_NAMESPACE

class tcp_server {
public:
    static constexpr std::size_t most_connections = (1 << 15) + 64; // or the limit of open files, if that is less
    static constexpr std::size_t most_entries = 1 << 18, most_total_bytes = std::size_t{64} << 20;
    // For a first frame, half a frame, a reply that nobody reads.
    static constexpr std::int64_t slow_limit_ns = 2'000'000'000;

    // Serves from now on. Port 0 takes a free one, see port(). Errors: environment if the address is taken or not ours.
    explicit tcp_server(const kept_text& host = "127.0.0.1", int port = 0, const job_key& key = {})
        : owner_(::getpid()), key_(key) {
        detail::tcp_address a = detail::numeric_address(look_up(host, deadline::in_ns(slow_limit_ns)), port);
        listener_ = detail::tcp_socket(a);
        const int on = 1;
        ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(listener_.get(), a.get(), a.bytes) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0)
            fail(errc::environment, -1, -1, "give the store an address of this host and a free port",
                 "cannot listen on %.80s port %d: %s", host.c_str(), port, std::strerror(errno));
        a.bytes = sizeof a.address;
        ::getsockname(listener_.get(), a.get(), &a.bytes);
        port_ = ntohs(a.address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a.address).sin6_port
                                                      : reinterpret_cast<sockaddr_in&>(a.address).sin_port);
        stop_ = descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!stop_.is_open())
            fail(errc::resource, -1, -1, "raise the limit of open files (ulimit -n)", "cannot make an event: %s",
                 std::strerror(errno));
        start();
    }
    tcp_server(const tcp_server&) = delete;
    tcp_server& operator=(const tcp_server&) = delete;
    ~tcp_server() {
        if (::getpid() != owner_) return; // fork() copied the object, not the thread
        const std::uint64_t one = 1;
        (void)!::write(stop_.get(), &one, sizeof one);
        ::pthread_join(thread_, nullptr);
    }
    int port() const { return port_; }
    // A rank that comes with another key, or none, or one where none is wanted, tries again for two seconds, as the
    // port may still be another job's. Who has done so for this long, and has no connection, is in the way of a start:
    // those who wait here, and those who come to wait soon afterwards, hear which rank it is. Nobody has checked its
    // number.
    static constexpr std::int64_t odd_after_ns = 1'500'000'000, odd_for_ns = 5'000'000'000;
    static constexpr int odd_after_times = 16;

private:
    struct connection {
        descriptor socket;
        kept_text in, out;
        std::int64_t limit_ns = INT64_MAX; // when it is dropped, or for a waiting get answered with timeout
        kept_text awaited;                 // key of a get that waits
        bool is_known = false;             // has said a whole sound frame, with a key: proved to have it
        bool is_proving = false;           // `hello` was answered by `said`
        std::int64_t rank = -1;            // that it said to be, -1: not known
        detail::tcp_keyed_hello hello{};
        detail::auth_answer said{};
    };
    struct refused {
        std::int64_t rank, first_ns, last_ns;
        int times = 1;
    };
    struct entry {
        std::uint64_t hash;
        kept_text key, value;
    };

    void start() {
        const detail::signals_blocked here;
        const int r = ::pthread_create(
            &thread_, nullptr, [](void* self) -> void* { return static_cast<tcp_server*>(self)->serve(), nullptr; },
            this);
        if (r != 0)
            fail(errc::resource, -1, -1, "raise the limit of threads (ulimit -u)", "cannot start a thread: %s",
                 std::strerror(r));
    }

    void serve() noexcept {
        try {
            detail::growing_array<pollfd> polled;
            for (;;) {
                polled.clear();
                polled.push_back({stop_.get(), POLLIN, 0});
                polled.push_back({now_ns() >= accept_after_ns_ ? listener_.get() : -1, POLLIN, 0});
                std::int64_t limit_ns = polled[1].fd < 0 ? accept_after_ns_ : INT64_MAX;
                for (const connection& c : connections_) {
                    const int wanted = !c.out.empty() ? POLLOUT : c.awaited.empty() ? POLLIN : POLLRDHUP;
                    polled.push_back({c.socket.get(), static_cast<short>(wanted), 0});
                    if (c.limit_ns < limit_ns) limit_ns = c.limit_ns;
                }
                (void)::poll(polled.data(), polled.size(), detail::poll_ms({limit_ns}, 1000));
                if (polled[0].revents != 0) return;
                for (std::size_t i = 2; i < polled.size(); ++i)
                    if (polled[i].revents != 0) attend(connections_[i - 2], polled[i].revents);
                expire();
                detail::erase_if(connections_, [](const connection& c) { return !c.socket.is_open(); });
                if ((polled[1].revents & POLLIN) != 0) accept_some();
            }
        } catch (...) { // out of memory: clients see closed connections
            connections_.clear();
            listener_.close();
        }
    }

    void attend(connection& c, int events) {
        if ((events & POLLOUT) != 0) flush(c);
        else if ((events & POLLIN) != 0) listen_to(c);
        else c.socket.close(); // hung up, also while it waits
    }

    void expire() {
        const std::int64_t now = now_ns();
        for (connection& c : connections_) {
            if (c.limit_ns > now || !c.socket.is_open()) continue;
            if (c.awaited.empty()) c.socket.close();
            else answer(c, detail::tcp_status::timeout, "", 0);
        }
    }

    // Who has proved nothing may hold a quarter of the files that this process may open; the rest is the job's.
    static std::size_t most_strangers() {
        rlimit files{};
        const bool is_known = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
        const std::size_t quarter = is_known ? static_cast<std::size_t>(files.rlim_cur) / 4 : 1024;
        return quarter < 8 ? 8 : quarter > 1024 ? 1024 : quarter;
    }

    void accept_some() {
        const std::size_t most = most_strangers();
        std::size_t strangers = 0;
        for (const connection& c : connections_) strangers += !c.is_known;
        for (int i = 0; i < 64; ++i) {
            connection c;
            c.socket = descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!c.socket.is_open()) {
                if (errno == EINTR || errno == ECONNABORTED) continue;
                const bool is_out_of_files = errno != EAGAIN && errno != EWOULDBLOCK;
                if (is_out_of_files && !drop_oldest_stranger()) accept_after_ns_ = now_ns() + 50'000'000;
                return;
            }
            if (strangers >= most || connections_.size() >= most_connections) {
                if (!drop_oldest_stranger()) return;
                --strangers;
            }
            ++strangers;
            detail::send_at_once(c.socket.get());
            c.limit_ns = now_ns() + slow_limit_ns;
            connections_.push_back(static_cast<connection&&>(c));
        }
    }
    bool drop_oldest_stranger() {
        for (auto c = connections_.begin(); c != connections_.end(); ++c)
            if (!c->is_known) return connections_.erase(c), true;
        return false;
    }

    // Reads at most the rest of one frame, so that nobody can make us keep more.
    void listen_to(connection& c) {
        char part[16 * 1024];
        for (;;) {
            const std::size_t wanted = bytes_missing(c);
            if (wanted == 0) return handle(c);
            const ssize_t n = detail::without_eintr([&] {
                return ::recv(c.socket.get(), part, wanted < sizeof part ? wanted : sizeof part, MSG_DONTWAIT);
            });
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n <= 0) return c.socket.close();
            if (c.in.empty() && c.is_known) c.limit_ns = now_ns() + slow_limit_ns;
            c.in.append({part, static_cast<std::size_t>(n)});
            if (!c.is_proving && c.in.size() >= sizeof(detail::tcp_request) && !head_of(c).is_sound())
                return c.socket.close();
        }
    }
    static detail::tcp_request head_of(const connection& c) { return c.in.as<detail::tcp_request>(); }
    static std::size_t bytes_missing(const connection& c) {
        if (c.is_proving) return sizeof(detail::auth_proof) - c.in.size();
        if (c.in.size() < sizeof(detail::tcp_request)) return sizeof(detail::tcp_request) - c.in.size();
        const auto r = head_of(c);
        if (r.word == detail::tcp_word::keyed_hello) return sizeof(detail::tcp_keyed_hello) - c.in.size();
        return sizeof r + r.key_bytes + r.value_bytes - c.in.size();
    }

    void handle(connection& c) {
        if (c.is_proving) return take_proof(c);
        const auto r = head_of(c);
        if (r.word == detail::tcp_word::keyed_hello) return challenge(c, r.number);
        if (key_ && !c.is_known) return refuse(c, detail::tcp_status::has_key, r.number);
        const kept_text key = c.in.substr(sizeof r, r.key_bytes), value = c.in.substr(sizeof r + r.key_bytes);
        c.in.clear();
        c.is_known = true;
        entry* held = find(key);
        if (r.word == detail::tcp_word::hello) return c.rank = r.number, answer(c, detail::tcp_status::ok, "", 0);
        if (r.word == detail::tcp_word::get) {
            if (held != nullptr) return answer(c, detail::tcp_status::ok, held->value, 0);
            if (now_ns() < odd_until_ns_) return answer(c, detail::tcp_status::odd_rank, "", odd_rank_);
            c.awaited = key;
            ++waiting_for(key);
            c.limit_ns = deadline::in_ns(r.number > 0 ? r.number : 0).at_ns;
            return;
        }
        std::int64_t sum = 0;
        if (r.word == detail::tcp_word::add) {
            if (held != nullptr && !detail::read_sum(held->value, sum))
                return answer(c, detail::tcp_status::not_a_number, "", 0);
            sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(r.number));
        }
        const bool is_kept = put(held, key, r.word == detail::tcp_word::add ? detail::joined({sum}) : value);
        // The one who set it hears so before those who wait: when they know it, nobody may need this server any more.
        answer(c, is_kept ? detail::tcp_status::ok : detail::tcp_status::full, "", sum);
        if (!is_kept || waiting_for(key) == 0) return;
        held = find(key);
        for (connection& waiting : connections_)
            if (waiting.socket.is_open() && waiting.awaited == key)
                answer(waiting, detail::tcp_status::ok, held->value, 0);
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
        c.rank = c.hello.head.number;
        answer(c, detail::tcp_status::ok, "", 0);
    }
    // Says why and hangs up.
    [[gnu::cold]] void refuse(connection& c, detail::tcp_status why, std::int64_t rank) {
        answer(c, why, "", 0);
        c.socket.close();
        if (rank >= 0) note_refused(rank, now_ns());
    }
    [[gnu::cold]] void note_refused(std::int64_t rank, std::int64_t now) {
        detail::erase_if(refused_, [&](const refused& r) { return now - r.last_ns > odd_after_ns; });
        for (const connection& c : connections_)
            if (c.socket.is_open() && c.is_known && c.rank == rank) return; // it is here: that was a stranger
        auto r = refused_.begin();
        while (r != refused_.end() && r->rank != rank) ++r;
        if (r == refused_.end()) {
            if (refused_.size() < most_refused) refused_.push_back({rank, now, now});
            return;
        }
        r->last_ns = now;
        if (++r->times < odd_after_times || now - r->first_ns < odd_after_ns) return;
        odd_rank_ = rank, odd_until_ns_ = now + odd_for_ns;
        for (connection& c : connections_)
            if (c.socket.is_open() && !c.awaited.empty()) answer(c, detail::tcp_status::odd_rank, "", rank);
    }

    // How many wait for keys of this hash, so that a set need not look at everybody. Who hangs up stays counted, which
    // costs looks and nothing else.
    std::uint32_t& waiting_for(const kept_text& key) {
        return waiting_[detail::hash_bytes(key.data(), key.size(), 0) % most_hashes];
    }
    entry* find(const kept_text& key) {
        const std::uint64_t hash = detail::hash_bytes(key.data(), key.size(), 0);
        for (std::uint64_t at = hash;; ++at) {
            const std::uint32_t place = index_[at & (index_.size() - 1)];
            if (place == 0) return nullptr;
            entry& e = entries_[place - 1];
            if (e.hash == hash && e.key == key) return &e;
        }
    }
    // The entry at `place` - 1 becomes one that find() finds.
    void note_entry(std::uint32_t place) {
        std::uint64_t at = entries_[place - 1].hash;
        while (index_[at & (index_.size() - 1)] != 0) ++at;
        index_[at & (index_.size() - 1)] = place;
    }
    void add_entry(entry e) {
        entries_.push_back(static_cast<entry&&>(e));
        const auto count = static_cast<std::uint32_t>(entries_.size());
        if (2 * entries_.size() <= index_.size()) return note_entry(count);
        index_.assign(2 * index_.size(), 0);
        for (std::uint32_t place = 1; place <= count; ++place) note_entry(place);
    }
    bool put(entry* held, const kept_text& key, const kept_text& value) {
        const std::size_t more = value.size() + (held == nullptr ? key.size() : 0),
                          less = held != nullptr ? held->value.size() : 0;
        if (total_bytes_ - less + more > most_total_bytes || (held == nullptr && entries_.size() >= most_entries))
            return false;
        total_bytes_ = total_bytes_ - less + more;
        if (held != nullptr) held->value = value;
        else add_entry({detail::hash_bytes(key.data(), key.size(), 0), key, value});
        return true;
    }

    void answer(connection& c, detail::tcp_status status, const kept_text& value, std::int64_t number,
                name_view words = {}) {
        detail::tcp_reply r;
        r.status = status;
        r.value_bytes = static_cast<std::uint32_t>(value.size());
        r.number = number;
        if (!c.awaited.empty()) --waiting_for(c.awaited);
        c.awaited.clear();
        c.out = {reinterpret_cast<const char*>(&r), sizeof r};
        c.out += value;
        c.out += words;
        c.limit_ns = now_ns() + slow_limit_ns;
        flush(c);
    }
    void flush(connection& c) {
        const ssize_t n = detail::without_eintr(
            [&] { return ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return c.socket.close();
        if (n > 0) c.out.erase(0, static_cast<std::size_t>(n));
        if (c.out.empty()) c.limit_ns = INT64_MAX;
    }

    pid_t owner_;
    pthread_t thread_{};
    descriptor listener_, stop_;
    int port_ = 0;
    job_key key_;
    // From here on only the thread:
    static constexpr std::size_t most_refused = 256;
    detail::growing_array<refused> refused_;
    std::int64_t odd_rank_ = -1, odd_until_ns_ = 0;
    detail::growing_array<connection> connections_;
    detail::growing_array<entry> entries_;
    detail::growing_array<std::uint32_t> index_ =
        detail::growing_array<std::uint32_t>(256); // by hash: place in entries_ + 1, 0: none
    static constexpr std::size_t most_hashes = 1 << 14;
    detail::growing_array<std::uint32_t> waiting_ = detail::growing_array<std::uint32_t>(most_hashes);
    std::size_t total_bytes_ = 0;
    std::int64_t accept_after_ns_ = 0;
};

COLLX_END_NAMESPACE
