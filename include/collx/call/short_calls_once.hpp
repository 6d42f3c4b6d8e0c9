// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of short_calls.hpp.
#pragma once

#include <cstring>

#include <collx/call/short_calls.hpp>
#include <collx/core/atomic.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] COLLX_ONCE void short_wait::disagree(int peer) { core_.give_up(failure(errc::mismatch, peer), peer); }
[[gnu::noinline]] COLLX_ONCE std::uint64_t short_wait::wait_long(const atomic<std::uint64_t>& word, std::uint64_t least,
                                                                 int peer) {
    std::uint64_t seen;
    for (backoff wait(core_.settings.waiting);
         !signal_word::has_reached(seen = word.load(memory_order::acquire), least);) {
        if (!core_.pending.empty()) core_.progress_pending();
        if (wait.pause()) core_.check(until_, timeout_ns_, awaited(peer, what_));
    }
    communicator_core::note_progress(until_, timeout_ns_);
    return seen;
}

[[gnu::noinline]] COLLX_ONCE void run_short(communicator_core& c, bound_schedule& plan, const short_call& call,
                                            std::int64_t timeout_ns) {
    c.with_user_code([&] { run_short_steps(c.net.rank(), c.net.size(), plan, call, short_wait(c, timeout_ns)); });
}

[[gnu::noinline]] COLLX_ONCE void send_short(communicator_core& c, const void* from, std::size_t bytes,
                                             std::uint32_t tag, int peer, std::int64_t timeout_ns) {
    sending_end& tx = c.net.tx(port::messages, peer);
    if (!tx.has_room()) {
        short_wait(c, timeout_ns, awaited::why::room)(tx.taken(), tx.least_taken(), peer);
        (void)tx.has_room(); // sees it
    }
    std::byte* const to = tx.try_acquire(bytes);
    if (bytes != 0) write_for_others(to, from, bytes);
    tx.commit(bytes, tag);
}
[[gnu::noinline]] COLLX_ONCE void receive_short(communicator_core& c, void* to, std::size_t bytes, std::uint32_t tag,
                                                int peer, std::int64_t timeout_ns) {
    receiving_end& rx = c.net.rx(port::messages, peer);
    short_wait(c, timeout_ns)(rx.number(), rx.next_number(), peer);
    if (rx.is_lent() || !rx.is_expected(bytes, tag)) c.give_up(failure(errc::mismatch, peer), peer);
    if (bytes != 0) std::memcpy(to, rx.peek(bytes), bytes);
    rx.release(bytes);
}

} // namespace detail
COLLX_END_NAMESPACE
