// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a device_group launches: its messages, the k-th of every pair of ranks together, then its collectives, as many
// as fit into each kernel (batch.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <collx/comm/gpu/batch.hpp>
#include <collx/comm/gpu/calls.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Bytes from or for one peer.
struct device_message {
    int peer;
    bool outgoing;
    std::uintptr_t address;
    std::size_t bytes;
};

// What goes to each peer, or comes from it: at most one buffer each.
struct message_side {
    std::vector<std::size_t> bytes;
    std::vector<std::uintptr_t> address;
    explicit message_side(std::size_t ranks) : bytes(ranks), address(ranks) {}
    void add(const device_message& m) {
        bytes[static_cast<std::size_t>(m.peer)] = m.bytes, address[static_cast<std::size_t>(m.peer)] = m.address;
    }
    std::uintptr_t lowest() const {
        std::uintptr_t least = UINTPTR_MAX;
        for (std::size_t k = 0; k < bytes.size(); ++k)
            if (bytes[k] != 0 && address[k] < least) least = address[k];
        return least;
    }
    template <class T>
    T* first() const {
        return lowest() == UINTPTR_MAX ? nullptr : reinterpret_cast<T*>(lowest());
    }
    std::vector<std::size_t> offsets() const {
        std::vector<std::size_t> at(bytes.size());
        for (std::size_t k = 0; k < bytes.size(); ++k)
            if (bytes[k] != 0) at[k] = address[k] - lowest();
        return at;
    }
};

// One of a group's collectives: its kernel is not launched but added to the batch.
template <class Runtime, class Comm>
struct device_in_group : device_started<Runtime, Comm> {
    using base = device_started<Runtime, Comm>;
    device_in_group(Comm& x, const device_call_options& opts, kernel_batch& b)
        : base(x, opts, true, b.is_first()), batch(b) {}

    template <class Call, class In, class Out>
    void put(const Call& call, const device::fused_options& with, const In& in, const Out& out) const {
        batch.add(
            this->g.team(), call, with, memory_of(in, false), memory_of(out, true),
            [g = &this->g, with, facts = this->stream] { g->end(device_call_options{.stream = with.stream}, facts); });
    }
    void end() const {
        this->made();
        if (!this->g.is_direct()) base::end();
    }
    kernel_batch& batch;
};

template <class Runtime>
struct device_group_calls {
    template <collective C, class Comm, class In, class Out, class Op>
    static void collective_of(Comm& comm, const In& in, const Out& out, const Op& op, const device_call_options& o,
                              bool is_in_place, kernel_batch& batch) {
        const device_in_group<Runtime, Comm> call(comm, o, batch);
        if constexpr (std::is_same_v<Op, no_op>)
            device_calls<Runtime>::template call<C>(call, in, out, device::move_only{}, is_in_place);
        else device_calls<Runtime>::template call<C>(call, in, out, op, is_in_place);
    }

    // The k-th message to and from each peer, together.
    template <class Comm>
    static void messages(Comm& comm, const std::vector<device_message>& all, const device_call_options& o) {
        communicator& c = base_of(comm);
        const auto n = static_cast<std::size_t>(c.size());
        if (all.empty()) return;
        for (const auto& m : all) require_peer(c.internals(), m.peer);
        device_calls<Runtime>::require_set_up(c, all[0].peer);
        for (std::size_t round = 0;; ++round) {
            const device_started<Runtime, Comm> call(comm, o, false);
            message_side sides[2] = {message_side(n), message_side(n)};
            std::vector<std::size_t> seen[2] = {std::vector<std::size_t>(n), std::vector<std::size_t>(n)};
            bool is_last = true;
            for (const auto& m : all) {
                std::size_t& number = seen[m.outgoing ? 0 : 1][static_cast<std::size_t>(m.peer)];
                if (number == round) {
                    call.g.require_memory(device_view<const char>(reinterpret_cast<const char*>(m.address), m.bytes),
                                          "group's");
                    sides[m.outgoing ? 0 : 1].add(m);
                }
                is_last = is_last && number++ <= round;
            }
            const std::size_t me = static_cast<std::size_t>(c.rank());
            if (sides[0].bytes[me] != sides[1].bytes[me])
                fail(errc::invalid_argument, c.rank(), c.rank(), "what a rank sends itself it also receives",
                     "a group sends %zu bytes to its own rank and receives %zu", sides[0].bytes[me],
                     sides[1].bytes[me]);
            count_tables& t = c.internals().tables;
            t.first.assign(c.rank(), c.size(), sides[0].bytes, sides[0].offsets(), "group's");
            t.second.assign(c.rank(), c.size(), sides[1].bytes, sides[1].offsets(), "group's");
            // One view on all buffers of a side, from the first to the end of the last.
            device_calls<Runtime>::template exchange<collective::send_recv>(
                call, device_view<const std::uint8_t>(sides[0].template first<const std::uint8_t>(), t.first.end()),
                device_view<std::uint8_t>(sides[1].template first<std::uint8_t>(), t.second.end()), n);
            if (is_last) return;
        }
    }
};

} // namespace detail
COLLX_END_NAMESPACE
