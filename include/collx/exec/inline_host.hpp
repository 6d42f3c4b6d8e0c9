// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plainest reading of a schedule: each step is done on the spot, and a step that cannot be done yet is waited for.
// No list, no cursor, no pieces; the action is known by its type, so what the compiler sees is the algorithm with its
// loops and copies written out. For lessons, and as the reference that the tests hold the progress task against.
//
//   collx::inline_host ex(links, in, out, collx::plus{});
//   collx::algo::ring_all_reduce{}(ex, rank, n);
//
// Channel schedules only. Strands run one after the other in the order in which the algorithm names them, and a chunk
// must fit one slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <collx/core/clock.hpp>
#include <collx/exec/layout.hpp>
#include <collx/sched/executor.hpp>
#include <collx/transport/links.hpp>
#include <collx/transport/wait.hpp>

COLLX_BEGIN_NAMESPACE

template <class T, class Op>
class inline_host : public sched::verbs<inline_host<T, Op>> {
public:
    static_assert(alignof(T) <= 16, "collx: inline_host puts elements into slots as they are aligned, to 16 bytes");
    // in and out: all chunks of the collective, as the layout cuts them. Tmp has one chunk of scratch per chunk.
    inline_host(links& net, const T* in, T* out, Op op, chunk_layout layout, wait_policy waiting = {},
                std::int64_t timeout_ns = 10'000'000'000)
        : net_(net), in_(in), out_(out), op_(op), layout_(layout), waiting_(waiting),
          until_(deadline::in_ns(timeout_ns)),
          tmp_(layout.largest() * static_cast<std::size_t>(layout.chunks() > 0 ? layout.chunks() : 1)) {}

    template <sched::action What>
    void emit(const sched::step& s) {
        static_assert((What & (sched::get | sched::fold | sched::to_all | sched::signal | sched::wait)) == 0,
                      "collx: inline_host runs schedules over channels; windows need the progress task");
        constexpr bool receives = (What & sched::recv) != 0, sends = (What & sched::send) != 0;
        for (const sched::ref* r : {&s.src, &s.dst})
            if (r->where == sched::place::tmp && r->chunks.base + r->chunks.size > layout_.chunks())
                fail(errc::unsupported, net_.rank(), -1, "run it on a communicator",
                     "this algorithm's scratch has more chunks than its buffers, and inline_host has one for each");
        const sched::chunk_set& set =
            (What & sched::copy) != 0 || !sends ? s.dst.chunks : (receives ? s.dst.chunks : s.src.chunks);
        std::size_t n = 0;
        for (int i = 0; i < set.count; ++i) n += layout_.size(set.at(i, layout_.chunks()));
        const std::size_t bytes = n * sizeof(T);
        const T* received = nullptr;
        T* forward = nullptr;
        if constexpr (receives) received = reinterpret_cast<const T*>(take(s.peer_from, bytes));
        if constexpr (sends) forward = reinterpret_cast<T*>(room(s.peer_to, bytes));
        for (int i = 0; i < set.count; ++i) {
            const std::size_t done = touch<What>(s, i, received, forward);
            if constexpr (receives) received += done;
            if constexpr (sends) forward += done;
        }
        if constexpr (sends) net_.tx(port::blocking, s.peer_to).commit(bytes);
        if constexpr (receives) net_.rx(port::blocking, s.peer_from).release(bytes);
    }

private:
    template <sched::action What>
    std::size_t touch(const sched::step& s, int i, const T* received, T* forward) {
        constexpr bool receives = (What & sched::recv) != 0,
                       reduces = (What & (sched::reduce | sched::reduce_after)) != 0;
        const int chunk = (receives && !reduces ? s.dst.chunks : s.src.chunks).at(i, layout_.chunks());
        const std::size_t n = layout_.size(chunk);
        const T* own = reduces || !receives ? at(s.src.where, chunk) : nullptr;
        T* kept =
            (What & sched::copy) != 0 ? const_cast<T*>(at(s.dst.where, s.dst.chunks.at(i, layout_.chunks()))) : nullptr;
        for (std::size_t k = 0; k < n; ++k) {
            T value;
            if constexpr (!receives) value = own[k];
            else if constexpr ((What & sched::reduce) != 0) value = op_(received[k], own[k]);
            else if constexpr ((What & sched::reduce_after) != 0) value = op_(own[k], received[k]);
            else value = received[k];
            if constexpr ((What & sched::copy) != 0) kept[k] = value;
            if constexpr ((What & sched::send) != 0) forward[k] = value;
        }
        return n;
    }
    const T* at(sched::place where, int chunk) const {
        if (where == sched::place::tmp) return tmp_.data() + static_cast<std::size_t>(chunk) * layout_.largest();
        return (where == sched::place::in ? in_ : out_) + layout_.offset(chunk);
    }

    const std::byte* take(int peer, std::size_t bytes) {
        auto& rx = net_.rx(port::blocking, peer);
        for (backoff b(waiting_); !rx.has_message();) look(b, peer);
        if (!rx.is_expected(bytes))
            fail(errc::mismatch, net_.rank(), peer, "do all ranks run the same schedule?",
                 "rank %d sent a message of another size than the schedule says", peer);
        return rx.peek(bytes);
    }
    std::byte* room(int peer, std::size_t bytes) {
        std::byte* slot = nullptr;
        for (backoff b(waiting_); (slot = net_.tx(port::blocking, peer).try_acquire(bytes)) == nullptr;) look(b, peer);
        return slot;
    }
    void look(backoff& b, int peer) {
        if (b.pause() && until_.passed())
            fail(errc::timeout, net_.rank(), peer, "is it alive and in the same schedule?",
                 "timed out waiting for rank %d", peer);
    }

    links& net_;
    const T* in_;
    T* out_;
    Op op_;
    chunk_layout layout_;
    wait_policy waiting_;
    deadline until_;
    std::vector<T> tmp_;
};

COLLX_END_NAMESPACE
