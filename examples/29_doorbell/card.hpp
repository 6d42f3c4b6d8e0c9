// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A network card in software, as a program sees one: a send queue of 64-byte requests in the program's memory, a
// doorbell register, memory that the card knows by keys, a completion queue whose entries change an ownership bit. It
// records what crosses PCIe and when, by its own clock. The caller carries packets. Costs are assumed: see the page.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "requests.hpp"

namespace lesson {

class card {
public:
    static constexpr std::size_t depth = 16, fetched_at_once = 4, most_inline_bytes = 28;

    explicit card(const costs& c = {}) : cost(c) {}

    // Registers memory that this card may read and its peer may write. Returns the key that requests name it by.
    std::uint32_t register_memory(std::byte* at, std::size_t bytes) {
        regions_.push_back({at, bytes});
        return static_cast<std::uint32_t>(regions_.size()) * 256 + 17; // 0 is no key
    }
    // [doc:post]
    // The processor writes a request into the next place of the send queue. The card does not know of it yet. Returns
    // false if all places are taken, until completions come.
    bool post(const work_request& r) {
        if (tail_ - free_ == depth || (r.is_inline && r.bytes > most_inline_bytes)) return false;
        place& p = queue_[tail_ % depth] = {r, {}};
        if (r.is_inline) std::memcpy(p.data.data(), r.from, r.bytes); // its bytes are in the request
        tell(now, now + cost.request, 'p', "cpu: request " + number(r.id) + " into place " + number(tail_ % depth));
        now += cost.request;
        ++tail_;
        return true;
    }
    // One store of 8 bytes to a register of the card: how far the queue is filled. with_request: the store contains
    // the request itself, 64 bytes, so the card need not read it.
    void ring_doorbell(bool with_request = false) {
        tell(now, now + cost.doorbell + cost.pcie, 'd', "pcie: doorbell, filled up to " + number(tail_));
        now += cost.doorbell;
        ++crossed.doorbells;
        work(now + cost.pcie, with_request);
    }
    // [doc:end]
    void post_receive(std::byte* at, std::size_t bytes, std::uint64_t id) { receives_.push_back({at, bytes, id}); }

    // Handles what has come over the wire. The bytes go to memory without the processor.
    answer deliver(const packet& p) {
        using status = completion::status;
        const double there = std::max(landed_at_, p.at_ns + cost.pcie + p.bytes / cost.pcie_rate); // in order
        const double heard = p.at_ns + cost.wire;
        if (p.what == work_request::kind::write) {
            auto* const to = reinterpret_cast<std::byte*>(p.to);
            if (!knows(p.key, to, p.bytes)) return {p.place, status::remote_access, heard};
            std::memcpy(to, p.data.data(), p.bytes);
            tell(p.at_ns, there, 'm', "pcie: " + number(p.bytes) + " bytes of the peer into memory");
        } else {
            if (next_receive_ == receives_.size() || p.bytes > receives_[next_receive_].bytes)
                return {p.place, status::no_receive, heard};
            const receive& r = receives_[next_receive_++];
            std::memcpy(r.at, p.data.data(), p.bytes);
            tell(p.at_ns, there, 'm', "pcie: a message of " + number(p.bytes) + " bytes into its place");
            complete({r.id, true, p.bytes, status::success, there});
        }
        landed_at_ = there;
        ++crossed.data_writes;
        return {p.place, status::success, heard};
    }
    // Handles the answer of the peer's card to a packet of this one.
    void acknowledged(const answer& a) {
        const work_request& r = queue_[a.place % depth].request;
        const bool is_error = a.how != completion::status::success || has_failed_;
        const auto how = has_failed_ ? completion::status::flushed : a.how;
        if (is_error || r.is_signalled) { // earlier requests that asked for no completion are done, too
            free_ = a.place + 1;
            complete({r.id, false, r.bytes, how, a.at_ns});
        }
        has_failed_ = has_failed_ || is_error;
    }

    // [doc:poll]
    // Loads from memory, not from the card. An entry is new if its ownership bit is that of this round.
    bool poll(completion& c) {
        const entry& e = entries_[seen_ % entries_.size()];
        const bool round = (seen_ / entries_.size()) % 2 == 0;
        if (e.owner != round) return false;
        ++seen_;
        c = e.what;
        now = std::max(now, c.at_ns) + cost.poll;
        return true;
    }
    // [doc:end]

