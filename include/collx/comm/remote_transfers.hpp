// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of a window between hosts that needs no answer: where both ranks have a device, puts and gets go by RDMA
// writes and reads straight into and out of the parts. Data passes through registered memory of this rank, so the
// program's buffers are never registered with a device, and a put returns when they are copied. remote_window.hpp says
// which puts go this way.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/comm/window_operator.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/transport/remote_memory.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class remote_transfers {
public:
    // What a rank publishes of its part. No key: nothing.
    struct shown {
        std::uint64_t address = 0, page = 0; // page: one that no rank writes, for flush()
        std::uint32_t key = 0, page_key = 0, has_key = 0, reserved = 0;
    };

    // Null: this rank has no device, or the device does not take the memory. Other ranks then send messages to it.
    static sole_ptr<remote_transfers> make(communicator_core& c, std::byte* part, std::size_t bytes) {
        remote_memory* const memory = c.net.remote()->memory();
        if (memory == nullptr) return nullptr;
        try {
            auto made = make_sole<remote_transfers>(c, *memory);
            if (bytes != 0) made->show(part, bytes);
            return made;
        } catch (const error&) {
            return nullptr;
        }
    }
    remote_transfers(communicator_core& c, remote_memory& memory)
        : core_(c), memory_(memory), parts_(static_cast<std::size_t>(c.net.size())),
          piece_bytes_(most_piece_bytes < memory.device().most_write_bytes() ? most_piece_bytes
                                                                             : memory.device().most_write_bytes()),
          room_(make_counted<transfer_room>(memory.device(), pieces, piece_bytes_)) {}
    remote_transfers(const remote_transfers&) = delete;

    const shown& own() const { return own_; }
    void learn(int peer, const shown& s) { parts_[peer].there = s; }
    // Whether puts and gets to a peer's part may go this way now: in order with this rank's messages to it.
    bool reaches(int peer) { return parts_[peer].there.has_key != 0 && memory_.reaches(port::messages, peer); }

    // Returns when `from` is copied. Requires: places are checked.
    void put(int peer, std::uint64_t at, const std::byte* from, std::size_t bytes) {
        parts_[peer].is_written = true;
        while (bytes != 0) {
            const std::size_t n = bytes < piece_bytes_ ? bytes : piece_bytes_;
            const int k = take_piece();
            copy_bytes(room_->piece(k), from, n);
            start(peer, k, at, n, false);
            from += n;
            at += n;
            bytes -= n;
        }
    }
    void get(int peer, std::uint64_t at, std::byte* to, std::size_t bytes) {
        const std::size_t parts = (bytes + piece_bytes_ - 1) / piece_bytes_;
        const auto bytes_of = [&](std::size_t i) { return i + 1 < parts ? piece_bytes_ : bytes - i * piece_bytes_; };
        int piece_of[pieces] = {};
        for (std::size_t asked = 0, come = 0; come < parts; ++come) {
            for (; asked < parts && asked < come + pieces / 2; ++asked) {
                const int k = piece_of[asked % pieces] = take_piece();
                start(peer, k, at + asked * piece_bytes_, bytes_of(asked), true);
            }
            const int k = piece_of[come % pieces];
            wait_for(k);
            copy_bytes(to + come * piece_bytes_, room_->piece(k), bytes_of(come));
        }
        parts_[peer].is_written = false; // earlier puts are there
    }
    // Puts to a peer are there when a read of its memory that was started behind the writes is done. (The read is not
    // of its part, where others may write at this time.)
    void begin_flush(int peer, std::int64_t timeout_ns) {
        const auto& p = parts_[peer];
        if (!p.is_written) return;
        const int k = take_piece();
        start_with({room_->piece(k), 1, room_->key(), p.there.page, p.there.page_key, true}, peer, k, timeout_ns);
    }
    void end_flush(int peer, std::int64_t timeout_ns) {
        auto& p = parts_[peer];
        if (!p.is_written) return;
        if (!is_drained(peer))
            core_.wait_until([&] { return is_drained(peer); }, timeout_ns, awaited(peer, awaited::why::message));
        p.is_written = false;
    }
    // An answer has shown that the puts are there.
    void note_flushed(int peer) { parts_[peer].is_written = false; }
    bool is_written(int peer) const { return parts_[peer].is_written; }
    // Whether all transfers with a peer are done.
    bool is_drained(int peer) { return memory_.finished(peer) >= memory_.started(peer); }
    // From now on the device refuses access by peers.
    void hide() {
        part_ = nullptr;
        page_ = nullptr;
    }

private:
    // Enough for a peer's device to have the next piece while this one is copied; more pieces gain little.
    static constexpr int pieces = 8;
    static constexpr std::size_t most_piece_bytes = 128 * 1024;
    struct part {
        shown there;
        bool is_written = false; // since a read of it, or an answer
    };
    // The transfer that last used a piece of the room.
    struct piece {
        int peer = -1;
        std::uint64_t number = 0;
    };

    void show(std::byte* at, std::size_t bytes) {
        part_ = memory_.device().register_memory(at, bytes, peers_may::write_and_read);
        page_ = memory_.device().register_memory(room_->unwritten_page(), page_bytes, peers_may::write_and_read);
        own_ = {reinterpret_cast<std::uint64_t>(at), reinterpret_cast<std::uint64_t>(room_->unwritten_page()),
                part_->remote_key, page_->remote_key, 1};
    }
    void start(int peer, int k, std::uint64_t at, std::size_t bytes, bool is_read) {
        const shown& there = parts_[peer].there;
        const auto n = static_cast<std::uint32_t>(bytes);
        start_with({room_->piece(k), n, room_->key(), there.address + at, there.key, is_read}, peer, k, 0);
    }
    void start_with(const verbs_transfer& t, int peer, int k, std::int64_t timeout_ns) {
        if (!memory_.start(peer, t, room_))
            core_.wait_until([&] { return memory_.start(peer, t, room_); }, timeout_ns,
                             awaited(peer, awaited::why::room));
        last_[k] = {peer, memory_.started(peer)};
    }
    void wait_for(int k) {
        const piece& p = last_[k];
        if (p.peer < 0 || memory_.finished(p.peer) >= p.number) return;
        core_.wait_until([&] { return memory_.finished(p.peer) >= p.number; }, 0,
                         awaited(p.peer, awaited::why::message));
    }
    int take_piece() {
        const int k = next_;
        next_ = (next_ + 1) % pieces;
        wait_for(k);
        return k;
    }

    communicator_core& core_;
    remote_memory& memory_;
    growing_array<part> parts_; // by rank
    shown own_;
    std::size_t piece_bytes_;
    counted_ptr<transfer_room> room_; // transfers under way keep it
    sole_ptr<verbs_memory> part_, page_;
    piece last_[pieces];
    int next_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE
