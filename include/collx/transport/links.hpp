// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transports of one communicator: channels to every peer, memory for windows, and the notification of failures.
// Ranks of one host share an arena, as threads (memory) or as processes (shm). Channels to ranks of other hosts are
// streams (remote_ranks.hpp). The kind of channel to a peer is decided at its first use; to a task both look alike.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/sched/node_map.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/failure.hpp>
#include <collx/transport/links_layout.hpp>
#include <collx/transport/remote_ranks.hpp>
#include <collx/transport/window.hpp>

COLLX_BEGIN_NAMESPACE

class links {
public:
    links(arena& a, std::uint64_t offset, int rank, int n)
        : links(a, offset, rank, n, links_layout::for_ranks(n), {}, node_map(nullptr, 0), nullptr) {}
    // For a communicator that spans hosts. places: rank -> its place among the ranks that share the arena, -1:
    // elsewhere. hosts: where all of its ranks are.
    links(arena& a, std::uint64_t offset, int rank, int n, const links_layout& layout,
          detail::growing_array<int> places, node_map hosts, sole_ptr<remote_ranks> remote)
        : arena_(&a), base_(a.at(offset)), layout_(layout), rank_(rank), size_(n), places_(std::move(places)),
          hosts_(std::move(hosts)), remote_(std::move(remote)) {
        reserve(arena_->offset_of(base_), layout_.bytes());
        if (remote_) remote_->begin(control().failed, waits());
    }

    int rank() const { return rank_; }
    int size() const { return size_; }
    const links_layout& layout() const { return layout_; }
    // All ranks of a communicator pass the same, before the first message: channels are taken at their first use.
    void share_cores(int ranks_per_core) {
        if (is_one_host()) layout_.channel = links_layout::for_ranks(size_, ranks_per_core).channel;
    }
    bool is_one_host() const { return remote_ == nullptr; }
    bool is_here(int peer) const { return places_.empty() || places_[peer] >= 0; }
    // The hosts of a communicator that spans several, if some host has several of its ranks; otherwise null.
    const node_map* crowded_hosts() const {
        const node_view at = hosts_;
        return at.nodes() > 1 && at.largest() > 1 ? &hosts_ : nullptr;
    }
    arena& memory() const { return *arena_; }
    // One shape for all peers.
    const channel_shape& channels() const { return layout_.channel; }
    std::size_t slot_bytes() const { return layout_.channel.slot_bytes; }

    // The channel to a peer. Its memory is taken, and its kind chosen, at first use.
    sending_end& tx(int at_port, int peer) {
        auto& ends = sending_[at_port];
        if (ends.empty()) [[unlikely]]
            ends.resize(static_cast<std::size_t>(size_));
        auto& end = ends[peer];
        if (!end.is_open()) end = open_tx(at_port, peer);
        return end;
    }
    receiving_end& rx(int at_port, int peer) {
        auto& ends = receiving_[at_port];
        if (ends.empty()) [[unlikely]]
            ends.resize(static_cast<std::size_t>(size_));
        auto& end = ends[peer];
        if (!end.is_open()) end = open_rx(at_port, peer);
        return end;
    }

    // A message that ended the communicator, because its receiver expected another one.
    failure refuse(const odd_message& m) {
        odd_ = m;
        return failure(errc::mismatch, m.peer);
    }
    failure refuse(const receiving_end& rx, int peer, std::size_t expected_bytes) {
        return refuse({peer, rx.message_bytes(), expected_bytes, expected_bytes});
    }
    const odd_message& refused() const { return odd_; }

