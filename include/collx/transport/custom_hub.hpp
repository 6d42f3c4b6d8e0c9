// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The endpoint of a program's own transport, shared by all communicators of a rank. Each message in its channels begins
// with a frame that names its communicator. Frames for a communicator that this rank has not made yet are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include <collx/core/clock.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/detail/left_communicators.hpp>
#include <collx/transport/detail/mutual_help.hpp>
#include <collx/transport/transport_concept.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// An endpoint with its type erased.
class custom_endpoint {
public:
    virtual ~custom_endpoint() = default;
    virtual endpoint_address address() = 0;
    virtual void connect(int peer, const endpoint_address& there) = 0;
    virtual std::size_t most_bytes() = 0;
    virtual std::byte* try_acquire(int peer, std::size_t bytes) = 0;
    virtual void commit(int peer, std::size_t bytes) = 0;
    virtual bool is_drained(int peer) = 0;
    // Null: no message has come.
    virtual const std::byte* peek(int peer, std::size_t& bytes) = 0;
    virtual void release(int peer, std::size_t bytes) = 0;
    virtual void move() = 0;
    virtual bool is_gone(int peer) = 0;
};
template <Endpoint E>
class custom_endpoint_of final : public custom_endpoint {
public:
    custom_endpoint_of(int rank, int size) : e_(rank, size) {}
    endpoint_address address() override { return e_.address(); }
    void connect(int peer, const endpoint_address& there) override { e_.connect(peer, there); }
    std::size_t most_bytes() override { return e_.most_bytes(); }
    std::byte* try_acquire(int peer, std::size_t bytes) override { return e_.tx(peer).try_acquire(bytes); }
    void commit(int peer, std::size_t bytes) override { e_.tx(peer).commit(bytes); }
    bool is_drained(int peer) override { return e_.tx(peer).is_drained(); }
    const std::byte* peek(int peer, std::size_t& bytes) override {
        auto& rx = e_.rx(peer);
        if (!rx.has_message()) return nullptr;
        bytes = rx.message_bytes();
        return rx.peek(bytes);
    }
    void release(int peer, std::size_t bytes) override { e_.rx(peer).release(bytes); }
    void move() override { (void)e_.move(); }
    bool is_gone(int peer) override { return e_.is_gone(peer); }

private:
    E e_;
};

// The header of each message of a channel; a part of a message of the communicator follows.
struct custom_frame {
    enum class kind : std::uint8_t {
        message = 1, // bytes, tag: of the whole message; offset: of the part that follows
        credit,      // nothing but `taken`
        failure,     // tag, bytes: upper and lower half of the word that ended the communicator
        waiting,     // tag: a rank; bytes: lower 16 bits of its waiting_word; taken: the age of that, in its units
        bye          // the sender has left the communicator
    };
    static constexpr std::uint32_t magic_value = 0x3158'4c43; // "CLX1"
    std::uint64_t communicator = 0;
    std::uint32_t magic = magic_value;
    kind what = kind::message;
    std::uint8_t at_port = 0;
    std::uint16_t reserved = 0;
    std::uint32_t from = 0; // rank of the communicator
    std::uint32_t bytes = 0, tag = 0, offset = 0;
    std::uint32_t taken = 0; // how many messages of this port the sender of the frame has taken (low bits)
    std::uint32_t reserved_too = 0;
};
static_assert(sizeof(custom_frame) == 40);

// A communicator, as the hub sees it. Its functions are called in the hub's turn.
struct custom_guest {
    virtual std::uint64_t id() const = 0;
    // Takes a frame from a rank of the job, with its payload.
    virtual void take(int from, const custom_frame& f, const std::byte* payload, std::size_t bytes) = 0;
    // Posts what is ready.
    virtual void send() = 0;

protected:
    ~custom_guest() = default;
};

