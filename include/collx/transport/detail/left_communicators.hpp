// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The last communicators that a rank has left. What still comes for them is answered or dropped. Communicators are left
// in destructors, so this needs no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/descriptor.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/remote_ranks.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// How ranks that shrink a communicator for the round-th time connect to each other (job/survivor_links.hpp).
struct meeting_of_survivors {
    static constexpr std::size_t head_bytes = 16; // of a message; a bit per rank follows
    static constexpr std::size_t message_bytes(int ranks) {
        return head_bytes + (static_cast<std::size_t>(ranks) + 63) / 64 * 8;
    }
    static constexpr std::uint64_t round_bits = 0xf'ffff << 1;
    std::uint64_t id = 0; // 0: they do not meet. All rounds have the other bits in common.
    channel_shape shape = {};

    meeting_of_survivors() = default;
    meeting_of_survivors(std::uint64_t communicator, int ranks, std::uint32_t round)
        : shape{.depth = 8, .slot_bytes = round_up(message_bytes(ranks), page_bytes)} {
        const std::uint64_t all = hash_bytes(reinterpret_cast<const char*>(&communicator), sizeof communicator, 13);
        id = remote_members::id_of((all & ~round_bits) | (std::uint64_t{round} << 1 & round_bits), false);
    }
    // Whether `other` is the id of this meeting or of a later one.
    bool is_at_most(std::uint64_t other) const {
        return id != 0 && ((id ^ other) & ~round_bits) == 0 && (id & round_bits) <= (other & round_bits);
    }
};

struct left_communicator {
    std::uint64_t id = 0, failure = 0; // failure: the word that ended it, 0: none
    int rank = -1, ports = 0;          // of this rank there, and how its channels are
    channel_shape shape = {};
    std::uint64_t had_connections = 0; // to ranks there: one bit for every 64th rank, since the size is fixed
    std::uint64_t name = 0;            // it had in mutual_help; now no one's
    meeting_of_survivors next = {};    // to which this rank will not come, nor to later ones

    static constexpr std::uint64_t bit_of(int other) { return std::uint64_t{1} << (other % 64); }
    // What was said to it is on its way over that connection, which the other end may not have seen yet.
    bool may_have_told(int other) const { return (had_connections & bit_of(other)) != 0; }
};

class left_communicators {
public:
    static constexpr std::size_t most = 1024;
    void add(const left_communicator& c) noexcept { at_[count_++ % most] = c; }
    // Null: it is not among the last ones.
    const left_communicator* find(std::uint64_t id) const noexcept {
        return find_by([id](const left_communicator& c) { return c.id == id; });
    }
    // The one whose survivors meet by this id, without this rank.
    const left_communicator* find_by_meeting(std::uint64_t id) const noexcept {
        return find_by([id](const left_communicator& c) { return c.next.is_at_most(id); });
    }

private:
    template <class Is>
    const left_communicator* find_by(Is&& is) const noexcept {
        for (std::size_t i = 0; i < count_ && i < most; ++i)
            if (is(at_[i])) return &at_[i];
        return nullptr;
    }
    left_communicator at_[most] = {};
    std::size_t count_ = 0;
};

} // namespace detail

COLLX_END_NAMESPACE
