// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank's one listener for ranks on other hosts: the listening socket, connections whose communicator has not been
// made here yet, and connections that communicators left while the system was still sending. A stranger, a port scan,
// half a hello or a proof without the key costs a descriptor for two to thirty seconds and nothing else.
#pragma once

#include <arpa/inet.h>
#include <sched.h>

#include <cstdint>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/strangers.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/detail/greeting.hpp>
#include <collx/transport/detail/left_communicators.hpp>
#include <collx/transport/detail/lingering_streams.hpp>
#include <collx/transport/detail/mutual_help.hpp>
#include <collx/transport/detail/rank_list.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/trunks.hpp>
#include <collx/transport/detail/unix_listener.hpp>
#include <collx/transport/stream.hpp>

COLLX_BEGIN_NAMESPACE

class socket_hub {
public:
    // A listening socket on a free port of this address (its own port is ignored), or with this name. Sets `address` to
    // it.
    [[gnu::cold]] static descriptor listen_on(socket_address& address,
                                              const socket_calls& calls = system_socket_calls) {
        descriptor s(calls.socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!s.is_open())
            fail(errc::resource, -1, -1, detail::remedy_for_descriptor(errno), "cannot make a socket: %s",
                 std::strerror(errno));
        if (::bind(s.get(), address.get(), address.bytes) != 0 || ::listen(s.get(), SOMAXCONN) != 0)
            fail(errc::environment, -1, -1,
                 address.is_unix() ? "name a directory that this user may write to, or say COLLX_ADDRESS=unix"
                                   : "set COLLX_ADDRESS to an address of this host",
                 "cannot listen on this rank's address: %s", std::strerror(errno));
        address = socket_address::of(s.get());
        return s;
    }

