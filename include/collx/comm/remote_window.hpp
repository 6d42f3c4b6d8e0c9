// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of a window between hosts: puts, gets and combinations as messages, and their answers. It is an operation
// that never ends, so whatever advances the window's communicator serves other ranks: each wait in a call of the
// window, progress(), the progress thread. So do waits in calls of the communicator that the window was made of, and
// of its other windows: the rank that this rank waits for there may wait for an answer of this window.
//
//   origin → target (port messages)     head, with the bytes if they are few; else the bytes, a slot each, from where
//                                       they lie to where they belong. A short put waits in its slot for the signal
//                                       that may follow, which then is a bit of its head
//   target → origin (port first_async)  what get() asked for, the element that was there, an empty answer to flush()
//
// Both directions are channels, in order: a signal comes after the puts before it. An origin waits for each answer, so
// a target owes each origin at most one.
//
// Where both ranks have a device for RDMA, longer puts and all gets go by it (remote_transfers.hpp), without an
// answer. The device executes them in order with messages that are sent later. It may overtake messages that were sent
// before, because a processor takes these. So it is used only when no message with data is unanswered, or after a
// flush.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/comm/window_operator.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/exec/operation.hpp>
#include <collx/job/call_end.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class one_sided;
class remote_transfers;

// The head of a message.
struct window_head {
    enum : std::uint32_t { put, get, combine, flush };
    std::uint32_t what;
    std::uint32_t signals; // put: 1 if a signal comes with it. combine: 1 if the previous element is wanted
    std::uint64_t at, bytes;
    std::uint64_t kind, distance; // combine: see window_operator
};

class remote_window final : public operation, public moved_beside {
public:
    // base: the communicator whose waits serve this window, too.
    remote_window(one_sided& w, communicator_core& base, counted_ptr<communicator_end> end);
    ~remote_window() override;
    // Ranks exchange what their devices may reach. Collective.
    void show_part();
    // For the origin, in a call. Requires: ranks of other hosts, checked places.
    void put(int peer, std::uint64_t at, const void* from, std::size_t bytes, bool signals);
    void get(int peer, std::uint64_t at, void* to, std::size_t bytes);
    void combine(int peer, std::uint64_t at, const void* from, std::size_t elems, const combination& how, void* old);
    void flush(int peer, std::int64_t timeout_ns);
    void flush_all(const call_end& end);
    // At the end: waits until the system has what was sent.
    void leave() noexcept;

    // For the target: serves the messages of other ranks.
    task_state advance() override;
    bool move_beside() override;

private:
    // The state for each rank; not used for ranks of this host.
    struct other {
        bool is_flushed = true;    // nothing was sent since the last answer to flush()
        bool has_data = false;     // something that changes the part was sent since the last answer
        std::byte* open = nullptr; // the head of a short put that is not committed yet
        std::size_t open_bytes = 0;
        std::byte* to = nullptr;         // where the rest of a large put goes
        std::uint64_t left = 0;          // bytes of it that have not arrived
        bool signals = false;            // a signal comes after it
        const std::byte* from = nullptr; // the data of an answer that is not sent yet
        std::uint64_t owed = 0;
        bool owes = false;
        growing_array<std::byte> old; // the previous element, if the origin of a combination wants it
    };
    static constexpr int messages_in_a_row = 32;
    static constexpr std::uint32_t head_tag = 0x77'69'6e'64, part_tag = 0x77'69'6e'70, answer_tag = 0x77'69'6e'61;

    std::size_t slot_bytes() const { return core_.net.slot_bytes(); }
    // Shorter puts go in one message with their head, which costs a copy here and one there. Longer puts arrive in a
    // pre-posted buffer.
    std::size_t least_posted_bytes() const {
        const std::size_t most = slot_bytes() - sizeof(window_head);
        return most < 128 * 1024 ? most : 128 * 1024;
    }
    // The shortest put that goes by RDMA. Shorter ones go with their signal in one message, for which nothing waits.
    static constexpr std::size_t least_direct_bytes = 4096;
    // Whether a put or get may go by RDMA now. flushes: waits for answers to the messages that it would overtake.
    bool goes_directly(int peer, bool flushes);
    void commit_open(int peer, bool signals);
    void send_head(int peer, const window_head& h, const void* with, std::size_t bytes, std::int64_t timeout_ns = 0);
    void send_parts(int peer, const std::byte* from, std::size_t bytes);
    void receive_answer(int peer, void* to, std::size_t bytes, std::int64_t timeout_ns = 0);

    task_state serve(int peer, other& o);
    // The outcome for a message: taken, not yet (a lock is held), or refused, as no origin may send it.
    enum class served { yes, not_yet, refused };
    served take_head(int peer, other& o, const std::byte* message, std::size_t bytes);
    served combine_own(const window_head& h, other& o, const std::byte* with, std::size_t rest);
    served take_part(int peer, other& o, receiving_end& rx);
    bool answer(int peer, other& o);
    void owe(other& o, const std::byte* from, std::uint64_t bytes);
    void give_signal(int peer);

    void move_base();

    one_sided& window_;
    communicator_core &core_, &base_;
    counted_ptr<communicator_end> base_end_; // base_ exists until this has come
    growing_array<other> others_;
    sole_ptr<remote_transfers> transfers_; // null: this rank has no device
};

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/remote_window_once.hpp>
#endif
