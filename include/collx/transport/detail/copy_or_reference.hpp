// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decides whether large messages go to a socket by copy or by reference (page_pipe.hpp): the way that is received
// sooner, measured by asking for answers while either is in use. Where the cores of both ends share a cache, copying
// wins. Where they do not, the system's buffers move from one core to the other and back, and copying takes up to three
// times as long (docs/design/sockets.md). Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/single_copy_mode.hpp>
#include <collx/transport/copy_cost.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class copy_or_reference {
public:
    // Smaller messages go by copy: the answer that they were received costs more than the copy.
    static constexpr std::size_t least_bytes = 128 * 1024;
    struct way {
        bool by_reference = false;
        bool is_asked = false; // the receiver shall answer on receipt: always by reference, else to measure
    };

    explicit copy_or_reference(single_copy_mode when = single_copy_mode::automatic)
        : by_reference_(when == single_copy_mode::always),
          now_(when == single_copy_mode::automatic ? phase::kept : phase::settled) {}

    // The way of the next message, which has `bytes`. From time to time a MiB of messages is measured, at least eight
    // of them, and as much of the other way. This is seldom while the result stays the same. It is soon when the cost
    // of the way in use has changed, because the cores have moved.
    way next(std::size_t bytes) {
        if (((left_bytes_ == 0 && left_messages_ == 0) || has_changed()) && now_ != phase::settled) turn();
        bytes_ = bytes;
        left_bytes_ -= bytes < left_bytes_ ? bytes : left_bytes_;
        left_messages_ -= left_messages_ != 0;
        const bool by_reference = by_reference_ != (now_ == phase::other), is_looked_at = unseen_bytes_ >= unseen_limit;
        unseen_bytes_ = is_looked_at ? 0 : unseen_bytes_ + bytes;
        return {by_reference,
                by_reference || now_ == phase::own || now_ == phase::other || (now_ == phase::kept && is_looked_at)};
    }
    // ns: the time from the sending of `bytes`, or from the previous answer, to the answer.
    void add_cost(bool by_reference, std::int64_t ns, std::size_t bytes) {
        if (now_ == phase::kept && by_reference == by_reference_) return watch(ns, bytes);
        sum& of = by_reference ? referring_ : copying_;
        of.ns += ns;
        of.bytes += bytes;
    }

private:
    enum class phase : unsigned char { kept, own, other, settled }; // settled: by the program
    static constexpr std::size_t measured_bytes = std::size_t{1} << 20, least_kept_bytes = std::size_t{16} << 20,
                                 most_kept_bytes = std::size_t{256} << 20;
    // By copy, one message in so many bytes is asked for an answer, so that a change is noticed.
    static constexpr std::size_t unseen_limit = std::size_t{8} << 20;
    // By copy no send waits for the answer, which takes about this long.
    static constexpr std::int64_t answer_ns = 8'000;

    // Answers come in bunches: after a long wait for the first of them, the next seems to have taken no time. So only
    // the sum over consecutive messages shows their cost.
    struct sum {
        std::int64_t ns = 0;
        std::size_t bytes = 0;
        std::int64_t ns_per_mib() const {
            return bytes == 0 ? 0 : ns * (1 << 20) / static_cast<std::int64_t>(bytes) + 1;
        }
    };
    // Measures the way in use, only to notice a change: a single answer also waits for what was copied before it.
    void watch(std::int64_t ns, std::size_t bytes) {
        in_use_.ns += ns;
        in_use_.bytes += bytes;
        if (by_reference_ && in_use_.bytes < unseen_limit) return;
        watched_.add(in_use_.ns, in_use_.bytes);
        in_use_ = {};
        if (chosen_ns_ == 0) chosen_ns_ = watched_.ns_per_mib;
    }
    // Twice or half the cost at the time of the choice: more than one late answer can change the mean.
    bool has_changed() const {
        const std::uint64_t now = watched_.ns_per_mib;
        return now_ == phase::kept && chosen_ns_ != 0 && (now > 2 * chosen_ns_ || 2 * now < chosen_ns_) &&
               kept_bytes_ - left_bytes_ >= least_kept_bytes;
    }
    void turn() {
        const bool has_moved = has_changed();
        left_bytes_ = measured_bytes;
        left_messages_ = 8;
        if (now_ == phase::kept) {
            if (has_moved) kept_bytes_ = least_kept_bytes; // the choice that held so long no longer does
            copying_ = referring_ = {};                    // answers that came after the last measurement
            now_ = phase::own;
            return void();
        }
        if (now_ == phase::own) {
            now_ = phase::other;
            return void();
        }
        const std::int64_t copying = copying_.ns_per_mib(), by_reference = referring_.ns_per_mib(),
                           referring = by_reference + answer_ns * (1 << 20) / static_cast<std::int64_t>(bytes_);
        // A way that was never measured is not there: the system refused. Beginning to refer takes a greater gain than
        // going on: answers that came late for other reasons had made some calls go by reference where that costs a
        // quarter more.
        const std::int64_t least_eighths = by_reference_ ? 9 : 11;
        const bool pays = copying != 0 && by_reference != 0 && 8 * copying > least_eighths * referring;
        kept_bytes_ = pays != by_reference_           ? least_kept_bytes
                      : kept_bytes_ < most_kept_bytes ? kept_bytes_ * 2
                                                      : most_kept_bytes;
        if (pays != by_reference_) watched_ = {};
        by_reference_ = pays;
        chosen_ns_ = watched_.ns_per_mib;
        in_use_ = {};
        left_bytes_ = kept_bytes_;
        left_messages_ = 64;
        now_ = phase::kept;
    }

    sum copying_, referring_; // of the measurement under way
    sum in_use_;
    piece_cost watched_;
    std::size_t left_bytes_ = measured_bytes, kept_bytes_ = least_kept_bytes;
    std::size_t left_messages_ = 0, unseen_bytes_ = 0;
    std::uint64_t chosen_ns_ = 0;     // what a MiB of the chosen way took when it was chosen; 0: never measured
    std::size_t bytes_ = least_bytes; // of the last message
    bool by_reference_;
    phase now_;
};

} // namespace detail

COLLX_END_NAMESPACE
