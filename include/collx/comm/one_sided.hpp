// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window of bytes: memory of each rank that all others write, read and combine into while its rank makes no call,
// and signals that say when. Ranks of one host store and load directly, ranks of other hosts are sent messages
// (remote_window.hpp). The typed front is window.hpp; this part is compiled once (docs/windows.md).
//
// A signal is a number in a line that only its sender writes, so a wait is one line transfer. A short put with a
// signal travels in that line, and the target stores it when it takes the signal: two lines would take twice as long.
// The line of the other direction says which put has been stored, so the sender knows without an extra transfer
// whether the next put may travel like that.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/call/short_calls.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/comm/split.hpp>
#include <collx/comm/window_operator.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The signals from one rank to one other: one cache line, aligned to two, because processors fetch lines in pairs.
struct alignas(2 * cache_line_bytes) window_line {
    static constexpr std::size_t carried_bytes = 32;
    atomic<std::uint64_t> word;   // signals given so far (release); read by the other rank (acquire)
    atomic<std::uint64_t> stored; // the signal of the other direction whose carried put has been stored (release)
    atomic<std::uint64_t> number; // of the signal that the payload came with; complete once word has reached it
    std::uint64_t place;          // offset in the part << 8 | bytes
    std::byte payload[carried_bytes];
};
// The lock of a rank's part, for elements that no single instruction combines. holder: 0, or a rank of the window + 1.
struct alignas(2 * cache_line_bytes) window_lock {
    atomic<std::uint32_t> holder;
};
// Gives a lock back at its end; null: there is none.
struct held_window_lock {
    window_lock* lock;
    ~held_window_lock() {
        if (lock != nullptr) lock->holder.store(0, memory_order::release);
    }
};

// The part that a rank brings. data: the program's memory; null: collx allocates it.
struct window_part {
    void* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t elem_bytes = 1, type = 0; // type: see type_hash
    name_view type_name{};
};

// What this rank knows of one rank.
struct window_peer {
    std::byte* at = nullptr; // its part, as this process sees it; null: on another host
    std::uint64_t bytes = 0;
    window_line *to = nullptr, *from = nullptr; // to: null on another host
    window_lock* lock = nullptr;
    std::uint64_t given = 0, taken = 0;    // signals to it; signals from it that were waited for
    std::uint64_t carried = 0, stored = 0; // the last signal to it with a put; the last from it whose put is stored
    failure_watch::looking look;           // of a test() that finds too few signals,
    std::uint64_t look_taken = 0;          // when this many were taken
};

class remote_window;

class one_sided {
public:
    // Collective. Errors: mismatch naming the first rank whose elements differ from those of rank 0 · unsupported
    // naming the first rank whose memory the ranks of its host cannot reach · resource.
    one_sided(communicator& base, const window_part& mine);
    // Local. Waits until the system has everything that this rank sends to other hosts, at most for the time limit.
    ~one_sided();
    one_sided(const one_sided&) = delete;

    communicator_core& core() const { return *core_; }
    communicator& own() { return own_; }
    const window_peer& peer(int rank) const { return peers_[rank]; }
    int rank() const { return rank_; }
    int ranks() const { return static_cast<int>(peers_.size()); }
    std::uint64_t elem_bytes() const { return elem_bytes_; }
    // See type_hash.
    std::uint64_t elem_type() const { return elem_type_; }

    // Offsets and sizes are bytes of the peer's part. what: for the errors.
    void put(int peer, std::size_t at, const void* from, std::size_t bytes, bool signals);
    void get(int peer, std::size_t at, void* to, std::size_t bytes);
    // old: null, or receives the previous element.
    void combine(int peer, std::size_t at, const void* from, std::size_t elems, const combination& how, void* old);
    void signal(int peer);
    void wait(int peer, std::uint64_t count, std::int64_t timeout_ns);
    bool test(int peer, std::uint64_t count);
    void flush(int peer);
    void flush();
    void fence(std::int64_t timeout_ns);
    void progress();
    // The part of a rank of this host. Errors: unsupported naming the rank.
    std::byte* shared_part(int peer);

    // Tries to take the lock of this rank's part, for incoming messages.
    bool try_lock() { return try_lock(peers_[rank_]); }
    window_peer& peer(int rank) { return peers_[rank]; }

private:
    struct said; // what a rank says of its part to all others
    // Begins each call: refuses a second caller, and throws if the window has ended.
    class entry {
    public:
        explicit entry(one_sided& w) : call_(w.core().caller, w.rank_) { w.require_alive(); }

    private:
        one_caller::call call_;
    };
    void lay_out(const said* all);
    void end_remote() noexcept;
    void require_alive();
    window_peer& require_peer(int peer);
    std::uint64_t require_count(int peer, std::uint64_t count) const;
    window_peer& require_inside(const char* what, int peer, std::size_t at, std::size_t bytes);
    [[noreturn]] void refuse_place(const char* what, int peer, std::size_t at, std::size_t bytes) const;
    [[noreturn]] void explain_late(const error& e, int peer, std::uint64_t want) const;
    bool try_lock(window_peer& p);
    void lock(window_peer& p);
    void carry(window_peer& p, std::size_t at, const void* from, std::size_t bytes);
    void store_carried(window_peer& p, std::uint64_t seen);
    // Called where a call finds everything in shared memory: other hosts are answered in waits, and it does not wait.
    void serve_others() {
        if (remote_ && ++near_calls_ % 32 == 0) core().progress_or_move();
    }
    void wait_for_signal(window_peer& p, int peer, std::uint64_t want, std::int64_t timeout_ns);

    communicator own_;
    communicator_core* core_;
    counted_ptr<communicator_end> base_end_;
    int rank_;
    std::uint64_t elem_bytes_, elem_type_;
    growing_array<window_peer> peers_;
    window_line* remote_lines_ = nullptr; // of signals from other hosts, in memory of this process
    counted_ptr<remote_window> remote_;   // null: all ranks are on this host
    bool has_carried_ = false;            // since the last fence
    unsigned near_calls_ = 0;             // where some ranks are remote
};

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/one_sided_once.hpp>
#endif
