// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator holds of a transport: the channels to every peer, a place to make windows, and the news of
// failures. This is the model for ranks that share an arena, threads (memory) and processes (shm) alike.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <collx/core/error.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/window.hpp>

COLLX_BEGIN_NAMESPACE

// What ended a communicator: errc + 1 in the upper half (0: nothing), the guilty rank + 1 in the lower.
struct failure {
    std::uint64_t word = 0;
    constexpr failure() = default;
    constexpr explicit failure(std::uint64_t w) : word(w) {}
    constexpr failure(errc code, int rank)
        : word((static_cast<std::uint64_t>(code) + 1) << 32 |
               static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank + 1))) {}
    constexpr explicit operator bool() const { return word != 0; }
    constexpr errc code() const { return static_cast<errc>((word >> 32) - 1); }
    constexpr int rank() const { return static_cast<int>(word & 0xffff'ffff) - 1; }
};

// Ports keep traffic apart that may be under way at the same time: blocking calls, a few outstanding calls, messages
// between two ranks.
namespace port {
inline constexpr int blocking = 0;
inline constexpr int first_async = 1;
inline constexpr int async_ports = 3;
inline constexpr int messages = 4;
inline constexpr int count = 5;
} // namespace port

// One rank's part in the end of a communicator: whether its share of the memory is given up, and what it proposes to be
// the communicator of the survivors (comm/shrink.hpp).
struct alignas(cache_line_bytes) survival_note {
    std::atomic<std::uint32_t> gave_up; // exchanged to 1 once, by its rank or, when that is dead, by a survivor
    std::atomic<std::uint32_t> round;   // of shrinking, that it takes part in; written by its rank, read by all
    std::uint64_t place;                // proposed; written by its rank before `decided`, like the members
    std::uint64_t members[max_local_ranks / 64];
};

// Address map of one communicator inside the arena, the same on all ranks by construction.
struct links_layout {
    int ranks = 1;
    channel_shape channel{};

    static constexpr links_layout for_ranks(int n) {
        links_layout l;
        l.ranks = n;
        // What a rank sends to all others together goes round rings of 2 MiB, as in windows; a single peer has them
        // for itself.
        while (l.channel.slot_bytes > 16 * 1024 &&
               l.channel.slot_bytes * static_cast<std::size_t>(l.channel.depth) * static_cast<std::size_t>(n - 1) >
                   (std::size_t{2} << 20))
            l.channel.slot_bytes /= 2;
        return l;
    }
    constexpr std::size_t control_bytes() const {
        return page_bytes +
               round_up(notes_offset() + static_cast<std::size_t>(ranks) * sizeof(survival_note), page_bytes);
    }
    // Behind the first page: a word per rank that says whom it waits for, then the notes.
    constexpr std::size_t notes_offset() const {
        return round_up(static_cast<std::size_t>(ranks) * sizeof(std::uint64_t), cache_line_bytes);
    }
    constexpr std::size_t channels_bytes() const {
        return static_cast<std::size_t>(port::count) * static_cast<std::size_t>(ranks) *
               static_cast<std::size_t>(ranks) * channel.bytes();
    }
    // Room for a window of each collective on each port, up to 256 ranks.
    constexpr std::size_t windows_bytes() const {
        return static_cast<std::size_t>(ranks > 8 ? ranks : 8) * (std::size_t{128} << 20);
    }
    constexpr std::size_t bytes() const { return control_bytes() + channels_bytes() + windows_bytes(); }
    constexpr std::size_t channel_offset(int at_port, int from, int to) const {
        return control_bytes() + static_cast<std::size_t>((at_port * ranks + from) * ranks + to) * channel.bytes();
    }
};

struct links_control {
    std::atomic<std::uint64_t> failed;              // written once by whoever notices first; read by all waits
    alignas(64) std::atomic<std::int32_t> users;    // ranks that still hold this communicator
    alignas(64) std::atomic<std::int32_t> attached; // ranks that have begun to use it
    std::atomic<std::uint64_t> decided; // round of shrinking << 32 | rank whose proposal holds + 1; once a round
};

// What a rank that waits says of itself from time to time, so that who loses patience can name the rank at the end of
// the chain and not just its neighbour. When (in units of 2^16 ns) in the upper 48 bits, rank it waits for + 1 in the
// lower 16. Not taken back when the wait ends: an old word says nothing.
struct waiting_word {
    std::uint64_t word = 0;
    waiting_word() = default;
    explicit waiting_word(std::uint64_t w) : word(w) {}
    waiting_word(std::int64_t now, int peer)
        : word(static_cast<std::uint64_t>(now) >> 16 << 16 | static_cast<std::uint64_t>(peer < 0 ? 0 : peer + 1)) {}
    std::int64_t said_at_ns() const { return static_cast<std::int64_t>(word >> 16 << 16); }
    int peer() const { return static_cast<int>(word & 0xffff) - 1; }
};

class links {
public:
    links(arena& a, std::uint64_t offset, int rank, int n)
        : arena_(&a), base_(a.at(offset)), layout_(links_layout::for_ranks(n)), rank_(rank),
          next_window_(layout_.control_bytes() + layout_.channels_bytes()) {
        const auto ends = static_cast<std::size_t>(port::count) * static_cast<std::size_t>(n);
        sending_.resize(ends);
        receiving_.resize(ends);
        reserve(0, layout_.control_bytes());
    }

    int rank() const { return rank_; }
    int size() const { return layout_.ranks; }
    arena& memory() const { return *arena_; }
    std::size_t slot_bytes() const { return layout_.channel.slot_bytes; }
    int slot_depth() const { return layout_.channel.depth; }

    // The channel to a peer. Its memory is taken at first use.
    sending_end& tx(int at_port, int peer) {
        auto& end = sending_[static_cast<std::size_t>(at_port * size() + peer)];
        if (!end.is_open()) {
            const auto at = layout_.channel_offset(at_port, rank_, peer);
            reserve(at, layout_.channel.bytes());
            end = sending_end(base_ + at, layout_.channel);
            if (may_lend()) end.offer_to_lend(lending_);
        }
        return end;
    }
    receiving_end& rx(int at_port, int peer) {
        auto& end = receiving_[static_cast<std::size_t>(at_port * size() + peer)];
        if (!end.is_open()) end = receiving_end(base_ + layout_.channel_offset(at_port, peer, rank_), layout_.channel);
        return end;
    }

    // A new window. Collective: ranks create windows in the same order, so they agree on the place without a word.
    window_memory make_window(const window_shape& shape) {
        const std::size_t bytes = shape.bytes_per_rank() * static_cast<std::size_t>(size());
        if (next_window_ + bytes > layout_.bytes())
            fail(errc::resource, rank_, -1, "use fewer different policies on one communicator",
                 "no room for another window of %zu bytes", bytes);
        const std::size_t at = next_window_;
        next_window_ += bytes;
        reserve(at + static_cast<std::size_t>(rank_) * shape.bytes_per_rank(), shape.bytes_per_rank());
        return window_memory(base_ + at, shape);
    }

    // Cross-memory attach: reading a peer's private memory. Ranks that are threads share an address space and need no
    // permission.
    void set_processes(std::vector<int> pid_of_rank, lending lend = lending::automatic) {
        pids_ = std::move(pid_of_rank);
        lending_ = lend;
    }
    // Threads would have to be sure that a peer which gave up does not free what they read.
    bool may_lend() const { return !pids_.empty() && lending_ != lending::never; }
    // False where the kernel refuses (errno says why).
    bool read_private(int peer, void* to, std::uint64_t address, std::size_t bytes) const {
        if (pids_.empty()) return std::memcpy(to, reinterpret_cast<const void*>(address), bytes), true;
        while (bytes != 0) {
            const iovec local{to, bytes}, there{reinterpret_cast<void*>(address), bytes};
            const ssize_t got = ::process_vm_readv(pids_[static_cast<std::size_t>(peer)], &local, 1, &there, 1, 0);
            if (got <= 0) return false;
            to = static_cast<std::byte*>(to) + got, address += static_cast<std::uint64_t>(got),
            bytes -= static_cast<std::size_t>(got);
        }
        return true;
    }

    // Called when a large message is taken: finds out, once per peer, whether messages may be lent.
    void ask_to_borrow(receiving_end& rx, int peer) const {
        if (rx.knows_lending || !may_lend()) return;
        rx.knows_lending = true;
        std::uint64_t proof = 0;
        if (const std::uint64_t at = rx.proof_at(); at != 0 && read_private(peer, &proof, at, sizeof proof))
            if (proof == detail::proof_of_reading) rx.say_can_borrow();
    }

    links_control& control() const { return *reinterpret_cast<links_control*>(base_); }
    failure failed() const { return failure(control().failed.load(std::memory_order_acquire)); }
    void say_waiting(waiting_word w) { waiting_at(rank_).store(w.word, std::memory_order_relaxed); }
    waiting_word waiting(int of_rank) const {
        return waiting_word(waiting_at(of_rank).load(std::memory_order_relaxed));
    }

    // The first failure wins; everybody reports that one.
    void report(failure f) {
        std::uint64_t none = 0;
        control().failed.compare_exchange_strong(none, f.word, std::memory_order_acq_rel);
    }

    survival_note& note(int of_rank) const {
        return reinterpret_cast<survival_note*>(base_ + page_bytes + layout_.notes_offset())[of_rank];
    }
    // Gives up one rank's share of this memory: its own at the end, or that of a dead rank while the own is still held.
    // True for the last share: nobody uses the memory any more.
    bool give_up_share(int of_rank) const {
        if (note(of_rank).gave_up.exchange(1, std::memory_order_acq_rel) != 0) return false;
        return control().users.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    struct traffic {
        std::uint64_t messages = 0, bytes = 0;
    };
    // What this rank has sent through channels so far.
    traffic sent() const {
        traffic t;
        for (const auto& end : sending_) t.messages += end.messages, t.bytes += end.payload_bytes;
        return t;
    }

private:
    // The others wait for what this rank would have done with the memory: they must hear that it has none.
    void reserve(std::size_t at, std::size_t bytes) {
        try {
            arena_->reserve(arena_->offset_of(base_) + at, bytes);
        } catch (const error& e) {
            report(failure(e.code(), rank_));
            throw;
        }
    }
    std::atomic<std::uint64_t>& waiting_at(int of_rank) const {
        return reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + page_bytes)[of_rank];
    }

    arena* arena_;
    std::byte* base_;
    links_layout layout_;
    int rank_;
    std::size_t next_window_;
    std::vector<sending_end> sending_;
    std::vector<receiving_end> receiving_;
    std::vector<int> pids_; // empty: threads
    lending lending_ = lending::automatic;
};

COLLX_END_NAMESPACE
