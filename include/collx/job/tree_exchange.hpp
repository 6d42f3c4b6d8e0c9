// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gives every rank a few bytes of each other rank where there is no common memory: up a binomial tree to rank 0, and
// the whole table down again, in messages of the blocking port. A communicator across hosts also comes up in this way:
// afterwards connections link all its ranks, and a failure notification reaches all of them along these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/growing_array.hpp>
#include <collx/exec/bound_schedule.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Tag of an exchange's messages, so that they are not taken for those of a collective that some rank calls instead.
inline constexpr std::uint32_t exchange_tag = 0xc0'11'ec'75;

template <class Core>
class table_messages {
public:
    table_messages(Core& c, std::int64_t timeout_ns, Core* parent)
        : core_(c), timeout_ns_(timeout_ns), parent_(parent) {}

    [[gnu::cold]] void send(int peer, const std::byte* from, std::size_t bytes) {
        auto& tx = core_.net.tx(port::blocking, peer);
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t here = part(bytes - done);
            std::byte* slot = nullptr;
            core_.wait_until([&] { return (slot = tx.try_acquire(here)) != nullptr; }, timeout_ns_,
                             awaited(peer, awaited::why::room), parent_);
            std::memcpy(slot, from + done, here);
            tx.commit(here, tag());
            done += here;
        }
    }
    // Waits until the system has taken what was sent to a peer: this rank may not call again for a long time.
    [[gnu::cold]] void flush(int peer) {
        auto& tx = core_.net.tx(port::blocking, peer);
        core_.wait_until([&] { return tx.is_drained(); }, timeout_ns_, awaited(peer, awaited::why::room), parent_);
    }
    [[gnu::cold]] void receive(int peer, std::byte* to, std::size_t bytes) {
        auto& rx = core_.net.rx(port::blocking, peer);
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t here = part(bytes - done);
            core_.wait_until([&] { return rx.has_message(); }, timeout_ns_, awaited(peer, awaited::why::message),
                             parent_);
            if (!rx.is_expected(here, tag())) core_.give_up(failure(errc::mismatch, peer), peer);
            std::memcpy(to + done, rx.peek(here), here);
            rx.release(here);
            done += here;
        }
    }

private:
    std::uint32_t tag() const { return exchange_tag ^ folded(core_.agreed); }
    std::size_t part(std::size_t left) const {
        const std::size_t most = core_.net.slot_bytes();
        return left < most ? left : most;
    }
    Core& core_;
    std::int64_t timeout_ns_;
    Core* parent_;
};

// Opens all connections of the tree, without waiting for any: a rank that gives up while it waits for one neighbour
// must reach the others.
template <class Links>
[[gnu::cold]] void open_tree(Links& over) {
    const int n = over.size(), me = over.rank();
    for (int s = 1; s < n; s *= 2) {
        if ((me & s) != 0) (void)over.tx(port::blocking, me - s);
        else if (me + s < n) (void)over.rx(port::blocking, me + s);
        if ((me & s) != 0) break;
    }
}

// Calls visit(rank, its bytes) for every rank. Cost: 2 log2(n) messages one after the other, of up to n * bytes.
template <class Core, class Visit>
[[gnu::cold]] void exchange_over_tree(Core& c, const void* mine, std::size_t bytes, Visit&& visit,
                                      std::int64_t timeout_ns, Core* parent = nullptr) {
    const int n = c.net.size(), me = c.net.rank();
    detail::growing_array<std::byte> table(static_cast<std::size_t>(n) * bytes);
    const auto at = [&](int r) { return table.data() + static_cast<std::size_t>(r) * bytes; };
    const auto size = [&](int first, int count) {
        return static_cast<std::size_t>(first + count < n ? count : n - first) * bytes;
    };
    std::memcpy(at(me), mine, bytes);
    open_tree(c.net);
    table_messages<Core> messages(c, timeout_ns, parent);
    int span = 1;
    for (; span < n && (me & span) == 0; span *= 2)
        if (me + span < n) messages.receive(me + span, at(me + span), size(me + span, span));
    if (me != 0) {
        messages.send(me - span, at(me), size(me, span));
        messages.receive(me - span, table.data(), table.size());
    }
    const int below = span / 2;
    for (span = below; span > 0; span /= 2)
        if (me + span < n) messages.send(me + span, table.data(), table.size());
    for (span = below; span > 0; span /= 2)
        if (me + span < n) messages.flush(me + span);
    std::memcpy(at(me), mine, bytes); // whatever a rank on the way has made of it
    for (int r = 0; r < n; ++r) visit(r, at(r));
}

} // namespace detail

COLLX_END_NAMESPACE
