// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one step does to elements, in one pass: between the user's tensors, hooks and types on one side and the wire's
// bytes on the other. A mover binds (input, output, operator, wire type). The task that walks the steps is written
// against this interface only.
//
//   in --pre--> accumulator --op--> … --post--> out          wire elements in slots and windows, accumulators in tmp
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <collx/core/buffer.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/core/element.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/loops.hpp>
#include <collx/exec/streaming.hpp>
#include <collx/sched/step.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE

// The operator of collectives that only move data.
struct no_op {};

template <class In, class Out, class Op, class Wire>
class mover {
public:
    using in_type = std::remove_cv_t<typename In::value_type>;
    using out_type = std::remove_cv_t<typename Out::value_type>;
    using wire_type = Wire;
    static constexpr bool reduces = !std::is_same_v<Op, no_op>;
    static constexpr std::uint64_t kind = kind_hash<Wire, Op>(); // the same on all ranks
    using acc_type = std::conditional_t<reduces, combined_t<Op, in_type>, in_type>;
    static constexpr bool hooked = has_pre_v<Op, in_type> || has_post_v<Op, acc_type>;
    // Every operand is an array of one type: the loops run on the user's memory directly.
    static constexpr bool plain = In::is_contiguous && Out::is_contiguous && std::is_same_v<in_type, out_type> &&
                                  std::is_same_v<in_type, Wire> && std::is_same_v<in_type, acc_type> && !hooked;

    static_assert(!reduces || (alignof(Wire) <= 64 && alignof(acc_type) <= 64),
                  "collx: operands lie at multiples of 64 bytes, and this element type is aligned to more. Reduce "
                  "elements of a type that is aligned to 64 bytes or less.");

    mover(In in, Out out, Op op, int ranks) : in_(in), out_(out), op_(op), ranks_(ranks) {
        if constexpr (plain) streams_moves_ = streams_ = is_beyond_caches(ranks);
    }

    // Keeps results in the caches, for schedules that send them on from where they lie. Moves from the user's input to
    // the output are not affected: what they copy is sent from the input, if at all.
    void stay_in_caches() { streams_ = false; }
    bool streams() const { return streams_; } // whether results go past the caches
    // travels: whether a step sends or copies what lies in scratch, so that other ranks may see it rounded to a Wire.
    void set_tmp(std::byte* p, bool travels) {
        tmp_ = reinterpret_cast<acc_type*>(p);
        tmp_travels_ = travels;
    }
    void set_ranks(int contributors) { ranks_ = contributors; }
    const In& input() const { return in_; }
    const Out& output() const { return out_; }
    const Op& op() const { return op_; }

    // The array of a local operand.
    in_type* local(sched::place p) const requires plain {
        if (p == sched::place::out) return const_cast<in_type*>(out_.data());
        if (p == sched::place::tmp) return tmp_;
        return const_cast<in_type*>(in_.data());
    }

    // Writes a local operand as wire elements, for send and put.
    void load(Wire* to, sched::place from, std::size_t at, std::size_t n) const {
        if constexpr (plain) {
            if (n != 0) write_for_others(to, local(from) + at, n * sizeof(Wire));
        } else {
            in_blocks(n, [&](acc_type* acc, std::size_t i, std::size_t m) {
                read(acc, from, at + i, m);
                for (std::size_t k = 0; k < m; ++k) to_wire(to + i + k, acc[k]);
            });
        }
    }

    // Stores received elements in a local operand as they are, for recv | copy and get | copy.
    void store(sched::place to, std::size_t at, const Wire* from, std::size_t n) {
        if constexpr (plain) {
            if (n != 0) copy(streams_ && to == sched::place::out, local(to) + at, from, n);
        } else if (to == sched::place::tmp) {
            for (std::size_t k = 0; k < n; ++k) tmp_[at + k] = from_wire<acc_type>(from + k);
        } else {
            if constexpr (Out::is_output)
                for (std::size_t k = 0; k < n; ++k) out_[at + k] = from_wire<out_type>(from + k);
        }
    }

    // Moves from local to local. From in to out this is the whole collective of a single rank, so the hooks apply.
    void move(sched::place from, std::size_t from_at, sched::place to, std::size_t to_at, std::size_t n) {
        if constexpr (plain) {
            if (n != 0 && local(to) + to_at != local(from) + from_at)
                copy(streams_moves_ && to == sched::place::out, local(to) + to_at, local(from) + from_at, n);
        } else {
            in_blocks(n, [&](acc_type* acc, std::size_t i, std::size_t m) {
                read(acc, from, from_at + i, m);
                if (to == sched::place::out && from == sched::place::in) finish(acc, to_at + i, m);
                write(to, to_at + i, acc, m);
            });
        }
    }

