// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Carries a stream's messages over a queue pair instead of its socket. Everything else stays with the socket: the proof
// of the key, failures, goodbyes, and the end of a process, which a queue pair that only receives never notices.
//
//   socket    queue_pair ──▶  ◀── queue_pair     where the other end's queue pair is: then both can receive
//             slots(port) ──▶ ◀── slots(port)    where messages of this port go here; asks for the same in return
//             switched(port) ──▶                 the last word about this port: the rest goes by verbs
//   verbs     write of the payload to its slot, send of the head behind it    (up to 112 bytes: in the head)
//
// Message i of a port goes to place i % depth of the receiver, so the place is not sent. Slots that cannot be
// registered are not offered, and the port stays with the socket.
#pragma once

#include <cstring>
#include <new>
#include <utility>

#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_queue.hpp>
#include <collx/transport/remote_memory.hpp>
#include <collx/transport/verbs_device.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class verbs_path {
public:
    static constexpr std::size_t most_head_bytes = sizeof(stream_frame) + slot_header::inline_bytes;

    // Whether a device can carry messages of such channels at all.
    static bool fits(const verbs_device& d, const channel_shape& s) {
        return d.most_head_bytes() >= most_head_bytes && d.most_write_bytes() >= s.slot_bytes;
    }
    verbs_path(verbs_device& d, channel_shape shape, int ports)
        : device_(d), shape_(shape), ports_(ports), most_sends_(ports * (shape.depth + credits_per_port)) {}
    verbs_path(const verbs_path&) = delete;

    // ------------------------------------------------------------------ words over the socket
    // Adds those that are due. used: ports that either end has used. is_clear: no sent message waits for its slot.
    void add_words(stream_queue& to, const stream_memory& memory, unsigned used, bool is_clear) {
        if (state_ == state::unsaid && !to.is_full() && begin()) {
            to.add({{.what = stream_frame::kind::queue_pair, .bytes = sizeof own_},
                    reinterpret_cast<const std::byte*>(&own_),
                    sizeof own_,
                    sizeof(stream_frame),
                    false});
            state_ = state::said;
            if (has_heard_) connect();
        }
        if (state_ != state::connected || !memory.is_mapped()) return;
        owes_switch_ = false;
        for (int p = 0; p < ports_; ++p) {
            port& at = port_[p];
            const bool is_wanted = at.there.address != 0;
            if ((is_wanted || (used >> p & 1) != 0) && (offered_ >> p & 1) == 0 && !to.is_full()) offer(to, memory, p);
            if (!is_wanted || at.is_switching) continue;
            if (to.is_full() || !is_clear) owes_switch_ = true;
            else if (prepare_to_send(at, memory.tx(p)))
                to.add_word(stream_frame{.what = stream_frame::kind::switched}.on(p));
        }
    }
    // Whether add_words() has something to add, as far as a cheap look shows.
    bool owes_words(unsigned used) const {
        return state_ == state::unsaid || (state_ == state::connected && ((used & ~offered_) != 0 || owes_switch_));
    }
    // The three words of the other end. For nonsense (a second queue pair, too): false, or is_nonsense().
    void hear_queue_pair(const queue_pair_address& there) {
        if (std::exchange(has_heard_, true)) return void(is_nonsense_ = true);
        peer_ = there;
        if (state_ == state::said) connect();
    }
    bool hear_slots(const stream_frame& f) {
        const std::uint64_t address = static_cast<std::uint64_t>(f.tag) << 32 | f.bytes;
        if (f.at_port >= ports_ || address == 0 || port_[f.at_port].there.address != 0) return false;
        port_[f.at_port].there = {address, f.taken};
        return owes_switch_ = true;
    }
    bool hear_switched(const stream_frame& f) {
        if (f.at_port >= ports_ || !port_[f.at_port].written || port_[f.at_port].is_receiving) return false;
        return receives_ = port_[f.at_port].is_receiving = true;
    }
    bool has_switched(int p) const { return p < ports_ && port_[p].is_receiving; }
    // Whether the other end may write to this end's slots.
    bool has_offered() const { return offered_ != 0; }
    // The system has the word `switched`, and all messages before it.
    void note_switched(int p) { port_[p].is_sending = true; }

    // ------------------------------------------------------------------ sending
    // Whether the messages of a port go by verbs from now on; and whether the last one over the socket was sent.
    bool is_switching(int p) const { return port_[p].own != nullptr; }
    bool sends(int p) const { return port_[p].is_sending; }
    bool has_room() const { return in_flight_ < most_sends_ && state_ == state::connected; }
    bool is_idle() const { return (in_flight_ == 0 && transfers_done_ == transfers_) || state_ == state::failed; }
    std::uint32_t messages_sent() const { return messages_sent_; }
    // Posts message `number` of a port, whose slot is written. Requires has_room().
    void post(const channel_memory& from, std::uint64_t number, stream_frame head) {
        const slot_header& slot = from.slot(number);
        struct {
            stream_frame frame;
            std::byte payload[slot_header::inline_bytes];
        } whole;
        whole.frame = head;
        verbs_write w;
        const bool is_short = head.bytes <= slot_header::inline_bytes;
        if (is_short) {
            std::memcpy(whole.payload, slot.payload, head.bytes);
        } else {
            const port& at = port_[head.at_port];
            w = {from.own_place(number), head.bytes, at.own->local_key,
                 at.there.address + (number % static_cast<std::uint64_t>(shape_.depth)) * place_bytes(),
                 at.there.remote_key};
        }
        ++messages_sent_;
        post(&w, is_short ? 0 : 1, &whole, sizeof head + (is_short ? head.bytes : 0), head.at_port);
    }
    void post_credit(const stream_frame& head) { post(nullptr, 0, &head, sizeof head, no_port); }

    // ------------------------------------------------------------------ transfers
    // Transfers without a message behind them. Requires sends(port) for the order with a port's messages.
    bool has_room_for_transfer() const {
        return transfers_ - transfers_done_ < most_transfers && state_ == state::connected;
    }
    void transfer(const verbs_transfer& what, const counted_ptr<transfer_room>& room) {
        if (room_ != room) room_ = room; // a stream has one communicator, which has one window
        ++transfers_;
        was_used_ = true;
        if (!pair_->post_alone(what, transfer_id)) state_ = state::failed;
    }
    std::uint64_t transfers() const { return transfers_; }
    std::uint64_t transfers_done() const { return transfers_done_; }

    // ------------------------------------------------------------------ receiving
    // Handles completions. sent(port): a message's slot is free. received(frame, payload): false for nonsense. A head
    // whose port the socket has not switched yet waits, with those behind it. Returns whether anything was done.
    template <class Sent, class Received>
    bool move(Sent&& sent, Received&& received) {
        if (state_ != state::connected) return false;
        bool moved = false;
        for (int turn = 0; turn < 4; ++turn) {
            if (next_ == taken_) {
                next_ = 0;
                taken_ = pair_->poll(completions_, most_taken);
            }
            if (next_ == taken_) return moved;
            for (; next_ != taken_; ++next_) {
                const verbs_completion& c = completions_[next_];
                if (c.what == verbs_completion::kind::failed) {
                    state_ = state::failed;
                    return true;
                }
                if (c.what == verbs_completion::kind::sent) {
                    if (c.id == transfer_id) {
                        ++transfers_done_;
                        moved = true;
                        continue;
                    }
                    --in_flight_;
                    if (c.id != no_port) sent(static_cast<int>(c.id));
                } else if (!is_nonsense_) {
                    std::byte* const at = head_at(c.id);
                    stream_frame f;
                    if (c.bytes < sizeof f) return is_nonsense_ = true;
                    std::memcpy(&f, at, sizeof f);
                    if (f.at_port >= ports_) return is_nonsense_ = true;
                    if (!port_[f.at_port].is_receiving) return moved;
                    if (f.what == stream_frame::kind::message) ++messages_received_;
                    if (!received(f, at + sizeof f, c.bytes - sizeof f)) return is_nonsense_ = true;
                    pair_->post_receive(at, most_head_bytes, heads_memory_->local_key, c.id);
                }
                moved = true;
            }
        }
        return moved;
    }
    // Whether messages come by it: then the socket need not be looked at so often.
    bool receives() const { return receives_ && next_ == taken_; }
    // messages: the number that the other end had sent when it said goodbye.
    bool is_complete(std::uint32_t messages) const { return messages_received_ == messages; }

    bool has_failed() const { return state_ == state::failed || is_nonsense_; }
    // Whether it failed after it had carried something: what was under way is lost.
    bool has_broken() const { return has_failed() && was_used_; }
    bool is_nonsense() const { return is_nonsense_; }