    // peers: where each rank of the job listens. linger_ns: how long the destructor waits for what the system has not
    // yet delivered.
    [[gnu::cold]] socket_hub(descriptor listener, kept_text token, detail::growing_array<socket_address> peers,
                             std::int64_t linger_ns, const socket_calls& calls = system_socket_calls,
                             job_protection by = {})
        : owner_(::getpid()), listener_(std::move(listener)), peers_(std::move(peers)), linger_ns_(linger_ns),
          calls_(&calls), protection_(std::move(by)) {
        detail::stream_hello h;
        h.set_token(token.data(), token.size());
        std::memcpy(token_, h.token, sizeof token_);
        is_unix_ = own_address().is_unix();
    }
    socket_hub(const socket_hub&) = delete;
    // Waits while the system still holds bytes that were not received: closing a socket with unread answers would
    // discard them. Calls that have returned sent these bytes, so their receivers are about to read them.
    [[gnu::cold]] ~socket_hub() {
        if (::getpid() != owner_) forget();
        if (is_unix_ && !is_forgotten_) detail::remove_unix_file(listener_.get());
        listener_.close();
        for (const deadline until = deadline::in_ns(told_limit_ns); tell_guests() && !until.passed();)
            detail::nap_ns(200'000);
        const deadline until = deadline::in_ns(linger_ns_);
        wait_for_leavers(until);
        const auto leave = [this](descriptor s) { lingering_.add(std::move(s)); };
        while (!trunks_.part(leave) && !until.passed()) detail::nap_ns(200'000);
        wait_for_leavers(until);
    }
    // Sets where all ranks listen, if the constructor knew only some. Call it before others use this hub.
    void learn(detail::growing_array<socket_address> peers) {
        peers_ = std::move(peers);
        end_start();
    }
    // From now on a process with another key is a stranger: all ranks of the job have proved their key to each other.
    void end_start() {
        is_starting_ = false;
        other_protections_.clear();
    }
    // The next rank of a communicator that came while the job starts, with another protection than this rank's, as
    // numbered there; -1: none. It knew the job's name, so it is no stranger.
    int take_other_protection(std::uint64_t communicator) {
        const detail::lock_held here(lock_);
        for (std::size_t i = 0; i < other_protections_.size(); ++i) {
            if (other_protections_[i].first != communicator) continue;
            const int rank = other_protections_[i].second;
            other_protections_.erase_at(i);
            return rank;
        }
        return -1;
    }
    // How many connections each pair of ranks may have for large messages; the same on all ranks.
    void set_lanes(int lanes) { lanes_ = lanes; }
    int lanes() const { return lanes_; }
    // Sets the device for messages to ranks that have one, too. Null: sockets.
    void use_verbs(sole_ptr<verbs_device> d) { verbs_ = std::move(d); }
    const verbs_device* verbs() const { return verbs_.get(); }
    verbs_device* verbs() { return verbs_.get(); }
    // is_plain: it carries bytes of one socket only, like a shared connection and those of survivors.
    [[gnu::cold]] sole_ptr<stream> make_stream(const channel_shape& shape, int ports, bool is_plain = false) const {
        auto s = make_sole<stream>(*calls_, shape, ports);
        if (is_plain) return s;
        s->allow_lanes(lanes_);
        if (verbs_) s->use_verbs(*verbs_);
        return s;
    }
    // How many communicators may have connections of their own; later ones share one to each peer. With a device all
    // have their own: a queue pair belongs to one connection.
    void set_most_own(int communicators) { most_own_ = communicators; }
    bool is_full() const { return !verbs_ && own_.load(memory_order::relaxed) >= most_own_; }
    void count_own(int by) { own_.fetch_add(by, memory_order::relaxed); }
    detail::trunks& shared() { return trunks_; }
    bool knows(int job_rank) const {
        return static_cast<std::size_t>(job_rank) < peers_.size() && peers_[job_rank].bytes != 0;
    }
    // Sets the ranks of the job that share memory with this one: they do not connect.
    void set_near(const detail::growing_array<int>& ranks) {
        for (const int r : ranks) near_.push_back(r);
    }
    bool may_connect(int job_rank) const { return knows(job_rank) && !detail::is_in(near_, job_rank); }
    // In a child of fork(): nothing here belongs to it.
    void forget() {
        linger_ns_ = 0;
        is_forgotten_ = true;
        trunks_.forget();
        lingering_.forget();
        guests_.clear();
        (void)verbs_.release();
    }
    void shorten_linger(std::int64_t ns) { linger_ns_ = ns < linger_ns_ ? ns : linger_ns_; }

    int port() const { return own_address().port(); }
    socket_address own_address() const { return socket_address::of(listener_.get()); }
    // Over unix sockets the kernel tells whose the other end is.
    bool is_unix() const { return is_unix_; }
    const socket_calls& calls() const { return *calls_; }
    const char (&token() const)[detail::stream_hello::token_bytes] { return token_; }
    const job_protection& protected_by() const { return protection_; }

    // The hello of `from` when it connects to `to` for a communicator, both numbered there.
    [[gnu::cold]] detail::stream_hello hello(std::uint64_t communicator, int from, int to,
                                             const channel_shape& shape) const {
        using side = detail::stream_hello::side;
        detail::stream_hello h;
        h.from_side = to < from ? side::higher : side::lower;
        h.depth = static_cast<std::uint32_t>(shape.depth);
        h.slot_bytes = shape.slot_bytes;
        h.communicator = communicator;
        h.from = from;
        h.to = to;
        h.set_token(token_, sizeof token_);
        h.protected_by = static_cast<std::uint64_t>(protection_.level);
        return h;
    }
    // Starts to connect to a rank. The result is not open when the system refuses (errno says why; EKEYREJECTED: a
    // process of another user listens there).
    [[gnu::cold]] descriptor connect_to(int job_rank) {
        const socket_address& a = peers_[job_rank];
        const auto make = [&] {
            return descriptor(calls_->socket(a.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        };
        descriptor s = make();
        if (!s.is_open() && detail::is_out_of_descriptors(errno) && drop_guest()) s = make();
        if (!s.is_open()) return s;
        detail::tune_socket(s.get(), a.is_loopback());
        if (calls_->connect(s.get(), a.get(), a.bytes) != 0 && errno != EINPROGRESS && errno != EINTR) s.close();
        if (s.is_open() && socket_address::of(s.get()) == a) { // see is_own_echo() of tcp_store
            s.close();
            errno = ECONNREFUSED;
        }
        if (s.is_open() && !detail::is_of_this_user(s.get(), a)) {
            s.close();
            errno = EKEYREJECTED;
        }
        return s;
    }

    // The layer that bytes of a connection which came go through.
    sole_ptr<detail::wire_layer> sealed(const detail::guest& g) const {
        return detail::seal_connection(protection_.level, g.session(protection_.key), false, *calls_);
    }
    // Accepts what has come and gives each connection of `communicator` to take(hello, descriptor, sealed). Returns
    // the errno for which no rank can be accepted, because this process gets no more descriptors; 0: they can.
    template <class Take>
    int look(std::uint64_t communicator, Take&& take) {
        const detail::lock_held here(lock_);
        const int refusal = accept_all();
        greet_guests();
        if (trunks_.arrivals().has_new() || may_have_late_) {
            may_have_late_ = false;
            answer_late_guests();
            answer_late_lines();
        }
        lingering_.drain();
        for (std::size_t i = 0; i < parked_.size();) {
            const std::uint64_t wanted = parked_[i].hello.communicator;
            if (wanted != communicator && wanted != detail::trunks::name) {
                // Perhaps no rank takes a connection: a lane that does not lead; the lower rank's, in place of which
                // the higher rank's was taken; one for a communicator that has gone.
                const bool is_unclaimed = parked_[i].hello.lane != 0
                                              ? is_late(parked_[i], parked_.size())
                                              : parked_.size() > detail::few_strangers && is_over(parked_[i]);
                if (is_unclaimed) parked_.erase_at(i);
                else ++i;
                continue;
            }
            detail::guest g = std::move(parked_[i]);
            parked_.erase_at(i);
            if (g.hello.communicator == detail::trunks::name) trunks_.bring(std::move(g));
            else take(g.hello, std::move(g.socket), sealed(g));
        }
        return refusal;
    }

    // Notes that this rank has left a communicator. Connections that still come for it learn why.
    [[gnu::cold]] void note_left(const detail::left_communicator& c) {
        const detail::lock_held here(lock_);
        left_.add(c);
        may_have_late_ = true;
    }
    // Takes a connection whose communicator has gone, until it has said goodbye and the system has sent what it has.
    [[gnu::cold]] void linger(sole_ptr<stream> s) {
        const detail::lock_held here(lock_);
        try {
            lingering_.add(std::move(s));
            lingering_.drain();
        } catch (const std::bad_alloc&) { // the peer sees the connection end; no destructor throws
        }
    }

    // See any_connector.
    [[gnu::cold]] void serve() {
        (void)look(detail::trunks::name, [](auto&&...) {});
        helpers_.help_others();
    }
    // The communicators of this rank, which advance each other.
    detail::mutual_help& helpers() { return helpers_; }

private:
    // A guest gets this long for each rank besides its own limit: many may share the cores of the one that connects.
    static constexpr std::int64_t hello_turn_ns = 10'000'000;
    static constexpr std::int64_t told_limit_ns = 500'000'000;

    // Whether a parked connection has ended at its other end, and will not be taken here. (What the other end has sent
    // to a communicator that is not made yet is kept.)
    [[gnu::cold]] bool is_over(const detail::guest& g) const {
        if (g.has_given_up()) return true;
        return g.has_hung_up() && left_.find(g.hello.communicator) != nullptr;
    }
    // Whether a guest, one of so many, has taken too long.
    bool is_late(const detail::guest& g, std::size_t guests) const {
        const std::int64_t turns_ns = static_cast<std::int64_t>(peers_.size()) * hello_turn_ns;
        return now_ns() > g.since_ns + detail::stranger_limit_ns(guests) + turns_ns;
    }
    // Half-open guests are limited, so that strangers cannot use up the descriptors: see most_strangers(). Ranks that
    // come all at once still find room.
    std::size_t most_guests() const {
        const std::size_t ranks = peers_.size(), share = detail::most_strangers(), most = 64 + ranks;
        return share >= most ? most : share > ranks ? share : ranks;
    }
    // Drops the oldest guest, so that a connection of this rank's own gets its descriptor. False if there is none, or
    // another communicator uses the list right now.
    [[gnu::cold]] bool drop_guest() {
        const detail::lock_tried here(lock_);
        if (!here || guests_.empty()) return false;
        guests_.erase_at(0);
        return true;
    }

    // Not 0 when there is no descriptor for a connection at the listener, and none that a stranger will soon give back.
    [[gnu::cold]] int accept_all() {
        for (int turn = 0; turn < 256; ++turn) {
            descriptor s(detail::without_eintr(
                [&] { return calls_->accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
            if (!s.is_open()) return detail::is_out_of_descriptors(errno) && guests_.empty() ? errno : 0;
            if (is_unix_ && detail::peer_of(s.get()).uid != ::geteuid()) continue;
            // A rank says its hello at once, so the one that has been silent for longest is no rank.
            if (guests_.size() >= most_guests()) greet_guests();
            if (guests_.size() >= most_guests()) guests_.erase(guests_.begin());
            guests_.emplace_back(std::move(s), now_ns(), *calls_);
        }
        return 0;
    }
    [[gnu::cold]] void greet_guests() {
        for (std::size_t i = 0; i < guests_.size();) {
            detail::guest& g = guests_[i];
            const bool had_other_protection = g.has_other_protection();
            const detail::greeted how = g.move(token_, protection_.level, protection_.key);
            if (g.has_other_protection() && !had_other_protection && is_starting_ &&
                other_protections_.size() < most_guests())
                other_protections_.emplace_back(g.hello.communicator, g.hello.from);
            if (how == detail::greeted::not_yet && !is_late(g, guests_.size())) {
                ++i;
                continue;
            }
            // A limited number waits for communicators that may never be made.
            if (how == detail::greeted::done && parked_.size() < 8 * most_guests()) {
                detail::tune_socket(g.socket.get(), socket_address::of(g.socket.get()).is_loopback());
                parked_.push_back(std::move(g));
                may_have_late_ = true;
            }
            guests_.erase_at(i);
        }
    }
    // Ranks that connect to a communicator which this rank has left get the failure that ended it, and a goodbye.
    // Survivors that look for this rank get as the failure that it has left.
    [[gnu::cold]] void answer_late_guests() {
        for (std::size_t i = 0; i < parked_.size();) {
            const detail::stream_hello& h = parked_[i].hello;
            sole_ptr<stream> answer;
            std::uint64_t failed = 0;
            const detail::left_communicator* c = h.lane == 0 ? left_.find(h.communicator) : nullptr;
            if (c != nullptr && h.is_for(c->rank, c->shape) && !c->may_have_told(h.from)) {
                answer = make_stream(c->shape, c->ports);
                failed = c->failure;
            } else if (c = left_.find_by_meeting(h.communicator); c != nullptr && h.to == c->rank) {
                answer = make_stream(c->next.shape, 1, true);
                failed = failure(errc::peer_failed, c->rank).word;
            } else {
                ++i;
                continue;
            }
            answer->open(std::move(parked_[i].socket), false, sealed(parked_[i]));
            parked_.erase_at(i);
            say_left(std::move(answer), failed);
        }
    }
    // The same for lines of shared connections. (Over a line that this rank has used, it has said goodbye.)
    [[gnu::cold]] void answer_late_lines() {
        for (;;) {
            const auto [id, peer] =
                trunks_.arrivals().take_if([this](std::uint64_t wanted) { return left_.find(wanted) != nullptr; });
            if (peer < 0) return;
            const detail::left_communicator& c = *left_.find(id);
            auto line = trunks_.end_of(peer, id, c.name);
            if (!line) continue;
            auto answer = make_stream(c.shape, c.ports, true);
            answer->open(std::move(line));
            say_left(std::move(answer), c.failure);
        }
    }
    [[gnu::cold]] void say_left(sole_ptr<stream> to, std::uint64_t failed) {
        if (failed != 0) to->say_failure(failed);
        to->say_bye();
        lingering_.add(std::move(to));
    }
    // True while a refused rank is being sent the reason and has not closed yet.
    [[gnu::cold]] bool tell_guests() {
        bool is_telling = false;
        for (detail::guest& g : guests_)
            is_telling =
                (g.is_being_told() && g.move(token_, protection_.level, protection_.key) == detail::greeted::not_yet) ||
                is_telling;
        return is_telling;
    }
    [[gnu::cold]] void wait_for_leavers(const deadline& until) {
        while (!lingering_.empty() && !until.passed()) {
            trunks_.move_last(*this); // a line waits for its shared connection
            lingering_.drain();
            if (!lingering_.empty()) detail::nap_ns(200'000);
        }
    }

    pid_t owner_;
    descriptor listener_;
    bool is_unix_ = false, is_forgotten_ = false;
    int lanes_ = 1;
    sole_ptr<verbs_device> verbs_; // outlives the streams
    detail::growing_array<socket_address> peers_;
    detail::growing_array<int> near_;
    std::int64_t linger_ns_;
    const socket_calls* calls_;
    char token_[detail::stream_hello::token_bytes];
    detail::yielding_lock lock_;
    job_protection protection_;
    detail::growing_array<detail::guest> guests_, parked_;
    bool is_starting_ = true;
    detail::left_communicators left_;
    bool may_have_late_ = false;                                             // parked guests, for what was left
    detail::growing_array<std::pair<std::uint64_t, int>> other_protections_; // communicator, rank there
    detail::mutual_help helpers_{*calls_};
    detail::trunks trunks_{*calls_, helpers_};
    int most_own_ = 4;
    atomic<int> own_{0};
    detail::lingering_streams lingering_; // some use what is above
};

COLLX_END_NAMESPACE
