// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One send or receive of a group: its type on the outside, bytes on the inside.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/comm/send_recv.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Operands that need more than 8-byte alignment go by themselves.
template <class T>
constexpr std::size_t grouped_bytes(std::size_t n) {
    return alignof(T) <= 8 ? n * sizeof(T) : SIZE_MAX / 2;
}

// One send or receive of a group.
struct grouped_transfer {
    grouped_transfer(int peer, bool outgoing) : peer(peer), outgoing(outgoing) {}
    virtual ~grouped_transfer() = default;
    virtual std::size_t bytes() const = 0;
    virtual std::uint32_t tag() const = 0;    // what both ends must agree on
    virtual void move(std::byte* packed) = 0; // into the message, or out of it
    virtual work<void> start_alone(communicator&, const call_options&) = 0;
    int queue() const { return message_queue(peer, outgoing); }
    int peer;
    bool outgoing;
};

template <class View, bool Outgoing>
struct typed_transfer final : grouped_transfer {
    using element = element_of<View>;
    typed_transfer(communicator& c, View v, int peer)
        : grouped_transfer(peer, Outgoing), view(v), mover_(v, v, no_op{}, c.size()) {}
    std::size_t bytes() const override { return grouped_bytes<element>(view.size()); }
    std::uint32_t tag() const override {
        return static_cast<std::uint32_t>(view.size() * 31) ^ static_cast<std::uint32_t>(type_hash<element>());
    }
    void move(std::byte* packed) override {
        auto* const at = reinterpret_cast<element*>(packed);
        if constexpr (Outgoing) mover_.load(at, sched::place::in, 0, view.size());
        else mover_.store(sched::place::out, 0, at, view.size());
    }
    work<void> start_alone(communicator& c, const call_options& o) override {
        return message_fn<nonblocking, Outgoing>{}(c, view, peer, o);
    }
    View view;
    mover<View, View, no_op, element> mover_;
};

} // namespace detail

COLLX_END_NAMESPACE
