// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of short_calls.hpp.
#pragma once

#include <collx/call/short_calls.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] COLLX_ONCE void short_wait::disagree(int peer) { core_.give_up(failure(errc::mismatch, peer), peer); }
[[gnu::cold]] COLLX_ONCE void short_wait::give_up(failure f) { core_.give_up(f, -1); }
[[gnu::cold]] COLLX_ONCE void message_wait::refuse(const receiving_end& rx, int peer, std::size_t bytes) {
    core_.give_up(core_.net.refuse(rx, peer, bytes), peer);
}
[[gnu::noinline]] COLLX_ONCE std::uint64_t short_wait::wait_long(const atomic<std::uint64_t>& word, std::uint64_t least,
                                                                 int peer) {
    std::uint64_t seen;
    for (backoff wait(core_.settings.waiting);
         !signal_word::has_reached(seen = word.load(memory_order::acquire), least);) {
        if (!core_.pending.empty()) core_.progress_pending();
        if (wait.pause()) core_.check(until_, timeout_ns_, awaited(peer, what_));
    }
    failure_watch::note_progress(until_, timeout_ns_);
    return seen;
}

[[gnu::always_inline]] inline void put_short(communicator_core& c, sending_end& tx, const void* from, std::size_t bytes,
                                             std::uint32_t tag, int peer, std::int64_t timeout_ns) {
    message_wait(c, timeout_ns).room(tx, bytes, peer);
    std::byte* const to = tx.try_acquire(bytes);
    if (bytes != 0) write_for_others(to, from, bytes);
    tx.commit(bytes, tag);
}
[[gnu::always_inline]] inline void take_short(communicator_core& c, receiving_end& rx, void* to, std::size_t bytes,
                                              std::uint32_t tag, int peer, std::int64_t timeout_ns) {
    message_wait(c, timeout_ns).message(rx, bytes, tag, peer);
    if (bytes != 0) copy_bytes(to, rx.peek(bytes), bytes);
    rx.release(bytes);
}
[[gnu::noinline]] COLLX_ONCE void send_short(communicator_core& c, const void* from, std::size_t bytes,
                                             std::uint32_t tag, int peer, std::int64_t timeout_ns) {
    put_short(c, c.net.tx(port::messages, peer), from, bytes, tag, peer, timeout_ns);
}
[[gnu::noinline]] COLLX_ONCE void receive_short(communicator_core& c, void* to, std::size_t bytes, std::uint32_t tag,
                                                int peer, std::int64_t timeout_ns) {
    take_short(c, c.net.rx(port::messages, peer), to, bytes, tag, peer, timeout_ns);
}

// Runs a schedule of messages (is_short_exchange), with the tags of channel_steps.
inline void exchange_short(communicator_core& c, const bound_schedule& plan, const short_call& call,
                           std::int64_t timeout_ns) {
    const std::uint32_t agreed = folded(call.agreed);
    for (const auto& strand : plan.steps.strands)
        for (const sched::step& s : strand) {
            const int from = s.src.chunks.first, to = s.dst.chunks.first;
            if (s.what == sched::copy) {
                if (const std::size_t bytes = call.bytes_of(call.out_layout.size(to)); bytes != 0)
                    copy_bytes(call.output(to), call.input(from), bytes);
                continue;
            }
            const std::size_t elems = s.what == sched::send ? call.in_layout.size(from) : call.out_layout.size(to);
            const std::uint32_t tag = static_cast<std::uint32_t>(elems) ^ agreed;
            if (s.what == sched::send)
                put_short(c, c.net.tx(plan.at_port, s.peer_to), call.input(from), call.bytes_of(elems), tag, s.peer_to,
                          timeout_ns);
            else
                take_short(c, c.net.rx(plan.at_port, s.peer_from), call.output(to), call.bytes_of(elems), tag,
                           s.peer_from, timeout_ns);
        }
}

[[gnu::noinline]] COLLX_ONCE void run_short(communicator_core& c, bound_schedule& plan, const short_call& call,
                                            std::int64_t timeout_ns) {
    if (plan.window == nullptr) return exchange_short(c, plan, call, timeout_ns);
    c.with_user_code([&] { run_short_steps(c.net.rank(), c.net.size(), plan, call, short_wait(c, timeout_ns)); });
}

} // namespace detail
COLLX_END_NAMESPACE
