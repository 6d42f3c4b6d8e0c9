// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stream whose messages go by verbs, as far as that goes: what comes off the queue pair, and what its end means for
// the stream. Only for stream.hpp; who says what before is in verbs_path.hpp.
#pragma once

#include <cstring>

#include <collx/transport/detail/stream_receiving.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_by_verbs : public stream_receiving {
protected:
    using stream_receiving::stream_receiving;

    // A look at the socket is a system call, so it is rare where messages come by verbs.
    bool is_time_for_socket() { return !verbs_ || !verbs_->receives() || (++looks_ & 15) == 0; }

    bool move_verbs() {
        if (!is_live()) return false;
        const bool moved = verbs_->move([this](int p) { count_sent(p); },
                                        [this](const stream_frame& f, const std::byte* payload, std::size_t bytes) {
                                            return take_by_verbs(f, payload, bytes);
                                        });
        if (verbs_->is_nonsense()) return is_nonsense_ = true, end(), true;
        if (verbs_->has_broken()) return end_by_verbs();
        if (is_ending_) end();
        return moved;
    }

private:
    bool take_by_verbs(const stream_frame& f, const std::byte* payload, std::size_t bytes) {
        if (f.magic != stream_frame::magic_value || !read_taken(f)) return false;
        if (f.what == kind::credit) return bytes == 0;
        stream_incoming& i = in_[f.at_port];
        const bool is_short = f.bytes <= slot_header::inline_bytes;
        if (f.what != kind::message || f.bytes > memory_.shape().slot_bytes || bytes != (is_short ? f.bytes : 0) ||
            i.put - memory_.taken(f.at_port) >= static_cast<std::uint64_t>(memory_.shape().depth))
            return false;
        heard_ |= 1u << f.at_port;
        const auto memory = memory_.rx(f.at_port);
        slot_header& slot = memory.slot(i.put);
        slot.bytes = f.bytes;
        slot.tag = f.tag;
        if (is_short) std::memcpy(slot.payload, payload, bytes);
        else memory.take_fixed_place(i.put);
        deliver(f.at_port, i.put++);
        return true;
    }
    // The queue pair has failed with messages under way. Who died or gave up may have said so over the socket.
    [[gnu::cold]] bool end_by_verbs() {
        const bool moved = receive();
        if (!is_live() || is_held_ || has_more_) return moved;
        return end(), true;
    }
};

} // namespace detail

COLLX_END_NAMESPACE
