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
#include <collx/transport/detail/stream_queue.hpp>
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
        const turn_taken here(hub_->its_turn());
        failed_ = &failed, waits_ = waits;
        hub_->enter(*this);
    }
    [[gnu::cold]] sending_end tx(int port, int p) override {
        const turn_taken here(hub_->its_turn());
        opened(p).used |= 1u << port;
        return {at(p).memory->tx(port).base, shape_, true};
    }
    [[gnu::cold]] receiving_end rx(int port, int p) override {
        const turn_taken here(hub_->its_turn());
        opened(p).used |= 1u << port;
        return {at(p).memory->rx(port).base, shape_, true};
    }

    bool move() override {
        const turn_tried here(hub_->its_turn());
        if (!here || failed_ == nullptr) return false;
        hub_->move();
        return std::exchange(has_moved_, false);
    }
    void push(int p) override {
        const turn_tried here(hub_->its_turn());
        if (here && failed_ != nullptr && !failed()) send_to(p);
    }
    int find_gone(int waiting_for, std::int64_t now) override {
        const turn_taken here(hub_->its_turn());
        int lost = -1;
        for (std::size_t p = 0; p < peers_.size(); ++p) {
            peer& q = peers_[p];
            if (!q.memory || q.has_left) continue;
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
            const turn_taken here(hub_->its_turn());
            if (all([&](peer& q) { return q.said_failure == failed().word; })) return;
        }
    }
    void say_waiting() override {
        const turn_taken here(hub_->its_turn());
        for (auto& q : peers_)
            if (waits_.at != nullptr) q.next_waiting = rank_, q.waiting_left = waits_.ranks;
    }
    [[gnu::cold]] void settle() override {
        const turn_taken here(hub_->its_turn());
        is_settled_ = true;
    }
    [[gnu::cold]] void say_bye() override {
        for (const deadline until = deadline::in_ns(patience_ns); failed_ != nullptr && !until.passed();) {
            const turn_taken here(hub_->its_turn());
            for (std::size_t p = 0; p < peers_.size(); ++p) {
                peer& q = peers_[p];
                if (!q.memory || q.has_said_bye) continue;
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
        const turn_taken here(hub_->its_turn());
        int n = 0;
        for (const auto& q : peers_) n += static_cast<bool>(q.memory);
        return n;
    }
    bool has_verbs() const override { return false; }

private:
    using kind = custom_frame::kind;
    static constexpr std::int64_t missed_after_ns = 100'000'000, patience_ns = 20'000'000;
    static constexpr int most_ports = stream_frame::most_ports;
    struct outgoing {
        std::uint64_t sent = 0, drained = 0; // drained: arrives without this rank's help
        std::uint64_t taken = 0;             // by the other end
        std::size_t offset = 0;              // of the message that was sent in part
    };
    struct incoming {
        std::uint64_t put = 0, told = 0; // told: the number taken that the other end knows
        std::size_t offset = 0;
    };
    struct peer {
        sole_ptr<stream_memory> memory; // null: not talked to
        unsigned used = 0;
        outgoing out[most_ports];
        incoming in[most_ports];
        std::uint64_t said_failure = 0;
        int next_waiting = -1, waiting_left = 0; // whose waiting_word is owed; -1: none
        bool has_left = false, has_said_bye = false;
        std::int64_t lost_at_ns = 0;
    };

    peer& at(int p) { return peers_[static_cast<std::size_t>(p)]; }
    peer& opened(int p) {
        peer& q = at(p);
        if (!q.memory) q.memory = make_sole<stream_memory>(shape_, ports_);
        q.memory->require();
        return q;
    }
    [[gnu::cold]] void open_all() {
        const turn_taken here(hub_->its_turn());
        try {
            for (std::size_t p = 0; p < peers_.size(); ++p)
                if (static_cast<int>(p) != rank_ && !peers_[p].memory && hub_->is_connected(members_[p]))
                    peers_[p].memory = make_sole<stream_memory>(shape_, ports_);
        } catch (const std::bad_alloc&) { // then those are notified that can be
        }
    }
    template <class Is>
    bool all(Is&& is) {
        for (auto& q : peers_)
            if (q.memory && !q.has_left && q.lost_at_ns == 0 && !is(q)) return false;
        return true;
    }
    failure failed() const { return failure(failed_->load(memory_order::acquire)); }
    void report(failure f) { report_in(*failed_, f); }
    // A peer whose channel is full receives the goodbye later: without it this rank would be taken for dead at its end.
    void owe_byes() {
        if (failed_ == nullptr) return;
        const turn_taken here(hub_->its_turn());
        try {
            for (std::size_t p = 0; p < peers_.size(); ++p)
                if (const peer& q = peers_[p]; q.memory && !q.has_left && !q.has_said_bye && q.lost_at_ns == 0)
                    hub_->owe(members_[p], of_this({.what = kind::bye}));
        } catch (const std::bad_alloc&) {
        }
    }
    void leave() {
        if (failed_ == nullptr) return;
        const turn_taken here(hub_->its_turn());
        hub_->leave(*this);
        failed_ = nullptr;
    }

    // ------------------------------------------------------------------ sending
    std::uint64_t id() const override { return id_; }
    void send() override {
        for (std::size_t p = 0; p < peers_.size(); ++p)
            if (peers_[p].memory) send_to(static_cast<int>(p));
    }
    custom_frame of_this(custom_frame f) const {
        f.communicator = id_, f.from = static_cast<std::uint32_t>(rank_);
        return f;
    }
    bool say(int p, const custom_frame& f, const std::byte* payload = nullptr, std::size_t bytes = 0) {
        return hub_->post(members_[static_cast<std::size_t>(p)], of_this(f), payload, bytes);
    }
    void send_to(int p) {
        peer& q = at(p);
        if (!q.has_left && q.lost_at_ns == 0) {
            if (const failure f = failed(); f && q.said_failure != f.word) say_failure(p, f.word);
            if (q.next_waiting >= 0) say_waiting_to(p);
            for (int port = 0; port < ports_; ++port)
                if ((q.used >> port & 1) != 0) send_port(p, port);
        }
        bool is_behind = false;
        for (int port = 0; port < ports_; ++port) is_behind |= q.out[port].drained != q.out[port].sent;
        // Messages owed to a rank that has left are no loss.
        if (is_behind && (q.has_left || hub_->is_drained(members_[static_cast<std::size_t>(p)]))) note_drained(q);
    }
    void note_drained(peer& q) {
        for (int port = 0; port < ports_; ++port)
            if (q.out[port].drained != q.out[port].sent)
                q.memory->tx(port).taken().store(q.out[port].drained = q.out[port].sent, memory_order::release);
    }
    void say_failure(int p, std::uint64_t word) {
        if (say(p, {.what = kind::failure,
                    .bytes = static_cast<std::uint32_t>(word),
                    .tag = static_cast<std::uint32_t>(word >> 32)}))
            at(p).said_failure = word;
    }
    // Sends the words of a chain, a frame each, with their age: clocks of hosts differ. The rest is sent next time.
    void say_waiting_to(int p) {
        peer& q = at(p);
        for (const std::int64_t now = now_ns(); q.next_waiting >= 0;) {
            const waiting_word w = waits_.of(q.next_waiting);
            const std::int64_t age = (now - w.said_at_ns()) / waiting_word::unit_ns;
            const bool is_known = w.word != 0 && age < UINT32_MAX;
            if (is_known && !say(p, {.what = kind::waiting,
                                     .bytes = static_cast<std::uint32_t>(w.word & 0xffff),
                                     .tag = static_cast<std::uint32_t>(q.next_waiting),
                                     .taken = static_cast<std::uint32_t>(age < 0 ? 0 : age)}))
                return;
            q.next_waiting = is_known && --q.waiting_left > 0 && w.peer() != rank_ ? w.peer() : -1;
        }
    }
    void send_port(int p, int port) {
        peer& q = at(p);
        outgoing& o = q.out[port];
        const auto depth = static_cast<std::uint64_t>(shape_.depth);
        const channel_memory memory = q.memory->tx(port);
        while (!is_settled_ && o.sent - o.taken < depth &&
               memory.slot(o.sent).number.load(memory_order::acquire) == o.sent + 1 && send_part(p, port))
            has_moved_ = true;
        const std::uint64_t taken = q.memory->taken(port);
        if ((taken - q.in[port].told) * 2 < depth) return;
        if (say(p, {.what = kind::credit,
                    .at_port = static_cast<std::uint8_t>(port),
                    .taken = static_cast<std::uint32_t>(taken)}))
            q.in[port].told = taken;
    }
    // Sends the next part of message o.sent. False: no room.
    bool send_part(int p, int port) {
        peer& q = at(p);
        outgoing& o = q.out[port];
        const channel_memory memory = q.memory->tx(port);
        const slot_header& slot = memory.slot(o.sent);
        const std::size_t bytes = slot.bytes & ~slot_header::single_copy_bit;
        const std::byte* from = bytes <= slot_header::inline_bytes ? slot.payload : memory.own_place(o.sent);
        if ((slot.bytes & slot_header::single_copy_bit) != 0) std::memcpy(&from, slot.payload, sizeof from);
        const std::size_t most = hub_->most_payload(), left = bytes - o.offset, here = left < most ? left : most;
        const std::uint64_t taken = q.memory->taken(port);
        if (!say(p,
                 {.what = kind::message,
                  .at_port = static_cast<std::uint8_t>(port),
                  .bytes = static_cast<std::uint32_t>(bytes),
                  .tag = slot.tag,
                  .offset = static_cast<std::uint32_t>(o.offset),
                  .taken = static_cast<std::uint32_t>(taken)},
                 from + o.offset, here))
            return false;
        q.in[port].told = taken;
        o.offset += here;
        if (o.offset == bytes) ++o.sent, o.offset = 0;
        return true;
    }

    // ------------------------------------------------------------------ receiving
    void take(int from, const custom_frame& f, const std::byte* payload, std::size_t bytes) override {
        if (f.from >= peers_.size() || members_[f.from] != from || static_cast<int>(f.from) == rank_) return;
        const int p = static_cast<int>(f.from);
        try {
            if (!is_sound(opened(p), f, payload, bytes)) report(failure(errc::protocol, p));
        } catch (const error&) { // no room for the slots
            report(failure(errc::resource, rank_));
        }
    }
    bool is_sound(peer& q, const custom_frame& f, const std::byte* payload, std::size_t bytes) {
        switch (f.what) {
            case kind::message: return take_credit(q, f) && take_part(q, f, payload, bytes);
            case kind::credit: return bytes == 0 && take_credit(q, f);
            case kind::failure: return hear_failure(q, f);
            case kind::waiting: return hear_waiting(f);
            case kind::bye: return q.has_left = true;
        }
        return false;
    }
    bool take_credit(peer& q, const custom_frame& f) {
        if (f.at_port >= ports_) return false;
        outgoing& o = q.out[f.at_port];
        o.taken += f.taken - static_cast<std::uint32_t>(o.taken);
        return o.taken <= o.sent;
    }
    bool take_part(peer& q, const custom_frame& f, const std::byte* payload, std::size_t bytes) {
        incoming& i = q.in[f.at_port];
        const channel_memory memory = q.memory->rx(f.at_port);
        slot_header& slot = memory.slot(i.put);
        const bool is_first = i.offset == 0;
        if (f.bytes > shape_.slot_bytes || f.offset != i.offset || (bytes == 0 && f.bytes != 0) ||
            (!is_first && (f.bytes != slot.bytes || f.tag != slot.tag)) || bytes > f.bytes - i.offset)
            return false;
        if (is_first) {
            const std::uint64_t taken = q.memory->taken(f.at_port);
            if (i.put - taken >= static_cast<std::uint64_t>(shape_.depth)) return false;
            slot.bytes = f.bytes, slot.tag = f.tag;
            if (f.bytes > slot_header::inline_bytes) memory.take_place(i.put, taken);
        }
        std::byte* const to = f.bytes <= slot_header::inline_bytes ? slot.payload : memory.own_place(i.put);
        if (bytes != 0) std::memcpy(to + i.offset, payload, bytes);
        i.offset += bytes;
        has_moved_ = true;
        if (i.offset != f.bytes) return true;
        i.offset = 0;
        slot.number.store(++i.put, memory_order::release);
        return true;
    }
    bool hear_failure(peer& q, const custom_frame& f) {
        const failure heard(static_cast<std::uint64_t>(f.tag) << 32 | f.bytes);
        if (!heard.is_sound(static_cast<int>(peers_.size()))) return false;
        report(heard);
        if (heard.word == failed().word) q.said_failure = heard.word;
        return true;
    }
    bool hear_waiting(const custom_frame& f) {
        if (waits_.at == nullptr) return true;
        const auto ranks = static_cast<std::uint32_t>(waits_.ranks);
        if (f.tag >= ranks || f.bytes >> 14 > 2 || (f.bytes & waiting_word::most_ranks) > ranks) return false;
        const std::uint64_t now = static_cast<std::uint64_t>(now_ns()) >> 16;
        waits_.hear(static_cast<int>(f.tag), waiting_word((now > f.taken ? now - f.taken : 0) << 16 | f.bytes));
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
