// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The last communicators that a rank has left. What still comes for them is answered or dropped. Communicators are left
// in destructors, so this needs no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/transport/channel.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct left_communicator {
    std::uint64_t id = 0, failure = 0; // failure: the word that ended it, 0: none
    int rank = -1, ports = 0;          // of this rank there, and how its channels are
    channel_shape shape = {};
    std::uint64_t had_connections = 0; // to ranks there: one bit for every 64th rank, since the size is fixed

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
        for (std::size_t i = 0; i < count_ && i < most; ++i)
            if (at_[i].id == id) return &at_[i];
        return nullptr;
    }

private:
    left_communicator at_[most] = {};
    std::size_t count_ = 0;
};

} // namespace detail

COLLX_END_NAMESPACE
