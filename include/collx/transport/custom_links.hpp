// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator's links to peers over a program's own transport. The engine's channels lie in private memory, as those
// of streams do (stream.hpp). move() puts committed messages into the endpoint's channels, in parts where they are too
// long, and puts the parts that arrive into the slots of the receiver. Receivers give credit, so a frame always finds
// room. Notifications of failures and of who waits for whom travel beside the messages.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/clock.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/custom_hub.hpp>
#include <collx/transport/detail/stream_ports.hpp>
#include <collx/transport/failure.hpp>
#include <collx/transport/remote_ranks.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class custom_links final : public remote_ranks, custom_guest {
public:
    custom_links(counted_ptr<custom_hub> hub, remote_members m)
        : hub_(std::move(hub)), id_(m.id), rank_(m.rank), members_(std::move(m.ranks)), shape_(m.shape),
          ports_(m.ports), peers_(members_.size()) {}
    custom_links(const custom_links&) = delete;
    ~custom_links() override { leave(); }

    void begin(atomic<std::uint64_t>& failed, waiting_words waits = {}) override {
        const lock_held here(hub_->lock());
        failed_ = &failed;
        waits_ = waits;
        hub_->enter(*this);
    }
    [[gnu::cold]] sending_end tx(int port, int p) override {
        const lock_held here(hub_->lock());
        return opened(p).tx(port);
    }
    [[gnu::cold]] receiving_end rx(int port, int p) override {
        const lock_held here(hub_->lock());
        return opened(p).rx(port);
    }

    bool move() override {
        const lock_tried here(hub_->lock());
        if (!here || failed_ == nullptr) return false;
        hub_->move();
        return std::exchange(has_moved_, false);
    }
    void push(int p) override {
        const lock_tried here(hub_->lock());
        if (here && failed_ != nullptr && at(p).ports && !failed()) send_to(p);
    }
    int find_gone(int waiting_for, std::int64_t now) override {
        const lock_held here(hub_->lock());
        int lost = -1;
        for (std::size_t p = 0; p < peers_.size(); ++p) {
            peer& q = peers_[p];
            if (!q.ports || q.has_left) continue;
            if (q.lost_at_ns == 0 && hub_->is_gone(members_[p])) {
                hub_->read(members_[p]); // its last messages
                if (!q.has_left) q.lost_at_ns = now;
            }
            if (q.lost_at_ns == 0) continue;
            if (now - q.lost_at_ns > missed_after_ns || waiting_for == static_cast<int>(p)) return static_cast<int>(p);
            if (lost < 0) lost = static_cast<int>(p);
        }
        const bool is_peer = waiting_for >= 0 && waiting_for < static_cast<int>(peers_.size());
        if (!is_peer || !at(waiting_for).has_left) return -1;
        return lost < 0 ? waiting_for : lost; // it left for a reason: the death of another is reported first
    }

    [[gnu::cold]] void announce_failure(bool is_young) override {
        if (is_young) open_all(); // these are connected, though nothing has gone to them
        for (const deadline until = deadline::in_ns(patience_ns); !until.passed();) {
            (void)move();
            const lock_held here(hub_->lock());
            if (failed_ == nullptr || all([&](peer& q) { return q.said_failure == failed().word; })) return;
        }
    }
    void say_waiting() override {
        const lock_held here(hub_->lock());
        for (auto& q : peers_) q.waiting.begin(waits_, rank_);
    }
    [[gnu::cold]] void settle() override {
        const lock_held here(hub_->lock());
        is_settled_ = true;
    }
    [[gnu::cold]] void say_bye() override {
        for (const deadline until = deadline::in_ns(patience_ns); failed_ != nullptr && !until.passed();) {
            const lock_held here(hub_->lock());
            for (std::size_t p = 0; p < peers_.size(); ++p) {
                peer& q = peers_[p];
                if (!q.ports || q.has_said_bye) continue;
                send_to(static_cast<int>(p));
                q.has_said_bye = q.has_left || say(static_cast<int>(p), {.what = kind::bye});
            }
            if (all([](peer& q) { return q.has_said_bye; })) break;
            try {
                hub_->move();
            } catch (const std::bad_alloc&) { // for what others send; destructors call this function
            }
        }
        owe_byes();
        leave();
    }
    void forget() override {
        failed_ = nullptr;
        hub_->forget();
    }
    int connections() override {
        const lock_held here(hub_->lock());
        int n = 0;
        for (const auto& q : peers_) n += static_cast<bool>(q.ports);
        return n;
    }
    bool has_verbs() const override { return false; }

