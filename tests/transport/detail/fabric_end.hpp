// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One queue pair of the tests' fabric. It carries out posts late, in parts and in any order, as far as a device may,
// and accesses no other memory than a device would. Everything here runs under the fabric's lock. A DMA engine copies
// the bytes, so that only completions order them for ThreadSanitizer.
#pragma once

#include <collx/core/clock.hpp>
#include <collx/transport/verbs_device.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "support/dma_engine.hpp"

namespace collx_test {

// Hits call number `at` (from 1; 0: none) and the `times` - 1 calls after it, of one device or of all together.
struct fabric_fault {
    int at = 0, times = 1, device = -1;
    int seen = 0;
    bool hits(int by) {
        if (at == 0 || (device >= 0 && by != device)) return false;
        ++seen;
        return seen >= at && seen < at + times;
    }
};

struct fabric_options {
    std::uint64_t seed = 1;
    int devices = 64;         // 0: a machine without devices
    int most_delay_polls = 3; // extra delay of a post or a completion
    bool is_messy = true;     // parts arrive early, some as garbage; failed posts may arrive nevertheless
    // A send without a receive, or a post that does not reach its peer, fails after this time.
    std::int64_t patience_ns = 1'000'000'000;
    std::uint32_t most_write_bytes = 8u << 20, most_head_bytes = 128;
    int most_posts = 4096; // limit for one queue pair
    fabric_fault refuse_memory{}, refuse_queue_pair{}, refuse_connect{};
    // Faults at a post: break_pair: the queue pair fails and its peer is not notified. cut_pair: nothing of the pair
    // reaches the other side any more.
    fabric_fault break_pair{}, cut_pair{};
};

struct fabric_counters {
    std::uint64_t posts = 0, writes = 0, bytes_written = 0, sends = 0, receives = 0, polls = 0;
    std::uint64_t not_ready = 0; // sends that had to wait for a receive: a stream that keeps its credit has none
    std::uint64_t transfers = 0, bytes_read = 0;
    std::uint64_t devices = 0, memories = 0, queue_pairs = 0, failures = 0;
};

namespace fabric_detail {

struct dice {
    std::uint64_t state;
    std::uint64_t operator()(std::uint64_t sides) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % sides;
    }
};

struct region {
    std::byte* at;
    std::size_t bytes;
    std::uint32_t local_key, remote_key;
    bool is_readable;
    bool holds(std::uint64_t from, std::uint64_t n) const {
        const auto begin = reinterpret_cast<std::uint64_t>(at);
        return from >= begin && n <= bytes && from - begin <= bytes - n;
    }
};

struct posted_send {
    std::vector<collx::verbs_write> writes;
    std::vector<unsigned char> head;
    std::uint64_t id = 0, ready_at = 0; // in steps of its queue pair, then in polls
    bool breaks = false, is_written = false;
    bool is_alone = false, is_read = false; // one transfer, with its own completion
    std::uint64_t placed_before = 0;        // early completed writes of the queue pair until then
    moment posted{0}, done{0};
    std::uint64_t destination(const collx::verbs_write& w) const {
        return is_read ? reinterpret_cast<std::uint64_t>(w.from) : w.to;
    }
};
struct posted_receive {
    std::byte* at;
    std::uint32_t bytes, local_key;
    std::uint64_t id, ready_at = 0;
    moment posted{0}, done{0};
};
// A write in transit when its queue pair failed.
struct straggler {
    std::vector<unsigned char> bytes;
    std::uint64_t to;
    std::uint32_t remote_key;
    moment made{0}, ready{0};
    bool has_landed = false;
};

struct device_end {
    int number = 0;
    unsigned char gid[16] = {};
    bool is_lost = false; // nothing reaches it or leaves it
    int queue_pairs = 0;
    std::vector<region> regions{};
    fabric_counters counts{};

    const region* by_local_key(std::uint32_t key) const {
        for (const region& r : regions)
            if (r.local_key == key) return &r;
        return nullptr;
    }
    const region* by_remote_key(std::uint32_t key) const {
        for (const region& r : regions)
            if (r.remote_key == key) return &r;
        return nullptr;
    }
};

struct bad_bytes {
    unsigned char at[4096];
    constexpr bad_bytes() : at() {
        for (unsigned char& b : at) b = 0xdb;
    }
};
inline constexpr bad_bytes garbage{}; // never written, so engines need not be ordered with it

// The state of a whole fabric.
struct shared {
    fabric_options options;
    std::vector<struct end*> ends{};
    long misuses = 0;
    std::string first_misuse{};

