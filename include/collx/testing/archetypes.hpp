// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The smallest types that model the channel concepts: code over channels may use nothing of an end that is not here.
// They are the two ends of a queue of messages in one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include <collx/transport/channel_concept.hpp>

COLLX_BEGIN_NAMESPACE

namespace testing {

// A queue of at most `depth` messages.
struct message_queue {
    std::size_t depth = 4;
    std::deque<std::vector<std::byte>> committed, arrived; // before and after move_sender()
    std::vector<std::byte> acquired;
};

// A sending end that has what SendingEnd requires, and nothing else.
class sending_archetype {
public:
    explicit sending_archetype(message_queue& q) : q_(q) {}
    sending_archetype(const sending_archetype&) = delete;
    std::byte* try_acquire(std::size_t bytes) {
        if (q_.committed.size() + q_.arrived.size() >= q_.depth) return nullptr;
        q_.acquired.resize(bytes + 1); // never null
        return q_.acquired.data();
    }
    void commit(std::size_t bytes) {
        q_.acquired.resize(bytes);
        q_.committed.push_back(q_.acquired);
    }
    bool is_drained() { return q_.committed.empty(); }

private:
    message_queue& q_;
};

// A receiving end that has what ReceivingEnd requires, and nothing else.
class receiving_archetype {
public:
    explicit receiving_archetype(message_queue& q) : q_(q) {}
    receiving_archetype(const receiving_archetype&) = delete;
    bool has_message() { return !q_.arrived.empty(); }
    std::size_t message_bytes() { return q_.arrived.front().size(); }
    const std::byte* peek(std::size_t) { return q_.arrived.front().data(); }
    void release(std::size_t) { q_.arrived.pop_front(); }

private:
    message_queue& q_;
};
static_assert(SendingEnd<sending_archetype> && ReceivingEnd<receiving_archetype>);

// Both ends, for check_channel().
class queue_link {
public:
    sending_archetype& tx() { return tx_; }
    receiving_archetype& rx() { return rx_; }
    void move_sender() {
        for (; !q_.committed.empty(); q_.committed.pop_front()) q_.arrived.push_back(std::move(q_.committed.front()));
    }
    void move_receiver() {}

private:
    message_queue q_;
    sending_archetype tx_{q_};
    receiving_archetype rx_{q_};
};

} // namespace testing

COLLX_END_NAMESPACE
