// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The contract of channels (transport/channel_concept.hpp) as a suite: check_channel(make, facts) runs both ends of a
// channel in one thread and returns the rules that were broken. It does not find errors that take two threads (a
// message that is visible before its bytes); run collectives under -fsanitize=thread for these.
//
//   arrival    a committed message arrives while both sides move
//   order      messages arrive in the order of their commits, each once
//   content    a message has the bytes that were committed
//   size       message_bytes() is the number of bytes that were committed
//   commit     nothing arrives before commit(); acquiring again without one makes no second message
//   room       at least facts.least_messages fit while the receiver takes none
//   credit     at most facts.most_messages fit then
//   stay       the bytes at peek() do not change until release()
//   drained    once is_drained(), all messages arrive without the sender; it becomes true when all are taken
//
// Example: auto r = collx::testing::check_channel([] { return my_link(); }, {.most_bytes = 4096});
//          if (!r.is_clean()) std::puts(r.text().c_str());
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/core/clock.hpp>
#include <collx/testing/report.hpp>
#include <collx/transport/channel_concept.hpp>

COLLX_BEGIN_NAMESPACE

namespace testing {

// A channel with both ends in one thread, and functions that move each side on; they may do nothing.
template <class L>
concept ChannelUnderTest = requires(L& link) {
    { link.tx() } -> SendingEnd;
    { link.rx() } -> ReceivingEnd;
    link.move_sender();
    link.move_receiver();
};

// The properties of a channel, for the suite.
struct channel_facts {
    std::size_t most_bytes = 4096; // of a message
    int least_messages = 1;        // messages that must fit while none is taken
    int most_messages = 10'000;    // messages that may fit while none is taken
    // The time in which things must happen. Only broken rules wait so long.
    std::int64_t limit_ns = 10'000'000'000;
    std::uint64_t seed = 1;
};

// The content of a message: each byte depends on the message's number.
inline std::byte byte_of(std::uint64_t message, std::size_t i) {
    return static_cast<std::byte>(message * 31 + i * 7 + (i >> 8));
}
inline void fill_message(std::byte* to, std::uint64_t message, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = byte_of(message, i);
}
// Whether these bytes are the content of this message.
inline bool is_message(const std::byte* from, std::uint64_t message, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (from[i] != byte_of(message, i)) return false;
    return true;
}

namespace detail {

template <class Make>
class channel_rules {
public:
    channel_rules(Make& make, const channel_facts& facts) : make_(make), facts_(facts), random_(facts.seed | 1) {}

    report run() {
        check_traffic();
        check_commit();
        check_room();
        check_stay();
        check_drained();
        return std::move(found_);
    }

private:
    static constexpr std::size_t sizes[] = {0, 1, 8, 63, 64, 65, 111, 112, 113, 1000, 4095, 4096, 4097, 65535, 65536};

    std::uint64_t random() { return (random_ = random_ * 6364136223846793005u + 1442695040888963407u) >> 33; }
    std::size_t any_size() {
        const std::uint64_t r = random();
        if (r % 8 == 0) return facts_.most_bytes;
        const std::size_t bytes = r % 8 < 6 ? sizes[(r >> 8) % std::size(sizes)] : (r >> 8) % (facts_.most_bytes + 1);
        return bytes <= facts_.most_bytes ? bytes : bytes % (facts_.most_bytes + 1);
    }
    template <class Link, class Look>
    bool wait(Link& link, Look&& look, bool moves_sender = true) {
        const auto until = deadline::in_ns(facts_.limit_ns);
        for (unsigned turn = 0; !look(); ++turn) {
            if (moves_sender) link.move_sender();
            link.move_receiver();
            if ((turn & 63) == 63 && until.passed()) return false;
        }
        return true;
    }
    template <class Link>
    static void move(Link& link, int turns) {
        for (int i = 0; i < turns; ++i) {
            link.move_sender();
            link.move_receiver();
        }
    }
    bool breaks(const char* rule, const char* what, std::uint64_t message) {
        found_.add(rule, std::string(what) + " (message " + std::to_string(message) + ")");
        return false;
    }