    const costs cost;
    double now = 0; // of the processor
    crossings crossed;
    std::vector<packet> wire; // packets out of this card, which the caller carries
    std::vector<step> steps;

private:
    struct place {
        work_request request;
        std::array<std::byte, most_inline_bytes> data;
    };
    struct entry {
        completion what;
        bool owner = false;
    };
    struct region {
        std::byte* at;
        std::size_t bytes;
    };
    struct receive {
        std::byte* at;
        std::size_t bytes;
        std::uint64_t id;
    };
    static std::string number(std::uint64_t n) { return std::to_string(n); }
    void tell(double begin, double end, char mark, std::string text) { steps.push_back({begin, end, mark, text}); }
    bool knows(std::uint32_t key, const std::byte* at, std::size_t bytes) const {
        const std::size_t i = key / 256 - 1;
        if (key % 256 != 17 || i >= regions_.size()) return false;
        const region& r = regions_[i];
        return at >= r.at && bytes <= r.bytes && static_cast<std::size_t>(at - r.at) <= r.bytes - bytes;
    }
    // The card's work after a doorbell: reads requests and their bytes, and sends. It does one thing at a time.
    void work(double t, bool has_request) {
        t = std::max(t, free_at_);
        for (std::size_t known = head_ + (has_request ? 1 : 0); head_ != tail_; ++head_) {
            if (head_ == known) {
                const std::size_t n = std::min(tail_ - head_, fetched_at_once);
                const double end = t + 2 * cost.pcie + 64.0 * static_cast<double>(n) / cost.pcie_rate;
                tell(t, end, 'r', "pcie: the card reads " + number(n) + " requests");
                t = end;
                known += n;
                ++crossed.request_reads;
            }
            send(queue_[head_ % depth], t);
        }
        free_at_ = t;
    }
    void send(const place& from, double& t) {
        const work_request& r = from.request;
        if (has_failed_) return acknowledged({head_, completion::status::flushed, t});
        packet p{
            r.what, reinterpret_cast<std::uint64_t>(r.to), head_, r.remote_key, static_cast<std::uint32_t>(r.bytes), 0,
            {}};
        const std::byte* bytes = from.data.data();
        if (!r.is_inline) {
            if (!knows(r.local_key, r.from, r.bytes))
                return acknowledged({head_, completion::status::local_protection, t});
            const double end = t + 2 * cost.pcie + static_cast<double>(r.bytes) / cost.pcie_rate;
            tell(t, end, 'b', "pcie: the card reads " + number(r.bytes) + " bytes");
            t = end;
            bytes = r.from;
            ++crossed.data_reads;
        }
        std::memcpy(p.data.data(), bytes, r.bytes);
        wire_free_at_ = std::max(wire_free_at_, t) + static_cast<double>(r.bytes) / cost.wire_rate;
        p.at_ns = wire_free_at_ + cost.wire;
        tell(t, p.at_ns, '=', "wire: request " + number(r.id) + ", " + number(r.bytes) + " bytes");
        wire.push_back(p);
    }
    void complete(completion c) {
        c.at_ns += cost.pcie;
        tell(c.at_ns - cost.pcie, c.at_ns, 'c',
             std::string("pcie: completion of ") + (c.is_receive ? "receive " : "request ") + number(c.id));
        entries_[made_ % entries_.size()] = {c, (made_ / entries_.size()) % 2 == 0};
        ++made_;
        ++crossed.completions;
    }

    std::array<place, depth> queue_{};
    std::array<entry, 2 * depth> entries_{};
    std::size_t tail_ = 0, head_ = 0, free_ = 0; // filled in, taken by the card, done
    std::size_t made_ = 0, seen_ = 0;            // completions
    double free_at_ = 0, wire_free_at_ = 0, landed_at_ = 0;
    bool has_failed_ = false;
    std::vector<region> regions_;
    std::vector<receive> receives_;
    std::size_t next_receive_ = 0;
};

} // namespace lesson
