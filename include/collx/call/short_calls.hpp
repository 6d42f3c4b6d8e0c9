// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocking calls that take as long as moving a few cache lines, run without a task: short messages, and collectives in
// their short form (exec/short_call.hpp). Only where all ranks are on one host. Peers cannot tell the difference: the
// same numbers, sizes and tags stand in the same places. Compiled once (docs/design/compile-once.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/exec/short_call.hpp>
#include <collx/exec/single_copy.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The waits of one call.
class short_wait {
public:
    short_wait(communicator_core& c, std::int64_t timeout_ns, awaited::why what = awaited::why::message)
        : core_(c), timeout_ns_(timeout_ns), what_(what) {}

    // Returns the word once it has reached `least`; `peer` writes it. Throws the error that ended the wait. The first
    // looks follow each other without a pause: a pause takes as long as moving a line from core to core.
    std::uint64_t operator()(const atomic<std::uint64_t>& word, std::uint64_t least, int peer) {
        for (int i = core_.settings.waiting.spins != 0 ? close_looks : 1; i > 0; --i)
            if (const std::uint64_t seen = word.load(memory_order::acquire); signal_word::has_reached(seen, least))
                return seen;
        return wait_long(word, least, peer);
    }
    [[noreturn]] void disagree(int peer);
    [[noreturn]] void give_up(failure f);

private:
    static constexpr int close_looks = 64;
    std::uint64_t wait_long(const atomic<std::uint64_t>& word, std::uint64_t least, int peer);

    communicator_core& core_;
    std::int64_t timeout_ns_, until_ = 0;
    awaited::why what_;
};

// The waits of one call for messages, and for room for its own.
class message_wait {
public:
    message_wait(communicator_core& c, std::int64_t timeout_ns) : core_(c), timeout_ns_(timeout_ns) {}
    // Returns when there is a message. Throws if it is not the expected one.
    COLLX_ALWAYS_INLINE void message(const receiving_end& rx, std::size_t bytes, std::uint32_t tag, int peer) {
        short_wait(core_, timeout_ns_)(rx.number(), rx.next_number(), peer);
        if (rx.is_single_copy() || !rx.is_expected(bytes, tag)) refuse(rx, peer, bytes);
    }
    COLLX_ALWAYS_INLINE void room(sending_end& tx, std::size_t bytes, int peer) {
        while (!tx.has_room(bytes))
            [[unlikely]] short_wait(core_, timeout_ns_, awaited::why::room)(tx.taken(), tx.least_taken(bytes), peer);
    }

private:
    [[noreturn]] void refuse(const receiving_end& rx, int peer, std::size_t bytes);

    communicator_core& core_;
    const std::int64_t timeout_ns_;
};

// Whether a message is short: one piece, never by single copy.
inline bool is_short_message(const communicator_core& c, std::size_t bytes) {
    return bytes < least_measured_bytes && bytes <= c.net.slot_bytes() && c.net.is_one_host();
}
// Requires: plan.is_short_form, and short chunks or messages. `tag`: see channel_steps::tag_of.
void run_short(communicator_core& c, bound_schedule& plan, const short_call& call, std::int64_t timeout_ns);
void send_short(communicator_core& c, const void* from, std::size_t bytes, std::uint32_t tag, int peer,
                std::int64_t timeout_ns);
void receive_short(communicator_core& c, void* to, std::size_t bytes, std::uint32_t tag, int peer,
                   std::int64_t timeout_ns);

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/short_calls_once.hpp>
#endif