    void misuse(const device_end& by, const char* what) {
        std::fprintf(stderr, "fabric: device %d: %s\n", by.number, what);
        if (misuses++ == 0) first_misuse = "device " + std::to_string(by.number) + ": " + what;
    }
    end* find(std::uint32_t number) const;
};

struct end {
    shared& net;
    device_end& device;
    const collx::verbs_limits limits;
    collx::queue_pair_address address{}, peer_address{};
    dice roll;
    bool is_connected = false, is_cut = false, is_told = false; // told: poll() has reported the failure
    const char* why = nullptr;                                  // not null: it failed, for this reason
    std::uint64_t steps = 0, polls = 0;
    std::int64_t waits_since_ns = 0;
    std::deque<std::unique_ptr<posted_send>>
        sends{}; // until their completions are taken; the first `carried` are carried out
    std::size_t carried = 0;
    std::deque<std::unique_ptr<posted_receive>> receives{}, received{};
    std::vector<std::unique_ptr<straggler>> stragglers{};
    // unplaced: completed writes that only the peer's device has. placed: those that have arrived in memory since,
    // until this side knows it.
    std::deque<std::unique_ptr<straggler>> unplaced{}, placed{};
    std::uint64_t placed_count = 0, forgotten_count = 0;
    moment quiet{0}, quiet_peer{0}; // the device has released what was posted here; no write arrives here
    dma_engine writer{}, lander{};

    std::uint64_t delay() { return roll(static_cast<std::uint64_t>(net.options.most_delay_polls) + 1); }
    end* peer() const { return is_connected ? net.find(peer_address.number) : nullptr; }
    bool reaches(const end* to) const {
        return to != nullptr && to->is_connected && to->why == nullptr && to->peer_address.number == address.number &&
               peer_address.first_packet == to->address.first_packet && !is_cut && !to->is_cut && !device.is_lost &&
               !to->device.is_lost;
    }

    // ---- what is posted
    int sends_under_way() const {
        int n = 0;
        for (const auto& s : sends) n += !s->head.empty();
        return n;
    }
    int writes_under_way() const {
        std::size_t n = 0;
        for (const auto& s : sends) n += s->is_alone ? 0 : s->writes.size();
        return static_cast<int>(n);
    }
    int transfers_under_way() const {
        int n = 0;
        for (const auto& s : sends) n += s->is_alone;
        return n;
    }
    bool uses(const region& r) const {
        for (const auto& s : sends)
            for (const auto& w : s->writes)
                if (w.bytes != 0 && w.local_key == r.local_key) return true;
        for (const auto* list : {&receives, &received})
            for (const auto& p : *list)
                if (p->local_key == r.local_key) return true;
        return false;
    }
    bool writes_to(const region& r) const {
        for (std::size_t i = carried; i < sends.size(); ++i)
            for (const auto& w : sends[i]->writes)
                if (w.bytes != 0 && w.remote_key == r.remote_key) return true;
        return false;
    }