private:
    using kind = custom_frame::kind;
    static constexpr std::int64_t missed_after_ns = 100'000'000, patience_ns = 20'000'000;
    static constexpr int most_ports = stream_frame::most_ports;
    struct peer {
        sole_ptr<stream_ports> ports; // null: not talked to
        std::size_t sent_bytes[most_ports] = {},
                    put_bytes[most_ports] = {}; // of the message that goes, or comes, in part
        std::uint64_t said_failure = 0;
        waiting_chain waiting;
        bool has_left = false, has_said_bye = false;
        std::int64_t lost_at_ns = 0;
    };

    peer& at(int p) { return peers_[p]; }
    stream_ports& opened(int p) {
        auto& ports = at(p).ports;
        if (!ports) ports = make_sole<stream_ports>(shape_, ports_);
        ports->require();
        return *ports;
    }
    [[gnu::cold]] void open_all() {
        const lock_held here(hub_->lock());
        try {
            for (std::size_t p = 0; p < peers_.size(); ++p)
                if (static_cast<int>(p) != rank_ && !peers_[p].ports && hub_->is_connected(members_[p]))
                    peers_[p].ports = make_sole<stream_ports>(shape_, ports_);
        } catch (const std::bad_alloc&) { // then those are notified that can be
        }
    }
    template <class Is>
    bool all(Is&& is) {
        for (auto& q : peers_)
            if (q.ports && !q.has_left && q.lost_at_ns == 0 && !is(q)) return false;
        return true;
    }
    failure failed() const { return failure(failed_->load(memory_order::acquire)); }
    void report(failure f) { report_in(*failed_, f); }
    // A peer whose channel is full receives the goodbye later: without it this rank would be taken for dead at its end.
    void owe_byes() {
        if (failed_ == nullptr) return;
        const lock_held here(hub_->lock());
        try {
            for (std::size_t p = 0; p < peers_.size(); ++p)
                if (const peer& q = peers_[p]; q.ports && !q.has_left && !q.has_said_bye && q.lost_at_ns == 0)
                    hub_->owe(members_[p], of_this({.what = kind::bye}));
        } catch (const std::bad_alloc&) {
        }
    }
    void leave() {
        if (failed_ == nullptr) return;
        const lock_held here(hub_->lock());
        hub_->leave(*this);
        failed_ = nullptr;
    }

    // ------------------------------------------------------------------ sending
    std::uint64_t id() const override { return id_; }
    void send() override {
        for (std::size_t p = 0; p < peers_.size(); ++p)
            if (peers_[p].ports) send_to(static_cast<int>(p));
    }
    custom_frame of_this(custom_frame f) const {
        f.communicator = id_;
        f.from = static_cast<std::uint32_t>(rank_);
        return f;
    }
    bool say(int p, const custom_frame& f, const std::byte* payload = nullptr, std::size_t bytes = 0) {
        return hub_->post(members_[p], of_this(f), payload, bytes);
    }
    void send_to(int p) {
        peer& q = at(p);
        if (!q.has_left && q.lost_at_ns == 0) {
            if (const failure f = failed(); f && q.said_failure != f.word) say_failure(p, f.word);
            q.waiting.send(waits_, [&](std::uint32_t rank, std::uint32_t low, std::uint32_t age) {
                return say(p, {.what = kind::waiting, .bytes = low, .tag = rank, .taken = age});
            });
            for (unsigned rest = q.ports->used() | q.ports->heard(); rest != 0; rest &= rest - 1)
                send_port(p, stream_ports::first_of(rest));
        }
        bool is_behind = false;
        for (int port = 0; port < ports_; ++port) is_behind |= q.ports->has_under_way(port);
        // Messages owed to a rank that has left are no loss.
        if (is_behind && (q.has_left || hub_->is_drained(members_[p]))) note_drained(q);
    }
    void note_drained(peer& q) {
        for (int port = 0; port < ports_; ++port)
            while (q.ports->has_under_way(port)) q.ports->count_sent(port);
    }
    void say_failure(int p, std::uint64_t word) {
        if (say(p, {.what = kind::failure,
                    .bytes = static_cast<std::uint32_t>(word),
                    .tag = static_cast<std::uint32_t>(word >> 32)}))
            at(p).said_failure = word;
    }
    void send_port(int p, int port) {
        stream_ports& ports = *at(p).ports;
        while (!is_settled_ && ports.has_room(port) && ports.has_message(port) && send_part(p, port)) has_moved_ = true;
        if (ports.owes_credit(port)) say_with_credit(p, port, {.what = kind::credit});
    }
    bool say_with_credit(int p, int port, custom_frame f, const std::byte* payload = nullptr, std::size_t bytes = 0) {
        stream_ports& ports = *at(p).ports;
        const std::uint64_t taken = ports.taken_here(port);
        f.at_port = static_cast<std::uint8_t>(port);
        f.taken = static_cast<std::uint32_t>(taken);
        if (!say(p, f, payload, bytes)) return false;
        ports.note_told(port, taken);
        return true;
    }
    // Sends the next part of the next message. False: no room.
    bool send_part(int p, int port) {
        stream_ports& ports = *at(p).ports;
        std::size_t& done = at(p).sent_bytes[port];
        const auto [from, bytes] = ports.next_payload(port);
        const std::size_t most = hub_->most_payload(), left = bytes - done, here = left < most ? left : most;
        if (!say_with_credit(p, port,
                             {.what = kind::message,
                              .bytes = bytes,
                              .tag = ports.next_slot(port).tag,
                              .offset = static_cast<std::uint32_t>(done)},
                             from + done, here))
            return false;
        done += here;
        if (done == bytes) {
            ports.pass_next(port);
            done = 0;
        }
        return true;
    }

    // ------------------------------------------------------------------ receiving
    void take(int from, const custom_frame& f, const std::byte* payload, std::size_t bytes) override {
        if (f.from >= peers_.size() || members_[f.from] != from || static_cast<int>(f.from) == rank_) return;
        const int p = static_cast<int>(f.from);
        try {
            (void)opened(p);
            if (!is_sound(at(p), f, payload, bytes)) report(failure(errc::protocol, p));
        } catch (const error&) { // no room for the slots
            report(failure(errc::resource, rank_));
        }
    }
    bool is_sound(peer& q, const custom_frame& f, const std::byte* payload, std::size_t bytes) {
        switch (f.what) {
            case kind::message: return q.ports->hear_taken(f.at_port, f.taken) && take_part(q, f, payload, bytes);
            case kind::credit: return bytes == 0 && q.ports->hear_taken(f.at_port, f.taken);
            case kind::failure: return hear_failure(q, f);
            case kind::waiting: return waits_.hear_from_host(f.tag, f.bytes, f.taken);
            case kind::bye: return q.has_left = true;
        }
        return false;
    }
    bool take_part(peer& q, const custom_frame& f, const std::byte* payload, std::size_t bytes) {
        stream_ports& ports = *q.ports;
        const int port = f.at_port;
        std::size_t& done = q.put_bytes[port];
        slot_header& slot = ports.slot_in(port);
        if (f.offset != done || (bytes == 0 && f.bytes != 0) || bytes > f.bytes - done ||
            (done != 0 && (f.bytes != slot.bytes || f.tag != slot.tag)))
            return false;
        const bool is_short = f.bytes <= slot_header::inline_bytes;
        if (done == 0) {
            if (ports.begin_slot(port, f.bytes, f.tag) == nullptr) return false;
            if (!is_short) (void)ports.take_place(port, false);
        }
        if (bytes != 0) std::memcpy((is_short ? slot.payload : ports.place_in(port)) + done, payload, bytes);
        done += bytes;
        has_moved_ = true;
        if (done == f.bytes) {
            done = 0;
            ports.deliver(port, ports.count_received(port));
        }
        return true;
    }
    bool hear_failure(peer& q, const custom_frame& f) {
        const failure heard(static_cast<std::uint64_t>(f.tag) << 32 | f.bytes);
        if (!heard.is_sound(static_cast<int>(peers_.size()))) return false;
        report(heard);
        if (heard.word == failed().word) q.said_failure = heard.word;
        return true;
    }

    counted_ptr<custom_hub> hub_;
    std::uint64_t id_;
    int rank_;
    growing_array<int> members_; // rank here -> rank of the job
    channel_shape shape_;
    int ports_;
    growing_array<peer> peers_;
    atomic<std::uint64_t>* failed_ = nullptr; // null: not begun, or left
    waiting_words waits_;
    bool is_settled_ = false, has_moved_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
