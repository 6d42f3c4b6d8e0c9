// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Connected queue pairs, with memory for data and for heads, for the tests of verbs.
#pragma once

#include <collx/core/clock.hpp>
#include <collx/transport/verbs_device.hpp>

#include <thread>
#include <vector>

#include "transport/channel_contract.hpp"

namespace collx_test {

using done = collx::verbs_completion::kind;

// A completion, or none if the test's time limit has passed.
struct completed : collx::verbs_completion {
    bool is_there = false;
    bool is(done kind, std::uint64_t its_id) const { return is_there && what == kind && id == its_id; }
};

// One side: the peer may write `bytes`, and sends read from them.
struct verbs_end {
    static constexpr std::size_t head_room = 128;
    std::vector<std::byte> bytes, heads;
    collx::sole_ptr<collx::verbs_memory> memory, heads_memory;
    collx::sole_ptr<collx::queue_pair> pair; // destroyed first
    const char* last_why = "";

    verbs_end(collx::verbs_device& d, const collx::verbs_limits& limits, std::size_t data_bytes)
        : bytes(data_bytes), heads(head_room * static_cast<std::size_t>(limits.receives + 1)),
          memory(d.register_memory(bytes.data(), bytes.size(), collx::peers_may::write_and_read)),
          heads_memory(d.register_memory(heads.data(), heads.size())), pair(d.make_queue_pair(limits)),
          receives_(static_cast<std::uint64_t>(limits.receives)) {}
    verbs_end(const verbs_end&) = delete;

    std::byte* head(std::uint64_t id) { return heads.data() + id % receives_ * head_room; }
    void post_receive(std::uint64_t id) { pair->post_receive(head(id), head_room, heads_memory->local_key, id); }
    // The head contains the id.
    bool post(const std::vector<collx::verbs_write>& writes, std::uint64_t id, std::uint32_t head_bytes) {
        std::byte text[256] = {};
        fill_message(text, id, head_bytes);
        const bool is_posted = pair->post(writes.data(), static_cast<int>(writes.size()), text, head_bytes, id);
        fill_message(text, ~id, head_bytes);
        return is_posted;
    }
    // A write to, or a read from, byte `at` of the peer's memory.
    bool post_alone(bool is_read, std::size_t i, const verbs_end& there, std::size_t at, std::size_t n,
                    std::uint64_t id) {
        return pair->post_alone({bytes.data() + i, static_cast<std::uint32_t>(n), memory->local_key,
                                 reinterpret_cast<std::uint64_t>(there.bytes.data() + at), there.memory->remote_key,
                                 is_read},
                                id);
    }
    // This side's next completion. Only this side is polled: a device advances by itself.
    completed next() {
        completed c;
        c.is_there = wait_until([&] { return pair->poll(&c, 1) == 1; });
        if (c.what == done::failed) last_why = c.why;
        return c;
    }

private:
    std::uint64_t receives_;
};

inline collx::verbs_write write_between(const verbs_end& from, std::size_t i, const verbs_end& to, std::size_t at,
                                        std::size_t bytes) {
    return {from.bytes.data() + i, static_cast<std::uint32_t>(bytes), from.memory->local_key,
            reinterpret_cast<std::uint64_t>(to.bytes.data() + at), to.memory->remote_key};
}

// Both sides, connected.
struct verbs_ends {
    verbs_end left, right;
    template <class World>
    verbs_ends(World& world, const collx::verbs_limits& limits, std::size_t data_bytes)
        : left(world.left(), limits, data_bytes), right(world.right(), limits, data_bytes) {
        left.pair->connect(right.pair->address());
        right.pair->connect(left.pair->address());
    }
    collx::verbs_write write(std::size_t from, std::size_t to, std::size_t bytes) const {
        return write_between(left, from, right, to, bytes);
    }
};

} // namespace collx_test
