// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Words by which ranks with separate launches tell each other which call they make, so that kernels notice when ranks
// are in different calls: two words per call and rank, and one beside the first message of a part. control.hpp says
// where they lie, block.hpp when they are written and read. Plain data, and an error message for the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <collx/core/error.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/device/units.hpp>
#include <collx/sched/collective.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A collective as its ranks must agree on it; zero where they need not (messages, a team's one launch).
struct call_words {
    // 40 bits: verb + 1 (6), root (6), whether count is for each peer (1), hash of the rest (27).
    std::uint64_t what = 0;
    // 48 bits: elements; where it is for each peer, bytes, which the kernel computes.
    std::uint64_t count = 0;

    static constexpr call_words of(collective verb, int root, std::uint64_t hash, std::size_t count,
                                   bool each = false) {
        return {static_cast<std::uint64_t>(static_cast<unsigned>(verb) + 1) << 34 |
                    static_cast<std::uint64_t>(static_cast<unsigned>(root) & 63u) << 28 |
                    static_cast<std::uint64_t>(each) << 27 | (hash ^ hash >> 27 ^ hash >> 54) % (1u << 27),
                count};
    }
    COLLX_HD constexpr bool are_compared() const { return what != 0; }
    COLLX_HD constexpr bool are_for_each() const { return (what >> 27 & 1) != 0; }
    // The words as they travel: each with the call's number, so that old words are recognised.
    COLLX_HD constexpr unit16 numbered(std::uint64_t number, std::uint64_t n) const {
        return {what << 24 | (number & 0xff'ffff), n << 16 | (number & 0xffff)};
    }
    COLLX_HD static constexpr std::uint64_t number_of(const unit16& w) { return w.low & 0xff'ffff; }
    // Whether both words of w are of the call of v or of a later one. A number wraps around, so half of them are later.
    COLLX_HD static constexpr bool are_not_before(const unit16& w, const unit16& v) {
        return ((number_of(w) - number_of(v)) & 0x80'0000) == 0 && ((w.high - v.high) & 0x8000) == 0;
    }
    // Compares the numbers in both words of both.
    COLLX_HD static constexpr bool are_of_one_call(const unit16& w, const unit16& v) {
        return number_of(w) == number_of(v) && ((w.high ^ v.high) & 0xffff) == 0;
    }
};

// The word beside the first message of a part, on lane 0: the message's number (messages without elements count, too),
// what it belongs to, and the part's bytes. It belongs to a collective, which has a number, or is a program's message,
// which has an element type; 0: it is neither.
struct part_word {
    static constexpr std::uint64_t mark = ~std::uint64_t{0}; // marks such words in a report
    COLLX_HD static constexpr std::uint64_t of(std::uint64_t message, std::uint64_t what, std::uint64_t bytes) {
        return bytes << 24 | (what & 0xffff) << 8 | (message & 0xff);
    }
    COLLX_HD static constexpr std::uint64_t of_call(std::uint64_t number) { return number & 0x7fff; }
    static constexpr std::uint16_t of_type(std::uint32_t hash) {
        return static_cast<std::uint16_t>(0x8000u | (hash ^ hash >> 15 ^ hash >> 30));
    }
    static constexpr bool are_of_types(std::uint64_t a, std::uint64_t b) { return (a & b & 0x80'0000) != 0; }
    static constexpr bool are_of_one_message(std::uint64_t a, std::uint64_t b) { return ((a ^ b) & 0xff) == 0; }
};

// Why a rank's kernels stop: a word in each rank's rank_control, and then in its host's memory.
struct stop_word {
    // A host ended its kernels, or a kernel that waited for the host gave up.
    static constexpr std::uint64_t ended = 3;
    // The rank that gave up, and the one that it waited for.
    COLLX_HD static constexpr std::uint64_t deadline(int rank, int peer) { return of(1, rank, peer); }
    // The rank that found it, and the one that is in another call.
    COLLX_HD static constexpr std::uint64_t disagreement(int rank, int peer) { return of(2, rank, peer); }
    // The rank that gave up, and the one that it waited for, which makes no more calls.
    COLLX_HD static constexpr std::uint64_t left(int rank, int peer) { return of(4, rank, peer); }
    static constexpr bool is_left(std::uint64_t w) { return (w & 0xff) == 4; }
    static constexpr bool is_deadline(std::uint64_t w) { return (w & 0xff) == 1; }
    COLLX_HD static constexpr bool is_disagreement(std::uint64_t w) { return (w & 0xff) == 2; }
    static constexpr int rank(std::uint64_t w) { return static_cast<int>(w >> 8 & 0xff); }
    static constexpr int peer(std::uint64_t w) { return static_cast<int>(w >> 16 & 0xff); }

private:
    COLLX_HD static constexpr std::uint64_t of(unsigned why, int rank, int peer) {
        return why | static_cast<std::uint64_t>(static_cast<unsigned>(rank)) << 8 |
               static_cast<std::uint64_t>(static_cast<unsigned>(peer)) << 16;
    }
};

// Throws mismatch and says what differs. theirs and mine are two words each, as they travel.
[[noreturn, gnu::cold]] inline void fail_for_words(int rank, int peer, const std::uint64_t (&theirs)[2],
                                                   const std::uint64_t (&mine)[2]) {
    const auto verb = [](std::uint64_t w) {
        const auto v = static_cast<int>(w >> 58) - 1;
        return v >= 0 && v < collective_count ? name_of(static_cast<collective>(v)) : "another call";
    };
    char text[200];
    const auto a = static_cast<unsigned long long>(theirs[1] >> 16), b = static_cast<unsigned long long>(mine[1] >> 16);
    if (mine[1] == part_word::mark) {
        const auto sent = static_cast<unsigned long long>(theirs[0] >> 24),
                   wanted = static_cast<unsigned long long>(mine[0] >> 24);
        if (!part_word::are_of_one_message(theirs[0], mine[0]))
            std::snprintf(text, sizeof text,
                          "rank %d sends another message than this rank receives (%llu bytes): an earlier one had "
                          "elements at one of its ends only",
                          peer, wanted);
        else
            std::snprintf(text, sizeof text,
                          sent != wanted ? "rank %d sends %llu bytes, and this rank receives %llu"
                          : part_word::are_of_types(theirs[0], mine[0])
                              ? "rank %d sends %llu bytes of another element type than this rank, which receives %llu"
                              : "rank %d sent %llu bytes in another call than the one that receives %llu",
                          peer, sent, wanted);
    } else if (verb(theirs[0]) != verb(mine[0])) {
        std::snprintf(text, sizeof text, "rank %d is in %s and this rank in %s", peer, verb(theirs[0]), verb(mine[0]));
    } else if ((theirs[0] >> 52 & 63) != (mine[0] >> 52 & 63)) {
        std::snprintf(text, sizeof text, "in %s the root is %d on rank %d and %d on this rank", verb(mine[0]),
                      static_cast<int>(theirs[0] >> 52 & 63), peer, static_cast<int>(mine[0] >> 52 & 63));
    } else if (a != b && (mine[0] >> 51 & 1) != 0) {
        std::snprintf(text, sizeof text, "in %s rank %d sends %llu bytes, and this rank receives %llu", verb(mine[0]),
                      peer, a, b);
    } else if (a != b) {
        std::snprintf(text, sizeof text, "in %s the count is %llu on rank %d and %llu on this rank", verb(mine[0]), a,
                      peer, b);
    } else {
        std::snprintf(text, sizeof text,
                      "in %s rank %d has another element type, operator, algorithm or table of counts", verb(mine[0]),
                      peer);
    }
    fail(errc::mismatch, rank, peer, "give both sides the same counts, types and order of calls", "%s", text);
}

} // namespace device
COLLX_END_NAMESPACE
