// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The channel steps of a task: what is received, worked in and sent on, piece by piece, and the ways round a slot that
// large messages may take (lent within a host, sent from and landing in the user's memory between hosts). Nothing
// blocks; errors are kept for whoever waits.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <collx/core/clock.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/exec/bound_schedule.hpp>
#include <collx/exec/far.hpp>
#include <collx/exec/lending.hpp>
#include <collx/exec/mover.hpp>
#include <collx/exec/operation.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

template <class Links, class Mover>
class channel_steps : public operation {
public:
    using wire = typename Mover::wire_type;

    // Messages without elements are not sent. Requires: the counts of both ends have been compared.
    void skip_empty() { skips_empty_ = true; }
    // Large messages are done when they were taken, lent or not: what a program may rely on must not depend on which
    // was cheaper at the moment.
    void wait_for_readers() { must_return_ = cuts_.in.largest() * sizeof(wire) >= least_lent_bytes; }

protected:
    struct strand {
        const sched::step *pc, *begin, *end;
        std::size_t piece, count; // iterations done, and all
        std::size_t position;     // of this iteration in the window's rings
        int seen;                 // wait_all: peers already found
        int index;
        std::size_t* covered; // by step: the first piece that has not gone with an earlier one; null while none has
        const receiving_end* awaited; // what this step waits for and has said all about; null: nothing
    };
    using part = pieces::part;

    channel_steps(Links& links, bound_schedule& plan, const Mover& mover, const pieces& cuts)
        : links_(links), plan_(plan), mover_(mover), cuts_(cuts) {
        if constexpr (Mover::plain)
            if (plan.uses_results || (!Mover::reduces && !links.is_one_host())) mover_.stay_in_caches();
    }

    // -------------------------------------------------------------- channels
    std::uint32_t tag_of(const sched::ref& r) const { return cuts_.transfer_tag(r) ^ folded(kind_of<Mover>()); }
    bool run_channel(const sched::step& s, strand& st) {
        if (st.awaited != nullptr) { // most turns of a wait end here
            if (!st.awaited->has_message()) return blocked_on(s.peer_from);
            st.awaited = nullptr;
        }
        if (st.covered != nullptr && st.piece < st.covered[&s - st.begin]) return true; // went with an earlier piece
        const bool receives = (s.what & sched::recv) != 0, sends = (s.what & sched::send) != 0;
        const sched::ref& shape =
            (s.what & sched::copy) != 0 || !sends ? s.dst : (s.src.where != sched::place::none ? s.src : s.dst);
        const std::size_t n = cuts_.message_elems(shape.where, shape.chunks, st.piece);
        if (n == 0 && (st.piece > 0 || skips_empty_)) return true; // both ends know that this chunk has ended
        const std::size_t bytes = framed(n * sizeof(wire));
        const std::uint32_t tag = tag_of(shape);
        const bool measures = plan_.lends && bytes >= least_measured_bytes;
        receiving_end* rx = nullptr;
        sending_end* tx = nullptr;
        const wire* in = nullptr;
        wire* out = nullptr;
        if (receives) {
            rx = &links_.rx(plan_.at_port, s.peer_from);
            if (!rx->has_message()) {
                if (is_far(bytes, rx, nullptr)) want(s, st, *rx, bytes, tag);
                st.awaited = rx;
                return blocked_on(s.peer_from);
            }
            if (rx->is_lent()) return borrow(s, st, *rx, tag);
            if (!rx->is_expected(bytes, tag)) return broken(errc::mismatch, s.peer_from);
            if (measures) links_.ask_to_borrow(*rx, s.peer_from);
            in = reinterpret_cast<const wire*>(rx->peek(bytes));
        }
        if (sends) {
            tx = &links_.tx(plan_.at_port, s.peer_to);
            if (!tx->has_room()) return blocked_on(s.peer_to);
        }
        if (is_far(bytes, rx, tx) && run_far(s, st, rx, tx, bytes, tag)) return push(s, st, tx), true;
        if (sends) {
            if (may_lend(s) && tx->prefers_to_lend(bytes, lent_bytes(s, st))) return lend(s, st, *tx, tag);
            out = reinterpret_cast<wire*>(tx->try_acquire(bytes));
        }
        const bool samples = measures && (tx != nullptr ? tx->is_sampled() : rx->is_sampled());
        const std::int64_t began = samples ? now_ns() : 0;
        for (int i = 0; i < shape.chunks.count; ++i) {
            const std::size_t done = touch(s, st, i, in, out);
            if (in != nullptr) in += done;
            if (out != nullptr) out += done;
        }
        if (samples && tx != nullptr) tx->add_cost(now_ns() - began, bytes);
        if (samples && tx == nullptr) rx->say_cost(false, now_ns() - began, bytes);
        if (tx != nullptr) tx->commit(bytes, tag);
        if (rx != nullptr) rx->release(bytes);
        push(s, st, tx);
        return true;
    }

