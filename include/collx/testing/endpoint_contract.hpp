// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The contract of endpoints (transport/transport_concept.hpp) as a suite: check_transport<T>() makes endpoints of three
// ranks in one process, connects them and returns the rules that were broken. These are the rules of
// channel_contract.hpp for a channel to a higher and one to a lower rank, and
//
//   address    has at most endpoint_address::most_bytes, and is the same at each call
//   limit      most_bytes() is at least 256
//   early      messages of a peer arrive that sent before this endpoint was connected to it
//   apart      messages of different peers do not mix, and one that is not taken does not delay those of another peer
//   alive      is_gone() is false while the peer's endpoint exists
//   last_words messages that a peer committed before its end arrive
//   gone       is_gone() becomes true after the peer's end and its last message, and sending to it does no harm
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include <collx/core/clock.hpp>
#include <collx/core/pointers.hpp>
#include <collx/testing/channel_contract.hpp>
#include <collx/transport/transport_concept.hpp>

COLLX_BEGIN_NAMESPACE

namespace testing {

namespace detail {

// Endpoints of ranks 0 to 2, each connected to the others.
template <class E>
struct three_endpoints {
    sole_ptr<E> at[3];
    endpoint_address where[3];
    explicit three_endpoints(int connected = 3) { // ranks from this one on are not connected yet
        for (int r = 0; r < 3; ++r) {
            at[r] = make_sole<E>(r, 3);
            where[r] = at[r]->address();
        }
        for (int r = 0; r < connected; ++r) connect(r);
    }
    void connect(int r) {
        for (int p = 0; p < 3; ++p)
            if (p != r) at[r]->connect(p, where[p]);
    }
    void move() {
        for (auto& e : at)
            if (e) (void)e->move();
    }
};

template <class E>
struct endpoint_link {
    sole_ptr<three_endpoints<E>> all = make_sole<three_endpoints<E>>();
    int from, to;
    endpoint_link(int sender, int receiver) : from(sender), to(receiver) {}
    auto& tx() { return all->at[from]->tx(to); }
    auto& rx() { return all->at[to]->rx(from); }
    void move_sender() { (void)all->at[from]->move(); }
    void move_receiver() { (void)all->at[to]->move(); }
};

template <class E>
class endpoint_rules {
public:
    explicit endpoint_rules(std::int64_t limit_ns) : limit_ns_(limit_ns) {}

    report run() {
        check_words();
        if (!found_.is_clean()) return std::move(found_);
        check_early();
        check_apart();
        check_end();
        return std::move(found_);
    }

private:
    template <class Look>
    bool wait(three_endpoints<E>& all, Look&& look) {
        for (const auto until = deadline::in_ns(limit_ns_); !look(); all.move())
            if (until.passed()) return false;
        return true;
    }
    // Sends as many messages as fit, up to `most`; returns their number.
    static int send(three_endpoints<E>& all, int from, int to, std::uint64_t first, std::size_t bytes, int most) {
        int sent = 0;
        auto& tx = all.at[from]->tx(to);
        for (; sent < most; ++sent) {
            std::byte* const at = tx.try_acquire(bytes);
            if (at == nullptr) break;
            fill_message(at, first + static_cast<std::uint64_t>(sent), bytes);
            tx.commit(bytes);
        }
        return sent;
    }
    bool takes(three_endpoints<E>& all, int from, int to, std::uint64_t message, std::size_t bytes) {
        auto& rx = all.at[to]->rx(from);
        if (!wait(all, [&] { return rx.has_message(); }) || rx.message_bytes() != bytes ||
            !is_message(rx.peek(bytes), message, bytes))
            return false;
        rx.release(bytes);
        return true;
    }

