// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cards of ranks in a ring, connected by messages of the communicator instead of cables.
#pragma once

#include <collx/collx.hpp>

#include <cstdint>
#include <vector>

#include "card.hpp"

namespace lesson {

struct remote_place {
    std::uint64_t at;
    std::uint32_t key;
};
// A rank's card, with a cable to the next rank and one from the previous rank.
struct joined_card : card {
    collx::communicator& world;
    int right = (world.rank() + 1) % world.size(), left = (world.rank() + world.size() - 1) % world.size();
    std::uint32_t key;
    remote_place there{}; // the next rank's memory: exchanged another way, as programs do over a socket

    joined_card(collx::communicator& w, std::vector<int>& memory) : world(w) {
        auto* const at = reinterpret_cast<std::byte*>(memory.data());
        key = register_memory(at, memory.size() * sizeof(int));
        const std::vector<remote_place> mine{{reinterpret_cast<std::uint64_t>(at), key}};
        std::vector<remote_place> got(1);
        collx::sendrecv(world, mine, left, got, right);
        there = got[0];
    }
    // Carries the packets. All ranks call it together, each with as many packets.
    void carry() {
        std::vector<packet> come(wire.size());
        std::vector<answer> answers(wire.size()), back(wire.size());
        collx::sendrecv(world, wire, right, come, left);
        for (std::size_t i = 0; i < come.size(); ++i) answers[i] = deliver(come[i]);
        collx::sendrecv(world, answers, left, back, right);
        for (const answer& a : back) acknowledged(a);
        wire.clear();
    }
    work_request write(std::uint64_t id, const int* from, std::size_t n, std::size_t place) const {
        work_request r;
        r.id = id;
        r.from = reinterpret_cast<const std::byte*>(from);
        r.bytes = n * sizeof(int);
        r.local_key = key;
        r.to = reinterpret_cast<std::byte*>(there.at) + place * sizeof(int);
        r.remote_key = there.key;
        return r;
    }
};

} // namespace lesson