    // ------------------------------------------------------------------ both ends
    template <class Tx>
    bool try_send(Tx& tx, std::uint64_t message, std::size_t bytes) {
        std::byte* const to = tx.try_acquire(bytes);
        if (to == nullptr) return false;
        fill_message(to, message, bytes);
        tx.commit(bytes);
        return true;
    }
    // Whether the message that has arrived is the one of that number and size.
    template <class Rx>
    bool is_right(Rx& rx, std::uint64_t message, const std::vector<std::size_t>& sent) {
        const std::size_t announced = rx.message_bytes(), bytes = sent[message];
        const auto is_number = [&](std::uint64_t m) {
            return sent[m] == announced && is_message(rx.peek(announced), m, announced);
        };
        if (is_number(message)) return true;
        const auto first = message > 64 ? message - 64 : 0;
        for (std::uint64_t m = first; announced >= 8 && m < sent.size() && m < message + 64; ++m)
            if (m != message && is_number(m)) return breaks("order", "another message came in its place", message);
        if (announced != bytes) return breaks("size", "message_bytes() is not what was committed", message);
        return breaks("content", "its bytes are not those that were committed", message);
    }
    // Takes all messages from number `received` on.
    template <class Link>
    bool take_all(Link& link, std::uint64_t received, const std::vector<std::size_t>& sent, const char* rule,
                  bool moves_sender = true) {
        for (; received < sent.size(); ++received) {
            auto& rx = link.rx();
            if (!wait(
                    link, [&] { return rx.has_message(); }, moves_sender))
                return breaks(rule, "it did not arrive", received);
            if (!is_right(rx, received, sent)) return false;
            rx.release(sent[received]);
        }
        return true;
    }

    // ------------------------------------------------------------------ rules
    // Random sizes and turns: the channel is mostly full, at times empty.
    void check_traffic() {
        auto link = make_();
        auto& tx = link.tx();
        auto& rx = link.rx();
        std::vector<std::size_t> sent;
        std::uint64_t received = 0;
        for (const auto until = deadline::in_ns(facts_.limit_ns); sent.size() < 400 && !until.passed();) {
            const bool fills = random() % 4 != 0;
            if (const std::size_t bytes = any_size(); fills && try_send(tx, sent.size(), bytes)) sent.push_back(bytes);
            move(link, 1);
            if (random() % 2 == 0 || !rx.has_message()) continue;
            if (received == sent.size()) return void(breaks("order", "a message came that was not sent", received));
            if (!is_right(rx, received, sent)) return;
            rx.release(sent[received++]);
        }
        if (sent.empty()) return void(breaks("room", "no message was ever accepted", 0));
        if (!take_all(link, received, sent, "arrival")) return;
        move(link, 64);
        if (rx.has_message()) breaks("order", "one more message came than was sent", sent.size());
    }

    void check_commit() {
        auto link = make_();
        auto& tx = link.tx();
        auto& rx = link.rx();
        const std::size_t bytes = facts_.most_bytes < 64 ? facts_.most_bytes : 64;
        for (int again = 0; again < 2; ++again) {
            std::byte* const to = tx.try_acquire(bytes);
            if (to == nullptr) return void(breaks("room", "an empty channel accepts none", 0));
            fill_message(to, 99, bytes);
            move(link, 64);
            if (rx.has_message()) return void(breaks("commit", "it shows before its commit", 0));
        }
        for (int more = 0; more < facts_.most_messages; ++more) (void)tx.try_acquire(bytes);
        const std::vector<std::size_t> sent{bytes};
        if (!try_send(tx, 0, bytes)) return void(breaks("commit", "room was lost by acquiring it again", 0));
        if (!take_all(link, 0, sent, "arrival")) return;
        move(link, 64);
        if (rx.has_message()) breaks("commit", "acquiring again made a second message", 1);
    }