    // ------------------------------------------------------------------ ranks on other hosts
    // Advances messages to and from these ranks. True if anything moved. Called wherever a rank waits.
    bool move() {
        if (remote_ == nullptr) return false;
        const bool moved = remote_->move();
        return (beside_ != nullptr && move_beside()) || moved;
    }
    // The same without the moved_beside objects. Any thread may call it, also while another is in a call.
    bool move_remote() { return remote_ != nullptr && remote_->move(); }
    // Makes each move() move `b`, too.
    void add_beside(moved_beside* b) {
        b->next = beside_;
        beside_ = b;
    }
    void remove_beside(const moved_beside* b) noexcept {
        moved_beside** at = &beside_;
        while (*at != nullptr && *at != b) at = &(*at)->next;
        if (*at != nullptr) *at = b->next;
    }
    // Sends what is ready for one peer. Requires: the peer is on another host.
    void push(int peer) { remote_->push(peer); }
    remote_ranks* remote() const { return remote_.get(); }
    // Notifies the other hosts of the failure that is known here: see remote_ranks.
    void announce_failure(bool is_young = false) {
        if (remote_) remote_->announce_failure(is_young);
    }
    // Makes a window. Collective: ranks make windows in the same order, so they agree on the place without a message.
    [[gnu::cold]] window_memory make_window(const window_shape& shape) {
        if (remote_)
            fail(errc::unsupported, rank_, -1,
                 "bind an algorithm over channels (ring, recursive_doubling, binomial, ...) or let the library choose",
                 "the bound algorithm needs a window, and the ranks are on several hosts");
        const std::size_t each = shape.bytes_per_rank();
        const std::size_t all = each * static_cast<std::size_t>(size());
        return window_memory(make_piece(all, static_cast<std::size_t>(rank_) * each, each), shape);
    }
    // The same for any memory of the ranks of this host: `bytes`, zero at first. This rank reserves the pages of a
    // part.
    [[gnu::cold]] std::byte* make_piece(std::size_t bytes, std::size_t own_at, std::size_t own_bytes) {
        if (windows_made_ == links_places::max_windows)
            fail(errc::resource, rank_, -1, "use fewer different policies on one communicator",
                 "a communicator has %d windows at most", links_places::max_windows);
        const std::uint64_t at = take_once(places().windows[windows_made_], bytes);
        ++windows_made_;
        reserve(at + own_at, own_bytes, true);
        return arena_->at(at);
    }

    // Cross-memory attach: reading a peer's private memory. Ranks that are threads share an address space and need no
    // permission.
    void set_processes(detail::growing_array<int> pid_of_rank,
                       single_copy_mode single_copy = single_copy_mode::automatic) {
        pids_ = std::move(pid_of_rank);
        single_copy_ = single_copy;
    }
    // Not between threads: they would have to be sure that a peer which gave up does not free what they read.
    bool may_single_copy() const { return !pids_.empty() && single_copy_ != single_copy_mode::never; }
    // False where the kernel refuses (errno says why).
    bool read_private(int peer, void* to, std::uint64_t address, std::size_t bytes) const {
        if (pids_.empty()) {
            copy_bytes(to, reinterpret_cast<const void*>(address), bytes);
            return true;
        }
        if (bytes >= detail::least_aliased_bytes && detail::are_page_aliases(to, reinterpret_cast<void*>(address)))
            return read_aliased(peer, static_cast<std::byte*>(to), address, bytes);
        while (bytes != 0) {
            const iovec local{to, bytes}, there{reinterpret_cast<void*>(address), bytes};
            const ssize_t got = ::process_vm_readv(pids_[peer], &local, 1, &there, 1, 0);
            if (got <= 0) return false;
            to = static_cast<std::byte*>(to) + got;
            address += static_cast<std::uint64_t>(got);
            bytes -= static_cast<std::size_t>(got);
        }
        return true;
    }

    // Finds out, once per peer, whether single copies work. Called when a large message is taken.
    void find_out_reading(receiving_end& rx, int peer) const {
        if (rx.knows_reading || !may_single_copy()) return;
        rx.knows_reading = true;
        std::uint64_t proof = 0;
        if (const std::uint64_t at = rx.proof_at(); at != 0 && read_private(peer, &proof, at, sizeof proof))
            if (proof == detail::proof_of_reading) rx.say_can_read();
    }

