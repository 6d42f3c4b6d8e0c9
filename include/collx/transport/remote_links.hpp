// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator's links to ranks on other hosts: a stream to each peer that it talks to, made at first use by the rank
// that needs it first. Streams also pass on failures, and who waits for whom. move() does all the work. Any thread may
// call it, so that a rank that waits in one communicator also advances the others.
//
// Either rank may connect. The rank with the higher number sends at once. The rank with the lower number waits for a
// welcome, and gives way when the higher one's connection comes. So each pair has one connection, whichever was first.
#pragma once

#include <cstdint>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/detail/lane_maker.hpp>
#include <collx/transport/detail/rank_list.hpp>
#include <collx/transport/detail/remote_peers.hpp>
#include <collx/transport/detail/stream_transfers.hpp>
#include <collx/transport/failure.hpp>
#include <collx/transport/remote_ranks.hpp>
#include <collx/transport/socket_hub.hpp>
#include <collx/transport/stream.hpp>

COLLX_BEGIN_NAMESPACE

class remote_links final : public remote_ranks, detail::helped {
public:
    remote_links(counted_ptr<socket_hub> hub, remote_members m)
        : hub_(std::move(hub)), id_(m.id), rank_(m.rank), members_(std::move(m.ranks)), shape_(m.shape),
          ports_(m.ports), copy_(m.single_copy), shares_(remote_members::shares(id_)), peers_(members_.size()) {}
    remote_links(const remote_links&) = delete;
    ~remote_links() override {
        if (failed_ != nullptr) leave();
    }
    void begin(atomic<std::uint64_t>& failed, waiting_words waits = {}) override {
        failed_ = &failed;
        waits_ = waits;
        name_ = hub_->helpers().enter(*this);
        if (!shares_) hub_->count_own(1);
    }

    [[gnu::cold]] sending_end tx(int port, int peer) override {
        const detail::lock_held here(lock_);
        return wanted(peer).tx(port);
    }
    [[gnu::cold]] receiving_end rx(int port, int peer) override {
        const detail::lock_held here(lock_);
        return wanted(peer).rx(port);
    }

    bool move() override {
        bool moved = false, helps = false;
        std::size_t own = 0; // connections that this communicator shares and has read itself
        int first = -1;
        if (const detail::lock_tried here(lock_); here && failed_ != nullptr) {
            moved = move_all();
            helps = !moved && (++idle_turns_ & 7) == 0;
            if (helps && shares_) own = peers_.active.size();
            if (own != 0) first = job_rank(peers_.active[0]);
        }
        if (!helps) return moved;
        if (own > 1 && hub_->shared().can_tell()) hub_->shared().pump_held(); // see visit_shared()
        else hub_->shared().pump_all(own == 1 ? first : -1);
        hub_->helpers().help_others(this);
        return moved;
    }
    void push(int peer) override {
        const detail::lock_tried here(lock_);
        if (!here || failed_ == nullptr || failed()) return;
        if (stream& s = stream_to(peer); s.state() == stream::phase::open) s.push();
    }
    int find_gone(int waiting_for, std::int64_t now) override {
        const detail::lock_held here(lock_);
        return peers_.find_gone(waiting_for, now);
    }

