// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the engine needs where ranks do not share all memory: large messages that bypass slots, and an exchange of a few
// bytes among all ranks. The bodies are in remote_once.hpp and tree_exchange.hpp. Programs whose ranks are threads and
// processes of one host do not compile them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/exec/bound_schedule.hpp>
#include <collx/transport/channel.hpp>

COLLX_BEGIN_NAMESPACE

// Below this size, copying costs less than avoiding it.
inline constexpr std::size_t least_remote_bytes = 16 * 1024;

class channel_steps;
class links;
struct communicator_core;
struct strand_cursor;

// The message of a step.
struct channel_message {
    std::size_t bytes;
    std::uint32_t tag;
    receiving_end* rx = nullptr;
    sending_end* tx = nullptr;
    const std::byte* in = nullptr; // of a slot
    std::byte* out = nullptr;
};

namespace detail {

// What is called for each rank with the bytes that it shows. Refers to a callable, which must outlive it, so that an
// exchange is compiled once and not for each callable.
class line_visitor {
public:
    template <class Visit>
    static line_visitor of(Visit& visit) {
        return {const_cast<void*>(static_cast<const void*>(&visit)),
                [](void* v, int r, const std::byte* line) { (*static_cast<Visit*>(v))(r, line); }};
    }
    void operator()(int rank, const std::byte* line) const { call_(visit_, rank, line); }

private:
    using function = void (*)(void* visit, int rank, const std::byte* line);
    line_visitor(void* visit, function call) : visit_(visit), call_(call) {}
    void* visit_;
    function call_;
};

struct remote_calls {
    // Marks the steps that may send from and receive into the user's memory, and those that send last.
    void (*mark)(bound_schedule&);
    // Pre-posts the receive of the message that a step waits for, and the next receives from other peers.
    void (*want)(channel_steps&, const sched::step&, const strand_cursor&, receiving_end&, std::size_t bytes,
                 std::uint32_t tag);
    // Runs a step whose message is received or sent in place. False: it has none, and nothing was done.
    bool (*run)(channel_steps&, const sched::step&, const strand_cursor&, const channel_message&);
    // See tree_exchange.hpp.
    void (*open_tree)(links&);
    void (*exchange)(communicator_core&, const void* mine, std::size_t bytes, const line_visitor& visit,
                     std::int64_t timeout_ns, communicator_core* parent);
};

#if defined(COLLX_COMPILED)
extern const remote_calls* by_channels;
#else
// Written by: the initialisation of a program that includes collx/net.hpp or brings a transport of its own. Read by:
// communicators whose ranks do not share all memory; other programs have none.
inline const remote_calls* by_channels = nullptr;
#endif

// Shows a few bytes of every rank to all others, by visit(rank, line). Also for a communicator that is coming up.
template <class Visit>
void exchange_by_channels(communicator_core& c, const void* mine, std::size_t bytes, Visit&& visit,
                          std::int64_t timeout_ns, communicator_core* parent = nullptr) {
    by_channels->exchange(c, mine, bytes, line_visitor::of(visit), timeout_ns, parent);
}

} // namespace detail

COLLX_END_NAMESPACE