    void check_words() {
        three_endpoints<E> all;
        const endpoint_address a = all.at[0]->address(), again = all.at[0]->address();
        if (a.bytes > endpoint_address::most_bytes) return found_.add("address", "it is too long");
        if (a.bytes != again.bytes || std::memcmp(a.at, again.at, a.bytes) != 0)
            found_.add("address", "it is another at the second call");
        if (all.at[0]->most_bytes() < 256)
            found_.add("limit", "messages of " + std::to_string(all.at[0]->most_bytes()) + " bytes at most");
    }
    void check_early() {
        three_endpoints<E> all(2);
        const int sent = send(all, 1, 2, 0, 100, 3);
        for (int turn = 0; turn < 64; ++turn) all.move();
        all.connect(2);
        for (int m = 0; m < sent; ++m)
            if (!takes(all, 1, 2, static_cast<std::uint64_t>(m), 100))
                return found_.add("early", "what was sent before the receiver was connected did not arrive");
    }
    void check_apart() {
        three_endpoints<E> all;
        const int waiting = send(all, 1, 0, 1000, 200, 10'000); // taken only at the end
        all.move();
        for (std::uint64_t m = 0; m < 50; ++m) {
            const auto is_sent = [&] { return send(all, 2, 0, m, 64, 1) == 1; };
            if (!wait(all, is_sent) || !takes(all, 2, 0, m, 64))
                return found_.add("apart", "messages of rank 2 wait for, or mix with, those of rank 1");
        }
        for (int m = 0; m < waiting; ++m)
            if (!takes(all, 1, 0, 1000 + static_cast<std::uint64_t>(m), 200))
                return found_.add("apart", "messages of rank 1 were lost or changed while rank 2 sent");
        if (all.at[0]->is_gone(1) || all.at[1]->is_gone(0)) found_.add("alive", "a peer is taken for gone");
    }
    void check_end() {
        three_endpoints<E> all;
        (void)send(all, 0, 1, 0, 100, 1);
        if (!wait(all, [&] { return all.at[1]->rx(0).has_message(); }))
            return found_.add("order", "a message that was committed did not arrive");
        const int sent = send(all, 1, 0, 0, 100, 3); // its end comes before its next move
        all.at[1] = sole_ptr<E>();
        for (int m = 0; m < sent; ++m)
            if (!takes_last(all, m)) return;
        const auto is_noticed = [&] {
            (void)send(all, 0, 1, 0, 100, 1);
            return all.at[0]->is_gone(1);
        };
        if (!wait(all, is_noticed)) return found_.add("gone", "the end of a peer is not noticed");
        (void)send(all, 0, 1, 0, 100, 100);
        all.move();
        if (!all.at[0]->is_gone(1)) found_.add("gone", "a peer that was gone is there again");
        if (all.at[0]->is_gone(2)) found_.add("alive", "another peer is taken for gone, too");
    }

    // Takes a message of rank 1, which has ended. While messages of it are on their way it is not gone.
    bool takes_last(three_endpoints<E>& all, int message) {
        auto& rx = all.at[0]->rx(1);
        bool is_gone = false;
        const auto is_over = [&] {
            is_gone = all.at[0]->is_gone(1);
            return is_gone || rx.has_message();
        };
        const bool is_early = wait(all, is_over) && is_gone && !rx.has_message();
        if (!takes(all, 1, 0, static_cast<std::uint64_t>(message), 100)) {
            found_.add("last_words", "what was committed before the end did not arrive");
            return false;
        }
        if (is_early) found_.add("gone", "a peer is gone before what it sent has arrived");
        return !is_early;
    }

    std::int64_t limit_ns_;
    report found_;
};

} // namespace detail

// Checks a transport. facts: those of its channels, with the endpoint's most_bytes. Cost: that of two dozen endpoints.
template <class T>
report check_transport(channel_facts facts = {}) {
    static_assert(Transport<T>, "collx: a transport has a name (static constexpr const char*) and a static constexpr "
                                "bool carries(collx::relation)");
    using endpoint = typename T::endpoint;
    if constexpr (collx::detail::require_endpoint<endpoint>()) {
        facts.most_bytes = endpoint(0, 1).most_bytes();
        report found = detail::endpoint_rules<endpoint>(facts.limit_ns).run();
        for (const auto& [from, to] : {std::pair{0, 1}, std::pair{2, 0}}) {
            const int sender = from, receiver = to;
            found.add(check_channel([&] { return detail::endpoint_link<endpoint>(sender, receiver); }, facts));
        }
        return found;
    }
    return {};
}

} // namespace testing

COLLX_END_NAMESPACE
