// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of a trunk (trunk.hpp): outgoing segments, the places where incoming bytes go, and the lines, one for each
// communicator. No socket here.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/detail/mutual_help.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The head of each segment on a trunk.
struct segment {
    enum class kind : std::uint8_t {
        bytes = 1, // of this communicator's stream, so many
        end,       // of the line: nothing more comes
        welcome    // answer to the hello of a lower rank
    };
    static constexpr std::uint16_t magic_value = 0x5354;
    static constexpr std::size_t most_bytes = 64 * 1024;
    std::uint16_t magic = magic_value;
    kind what = kind::bytes;
    std::uint8_t zero = 0;
    std::uint32_t bytes = 0;
    std::uint64_t communicator = 0;
    bool is_sound() const {
        return magic == magic_value && zero == 0 && what >= kind::bytes && what <= kind::welcome &&
               bytes <= most_bytes && (bytes != 0) == (what == kind::bytes);
    }
};
static_assert(sizeof(segment) == 16);

// Cuts what a stream wants to send into segments, for one call.
class segment_writer {
public:
    segment_writer(std::uint64_t communicator, const msghdr& m) {
        const std::size_t given = m.msg_iovlen < most_parts ? m.msg_iovlen : most_parts;
        std::size_t left = 0, room = 0;
        for (std::size_t i = 0; i < given; ++i) left += m.msg_iov[i].iov_len;
        for (std::size_t i = 0, at = 0; i < given;) {
            const iovec& v = m.msg_iov[i];
            if (at == v.iov_len) {
                ++i;
                at = 0;
                continue;
            }
            if (room == 0) {
                if (segments_ == most_segments) break;
                room = left < segment::most_bytes ? left : segment::most_bytes;
                heads_[segments_] = {.bytes = static_cast<std::uint32_t>(room), .communicator = communicator};
                add(&heads_[segments_++], sizeof(segment));
            }
            const std::size_t here = v.iov_len - at < room ? v.iov_len - at : room;
            add(static_cast<char*>(v.iov_base) + at, here);
            at += here;
            room -= here;
            left -= here;
        }
        all_.msg_iov = parts_;
    }
    segment_writer(const segment_writer&) = delete;
    const msghdr& whole() const { return all_; }
    // `gone` bytes were sent: copies the rest of the segment that was sent in part. Returns how many bytes of the
    // stream were sent or are kept.
    std::size_t keep_rest(std::size_t gone, growing_array<std::byte>& kept) const {
        std::size_t end = 0, taken = 0;
        for (std::size_t s = 0; s < segments_ && end < gone; ++s) {
            end += sizeof(segment) + heads_[s].bytes;
            taken += heads_[s].bytes;
        }
        std::size_t skip = gone, left = end - gone;
        for (std::size_t i = 0; left != 0; ++i) {
            const std::size_t past = skip < parts_[i].iov_len ? skip : parts_[i].iov_len;
            const std::size_t here = parts_[i].iov_len - past < left ? parts_[i].iov_len - past : left;
            kept.append(static_cast<const std::byte*>(parts_[i].iov_base) + past, here);
            skip -= past;
            left -= here;
        }
        return taken;
    }

private:
    static constexpr std::size_t most_parts = 64, most_segments = 20; // more than a stream hands out at once
    void add(void* at, std::size_t bytes) { parts_[all_.msg_iovlen++] = {at, bytes}; }
    segment heads_[most_segments];
    iovec parts_[most_parts + 2 * most_segments];
    msghdr all_{};
    std::size_t segments_ = 0;
};

// The places where a stream wants the next bytes, and how far they are full.
class read_places {
public:
    static constexpr std::size_t most = 4; // parts
    read_places() = default;
    explicit read_places(const msghdr& m) : parts_(m.msg_iov), count_(m.msg_iovlen < most ? m.msg_iovlen : most) {
        skip_full();
    }
    bool is_full() const { return part_ == count_; }
    std::size_t given() const { return given_; }
    std::size_t put(const std::byte* from, std::size_t bytes) {
        std::size_t done = 0;
        while (done < bytes && !is_full()) {
            const std::size_t room = parts_[part_].iov_len - at_, here = bytes - done < room ? bytes - done : room;
            copy_bytes(static_cast<std::byte*>(parts_[part_].iov_base) + at_, from + done, here);
            advance(here);
            done += here;
        }
        return done;
    }
    // The free ones of them, up to most_bytes. Returns the number of parts, and adds their sizes to `bytes`.
    std::size_t free_parts(iovec* to, std::size_t most_bytes, std::size_t& bytes) const {
        std::size_t count = 0;
        for (std::size_t i = part_, at = at_; i < count_ && bytes < most_bytes; ++i, at = 0) {
            const std::size_t room = parts_[i].iov_len - at, left = most_bytes - bytes;
            to[count++] = {static_cast<char*>(parts_[i].iov_base) + at, room < left ? room : left};
            bytes += to[count - 1].iov_len;
        }
        return count;
    }
    void advance(std::size_t bytes) {
        given_ += bytes;
        for (at_ += bytes; part_ < count_ && at_ >= parts_[part_].iov_len; ++part_) at_ -= parts_[part_].iov_len;
    }

private:
    void skip_full() { advance(0); }
    const iovec* parts_ = nullptr;
    std::size_t count_ = 0, part_ = 0, at_ = 0, given_ = 0;
};