    links_control& control() const { return fixed().control; }
    failure failed() const { return failure(control().failed.load(memory_order::acquire)); }
    // The last waiting words of all ranks; those of other hosts as far as this host has received them.
    waiting_words waits() const {
        return {reinterpret_cast<atomic<std::uint64_t>*>(base_ + links_layout::fixed_bytes()), size_};
    }
    // From here on this rank makes no more calls: others of its host that wait for it wait in vain. To other hosts it
    // says goodbye, behind its last messages.
    void say_end() { waits().say_end(rank_); }
    bool has_said_end(int r) const { return waits().of(r).is_end(); }
    void say_waiting(std::int64_t now, std::int64_t limit_ns, awaited a) {
        if (!waits().of(rank_).is_end()) waits().say(rank_, waiting_word(now, a));
        if (remote_ == nullptr || now - told_at_ns_ < waiting_word::pause_ns(limit_ns)) return;
        told_at_ns_ = now;
        remote_->say_waiting();
    }
    chain_end find_late(std::int64_t now, std::int64_t limit_ns, awaited a) const {
        return follow_chain(waits(), rank_, a, now, waiting_word::fresh_ns(limit_ns),
                            remote_ == nullptr ? 0 : waiting_word::pause_ns(limit_ns));
    }

    // All ranks have begun to use this communicator. Failures from here on are those of calls.
    void note_all_came() { control().failed.fetch_or(failure::all_came_bit, memory_order::acq_rel); }
    // The first failure wins; all ranks report that one.
    void report(failure f) {
        report_in(control().failed, f);
        if (remote_) remote_->settle();
    }

    // In a zero-copy call a rank reads and writes the buffers of its peers. After a failure their programs have these
    // back and use them for something else. So a rank is in them only while one of these exists and is not refused;
    // a rank whose call has failed gives its buffers back when no peer is in them (communicator_core). Each of the two
    // stores its own word before it loads the other's, so that at least one sees the other.
    class in_buffers {
    public:
        explicit in_buffers(const links* l) : word_(l != nullptr ? &l->note(l->rank()).is_in_buffers : nullptr) {
            if (word_ == nullptr) return; // not a zero-copy call
            word_->store(1, memory_order::seq_cst);
            refused = failure(l->control().failed.load(memory_order::seq_cst));
            if (refused) leave(); // it may wait for others now, which are refused, too
        }
        in_buffers(const in_buffers&) = delete;
        ~in_buffers() {
            if (word_ != nullptr) leave();
        }
        failure refused; // what has ended the communicator, if anything

    private:
        void leave() { word_->store(0, memory_order::release); }
        atomic<std::uint32_t>* word_;
    };
    // Requires: all ranks are on this host.
    bool is_in_buffers(int peer) const { return note(peer).is_in_buffers.load(memory_order::seq_cst) != 0; }

    survival_note& note(int of_rank) const {
        return reinterpret_cast<survival_note*>(base_ + links_layout::fixed_bytes() +
                                                layout_.notes_offset())[place_of(of_rank)];
    }
    // Gives up the share of one rank in this memory: this rank's own at the end, or that of a dead rank while this rank
    // still holds its own. True for the last share: the memory is not in use any more.
    bool give_up_share(int of_rank) const {
        if (!is_here(of_rank) || note(of_rank).gave_up.exchange(1, memory_order::acq_rel) != 0) return false;
        return control().users.fetch_sub(1, memory_order::acq_rel) == 1;
    }

    // Gives all memory of the communicator back to the arena. Called by the owner of the last share.
    void give_back_memory() noexcept {
        arena_->give_back(places().room);
        arena_->give_back(arena_->offset_of(base_), layout_.bytes());
    }
    // Address space that the communicator holds at present.
    std::size_t arena_bytes() const { return layout_.bytes() + places().room.bytes(); }

    struct traffic {
        std::uint64_t messages = 0, bytes = 0;                         // through channels
        std::uint64_t window_bytes_written = 0, window_bytes_read = 0; // in windows and in other ranks' buffers

