// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The concept of a channel: an ordered stream of messages from one rank to one other, with a bounded number of them
// under way. Each rank holds one end. This header states the contract as concepts. collx/testing/channel_contract.hpp
// checks the rules that a compiler cannot check, and collx/testing/archetypes.hpp has the smallest types that satisfy
// them. Models: sending_end and receiving_end (memory that both ranks see, and the slots of streams, over sockets and
// over verbs), and the ends of a program's own transport (transport_concept.hpp).
//
//   sender: try_acquire → fill → commit          receiver: has_message → message_bytes → peek, use in place → release
//
// Order:    each message arrives once, in the order of the commits, with the bytes that it had at its commit.
// Commit:   the receiver sees nothing of a message before its commit. Acquiring again without one gives the same room.
// Credit:   a sender whose messages are not received is refused after a bounded number of them; at least one fits.
// Reuse:    bytes from peek() do not change until release(), whatever arrives meanwhile. Bytes from try_acquire()
//           belong to the channel again after commit().
// Drained:  once is_drained(), all committed messages arrive without further action of the sender. It becomes true at
//           the latest when the receiver has received all.
// Progress: no function waits. move() of the object that owns the ends advances the messages.
// Failures: ends do not throw. The owner of the ends knows which peers are gone; the communicator has the time limit.
// Threads:  an end is used by one thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// try_acquire(bytes): where to put the next message; null: no room at present. commit(bytes): sends it; bytes: as in
// the last try_acquire(). is_drained(): see above.
template <class End>
concept SendingEnd = requires(End& end, std::size_t bytes) {
    { end.try_acquire(bytes) } -> std::same_as<std::byte*>;
    end.commit(bytes);
    { end.is_drained() } -> std::same_as<bool>;
};

// has_message(): whether a message has arrived; it stays the next one until it is released. message_bytes(): its length
// as the sender states it; compare it before you rely on it. peek(bytes): where it lies. release(bytes): gives it up.
// All but has_message() require a message; bytes: of that message.
template <class End>
concept ReceivingEnd = requires(End& end, std::size_t bytes) {
    { end.has_message() } -> std::same_as<bool>;
    { end.message_bytes() } -> std::same_as<std::size_t>;
    { end.peek(bytes) } -> std::convertible_to<const std::byte*>;
    end.release(bytes);
};

// ------------------------------------------------------------------ abilities that an end may have beside these
// A tag travels with each message. The receiver checks whether size and tag are those of its own schedule.
template <class End>
concept TaggingEnd = SendingEnd<End> && requires(End& end, std::size_t bytes, std::uint32_t tag) {
    end.commit(bytes, tag);
};
// The receiver's side of that.
template <class End>
concept TagCheckingEnd = ReceivingEnd<End> && requires(End& end, std::size_t bytes, std::uint32_t tag) {
    { end.is_expected(bytes, tag) } -> std::same_as<bool>;
};
// A message may stay where it lies in the sender's memory: the receiver, or the wire, reads it there. The sender must
// not change it until is_drained().
template <class End>
concept SingleCopySendingEnd = TaggingEnd<End> &&
    requires(End& end, const void* at, std::size_t bytes, std::uint32_t tag) {
    end.commit_single_copy(at, bytes, tag);
};
template <class End>
concept SingleCopyReceivingEnd = TagCheckingEnd<End> && requires(End& end) {
    { end.is_single_copy() } -> std::same_as<bool>;
    { end.sender_address() } -> std::same_as<std::uint64_t>;
    end.release_single_copy();
};
// The receiver may say where it wants the next message. The message arrives there (is_posted) or in a slot.
template <class End>
concept PrePostingEnd = TagCheckingEnd<End> && requires(End& end, void* at, std::size_t bytes, std::uint32_t tag) {
    { end.want_at(at, bytes, tag) } -> std::same_as<bool>;
    { end.is_posted() } -> std::same_as<bool>;
    end.release_posted();
};

namespace detail {

// Says what a type lacks, in one sentence each.
template <class End>
constexpr bool require_sending_end() {
    constexpr bool acquires = requires(End & e, std::size_t n) {
        { e.try_acquire(n) } -> std::same_as<std::byte*>;
    };
    constexpr bool commits = requires(End & e, std::size_t n) { e.commit(n); };
    constexpr bool drains = requires(End & e) {
        { e.is_drained() } -> std::same_as<bool>;
    };
    static_assert(acquires, "collx: a sending end needs std::byte* try_acquire(std::size_t bytes), null: no room yet");
    static_assert(commits, "collx: a sending end needs commit(std::size_t bytes), which sends what was acquired");
    static_assert(drains, "collx: a sending end needs bool is_drained(): all arrives without this rank's help");
    return acquires && commits && drains;
}
template <class End>
constexpr bool require_receiving_end() {
    constexpr bool looks = requires(End & e) {
        { e.has_message() } -> std::same_as<bool>;
    };
    constexpr bool measures = requires(End & e) {
        { e.message_bytes() } -> std::same_as<std::size_t>;
    };
    constexpr bool peeks = requires(End & e, std::size_t n) {
        { e.peek(n) } -> std::convertible_to<const std::byte*>;
    };
    constexpr bool releases = requires(End & e, std::size_t n) { e.release(n); };
    static_assert(looks, "collx: a receiving end needs bool has_message()");
    static_assert(measures, "collx: a receiving end needs std::size_t message_bytes(), of the message that has come");
    static_assert(peeks, "collx: a receiving end needs const std::byte* peek(std::size_t bytes)");
    static_assert(releases, "collx: a receiving end needs release(std::size_t bytes)");
    return looks && measures && peeks && releases;
}

} // namespace detail

COLLX_END_NAMESPACE
