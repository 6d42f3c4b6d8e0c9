// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether large messages go to a socket by copy or by reference (page_pipe.hpp): whichever costs the sender's core
// less, found by measuring both while they are in use. Where both ends' cores share a cache copying wins; where they do
// not, the system's buffers wander from one to the other and back, and it takes two to four times as long
// (docs/design/sockets.md). Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/transport/lending.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class copy_or_reference {
public:
    // Smaller messages go by copy: the word that they were received costs more than the copy does.
    static constexpr std::size_t least_bytes = 64 * 1024;

    explicit copy_or_reference(lending when = lending::automatic)
        : by_reference_(when == lending::always), is_settled_(when != lending::automatic) {}

    // Whether the next message, which is so long, goes by reference. From time to time a MiB goes the other way.
    bool takes_reference(std::size_t bytes) {
        if (is_settled_) return by_reference_;
        if (left_bytes_ == 0) turn();
        left_bytes_ -= bytes < left_bytes_ ? bytes : left_bytes_;
        return by_reference_;
    }
    // What the system's calls took for so many bytes.
    void add_cost(bool by_reference, std::int64_t ns, std::size_t bytes) {
        (by_reference ? referring_ : copying_).add(ns, bytes);
    }

private:
    void turn() {
        if (is_trying_) {
            // So much more than half as much again: the receiver reads from further away, and says when it has.
            const std::uint64_t copying = copying_.ns_per_mib, referring = referring_.ns_per_mib;
            const bool pays = referring != 0 && 4 * copying > 7 * referring;
            kept_bytes_ = pays != preferred_              ? least_kept_bytes
                          : kept_bytes_ < most_kept_bytes ? kept_bytes_ * 2
                                                          : most_kept_bytes;
            by_reference_ = preferred_ = pays;
            left_bytes_ = kept_bytes_;
        } else {
            by_reference_ = !by_reference_;
            left_bytes_ = tried_bytes;
        }
        is_trying_ = !is_trying_;
    }
    static constexpr std::size_t tried_bytes = std::size_t{1} << 20, least_kept_bytes = std::size_t{16} << 20,
                                 most_kept_bytes = std::size_t{256} << 20;
    piece_cost copying_, referring_;
    std::size_t left_bytes_ = tried_bytes, kept_bytes_ = least_kept_bytes;
    bool by_reference_, preferred_ = false; // now; after the last comparison
    bool is_trying_ = false;
    bool is_settled_; // once for all, by who asked for it
};

} // namespace detail

COLLX_END_NAMESPACE