    // ---- what the device does
    void step() {
        ++steps;
        land_straggler();
        if (why != nullptr || !is_connected) return;
        end* const to = peer();
        if (carried < sends.size() && !reaches(to)) return wait("it had no answer however often it tried");
        if (!unplaced.empty() && roll(32) == 0) place_all();
        for (; carried < sends.size(); ++carried) {
            posted_send& s = *sends[carried];
            if (s.breaks) return fail("the test wanted it");
            if (s.ready_at > steps) return land_early(*to);
            if (!s.is_written && !write_all(s, *to)) return;
            s.is_written = true;
            if (!s.head.empty() && !send_head(s, *to)) return;
            if (s.is_alone) s.ready_at = polls + delay();
            s.placed_before = placed_count;
            waits_since_ns = 0;
        }
    }
    // Only this queue pair fails: the other side sees its receives fail only if the device there has noticed.
    void fail(const char* reason) {
        if (why != nullptr) return;
        why = reason;
        ++device.counts.failures;
        end* const to = peer();
        for (std::size_t i = carried; net.options.is_messy && reaches(to) && i < sends.size(); ++i)
            for (const collx::verbs_write& w : sends[i]->writes)
                if (!sends[i]->is_read && roll(2) == 0) leave_straggler(*sends[i], w, *to);
        come_to_rest();
    }
    // The device is finished with the posts of this side and with writes to it.
    void come_to_rest() {
        const auto rest = [](dma_engine& a, moment& m) {
            m.fetch_add(1, std::memory_order_release);
            a.copy(nullptr, nullptr, 0, &m, nullptr, &m);
        };
        rest(writer, quiet);
        rest(lander, quiet_peer);
        if (end* const to = peer()) rest(to->writer, quiet_peer);
    }
    // This side has the completion of a later post.
    void forget_placed(std::uint64_t before) {
        for (; forgotten_count < before; ++forgotten_count) placed.pop_front();
    }
    void seen_at_rest() const {
        (void)quiet.load(std::memory_order_acquire);
        (void)quiet_peer.load(std::memory_order_acquire);
    }

private:
    void wait(const char* reason) {
        const std::int64_t now = collx::now_ns();
        if (waits_since_ns == 0) waits_since_ns = now;
        if (now - waits_since_ns >= net.options.patience_ns) fail(reason);
    }
    bool write_all(posted_send& s, end& to) {
        for (const collx::verbs_write& w : s.writes) {
            if (w.bytes == 0) continue; // devices do not check keys then
            const region* const r = to.device.by_remote_key(w.remote_key);
            if (r == nullptr || !r->holds(w.to, w.bytes) || (s.is_read && !r->is_readable)) {
                net.misuse(device, r == nullptr               ? "a write with a remote key that is not one"
                                   : !r->holds(w.to, w.bytes) ? "a write to where the peer has registered nothing"
                                                              : "a read of what the peer lets others write only");
                fail("the peer does not allow this write");
                to.fail("a write of the peer was not allowed");
                return false;
            }
            if (s.is_alone && !s.is_read && net.options.is_messy && roll(2) == 0) {
                leave(unplaced, s, w, &s.done); // behind earlier unplaced ones
                continue;
            }
            place_all(); // writes stay in order, and a read sees earlier ones
            if (s.is_read) {
                device.counts.bytes_read += w.bytes;
                writer.copy(const_cast<std::byte*>(w.from), reinterpret_cast<const void*>(w.to), w.bytes, &s.posted,
                            nullptr, &s.done);
                continue;
            }
            writer.copy(reinterpret_cast<void*>(w.to), w.from, w.bytes, &s.posted, nullptr, &s.done);
        }
        return true;
    }
    bool send_head(posted_send& s, end& to) {
        if (to.receives.empty()) {
            if (waits_since_ns == 0) ++device.counts.not_ready;
            wait("the peer had no receive posted however often it tried");
            return false;
        }
        posted_receive& r = *to.receives.front();
        if (r.bytes < s.head.size()) {
            net.misuse(to.device, "a receive shorter than the head that came");
            fail("the peer refused the head");
            to.fail("a head did not fit into its receive");
            return false;
        }
        place_all();
        writer.copy(r.at, s.head.data(), s.head.size(), &s.posted, &r.posted, &s.done, &r.done);
        r.bytes = static_cast<std::uint32_t>(s.head.size());
        r.ready_at = to.polls + to.delay();
        s.ready_at = polls + delay();
        to.received.push_back(std::move(to.receives.front()));
        to.receives.pop_front();
        return true;
    }
    // Writes a part of any write that overlaps no earlier one: its data, or garbage that no program may rely on.
    void land_early(end& to) {
        if (!net.options.is_messy || roll(2) == 0) return;
        const std::size_t i = carried + roll(sends.size() - carried);
        posted_send& s = *sends[i];
        if (s.writes.empty() || s.is_written) return;
        const collx::verbs_write& w = s.writes[roll(s.writes.size())];
        const region* const r = to.device.by_remote_key(w.remote_key);
        if (w.bytes == 0 || r == nullptr || !r->holds(w.to, w.bytes) || !unplaced.empty()) return;
        const std::uint64_t there = s.destination(w);
        for (std::size_t k = carried; k <= i; ++k)
            for (const collx::verbs_write& other : sends[k]->writes) {
                if (&other == &w) break;
                const std::uint64_t its = sends[k]->destination(other);
                if (its < there + w.bytes && there < its + other.bytes) return;
            }
        const std::size_t begin = roll(w.bytes), most = w.bytes - begin;
        const std::size_t bytes = 1 + roll(most < 4096 ? most : 4096);
        const bool is_garbage = s.is_read || roll(2) != 0;
        const void* const from = is_garbage ? garbage.at : static_cast<const void*>(w.from + begin);
        writer.copy(reinterpret_cast<std::byte*>(there) + begin, from, bytes, &s.posted, nullptr, nullptr);
    }
    template <class List>
    void leave(List& list, posted_send& s, const collx::verbs_write& w, moment* done) {
        auto late = std::make_unique<straggler>();
        late->bytes.resize(w.bytes);
        late->to = w.to;
        late->remote_key = w.remote_key;
        late->made.store(1, std::memory_order_release);
        writer.copy(late->bytes.data(), w.from, w.bytes, &s.posted, &late->made, &late->ready, done);
        list.push_back(std::move(late));
    }
    void leave_straggler(posted_send& s, const collx::verbs_write& w, end& to) { leave(to.stragglers, s, w, nullptr); }
    void place_all() {
        end* const to = peer();
        for (; !unplaced.empty(); unplaced.pop_front()) {
            straggler& s = *unplaced.front();
            const region* const r = reaches(to) ? to->device.by_remote_key(s.remote_key) : nullptr;
            if (r != nullptr && r->holds(s.to, s.bytes.size()))
                writer.copy(reinterpret_cast<void*>(s.to), s.bytes.data(), s.bytes.size(), nullptr, nullptr, nullptr);
            placed.push_back(std::move(unplaced.front()));
            ++placed_count;
        }
    }
    void land_straggler() {
        for (const auto& s : stragglers) {
            if (s->has_landed || roll(4) != 0) continue;
            s->has_landed = true;
            const region* const r = device.by_remote_key(s->remote_key);
            if (why == nullptr && !s->bytes.empty() && r != nullptr && r->holds(s->to, s->bytes.size()))
                lander.copy(reinterpret_cast<void*>(s->to), s->bytes.data(), s->bytes.size(), &s->ready, nullptr,
                            nullptr);
        }
    }
};

inline end* shared::find(std::uint32_t number) const {
    for (end* e : ends)
        if (e->address.number == number) return e;
    return nullptr;
}

} // namespace fabric_detail
} // namespace collx_test
