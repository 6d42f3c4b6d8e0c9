// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that injects faults into another transport of the program, as a seed says: per_peer{with_faults<mine,
// fault_plan{.seed = 7, .delay_one_in = 10}>{}}. With delays only, every message still arrives. A message that is
// dropped never arrives, so calls over it time out. After a cut the peer is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include <collx/core/growing_array.hpp>
#include <collx/transport/transport_concept.hpp>

COLLX_BEGIN_NAMESPACE

namespace testing {

// one_in: one fault in so many messages, on average; 0: none. Messages are not reordered: a channel has an order.
struct fault_plan {
    std::uint64_t seed = 1;
    int delay_one_in = 0;
    int delay_moves = 100; // moves of the rank before the message, and those behind it, are sent
    int drop_one_in = 0;
    std::uint64_t cut_after = UINT64_MAX; // the first lost message to one peer; then none comes from it
};

template <CustomTransport T, fault_plan Plan>
struct with_faults {
    static constexpr const char* name = T::name;
    static constexpr bool carries(relation r) { return T::carries(r); }
    class endpoint;
};

template <CustomTransport T, fault_plan Plan>
class with_faults<T, Plan>::endpoint {
    static constexpr std::size_t most_held = 4;
    struct held {
        std::vector<std::byte> bytes;
        std::uint64_t due = 0; // the move at which it is sent
    };
    struct peer {
        endpoint* mine = nullptr;
        int rank = 0;
        std::vector<std::byte> acquired;
        std::deque<held> waiting;
        std::uint64_t committed = 0;

        bool is_cut() const { return committed >= Plan.cut_after; }
        std::byte* try_acquire(std::size_t bytes) {
            if (waiting.size() == most_held) return nullptr;
            acquired.resize(bytes + 1); // never null
            return acquired.data();
        }
        void commit(std::size_t bytes) {
            acquired.resize(bytes);
            ++committed;
            if (is_cut() || mine->happens(Plan.drop_one_in)) return;
            const auto moves = static_cast<std::uint64_t>(mine->happens(Plan.delay_one_in) ? Plan.delay_moves : 0);
            waiting.push_back({acquired, mine->moves_ + moves});
            send();
        }
        void send() {
            auto& tx = mine->inner_.tx(rank);
            for (; !waiting.empty() && waiting.front().due <= mine->moves_; waiting.pop_front()) {
                const auto& bytes = waiting.front().bytes;
                std::byte* const to = tx.try_acquire(bytes.size());
                if (to == nullptr) return;
                if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
                tx.commit(bytes.size());
            }
        }
        bool is_drained() { return waiting.empty() && mine->inner_.tx(rank).is_drained(); }
        bool has_message() { return !is_cut() && mine->inner_.rx(rank).has_message(); }
        std::size_t message_bytes() { return mine->inner_.rx(rank).message_bytes(); }
        const std::byte* peek(std::size_t bytes) { return mine->inner_.rx(rank).peek(bytes); }
        void release(std::size_t bytes) { mine->inner_.rx(rank).release(bytes); }
    };

public:
    endpoint(int rank, int size)
        : inner_(rank, size), random_(Plan.seed * 2 + static_cast<std::uint64_t>(rank)),
          peers_(static_cast<std::size_t>(size)) {
        for (int p = 0; p < size; ++p) {
            tx(p).mine = this;
            tx(p).rank = p;
        }
    }
    endpoint(const endpoint&) = delete;
    ~endpoint() { // sends what is delayed
        moves_ = UINT64_MAX;
        for (peer& p : peers_) p.send();
    }
    endpoint_address address() { return inner_.address(); }
    void connect(int p, const endpoint_address& there) { inner_.connect(p, there); }
    std::size_t most_bytes() { return inner_.most_bytes(); }
    peer& tx(int p) { return peers_[static_cast<std::size_t>(p)]; }
    peer& rx(int p) { return tx(p); }
    bool move() {
        ++moves_;
        for (peer& p : peers_) p.send();
        return inner_.move();
    }
    bool is_gone(int p) { return tx(p).is_cut() || inner_.is_gone(p); }

private:
    bool happens(int one_in) {
        random_ = random_ * 6364136223846793005u + 1442695040888963407u;
        return one_in > 0 && (random_ >> 33) % static_cast<std::uint64_t>(one_in) == 0;
    }
    typename T::endpoint inner_;
    std::uint64_t random_, moves_ = 0;
    std::vector<peer> peers_;
};

} // namespace testing

COLLX_END_NAMESPACE
