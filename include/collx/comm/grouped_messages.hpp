// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages between two ranks that a group collected: all that go to one peer are packed into one message, and unpacked
// in the same order at the other end. Both ends pack by the same rule from the same sizes, so only the data travels;
// types and counts are compared as a hash.
#pragma once

#include <collx/core/pointers.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/comm/group_memory.hpp>
#include <collx/comm/ready_group.hpp>
#include <collx/comm/send_recv.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The packed size of n elements. Operands that need more than 8-byte alignment go alone.
template <class T>
constexpr std::size_t grouped_bytes(std::size_t n) {
    return alignof(T) <= 8 ? n * sizeof(T) : SIZE_MAX / 2;
}

// One send or receive of a group.
struct grouped_transfer {
    grouped_transfer(int to_or_from, bool sends) : peer(to_or_from), outgoing(sends) {}
    virtual ~grouped_transfer() = default;
    virtual std::size_t bytes() const = 0;
    virtual std::uint32_t tag() const = 0;    // what both ends must agree on
    virtual void move(std::byte* packed) = 0; // into the message, or out of it
    virtual void show_buffers(group_buffers&) const = 0;
    int queue() const { return message_queue(peer, outgoing); }
    int peer;
    bool outgoing;
    std::size_t number = 0; // in the group, from 1 on
};

// Mode: of the group. Once begun, its transfers are under way, or ready to be started.
template <class Mode>
inline constexpr bool is_repeated_v = std::is_same_v<Mode, persistent_mode>;
template <class Mode>
using started_transfer = std::conditional_t<is_repeated_v<Mode>, sole_ptr<ready_call>, work<void>>;

template <class Mode>
struct transfer_in : grouped_transfer {
    using grouped_transfer::grouped_transfer;
    virtual started_transfer<Mode> start_alone(communicator&, const call_options&) = 0;
};

template <class Mode, class View, bool Outgoing>
struct typed_transfer final : transfer_in<Mode> {
    using element = element_of<View>;
    typed_transfer(communicator& c, View v, int to_or_from)
        : transfer_in<Mode>(to_or_from, Outgoing), view(v), mover_(v, v, no_op{}, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(view.size()); }
    std::uint32_t tag() const override {
        return static_cast<std::uint32_t>(view.size() * 31) ^ static_cast<std::uint32_t>(type_hash<element>());
    }
    void move(std::byte* packed) override {
        auto* const at = reinterpret_cast<element*>(packed);
        if constexpr (Outgoing) mover_.load(at, sched::place::in, 0, view.size());
        else mover_.store(sched::place::out, 0, at, view.size());
    }
    void show_buffers(group_buffers& all) const override {
        all.add(facts_of(view), !Outgoing, name_of(Outgoing ? verb::send : verb::recv), this->number);
    }
    started_transfer<Mode> start_alone(communicator& c, const call_options& o) override {
        if constexpr (is_repeated_v<Mode>)
            return message_fn<persistent_mode, Outgoing>{}(c, view, this->peer, o).release();
        else return message_fn<async_mode, Outgoing>{}(c, view, this->peer, o);
    }
    View view;
    mover<View, View, no_op, element> mover_;
};

// Several transfers of one direction to or from one peer, as one message.
class packed_message final : public operation {
public:
    using parts = growing_array<sole_ptr<grouped_transfer>>;
    packed_message(links& over, parts p) : net_(over), parts_(std::move(p)) {
        for (const auto& t : parts_) {
            bytes_ += round_up(t->bytes(), 8);
            tag_ = tag_ * 31 + t->tag();
        }
        at_port = port::messages;
    }
    void again() {
        state = task_state::blocked;
        is_sent_ = false;
    }
    // Takes it up as a call of its own. how: of the group.
    static void start(communicator_core& c, const counted_ptr<packed_message>& m, int queue, call_kind how) {
        const bool sends = m->parts_[0]->outgoing;
        ++c.messages;
        if (c.recorder) [[unlikely]]
            (void)c.recorder->begin_async({.verb = sends ? "send" : "recv",
                                           .bytes = m->bytes_,
                                           .kind = how,
                                           .is_message = true,
                                           .peer = m->parts_[0]->peer});
        c.start(m, queue);
    }
    task_state advance() override {
        const int peer = parts_[0]->peer;
        waiting_for = awaited(peer, parts_[0]->outgoing ? awaited::why::room : awaited::why::message);
        if (parts_[0]->outgoing) {
            auto& tx = net_.tx(port::messages, peer);
            if (is_sent_) return tx.is_drained() ? task_state::done : task_state::blocked;
            std::byte* const to = tx.try_acquire(bytes_);
            if (to == nullptr) return task_state::blocked;
            move_all(to);
            tx.commit(bytes_, tag_);
            is_sent_ = true;
            if (tx.is_remote()) return task_state::moved;
        } else {
            auto& rx = net_.rx(port::messages, peer);
            if (!rx.has_message()) return task_state::blocked;
            if (rx.is_single_copy() || !rx.is_expected(bytes_, tag_)) {
                error = net_.refuse(rx, peer, bytes_);
                return task_state::failed;
            }
            move_all(const_cast<std::byte*>(rx.peek(bytes_)));
            rx.release(bytes_);
        }
        return task_state::done;
    }

private:
    void move_all(std::byte* at) {
        for (const auto& t : parts_) {
            t->move(at);
            at += round_up(t->bytes(), 8);
        }
    }
    links& net_;
    parts parts_;
    std::size_t bytes_ = 0;
    std::uint32_t tag_ = 0;
    bool is_sent_ = false; // to another host, the system may not have it yet
};

// Starts all transfers, or makes them ready: those of one peer and direction are packed into messages of up to a slot,
// larger ones go alone in their turn.
template <class Mode>
class transfer_packer {
public:
    transfer_packer(communicator& c, const call_options& o) : comm_(c), options_(o) {}

    growing_array<started_transfer<Mode>> start(packed_message::parts transfers) {
        comm_.internals().require_alive();
        for (std::size_t i = 0; i < transfers.size(); ++i) {
            if (!transfers[i]) continue;
            const int queue = transfers[i]->queue();
            for (std::size_t k = i; k < transfers.size(); ++k)
                if (transfers[k] && transfers[k]->queue() == queue) add(std::move(transfers[k]));
            finish_message();
        }
        return std::move(started_);
    }

private:
    void add(sole_ptr<grouped_transfer> t) {
        const std::size_t room = comm_.internals().net.slot_bytes(), bytes = t->bytes();
        if (bytes > room || round_up(bytes, 8) > room - used_) finish_message();
        if (bytes > room) return started_.push_back(static_cast<transfer_in<Mode>&>(*t).start_alone(comm_, options_));
        used_ += round_up(bytes, 8);
        open_.push_back(std::move(t));
    }
    void finish_message() {
        if (open_.empty()) return;
        auto& c = comm_.internals();
        const int queue = open_[0]->queue();
        auto message = make_counted<packed_message>(c.net, std::move(open_));
        if constexpr (is_repeated_v<Mode>) {
            started_.push_back(
                make_sole<ready_packed<packed_message>>(c, std::move(message), queue, options_.timeout.count()));
        } else {
            packed_message::start(c, message, queue, call_kind::blocking);
            started_.push_back(work<void>(c, message, nullptr, options_.timeout.count()));
        }
        open_.clear();
        used_ = 0;
    }
    communicator& comm_;
    call_options options_;
    packed_message::parts open_; // of one message
    std::size_t used_ = 0;
    growing_array<started_transfer<Mode>> started_;
};

} // namespace detail

COLLX_END_NAMESPACE
