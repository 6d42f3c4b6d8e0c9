// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the two ends of a part tell each other before its first staged piece: its length, and the call that it belongs
// to. Without it a part that one end does not expect would be taken for one of a later call. Knows no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <collx/comm/all_to_all.hpp>
#include <collx/comm/send_recv.hpp>
#include <collx/exec/bound_schedule.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A number, never 0, that stands for what both ends of a part must agree on beside its length: the element type and,
// in a collective, all else that its ranks share.
constexpr std::uint32_t part_kind(std::uint64_t hash) { return folded(hash) | 0x8000'0000u; }

// The peers that a rank sends a part, or receives one from. A part may be empty. Refers to the caller's vector.
class part_peers {
public:
    part_peers() = default; // none
    static part_peers all(std::uint32_t kind) { return {everyone, kind, nullptr}; }
    static part_peers one(int peer, std::uint32_t kind) { return {peer, kind, nullptr}; } // peer < 0: none
    // The kind of each rank's part; 0: none.
    static part_peers listed(const std::vector<std::uint32_t>& kinds) { return {-1, 0, &kinds}; }

    // The kind of the part; 0: none.
    std::uint32_t kind(int peer) const {
        if (kinds_ != nullptr) return (*kinds_)[static_cast<std::size_t>(peer)];
        return only_ == everyone || (only_ == peer && peer >= 0) ? kind_ : 0;
    }

private:
    static constexpr int everyone = -2;
    part_peers(int only, std::uint32_t kind, const std::vector<std::uint32_t>* kinds)
        : only_(only), kind_(kind), kinds_(kinds) {}
    int only_ = -1;
    std::uint32_t kind_ = 0;
    const std::vector<std::uint32_t>* kinds_ = nullptr;
};

// What one end says of a part, and the other expects.
struct part_words {
    std::uint64_t bytes = 0;       // of the whole part
    std::uint64_t what = 0;        // verb (8 bits), root (24), kind (32)
    std::uint64_t number = 0;      // of the call among the collectives on device memory; 0: it has none that is known
    std::uint64_t piece_bytes = 0; // of its pieces; 0: not in pieces

    static constexpr std::uint64_t what_of(collective c, int root, std::uint32_t kind) {
        return static_cast<std::uint64_t>(c) << 56 | static_cast<std::uint64_t>(root & 0xff'ffff) << 32 | kind;
    }
    collective verb() const { return static_cast<collective>(what >> 56); }
    int root() const { return static_cast<int>(what >> 32 & 0xff'ffff); }
    // Whether both ends are in numbered calls, and these are two calls.
    bool is_of_another_call(const part_words& o) const { return number != 0 && o.number != 0 && number != o.number; }
    bool is_cut_as(const part_words& o) const {
        return piece_bytes == o.piece_bytes || (bytes <= piece_bytes && bytes <= o.piece_bytes);
    }
    bool agrees_with(const part_words& o) const {
        return bytes == o.bytes && what == o.what && !is_of_another_call(o) && is_cut_as(o);
    }
};
struct announced_part {
    int peer;
    part_words words;
};

// Throws because the peer's part is not the one that this rank expects. The peer is notified, too.
[[noreturn, gnu::cold]] inline void fail_for_part(communicator_core& c, int peer, const part_words& theirs,
                                                  const part_words& mine) {
    c.net.report(failure(errc::mismatch, peer));
    c.net.announce_failure();
    const auto name = [](collective v) { return v == collective::send_recv ? "a message" : name_of(v); };
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    const char* hint = "what a rank sends its peer must expect";
    char text[200];
    if (theirs.verb() != mine.verb()) {
        hint = "make the same calls in the same order on all ranks";
        std::snprintf(text, sizeof text, "rank %d is in %s and this rank in %s", peer, name(theirs.verb()),
                      name(mine.verb()));
    } else if (theirs.is_of_another_call(mine)) {
        hint = "was a part of an earlier call not received? give both sides the same counts and order of calls";
        std::snprintf(text, sizeof text, "rank %d sent %llu bytes in its collective %llu, and this rank is in its %llu",
                      peer, number(theirs.bytes), number(theirs.number), number(mine.number));
    } else if (theirs.root() != mine.root()) {
        std::snprintf(text, sizeof text, "in %s the root is %d on rank %d and %d on this rank", name(mine.verb()),
                      theirs.root(), peer, mine.root());
    } else if (theirs.bytes != mine.bytes) {
        std::snprintf(text, sizeof text, "rank %d sends %llu bytes, and this rank receives %llu", peer,
                      number(theirs.bytes), number(mine.bytes));
    } else if (theirs.what != mine.what) {
        hint = "give both sides the same element type and order of calls";
        std::snprintf(text, sizeof text, "in %s rank %d has another element type%s", name(mine.verb()), peer,
                      mine.verb() == collective::send_recv ? "" : ", table of counts or verb between neighbours");
    } else {
        hint = "put both ends of a long message into a device_group, or neither";
        std::snprintf(text, sizeof text, "rank %d sends a message in pieces of %llu bytes, and this rank receives %llu",
                      peer, number(theirs.piece_bytes), number(mine.piece_bytes));
    }
    fail(errc::mismatch, c.net.rank(), peer, hint, "%s", text);
}

// Tells each peer about the part that it gets, and compares what the peers say with what this rank expects.
inline void announce_parts(communicator& c, const std::vector<announced_part>& sent,
                           const std::vector<announced_part>& received, duration timeout) {
    std::vector<part_words> theirs(received.size());
    std::vector<work<void>> under_way;
    const call_options o{.timeout = timeout};
    for (std::size_t i = 0; i < received.size(); ++i)
        under_way.push_back(async::recv(c, contiguous_view<part_words>(&theirs[i], 1), received[i].peer, o));
    for (const auto& p : sent)
        under_way.push_back(async::send(c, contiguous_view<const part_words>(&p.words, 1), p.peer, o));
    for (auto& w : under_way) w.wait();
    for (std::size_t i = 0; i < received.size(); ++i)
        if (!theirs[i].agrees_with(received[i].words))
            fail_for_part(c.internals(), received[i].peer, theirs[i], received[i].words);
}

} // namespace detail
COLLX_END_NAMESPACE