    // Combines received (op) local, or local (op) received, into `to` (complete if that is out) and, unless it is null,
    // into `forward` for the next channel.
    void combine(const Wire* received, bool received_left, sched::place own, std::size_t own_at, sched::place to,
                 std::size_t to_at, Wire* forward, std::size_t n) {
        if constexpr (reduces) {
            if constexpr (plain) {
                const Wire* mine = local(own) + own_at;
                const Wire* both[2] = {received_left ? received : mine, received_left ? mine : received};
                if (streams_ && to == sched::place::out) {
                    Wire* const there = local(to) + to_at;
                    return fold_past_caches(op_, &there, 1, forward, both, 2, n);
                }
                fold_plain(to, to_at, forward, both, 2, n);
            } else {
                in_blocks(n, [&](acc_type* acc, std::size_t i, std::size_t m) {
                    alignas(acc_type) std::byte more[block * sizeof(acc_type)];
                    auto* const other = reinterpret_cast<acc_type*>(more);
                    acc_type* const mine = received_left ? other : acc;
                    acc_type* const theirs = received_left ? acc : other;
                    read(mine, own, own_at + i, m);
                    // Two ranks that exchange operands must add the same two numbers. A partial result that no other
                    // rank sees keeps its digits, as in fold_ranks.
                    if (own != sched::place::tmp || tmp_travels_) through_wire(mine, m);
                    for (std::size_t k = 0; k < m; ++k) theirs[k] = static_cast<acc_type>(received[i + k]);
                    combine_into_left(op_, acc, other, m);
                    deliver(acc, to, to_at, forward, i, m);
                });
            }
        }
    }

    // Reduces several wires in rank order. The local operand `own` takes the place of sources[own_index], which is
    // ignored (own_index < 0: none).
    void fold_ranks(const Wire** sources, int count, int own_index, sched::place own, std::size_t own_at,
                    sched::place to, std::size_t to_at, Wire* also, std::size_t n) {
        if constexpr (reduces) {
            if constexpr (plain) {
                if (own_index >= 0 && own != sched::place::none && !sched::is_window(own))
                    sources[own_index] = local(own) + own_at;
                if (streams_ && to == sched::place::out && count <= most_in_blocks) {
                    Wire* const there = local(to) + to_at;
                    return fold_past_caches(op_, &there, 1, also, sources, count, n);
                }
                fold_plain(to, to_at, also, sources, count, n);
            } else {
                in_blocks(n, [&](acc_type* acc, std::size_t i, std::size_t m) {
                    alignas(acc_type) std::byte more[block * sizeof(acc_type)];
                    auto* next = reinterpret_cast<acc_type*>(more);
                    for (int s = 0; s < count; ++s) {
                        acc_type* into = s == 0 ? acc : next;
                        if (s == own_index && own != sched::place::none && !sched::is_window(own)) {
                            read(into, own, own_at + i, m);
                            through_wire(into, m);
                        } else
                            for (std::size_t k = 0; k < m; ++k) into[k] = static_cast<acc_type>(sources[s][i + k]);
                        if (s > 0) combine_into_left(op_, acc, next, m);
                    }
                    deliver(acc, to, to_at, also, i, m);
                });
            }
        }
    }

    // Combines `count` arrays into one that is read soon.
    void sum(Wire* to, const Wire* const* from, int count, std::size_t n) const requires plain {
        if constexpr (reduces) fold_arrays(op_, to, from, count, n);
    }

    // Zero copy: reduces all ranks' buffers in rank order into the buffers of all ranks; to[0] is this rank's own.
    void fold_everywhere(const Wire* const* sources, Wire* const* to, int count, std::size_t n) const requires plain {
        if constexpr (reduces) {
            if (streams_) fold_past_caches(op_, to, count, static_cast<Wire*>(nullptr), sources, count, n);
            else fold_for_others(op_, to[0], to + 1, count - 1, sources, count, n);
        }
    }

private:
    // Elements that are converted at once, on the stack: 512 bytes; of larger elements up to 8, in 4 KiB; at least one.
    static constexpr std::size_t block = sizeof(acc_type) <= 64     ? 512 / sizeof(acc_type)
                                         : sizeof(acc_type) <= 512  ? 8
                                         : sizeof(acc_type) <= 2048 ? 4096 / sizeof(acc_type)
                                                                    : 1;
    // Messages and windows align elements to 64 bytes.
    static void to_wire(Wire* to, const acc_type& x) {
        if constexpr (alignof(Wire) > 64) {
            const Wire w = static_cast<Wire>(x);
            std::memcpy(static_cast<void*>(to), &w, sizeof w);
        } else {
            *to = static_cast<Wire>(x);
        }
    }
    template <class To>
    static To from_wire(const Wire* from) {
        if constexpr (alignof(Wire) > 64) {
            alignas(Wire) std::byte copy[sizeof(Wire)];
            std::memcpy(copy, static_cast<const void*>(from), sizeof copy);
            return static_cast<To>(*reinterpret_cast<const Wire*>(copy));
        } else {
            return static_cast<To>(*from);
        }
    }

