// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Inside a stream: the memory of its channels, and the queue of frames to be sent. No socket here.
#pragma once

#include <sys/mman.h>
#include <sys/uio.h>

#include <cstring>
#include <new>

#include <collx/core/atomic.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/detail/stream_frame.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The slots of both directions of every port, in private memory that takes pages at first use.
class stream_memory {
public:
    stream_memory(channel_shape shape, int ports)
        : shape_(shape), ports_(ports), channel_bytes_(shape.bytes() + channel_memory::spare_bytes(shape)) {}
    stream_memory(const stream_memory&) = delete;
    ~stream_memory() {
        if (base_ != nullptr) ::munmap(base_, bytes());
    }
    bool is_mapped() const { return base_ != nullptr; }
    bool map() {
        if (base_ != nullptr) return true;
        void* p = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) base_ = static_cast<std::byte*>(p);
        return base_ != nullptr;
    }
    void require() {
        if (!map())
            fail(errc::resource, -1, -1, remedy_for_mapping(errno), "cannot map %zu bytes of slots: %s", bytes(),
                 std::strerror(errno));
    }
    const channel_shape& shape() const { return shape_; }
    channel_memory tx(int port) const { return {base_ + static_cast<std::size_t>(port) * 2 * channel_bytes_, shape_}; }
    channel_memory rx(int port) const { return {tx(port).base + channel_bytes_, shape_}; }
    // How many messages were taken here.
    std::uint64_t taken(int port) const { return base_ == nullptr ? 0 : rx(port).taken().load(memory_order::acquire); }

private:
    std::size_t bytes() const { return static_cast<std::size_t>(ports_) * 2 * channel_bytes_; }
    channel_shape shape_;
    int ports_;
    std::size_t channel_bytes_;
    std::byte* base_ = nullptr;
};

// A queue of frames, the first of which may be sent in part.
class stream_queue {
public:
    static constexpr int most_entries = 32, most_parts = 3 * most_entries;

    bool is_empty() const { return first_ == last_; }
    bool is_full() const { return last_ == most_entries; }
    void clear() {
        first_ = last_ = 0;
        done_bytes_ = 0;
        referenced_ = 0;
    }
    void add(const stream_entry& e) {
        if (e.has_room) {
            std::memcpy(e.room(), &e.head, sizeof e.head);
            std::memset(e.room() + sizeof e.head, 0, e.head_bytes - sizeof e.head);
        }
        entries_[last_++] = e;
        referenced_ += e.is_referenced ? 1 : 0;
    }
    void add_word(const stream_frame& f) {
        if (!is_full()) add({f, nullptr, 0, sizeof f, false});
    }
    std::size_t payload_bytes() const {
        std::size_t bytes = 0;
        for (int i = first_; i < last_; ++i) bytes += entries_[i].payload_bytes;
        return bytes;
    }
    // The queue up to a payload that goes by reference, as parts for one call. Adds their sizes to `bytes`.
    int gather(iovec* parts, std::size_t& bytes) const {
        int count = 0;
        std::size_t skip = done_bytes_;
        const auto add = [&](const void* at, std::size_t size) {
            const std::size_t here = skip < size ? skip : size;
            skip -= here;
            if (size == here) return;
            parts[count++] = {const_cast<char*>(static_cast<const char*>(at)) + here, size - here};
            bytes += size - here;
        };
        for (int i = first_; i < last_; ++i) {
            const stream_entry& e = entries_[i];
            if (e.has_room) {
                add(e.room(), e.bytes());
                continue;
            }
            add(&e.head, sizeof e.head);
            add(zeros, e.head_bytes - sizeof e.head);
            if (e.is_referenced) break;
            add(e.payload, e.payload_bytes);
        }
        return count;
    }
    // Whether a payload by reference is next, behind what gather() gives.
    bool has_referenced() const { return referenced_ != 0; }
    // The unsent rest of it, if its head is sent.
    iovec next_referenced() const {
        const stream_entry& e = entries_[first_];
        if (referenced_ == 0 || !e.is_referenced || done_bytes_ < e.head_bytes) return {nullptr, 0};
        const std::size_t at = done_bytes_ - e.head_bytes;
        return {const_cast<std::byte*>(e.payload) + at, e.payload_bytes - at};
    }
    // Whether the system has a part of a message that is awaited (stream_entry::awaited).
    bool is_within_awaited() const {
        return !is_empty() && entries_[first_].awaited != 0 && done_bytes_ > entries_[first_].head_bytes;
    }
    // Makes the queued payloads go by copy after all.
    [[gnu::cold]] void stop_referencing() {
        for (int i = first_; i < last_; ++i) entries_[i].is_referenced = false;
        referenced_ = 0;
    }
    // So many bytes were sent. Calls done(entry) for each entry that was sent entirely.
    template <class Done>
    void account(std::size_t bytes, Done&& done) {
        done_bytes_ += bytes;
        for (; first_ < last_ && done_bytes_ >= entries_[first_].bytes(); ++first_) {
            done_bytes_ -= entries_[first_].bytes();
            referenced_ -= entries_[first_].is_referenced ? 1 : 0;
            done(entries_[first_]);
        }
        if (first_ == last_) first_ = last_ = 0;
    }
    // Copies queued payloads that lie in the user's memory. False: there is no memory for that.
    [[gnu::cold]] bool own() {
        stop_referencing();
        std::size_t bytes = 0;
        for (int i = first_; i < last_; ++i) bytes += entries_[i].is_users_memory ? entries_[i].payload_bytes : 0;
        if (bytes == 0) return true;
        try {
            copies_.resize(bytes);
        } catch (const std::bad_alloc&) {
            return false;
        }
        std::byte* to = copies_.data();
        for (int i = first_; i < last_; ++i) {
            stream_entry& e = entries_[i];
            if (!e.is_users_memory) continue;
            copy_bytes(to, e.payload, e.payload_bytes);
            e.payload = to;
            e.is_users_memory = false;
            to += e.payload_bytes;
        }
        return true;
    }

private:
    static constexpr std::byte zeros[stream_frame::most_filler_bytes] = {};
    stream_entry entries_[most_entries];
    int first_ = 0, last_ = 0, referenced_ = 0;
    std::size_t done_bytes_ = 0; // of the first entry
    detail::growing_array<std::byte> copies_;
};

} // namespace detail

COLLX_END_NAMESPACE