private:
    static constexpr int credits_per_port = 4, most_taken = 16, most_transfers = 8;
    static constexpr std::uint64_t no_port = stream_frame::most_ports, transfer_id = no_port + 1;
    enum class state : unsigned char { unsaid, said, connected, failed };
    struct remote_slots {
        std::uint64_t address = 0;
        std::uint32_t remote_key = 0;
    };
    struct port {
        sole_ptr<verbs_memory> own, written; // where messages leave from; where they arrive
        remote_slots there;
        bool is_switching = false, is_sending = false, is_receiving = false;
    };

    std::size_t place_bytes() const { return shape_.slot_bytes + page_bytes; }
    std::size_t places_bytes() const { return static_cast<std::size_t>(shape_.depth) * place_bytes(); }
    // What is registered shares no page with anything else.
    std::byte* head_at(std::uint64_t id) {
        const auto behind = reinterpret_cast<std::uintptr_t>(heads_.data()) & (page_bytes - 1);
        return heads_.data() + (behind == 0 ? 0 : page_bytes - behind) + id * most_head_bytes;
    }

    [[gnu::cold]] bool begin() {
        try {
            const int receives = most_sends_;
            pair_ = device_.make_queue_pair({most_sends_, most_sends_, receives, most_head_bytes, most_transfers});
            const std::size_t bytes = round_up(static_cast<std::size_t>(receives) * most_head_bytes, page_bytes);
            heads_.resize(bytes + page_bytes);
            heads_memory_ = device_.register_memory(head_at(0), bytes);
            for (int i = 0; i < receives; ++i)
                pair_->post_receive(head_at(static_cast<std::uint64_t>(i)), most_head_bytes, heads_memory_->local_key,
                                    static_cast<std::uint64_t>(i));
            own_ = pair_->address();
            return true;
        } catch (const error&) {
        } catch (const std::bad_alloc&) {
        }
        state_ = state::failed; // everything stays with the socket
        return false;
    }
    [[gnu::cold]] void connect() {
        if (peer_.link != own_.link) { // no device notices before its first packets are lost
            state_ = state::failed;
            return;
        }
        try {
            pair_->connect(peer_);
            state_ = state::connected;
        } catch (const error&) {
            state_ = state::failed;
        }
    }
    [[gnu::cold]] void offer(stream_queue& to, const stream_memory& memory, int p) {
        port& at = port_[p];
        std::byte* const first = memory.rx(p).first_place();
        offered_ |= 1u << p;
        if (at.written = try_to_register(first); !at.written) return;
        const auto address = reinterpret_cast<std::uint64_t>(first);
        const stream_frame place{.what = stream_frame::kind::slots,
                                 .bytes = static_cast<std::uint32_t>(address),
                                 .tag = static_cast<std::uint32_t>(address >> 32),
                                 .taken = at.written->remote_key};
        to.add_word(place.on(p));
    }
    [[gnu::cold]] bool prepare_to_send(port& at, const channel_memory& m) {
        at.is_switching = true;
        at.own = try_to_register(m.first_place());
        return static_cast<bool>(at.own); // else the port stays with the socket
    }
    [[gnu::cold]] sole_ptr<verbs_memory> try_to_register(std::byte* at) {
        try {
            return device_.register_memory(at, places_bytes());
        } catch (...) { // nor memory for the object: the port stays with the socket
            return nullptr;
        }
    }
    void post(const verbs_write* writes, int count, const void* head, std::size_t bytes, std::uint64_t id) {
        ++in_flight_;
        was_used_ = true;
        if (!pair_->post(writes, count, head, static_cast<std::uint32_t>(bytes), id)) state_ = state::failed;
    }

    verbs_device& device_;
    channel_shape shape_;
    int ports_, most_sends_;
    state state_ = state::unsaid;
    bool has_heard_ = false, owes_switch_ = false, receives_ = false, is_nonsense_ = false, was_used_ = false;
    unsigned offered_ = 0; // ports that were offered, successfully or not
    queue_pair_address own_, peer_;
    port port_[stream_frame::most_ports];
    growing_array<std::byte> heads_;
    sole_ptr<verbs_memory> heads_memory_;
    verbs_completion completions_[most_taken];
    int next_ = 0, taken_ = 0;
    int in_flight_ = 0;
    std::uint32_t messages_sent_ = 0, messages_received_ = 0;
    std::uint64_t transfers_ = 0, transfers_done_ = 0;
    counted_ptr<transfer_room> room_; // of transfers
    sole_ptr<queue_pair> pair_;       // is destroyed first
};

} // namespace detail

COLLX_END_NAMESPACE