    // -------------------------------------------------------------- between hosts: see far.hpp
    // What is sent when nothing is left to receive need not wait for a look at what may come. Several pieces go
    // together.
    void push(const sched::step& s, const strand& st, const sending_end* tx) {
        if (tx == nullptr || !tx->is_far() || cuts_.count != 1) return;
        const char may = plan_.far[static_cast<std::size_t>(st.index)][static_cast<std::size_t>(&s - st.begin)];
        if ((may & bound_schedule::last) != 0) links_.push(s.peer_to);
    }
    far_step<wire> far(const sched::step& s, const strand& st) const requires Mover::plain {
        const wire *in = mover_.input().data(), *out = mover_.output().data();
        return {plan_,
                cuts_,
                in,
                const_cast<wire*>(out),
                in + mover_.input().size() <= out || out + mover_.output().size() <= in,
                s,
                static_cast<std::size_t>(st.index),
                static_cast<std::size_t>(&s - st.begin),
                st.piece};
    }
    bool is_far(std::size_t bytes, const receiving_end* rx, const sending_end* tx) const {
        return bytes >= least_far_bytes && ((rx != nullptr && rx->is_far()) || (tx != nullptr && tx->is_far()));
    }
    // Says where the message that a step waits for may land; at the same time, where those may that come next from
    // others.
    void want(const sched::step& s, const strand& st, receiving_end& rx, std::size_t bytes, std::uint32_t tag) {
        if constexpr (Mover::plain) {
            wire* const at = far(s, st).wanted_at();
            if (at == nullptr || !rx.want_at(at, bytes, tag) || !far(s, st).is_apart) return;
            const auto& may = plan_.far[static_cast<std::size_t>(st.index)];
            strand there = st;
            for (const sched::step* t = st.begin; t != st.end; ++t) {
                there.piece = st.piece + (t < st.pc ? 1 : 0);
                if ((may[static_cast<std::size_t>(t - st.begin)] & bound_schedule::alone) == 0 || t == st.pc) continue;
                if (there.piece >= cuts_.count) continue;
                auto& other = links_.rx(plan_.at_port, t->peer_from);
                const std::size_t size = cuts_.message_elems(t->dst.where, t->dst.chunks, there.piece) * sizeof(wire);
                if (!is_far(size, &other, nullptr) || other.has_message()) continue;
                if (wire* const to = far(*t, there).wanted_at(); to != nullptr)
                    (void)other.want_at(to, size, tag_of(t->dst));
            }
        }
    }
    bool run_far(const sched::step& s, strand& st, receiving_end* rx, sending_end* tx, std::size_t bytes,
                 std::uint32_t tag) {
        if constexpr (Mover::plain)
            return collx::run_far(far(s, st), rx, tx, bytes, tag, [&](const wire* in) {
                for (int i = 0; i < s.dst.chunks.count; ++i) in += touch(s, st, i, in, nullptr);
            });
        return false;
    }