        traffic& operator+=(const traffic& o) {
            messages += o.messages;
            bytes += o.bytes;
            window_bytes_written += o.window_bytes_written;
            window_bytes_read += o.window_bytes_read;
            return *this;
        }
    };
    // What this rank has sent through channels so far.
    traffic sent() const {
        traffic t;
        for (const auto& ends : sending_)
            for (const auto& end : ends) {
                t.messages += end.messages;
                t.bytes += end.payload_bytes;
            }
        return t;
    }
    // The same, to one peer.
    traffic sent_to(int peer) const {
        traffic t;
        for (const auto& ends : sending_) {
            if (ends.empty()) continue;
            const sending_end& end = ends[peer];
            t.messages += end.messages;
            t.bytes += end.payload_bytes;
        }
        return t;
    }

private:
    // The system copies like memcpy. So it writes to a place where its copies are no slower (core/copy_bytes.hpp).
    [[gnu::noinline]] bool read_aliased(int peer, std::byte* to, std::uint64_t address, std::size_t bytes) const {
        constexpr std::size_t page = 4096;
        alignas(page) std::byte room[9 * page];
        for (std::size_t at = 0; at < bytes;) {
            std::byte* const here = room + (address + at) % page;
            const std::size_t part = bytes - at < 8 * page ? bytes - at : 8 * page;
            if (!read_private(peer, here, address + at, part)) return false;
            copy_bytes(to + at, here, part);
            at += part;
        }
        return true;
    }
    [[gnu::noinline]] bool move_beside() {
        bool moved = false;
        for (moved_beside* b = beside_; b != nullptr; b = b->next) moved |= b->move_beside();
        return moved;
    }
    int place_of(int peer) const { return places_.empty() ? peer : places_[peer]; }
    [[gnu::cold, gnu::noinline]] sending_end open_tx(int at_port, int peer) {
        if (!is_here(peer)) return remote_->tx(at_port, peer);
        const std::uint64_t at = channel_at(at_port, place_of(rank_), place_of(peer));
        reserve(at, layout_.channel.bytes(), true);
        sending_end end(arena_->at(at), layout_.channel);
        if (may_single_copy()) end.offer_single_copy(single_copy_);
        return end;
    }
    [[gnu::cold, gnu::noinline]] receiving_end open_rx(int at_port, int peer) {
        if (!is_here(peer)) return remote_->rx(at_port, peer);
        return receiving_end(arena_->at(channel_at(at_port, place_of(peer), place_of(rank_))), layout_.channel);
    }
    std::uint64_t channel_at(int at_port, int from, int to) {
        const std::uint64_t word =
            take_once(places().table, layout_.table_bytes()) + layout_.place_in_table(at_port, from, to);
        reserve(word / page_bytes * page_bytes, page_bytes);
        return take_once(*reinterpret_cast<atomic<std::uint64_t>*>(arena_->at(word)), layout_.channel.bytes());
    }
    // Peers wait for what this rank would do with the memory, so they must be notified that it has none.
    template <class F>
    auto or_report(F&& f) {
        try {
            return f();
        } catch (const error& e) {
            report(failure(e.code(), rank_,
                           e.code() == errc::resource ? detail::shortage_in(e.what()) : detail::shortage::unknown));
            throw;
        }
    }
    [[gnu::cold]] std::uint64_t take_once(atomic<std::uint64_t>& word, std::size_t bytes) {
        return or_report([&] { return arena_->take_once(word, places().room, bytes, rank_); });
    }
    void reserve(std::uint64_t at, std::size_t bytes, bool for_calls = false) {
        or_report([&] {
            arena_->reserve(at, bytes, rank_);
            if (for_calls) arena_->populate(at, bytes);
        });
    }
    links_fixed& fixed() const { return *reinterpret_cast<links_fixed*>(base_); }
    links_places& places() const { return fixed().places; }

    arena* arena_;
    std::byte* base_;
    links_layout layout_;
    int rank_, size_;
    detail::growing_array<int> places_; // empty: all are here
    node_map hosts_;                    // of no ranks: all are here
    int windows_made_ = 0;
    detail::growing_array<sending_end> sending_[port::count]; // by peer; empty for a port that was not used
    detail::growing_array<receiving_end> receiving_[port::count];
    detail::growing_array<int> pids_; // empty: threads
    std::int64_t told_at_ns_ = 0;
    single_copy_mode single_copy_ = single_copy_mode::automatic;
    sole_ptr<remote_ranks> remote_; // null: all are here
    moved_beside* beside_ = nullptr;
    odd_message odd_;
};

COLLX_END_NAMESPACE