    // To whom a failure is announced: connected peers, those with which this rank has channels, or all.
    enum class audience : unsigned char { connected, wanted, all };
    [[gnu::cold]] void announce_failure(bool is_young) override {
        announce_failure(is_young ? audience::all : audience::connected, is_young ? 200'000'000 : 20'000'000);
    }
    [[gnu::cold]] void announce_failure(audience whom, std::int64_t limit_ns) {
        for (const deadline until = deadline::in_ns(limit_ns); !until.passed(); detail::nap_ns(100'000)) {
            (void)move();
            if (has_notified(whom)) return;
        }
    }

    void say_waiting() override {
        const detail::lock_held here(lock_);
        for (const int p : peers_.active) stream_to(p).say_waiting(rank_);
    }

    [[gnu::cold]] void settle() override {
        const detail::lock_held here(lock_);
        if (failed_ == nullptr) return; // not begun, ended, or the copy of a fork(): nothing is under way here
        // A live peer mostly acknowledges soon what went by reference, and need not be cut off.
        const deadline until = deadline::in_ns(20'000'000);
        const auto is_exposed = [](stream& s) { return s.is_exposed(); };
        for (; peers_.any(is_exposed) && !until.passed(); detail::nap_ns(50'000)) move_if_possible();
        peers_.settle();
    }
    // From here on no other thread helps: the failure's word may become another communicator's, and connections are the
    // hub's.
    [[gnu::cold]] void say_bye() override {
        if (failed_ == nullptr) return;
        leave();
        const detail::lock_held here(lock_);
        const bool has_failed = static_cast<bool>(failed());
        if (has_failed) peers_.settle();
        for (const int p : peers_.active) stream_to(p).say_bye();
        move_if_possible(); // what is left is sent while the connection lingers
        if (has_failed) hub_->shorten_linger(500'000'000);
        for (const int p : peers_.active) {
            if (!shares_) hub_->helpers().stop_watching(stream_to(p).fd());
            hub_->linger(std::move(peers_.at(p).connection));
        }
        peers_.drop_all();
        lanes_.stop();
        failed_ = nullptr;
    }
    void count_shrink() override { ++shrinks_; }
    void forget() override {
        failed_ = nullptr;
        peers_.forget();
        hub_->forget();
    }

    int rank() const { return rank_; }
    bool has_verbs() const override { return hub_->verbs() != nullptr; }
    remote_memory* memory() override { return hub_->verbs() != nullptr && !shares_ ? &memory_ : nullptr; }
    int connections() override {
        const detail::lock_held here(lock_);
        return peers_.own_connections();
    }

private:
    static constexpr std::int64_t first_try_ns = 5'000'000;
    static constexpr unsigned looks_before_thorough = 127;

    void help() override {
        if (const detail::lock_tried here(lock_); here) (void)move_all(true);
    }
    void be_watched() override {
        const detail::lock_held here(lock_);
        for (const int p : peers_.active)
            if (!shares_) hub_->helpers().watch(stream_to(p).fd(), name_);
    }
    [[gnu::cold]] void leave() {
        hub_->helpers().leave(name_);
        const std::uint64_t had = [&] {
            const detail::lock_held here(lock_); // a thread that serves kernels moves this object until it ends, too
            return peers_.had_connections();
        }();
        hub_->note_left({id_, failed() ? failed().word : 0, rank_, ports_, shape_, had, name_,
                         detail::meeting_of_survivors(id_, peers_.count(), shrinks_ + 1)});
        if (!shares_) hub_->count_own(-1);
        has_left_ = true;
    }
    int job_rank(int p) const { return members_[p]; }
    stream& stream_to(int p) { return peers_.stream_to(p); }

    // ------------------------------------------------------------------ connecting
    [[gnu::cold]] stream& made(int p) {
        auto& c = peers_.at(p).connection;
        if (!c) {
            c = hub_->make_stream(shape_, ports_, shares_);
            c->set_copy_mode(copy_);
            c->set_waiting_words(waits_);
        }
        return *c;
    }
    [[gnu::cold]] stream& wanted(int p) {
        auto& c = peers_.at(p).connection;
        if (peers_.is_known(p)) return *c;
        stream& s = made(p);
        if (shares_) {
            s.open(hub_->shared().open(*hub_, job_rank(rank_), job_rank(p), id_, name_));
            peers_.active.push_back(p);
        } else if (p < rank_) {
            connect(p);
        } else { // the higher rank mostly connects by itself
            peers_.at(p).opening.put_off(first_try_ns);
            peers_.wanted.push_back(p);
        }
        return s;
    }
    [[gnu::cold]] void connect(int p) {
        const detail::stream_hello h = hub_->hello(id_, rank_, p, shape_);
        const detail::attempt how = peers_.at(p).opening.begin(*hub_, job_rank(p), h);
        if (how == detail::attempt::not_yet) peers_.opening.push_back(p);
        else end_attempt(p, how);
    }
    [[gnu::cold]] void end_attempt(int p, detail::attempt how) {
        detail::connecting& c = peers_.at(p).opening;
        if (how == detail::attempt::done) {
            auto [socket, sealed] = c.take(*hub_);
            stream_to(p).open(std::move(socket), p > rank_, std::move(sealed));
            activate(p);
        } else if (how == detail::attempt::insecure) {
            report(failure(errc::security, p));
        } else if (how == detail::attempt::lacking) {
            report(failure::no_descriptor(rank_, c.error()));
        } else if (c.try_again(how, p > rank_)) {
            peers_.wanted.push_back(p);
        } else {
            peers_.lose(p);
        }
    }
    [[gnu::cold]] void adopt(const detail::stream_hello& h, descriptor socket, sole_ptr<detail::wire_layer> sealed) {
        const int p = h.from;
        if (!h.is_for(rank_, shape_) || p >= peers_.count()) return;
        stream& s = made(p);
        const stream::phase now = s.state();
        if (h.lane != 0) { // a lane that comes early is dropped: it is made again
            const bool is_known = h.lane < static_cast<std::uint32_t>(s.lanes());
            if (const int k = static_cast<int>(h.lane); is_known && p > rank_ && s.is_live() && !s.has_lane(k))
                s.adopt_lane(k, h.attempt, std::move(socket), std::move(sealed));
            return;
        }
        const bool is_opening = detail::is_in(peers_.opening, p);
        if ((now != stream::phase::closed || is_opening) && (p < rank_ || now == stream::phase::open))
            return; // our connection stays
        if (now == stream::phase::left || now == stream::phase::lost) return;
        peers_.stop_opening(p);
        if (now == stream::phase::waiting) {
            s.close();
            detail::remove_rank(peers_.active, p);
        }
        detail::remove_rank(peers_.wanted, p);
        s.open(std::move(socket), false, std::move(sealed));
        if (p < rank_) s.say_welcome();
        activate(p);
    }
    [[gnu::cold]] bool move_openings() { // connections that are not open yet
        bool moved = false;
        for (std::size_t i = 0; i < peers_.opening.size(); ++i) {
            const int p = peers_.opening[i];
            const detail::attempt how = peers_.at(p).opening.move();
            if (how == detail::attempt::not_yet) continue;
            moved = true;
            peers_.opening.erase_at(i--);
            end_attempt(p, how);
        }
        return moved;
    }
    [[gnu::cold]] void activate(int p) {
        peers_.activate(p);
        hub_->helpers().watch(stream_to(p).fd(), name_);
    }

    // ------------------------------------------------------------------ moving
    void move_if_possible() { // for functions that must not throw
        try {
            (void)move_all();
        } catch (const std::bad_alloc&) {
        }
    }
    // is_helped: the caller has put into this communicator's inbox what came over the connections that it shares.
    bool move_all(bool is_helped = false) {
        const failure known = failed();
        const bool is_thorough = (++looks_ & looks_before_thorough) == 0;
        if (shares_ && !has_left_) adopt_parts(); // the hub answers those that come later
        if (!peers_.wanted.empty() || !peers_.opening.empty() || is_thorough ||
            (shares_ && hub_->shared().has_to_open())) {
            const auto take = [&](auto& h, auto s, auto sealed) { adopt(h, std::move(s), std::move(sealed)); };
            const bool waits = !peers_.wanted.empty() || (shares_ && hub_->shared().has_to_open());
            if (const int e = hub_->look(id_, take); e != 0 && waits) report(failure::no_descriptor(rank_, e));
            if (hub_->shared().has_to_open()) hub_->shared().move(*hub_, job_rank(rank_));
            if (const int p = hub_->take_other_protection(id_); p >= 0 && p < peers_.count() && p != rank_)
                report(failure(errc::security, p));
            ask_to_connect(static_cast<bool>(known)); // they may wait for us, so they must be notified, too
        }
        if (!lanes_.is_idle() && (looks_ & 15) == 0)
            if (const failure f = lanes_.move(*hub_, rank_, [this](int p) -> stream& { return stream_to(p); }); f)
                report(f);
        bool moved = !peers_.opening.empty() && move_openings();
        const bool asks_first = shares_
                                    ? is_helped || visit_shared(moved)
                                    : peers_.poll.is_open() && !is_thorough; // at times every peer, whatever its state
        if (asks_first && !shares_ &&
            ((looks_ & 15) == 0 || peers_.any([](stream& s) { return !s.receives_by_verbs(); })))
            moved = peers_.poll.visit_readable(hub_->calls(), [&](std::uint64_t p) {
                return move_one(static_cast<int>(p), stream::socket_has::something);
            }) || moved;
        for (std::size_t i = 0; i < peers_.active.size(); ++i) {
            const int p = peers_.active[i];
            if (known) stream_to(p).say_failure(known.word);
            moved = move_one(p, asks_first ? stream::socket_has::nothing : stream::socket_has::unknown) || moved;
            if (i < peers_.active.size() && peers_.active[i] != p) --i; // it was removed
        }
        return moved;
    }
    // Moves the peers whose shared connection can be read; false when nothing tells which these are.
    bool visit_shared(bool& moved) {
        if (peers_.active.size() < 2 || !hub_->shared().can_tell()) return false;
        moved = hub_->shared().visit_readable([&](int of_job) {
            for (const int p : peers_.active)
                if (job_rank(p) == of_job) return move_one(p, stream::socket_has::something);
            hub_->shared().pump(of_job);
            return false;
        }) || moved;
        return true;
    }
    // Adds peers that have begun to use their part of a shared connection.
    void adopt_parts() {
        for (int of_job; (of_job = hub_->shared().take_arrival(id_)) >= 0;)
            for (int p = 0; p < static_cast<int>(members_.size()); ++p)
                if (job_rank(p) == of_job) (void)wanted(p);
    }
    bool move_one(int p, stream::socket_has there) {
        stream& s = stream_to(p);
        if (!s.is_live()) return false;
        const bool was_waiting = s.state() == stream::phase::waiting;
        const bool moved = s.move(s.cannot_send() ? stream::socket_has::something : there);
        if (const std::uint64_t word = s.heard_failure(); word != 0) hear(p, failure(word));
        if (s.is_live() && s.is_insecure()) report(failure(errc::security, p));
        if (s.lacks_memory()) report(failure(errc::resource, rank_, s.no_memory()));
        if (s.is_live()) {
            if (s.wants_lanes() && p < rank_) // the higher rank makes them
                lanes_.begin(p, job_rank(p), hub_->hello(id_, rank_, p, shape_), s.lanes());
            return moved;
        }
        detail::remove_rank(peers_.active, p);
        if (s.state() == stream::phase::left) return true;
        // Mostly it gave way to a connection that is to come.
        if (was_waiting && !s.is_nonsense() && peers_.at(p).opening.try_again(detail::attempt_after(s.error()), true)) {
            peers_.wanted.push_back(p);
            s.close();
            return true;
        }
        if (s.is_nonsense()) report(failure(s.is_insecure() ? errc::security : errc::protocol, p));
        else if (s.is_shared() && detail::is_out_of_descriptors(s.error()))
            report(failure::no_descriptor(rank_, s.error()));
        else peers_.lose(p);
        return true;
    }
    // A lower rank that has waited for a while asks the higher one to connect. connect() may put some back.
    [[gnu::cold]] void ask_to_connect(bool at_once) {
        std::size_t i = 0;
        for (std::size_t left = peers_.wanted.size(); left > 0; --left, ++i) {
            const int p = peers_.wanted[i];
            if ((!at_once && !peers_.at(p).opening.is_due()) || !hub_->knows(job_rank(p))) continue;
            peers_.wanted.erase_at(i--);
            connect(p);
        }
    }
    [[gnu::cold]] void hear(int p, failure f) { report(f.is_sound(peers_.count()) ? f : failure(errc::protocol, p)); }
    failure failed() const { return failure(failed_->load(memory_order::acquire)); }
    void report(failure f) { report_in(*failed_, f); }
    // Peers that cannot be notified any more count as notified.
    bool has_notified(audience whom) {
        const detail::lock_held here(lock_);
        if (whom == audience::all) looks_ = looks_before_thorough; // the next move accepts who has connected
        if (!peers_.opening.empty() || peers_.any([](stream& s) { return !s.has_said_failure(); })) return false;
        if (whom != audience::connected && !peers_.wanted.empty()) return false;
        for (int p = 0; whom == audience::all && !shares_ && p < peers_.count(); ++p)
            if (p != rank_ && hub_->may_connect(job_rank(p)) && !peers_.is_known(p)) return false;
        return true;
    }

    counted_ptr<socket_hub> hub_;
    std::uint64_t id_, name_ = 0; // name_: among the communicators of this rank
    int rank_;
    detail::growing_array<int> members_;
    channel_shape shape_;
    int ports_;
    single_copy_mode copy_;
    bool shares_; // has no connections of its own
    bool has_left_ = false;
    std::uint32_t shrinks_ = 0; // how often its ranks have shrunk it
    atomic<std::uint64_t>* failed_ = nullptr;
    waiting_words waits_;
    detail::yielding_lock lock_;
    detail::remote_peers peers_;
    detail::stream_transfers memory_{hub_, lock_, peers_};
    detail::lane_maker lanes_;
    unsigned idle_turns_ = 0, looks_ = 0;
};

COLLX_END_NAMESPACE