    // -------------------------------------------------------------- lending: see channel.hpp
    // Only plain memory: what hooks or a wire type would change on the way cannot be read at its place.
    bool may_lend(const sched::step& s) const {
        if constexpr (Mover::plain && alignof(wire) <= 16)
            return plan_.lends && s.what == sched::send && s.src.where == sched::place::in && s.src.chunks.count == 1 &&
                   cuts_.in.size(cuts_.chunk(s.src.chunks, 0)) * sizeof(wire) >= least_lent_bytes &&
                   links_.may_lend() &&
                   stays_as_it_is(plan_.steps, cuts_, mover_.input().data(), mover_.output().data(),
                                  cuts_.chunk(s.src.chunks, 0));
        return false;
    }
    std::size_t lent_bytes(const sched::step& s, const strand& st) const {
        return cuts_.several(cuts_.in, cuts_.chunk(s.src.chunks, 0), st.piece, most_lent_bytes / sizeof(wire)) *
               sizeof(wire);
    }
    void cover(const sched::step& s, strand& st, std::size_t elems) {
        if (st.covered == nullptr) {
            covered_.emplace_back(static_cast<std::size_t>(st.end - st.begin));
            st.covered = covered_.back().data();
        }
        st.covered[&s - st.begin] = st.piece + (elems + cuts_.elems - 1) / cuts_.elems;
    }
    bool lend(const sched::step& s, strand& st, sending_end& tx, std::uint32_t tag) {
        if constexpr (Mover::plain) {
            const int chunk = cuts_.chunk(s.src.chunks, 0);
            const std::size_t n = cuts_.several(cuts_.in, chunk, st.piece, most_lent_bytes / sizeof(wire));
            tx.lend(mover_.input().data() + cuts_.cut(cuts_.in, chunk, st.piece).at, n * sizeof(wire), tag);
            cover(s, st, n);
            must_return_ = true;
        }
        return true;
    }
    bool borrow(const sched::step& s, strand& st, receiving_end& rx, std::uint32_t tag) {
        const int chunk = cuts_.chunk(s.dst.chunks, 0), peer = s.peer_from;
        const std::size_t n = cuts_.several(cuts_.out, chunk, st.piece, most_lent_bytes / sizeof(wire));
        if (!plan_.lends || !rx.is_expected(n * sizeof(wire), tag)) return broken(errc::mismatch, peer);
        const std::int64_t began = now_ns();
        if (!take_lent(s, st, rx.lent_at(), chunk, n))
            return broken(errno == ESRCH ? errc::peer_failed : errc::unsupported, peer);
        rx.say_cost(true, now_ns() - began, n * sizeof(wire));
        // A lender that gave up has said so before its memory became something else.
        if (const failure f = links_.failed()) return error = f, false;
        cover(s, st, n);
        rx.release_lent();
        return true;
    }
    // All at once where it only has to be put into plain memory, else piece by piece through the cache.
    bool take_lent(const sched::step& s, const strand& st, std::uint64_t address, int chunk, std::size_t n) {
        if constexpr (Mover::plain)
            if (s.what == (sched::recv | sched::copy))
                return links_.read_private(
                    s.peer_from, const_cast<wire*>(mover_.output().data()) + cuts_.cut(cuts_.out, chunk, st.piece).at,
                    address, n * sizeof(wire));
        const std::size_t most = n < cuts_.elems ? n : cuts_.elems;
        detail::growing_array<std::byte> room(most * sizeof(wire));
        auto* const part = reinterpret_cast<wire*>(room.data());
        strand at = st;
        for (std::size_t done = 0; done < n; done += most, ++at.piece) {
            const std::size_t m = n - done < most ? n - done : most;
            if (!links_.read_private(s.peer_from, part, address + done * sizeof(wire), m * sizeof(wire))) return false;
            touch(s, at, 0, part, nullptr);
        }
        return true;
    }
    // Whether the peers have read what was lent to them; until then the user must not write it.
    bool is_returned() {
        for (const auto& strand : plan_.steps.strands)
            for (const auto& s : strand)
                if ((s.what & sched::send) != 0 && !is_back(links_.tx(plan_.at_port, s.peer_to)))
                    return blocked_on(s.peer_to);
        return true;
    }

    // To other hosts the system must have everything: this rank may not call again for a long time.
    bool is_back(sending_end& tx) const { return must_return_ || tx.is_far() ? tx.is_drained() : tx.has_all_back(); }

    // A slot's header line is aligned for ordinary types only; short messages of wider ones go to the ring.
    static constexpr std::size_t framed(std::size_t bytes) {
        return alignof(wire) > 16 && bytes <= slot_header::inline_bytes ? slot_header::inline_bytes + 1 : bytes;
    }

    // One chunk of a channel step; returns its number of elements.
    std::size_t touch(const sched::step& s, strand& st, int i, const wire* in, wire* out) {
        const int dst_chunk = cuts_.chunk(s.dst.chunks, i);
        if (in == nullptr) {
            if (out == nullptr) __builtin_unreachable(); // from a message or into one, or into both
            const part p = cuts_.local(s.src.where, cuts_.chunk(s.src.chunks, i), st.piece);
            mover_.load(out, s.src.where, p.at, p.count);
            return p.count;
        }
        const part to = cuts_.local(s.dst.where, dst_chunk, st.piece);
        if ((s.what & (sched::reduce | sched::reduce_after)) != 0) {
            const part own = cuts_.local(s.src.where, cuts_.chunk(s.src.chunks, i), st.piece);
            mover_.combine(in, (s.what & sched::reduce) != 0, s.src.where, own.at, s.dst.where, to.at, out, own.count);
            return own.count;
        }
        if ((s.what & sched::copy) != 0) mover_.store(s.dst.where, to.at, in, to.count);
        if (out != nullptr && to.count != 0) std::memcpy(static_cast<void*>(out), in, to.count * sizeof(wire));
        return to.count;
    }

    bool blocked_on(int peer) {
        waiting_for = peer;
        return false;
    }
    bool broken(errc code, int peer) {
        error = failure(code, peer);
        return false;
    }

    Links& links_;
    bound_schedule& plan_;
    Mover mover_;
    pieces cuts_;
    bool must_return_ = false, skips_empty_ = false;
    detail::growing_array<detail::growing_array<std::size_t>> covered_;
};

COLLX_END_NAMESPACE