// One communicator's line of a trunk.
struct trunk_line {
    std::uint64_t communicator = 0, name = 0; // see mutual_help
    bool has_end = false;                     // a stream here uses it
    bool has_closed = false, peer_has_closed = false;
    atomic<bool> is_unsent{false};  // the trunk keeps bytes of it
    atomic<bool> has_news{false};   // there is something to receive, or its end
    growing_array<std::byte> inbox; // came when another line was read
    std::size_t inbox_at = 0;

    // More than the credits of a communicator allow.
    static constexpr std::size_t most_inbox_bytes = 64 * 1024 * 1024;

    bool inbox_has_bytes() const { return inbox_at != inbox.size(); }
    void take_inbox(read_places& to) {
        if (!inbox_has_bytes()) return;
        inbox_at += to.put(inbox.data() + inbox_at, inbox.size() - inbox_at);
        if (!inbox_has_bytes()) {
            inbox = growing_array<std::byte>();
            inbox_at = 0;
        }
    }
};

// What the trunks of a rank have received that no line here shows: lines that a peer has begun and this rank has not,
// in the order in which they came, and bytes that a seal has read ahead.
class trunk_arrivals {
public:
    atomic<bool> are_held{false}; // a seal of some trunk has bytes, so no poll tells of them

    void add(std::uint64_t communicator, int peer) {
        const lock_held here(lock_);
        all_.emplace_back(communicator, peer);
        count_.store(all_.size(), memory_order::release);
        is_new_.store(true, memory_order::release);
    }
    // The peer of the next line of this communicator; -1: none.
    int take(std::uint64_t communicator) {
        return take_if([communicator](std::uint64_t id) { return id == communicator; }).second;
    }
    // The next line whose communicator is such a one, and its peer; -1: none.
    template <class Is>
    std::pair<std::uint64_t, int> take_if(Is&& is) {
        if (count_.load(memory_order::acquire) == 0) return {0, -1};
        const lock_held here(lock_);
        for (auto& a : all_) {
            if (!is(a.first)) continue;
            const auto taken = a;
            all_.erase(&a);
            count_.store(all_.size(), memory_order::release);
            return taken;
        }
        return {0, -1};
    }
    // True once after lines have come.
    bool has_new() { return is_new_.load(memory_order::relaxed) && is_new_.exchange(false, memory_order::acq_rel); }

private:
    yielding_lock lock_;
    growing_array<std::pair<std::uint64_t, int>> all_;
    atomic<std::size_t> count_{0};
    atomic<bool> is_new_{false};
};

// The lines of one trunk. A line exists from the first word of either end to the last word of both.
class trunk_lines {
public:
    trunk_lines(mutual_help& helpers, trunk_arrivals& arrivals, int peer)
        : helpers_(&helpers), arrivals_(&arrivals), peer_(peer) {}

    trunk_line& claim(std::uint64_t communicator, std::uint64_t name) {
        trunk_line* l = find(communicator);
        if (l == nullptr) l = &make(communicator);
        l->name = name;
        l->has_end = true;
        return *l;
    }
    // The line that the peer names; made if it is not there.
    trunk_line& of(std::uint64_t communicator) {
        if (trunk_line* l = find(communicator)) return *l;
        trunk_line& made = make(communicator);
        arrivals_->add(communicator, peer_);
        return made;
    }
    void hear_end(std::uint64_t communicator) {
        trunk_line& l = of(communicator);
        l.peer_has_closed = true;
        if (l.has_closed) erase(l);
        else tell(l);
    }
    void close(trunk_line& l, bool is_lost) {
        l.has_end = false;
        l.has_closed = true;
        l.inbox = growing_array<std::byte>();
        l.inbox_at = 0;
        if (l.peer_has_closed || is_lost) erase(l);
    }
    // False when there is no memory for it.
    bool post(trunk_line& l, const std::byte* from, std::size_t bytes) {
        if (l.has_closed) return true;
        try {
            if (l.inbox_at > l.inbox.size() / 2) {
                l.inbox = {l.inbox.data() + l.inbox_at, l.inbox.end()};
                l.inbox_at = 0;
            }
            l.inbox.append(from, bytes);
        } catch (const std::bad_alloc&) {
            return false;
        }
        tell(l);
        return true;
    }
    void tell_all() {
        for (auto& l : all_) tell(*l);
    }

private:
    void tell(trunk_line& l) {
        if (!l.has_news.exchange(true, memory_order::acq_rel) && l.has_end) helpers_->note(l.name);
    }
    trunk_line* find(std::uint64_t communicator) {
        if (last_ < ids_.size() && ids_[last_] == communicator) return all_[last_].get();
        for (std::size_t i = 0; i < ids_.size(); ++i)
            if (ids_[i] == communicator) {
                last_ = i;
                return all_[i].get();
            }
        return nullptr;
    }
    trunk_line& make(std::uint64_t communicator) {
        ids_.reserve(ids_.size() + 1);
        all_.push_back(make_sole<trunk_line>());
        ids_.push_back(communicator);
        all_.back()->communicator = communicator;
        return *all_.back();
    }
    void erase(trunk_line& l) {
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            if (all_[i].get() != &l) continue;
            ids_[i] = ids_.back();
            all_[i] = std::move(all_.back());
            ids_.pop_back();
            all_.pop_back();
            return;
        }
    }

    mutual_help* helpers_;
    trunk_arrivals* arrivals_;
    int peer_;
    std::size_t last_ = 0;
    growing_array<std::uint64_t> ids_;
    growing_array<sole_ptr<trunk_line>> all_; // in the same order
};

} // namespace detail

COLLX_END_NAMESPACE
