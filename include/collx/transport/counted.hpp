// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that counts what goes over another transport of the program's own: per_peer{counted<mine>{}}. It counts
// the endpoint's messages (frames of the library, some of them without data), for all ranks of the process together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/transport/transport_concept.hpp>

COLLX_BEGIN_NAMESPACE

// What an endpoint has moved.
struct transport_counts {
    std::uint64_t sent_messages = 0, sent_bytes = 0, received_messages = 0, received_bytes = 0;
};

template <CustomTransport T>
struct counted {
    static constexpr const char* name = T::name;
    static constexpr bool carries(relation r) { return T::carries(r); }
    class endpoint;

    // The counts so far. Local; any thread may call it.
    static transport_counts counts() {
        const auto now = [](const atomic<std::uint64_t>& n) { return n.load(memory_order::relaxed); };
        return {now(sent_messages_), now(sent_bytes_), now(received_messages_), now(received_bytes_)};
    }

private:
    inline static atomic<std::uint64_t> sent_messages_{0}, sent_bytes_{0}, received_messages_{0}, received_bytes_{0};
};

template <CustomTransport T>
class counted<T>::endpoint {
    using counter = atomic<std::uint64_t>;
    static void add(counter& messages, counter& all, std::size_t bytes) {
        messages.fetch_add(1, memory_order::relaxed);
        all.fetch_add(bytes, memory_order::relaxed);
    }
    struct peer {
        endpoint* mine = nullptr;
        int rank = 0;
        auto& its_tx() { return mine->inner_.tx(rank); }
        auto& its_rx() { return mine->inner_.rx(rank); }

        std::byte* try_acquire(std::size_t bytes) { return its_tx().try_acquire(bytes); }
        void commit(std::size_t bytes) {
            its_tx().commit(bytes);
            add(sent_messages_, sent_bytes_, bytes);
        }
        bool is_drained() { return its_tx().is_drained(); }
        bool has_message() { return its_rx().has_message(); }
        std::size_t message_bytes() { return its_rx().message_bytes(); }
        const std::byte* peek(std::size_t bytes) { return its_rx().peek(bytes); }
        void release(std::size_t bytes) {
            its_rx().release(bytes);
            add(received_messages_, received_bytes_, bytes);
        }
    };

public:
    endpoint(int rank, int size) : inner_(rank, size), peers_(static_cast<std::size_t>(size)) {
        for (int p = 0; p < size; ++p) {
            tx(p).mine = this;
            tx(p).rank = p;
        }
    }
    endpoint(const endpoint&) = delete;
    endpoint_address address() { return inner_.address(); }
    void connect(int p, const endpoint_address& there) { inner_.connect(p, there); }
    std::size_t most_bytes() { return inner_.most_bytes(); }
    peer& tx(int p) { return peers_[p]; }
    peer& rx(int p) { return tx(p); }
    bool move() { return inner_.move(); }
    bool is_gone(int p) { return inner_.is_gone(p); }

private:
    typename T::endpoint inner_;
    detail::growing_array<peer> peers_;
};

COLLX_END_NAMESPACE