    // Whether results go past the caches. It depends on what the ranks of the host read and write together in the cache
    // that they share; many ranks have more caches. Sums in place replace what is still in the cache, and the next call
    // reads all of it. (2 ranks, 16 MiB in place: all_reduce 1,036 us past the caches and 685 through them.)
    bool is_beyond_caches(int ranks) const requires plain {
        const in_type *a = in_.data(), *b = out_.data();
        const bool apart = a + in_.size() <= b || b + out_.size() <= a;
        const std::size_t touched = (apart ? in_.size() + out_.size() : out_.size()) * sizeof(Wire);
        const std::size_t most =
            apart || !reduces ? detail::most_kept_bytes(detail::shared_cache_bytes) : std::size_t{56} << 20;
        return touched >= most / static_cast<std::size_t>(ranks < 2 ? 2 : ranks > 8 ? 8 : ranks);
    }
    static void copy(bool streams, in_type* out, const in_type* in, std::size_t n) requires plain {
        if (streams) copy_past_caches(out, in, n * sizeof(Wire));
        else copy_bytes(out, in, n * sizeof(Wire));
    }

    // Folds into a local operand, or none, and into memory that other ranks read, or none.
    void fold_plain(sched::place to, std::size_t to_at, Wire* others, const Wire* const* sources, int count,
                    std::size_t n) const requires plain {
        Wire* const kept = to == sched::place::none ? nullptr : local(to) + to_at;
        if (others == nullptr) fold_arrays(op_, kept, sources, count, n);
        else fold_for_others(op_, kept, &others, 1, sources, count, n);
    }

    template <class F>
    static void in_blocks(std::size_t n, F&& f) {
        alignas(alignof(acc_type) > 64 ? alignof(acc_type) : 64) std::byte room[block * sizeof(acc_type)];
        for (std::size_t i = 0; i < n; i += block)
            f(reinterpret_cast<acc_type*>(room), i, n - i < block ? n - i : block);
    }

    void read(acc_type* acc, sched::place from, std::size_t at, std::size_t n) const {
        if (from == sched::place::tmp) {
            for (std::size_t k = 0; k < n; ++k) acc[k] = tmp_[at + k];
        } else if (from == sched::place::out) {
            for (std::size_t k = 0; k < n; ++k) acc[k] = static_cast<acc_type>(out_[at + k]);
        } else {
            for (std::size_t k = 0; k < n; ++k) {
                if constexpr (has_pre_v<Op, in_type>)
                    acc[k] = static_cast<acc_type>(
                        apply_pre(op_, static_cast<in_type>(in_[at + k]), hook_context{ranks_, at + k}));
                else acc[k] = static_cast<acc_type>(in_[at + k]);
            }
        }
    }
    void write(sched::place to, std::size_t at, const acc_type* acc, std::size_t n) {
        if (to == sched::place::tmp) {
            for (std::size_t k = 0; k < n; ++k) tmp_[at + k] = acc[k];
        } else if constexpr (Out::is_output) {
            for (std::size_t k = 0; k < n; ++k) out_[at + k] = static_cast<out_type>(acc[k]);
        }
    }
    void finish(acc_type* acc, std::size_t at, std::size_t n) const {
        if constexpr (has_post_v<Op, acc_type>)
            for (std::size_t k = 0; k < n; ++k)
                acc[k] = static_cast<acc_type>(apply_post(op_, acc[k], hook_context{ranks_, at + k}));
    }
    // A narrower wire rounds. The rank that computes a value must keep what the others receive, or results differ
    // between ranks.
    static void through_wire(acc_type* acc, std::size_t n) {
        if constexpr (!std::is_same_v<Wire, acc_type>)
            for (std::size_t k = 0; k < n; ++k) acc[k] = static_cast<acc_type>(static_cast<Wire>(acc[k]));
    }
    void deliver(acc_type* acc, sched::place to, std::size_t to_at, Wire* forward, std::size_t i, std::size_t n) {
        if (to == sched::place::out) finish(acc, to_at + i, n);
        if (forward != nullptr || to == sched::place::out) through_wire(acc, n); // a later step may send it on from out
        if (to != sched::place::none) write(to, to_at + i, acc, n);
        if (forward != nullptr)
            for (std::size_t k = 0; k < n; ++k) forward[i + k] = static_cast<Wire>(acc[k]);
    }

    In in_;
    Out out_;
    Op op_;
    acc_type* tmp_ = nullptr;
    int ranks_;
    bool streams_ = false, streams_moves_ = false, tmp_travels_ = true;
};

COLLX_END_NAMESPACE