    void check_room() {
        auto link = make_();
        auto& tx = link.tx();
        std::vector<std::size_t> sent;
        for (int refused = 0; refused < 64 && sent.size() <= static_cast<std::size_t>(facts_.most_messages);) {
            const std::size_t bytes = sent.size() % 2 == 0 ? facts_.most_bytes : facts_.most_bytes / 3;
            if (try_send(tx, sent.size(), bytes)) sent.push_back(bytes);
            else ++refused;
            move(link, 1);
        }
        if (sent.size() < static_cast<std::size_t>(facts_.least_messages))
            return void(breaks("room", "fewer messages fit than the channel has room for", sent.size()));
        if (sent.size() > static_cast<std::size_t>(facts_.most_messages))
            return void(breaks("credit", "a sender whose messages are not taken is not refused", sent.size()));
        if (!take_all(link, 0, sent, "arrival")) return;
        const std::size_t last = sent.size();
        if (!wait(link, [&] { return try_send(tx, last, 1); }))
            return void(breaks("room", "taken messages give no room back", last));
    }

    void check_stay() {
        auto link = make_();
        auto& tx = link.tx();
        auto& rx = link.rx();
        std::vector<std::size_t> sent;
        const std::size_t bytes = facts_.most_bytes;
        if (!try_send(tx, 0, bytes)) return void(breaks("room", "an empty channel accepts none", 0));
        sent.push_back(bytes);
        if (!wait(link, [&] { return rx.has_message(); })) return void(breaks("arrival", "it did not arrive", 0));
        const std::byte* const at = rx.peek(bytes);
        for (int turn = 0; turn < 200 && sent.size() < 100; ++turn) {
            if (try_send(tx, sent.size(), bytes)) sent.push_back(bytes);
            move(link, 1);
            if (!rx.has_message() || rx.peek(bytes) != at || !is_message(at, 0, bytes))
                return void(breaks("stay", "what peek() gave changed before release()", 0));
        }
        (void)take_all(link, 0, sent, "arrival");
    }

    void check_drained() {
        auto link = make_();
        auto& tx = link.tx();
        auto& rx = link.rx();
        if (!tx.is_drained()) return void(breaks("drained", "a channel that was not used is not drained", 0));
        for (int round = 0; round < 8; ++round) {
            std::vector<std::size_t> sent;
            std::uint64_t received = 0;
            for (int k = 0; k <= round % 3; ++k)
                if (const std::size_t bytes = any_size(); try_send(tx, sent.size(), bytes)) sent.push_back(bytes);
            const auto is_drained_meanwhile = [&] {
                if (tx.is_drained()) return true;
                if (rx.has_message() && is_right(rx, received, sent)) rx.release(sent[received++]);
                return !found_.is_clean();
            };
            if (!wait(link, is_drained_meanwhile))
                return void(breaks("drained", "all is taken, and it is not drained", received));
            if (!found_.is_clean() || !take_all(link, received, sent, "drained", false)) return;
            if (!wait(link, [&] { return tx.is_drained(); }))
                return void(breaks("drained", "all is taken, and it is not drained", sent.size()));
        }
    }

    Make& make_;
    const channel_facts& facts_;
    std::uint64_t random_;
    report found_;
};

} // namespace detail

// Checks a channel. make(): a new ChannelUnderTest (it need not be movable). Cost: some ms for a channel in memory.
template <class Make>
report check_channel(Make&& make, const channel_facts& facts = {}) {
    using link = decltype(make());
    if constexpr (ChannelUnderTest<link>) {
        return detail::channel_rules<std::remove_reference_t<Make>>(make, facts).run();
    } else {
        using tx = std::remove_cvref_t<decltype(std::declval<link&>().tx())>;
        using rx = std::remove_cvref_t<decltype(std::declval<link&>().rx())>;
        static_assert(collx::detail::require_sending_end<tx>() && collx::detail::require_receiving_end<rx>());
        static_assert(ChannelUnderTest<link>, "collx: a channel under test has tx(), rx(), move_sender() and "
                                              "move_receiver()");
        return {};
    }
}

} // namespace testing

COLLX_END_NAMESPACE