class custom_hub {
public:
    custom_hub(sole_ptr<custom_endpoint> e, int size) : endpoint_(std::move(e)), is_connected_(sized(size)) {}
    custom_hub(const custom_hub&) = delete;
    // Goodbyes that found no room get a moment more: a rank that ends without one is taken for dead.
    ~custom_hub() {
        for (const deadline until = deadline::in_ns(told_limit_ns); !until.passed(); nap_ns(200'000)) {
            if (!endpoint_ || owed_.empty()) return;
            try {
                move();
            } catch (const std::bad_alloc&) { // for frames that are kept
            }
        }
    }

    yielding_lock& lock() { return lock_; }
    endpoint_address address() { return endpoint_->address(); }
    void connect(int peer, const endpoint_address& there) {
        const lock_held here(lock_);
        endpoint_->connect(peer, there);
        is_connected_[peer] = 1;
    }
    bool is_connected(int peer) const { return is_connected_[peer] != 0; }
    // In a child of fork(): the endpoint belongs to the parent.
    void forget() { (void)endpoint_.release(); }

    // ------------------------------------------------------------------ the caller of all that follows holds the turn
    void enter(custom_guest& g) {
        guests_.push_back(&g);
        for (std::size_t i = 0; i < kept_.size();) {
            if (kept_[i].frame.communicator != g.id()) {
                ++i;
                continue;
            }
            const kept_frame k = std::move(kept_[i]);
            kept_.erase_at(i);
            g.take(k.from, k.frame, k.payload.data(), k.payload.size());
        }
    }
    void leave(custom_guest& g) noexcept {
        erase_if(guests_, [&](const custom_guest* other) { return other == &g; });
        left_.add({.id = g.id()});
    }
    std::size_t most_payload() { return endpoint_->most_bytes() - sizeof(custom_frame); }
    // False: no room at present. bytes: at most most_payload().
    bool post(int peer, const custom_frame& f, const std::byte* payload = nullptr, std::size_t bytes = 0) {
        std::byte* const to = endpoint_->try_acquire(peer, sizeof f + bytes);
        if (to == nullptr) return false;
        std::memcpy(to, &f, sizeof f);
        if (bytes != 0) std::memcpy(to + sizeof f, payload, bytes);
        endpoint_->commit(peer, sizeof f + bytes);
        return true;
    }
    // Posts a frame as soon as there is room: the goodbye of a communicator that leaves.
    void owe(int peer, const custom_frame& f) { owed_.push_back({peer, f}); }
    bool is_drained(int peer) { return endpoint_->is_drained(peer); }
    bool is_gone(int peer) { return endpoint_->is_gone(peer); }
    // Advances the messages of all communicators.
    void move() {
        endpoint_->move();
        for (std::size_t p = 0; p < is_connected_.size(); ++p)
            if (is_connected_[p] != 0) read(static_cast<int>(p));
        erase_if(owed_, [this](const owed_frame& o) { return is_gone(o.to) || post(o.to, o.frame); });
        for (custom_guest* g : guests_) g->send();
        endpoint_->move();
    }
    void read(int peer) {
        std::size_t bytes = 0;
        while (const std::byte* at = endpoint_->peek(peer, bytes)) {
            if (!take(peer, at, bytes)) return;
            endpoint_->release(peer, bytes);
        }
    }

private:
    struct kept_frame {
        custom_frame frame;
        int from = -1;
        growing_array<std::byte> payload;
    };
    struct owed_frame {
        int to;
        custom_frame frame;
    };
    static constexpr std::int64_t told_limit_ns = 500'000'000;
    // Frames that are kept, from peers that have made their communicator already: at most the depth of its channels
    // from each. Further frames stay in the channel.
    static constexpr std::size_t most_kept = 4096;

    static growing_array<char> sized(int n) { return growing_array<char>(static_cast<std::size_t>(n)); }
    // False: the frame stays in the channel.
    bool take(int peer, const std::byte* at, std::size_t bytes) {
        custom_frame f;
        if (bytes < sizeof f) return true;
        std::memcpy(&f, at, sizeof f);
        if (f.magic != custom_frame::magic_value) return true;
        for (custom_guest* g : guests_)
            if (g->id() == f.communicator) {
                g->take(peer, f, at + sizeof f, bytes - sizeof f);
                return true;
            }
        if (left_.find(f.communicator) != nullptr) return true;
        if (kept_.size() == most_kept) return false;
        kept_.push_back({f, peer, growing_array<std::byte>(at + sizeof f, at + bytes)});
        return true;
    }

    yielding_lock lock_;
    sole_ptr<custom_endpoint> endpoint_;
    growing_array<char> is_connected_; // by rank of the job
    growing_array<custom_guest*> guests_;
    growing_array<kept_frame> kept_;
    growing_array<owed_frame> owed_;
    left_communicators left_;
};

} // namespace detail

COLLX_END_NAMESPACE
