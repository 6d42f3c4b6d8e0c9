// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Large messages by reference: pages that pass through a pipe, when reference is chosen, how long the system reads
// the memory, and what happens when one end fails.
#include <collx/transport/failure.hpp>
#include <collx/transport/stream.hpp>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/faulty_sockets.hpp"
#include "support/skip.hpp"
#include "transport/channel_contract.hpp"
#include "transport/connections.hpp"

using namespace collx;
using namespace collx_test;
using detail::copy_or_reference;
using detail::page_pipe;

namespace {

// Where the system handles pages one by one, nothing goes by reference and there is nothing to test.
bool is_missing() {
    if (page_pipe::is_fast()) return false;
    skip("Linux before 6.5 does not take many pages at once");
    return true;
}

std::vector<std::byte> message(std::size_t bytes, std::uint64_t seed = 1) {
    std::vector<std::byte> m(bytes);
    fill_message(m.data(), seed, bytes);
    return m;
}

struct pair_of_streams {
    static constexpr channel_shape shape{.depth = 4, .slot_bytes = std::size_t{32} << 20};
    stream left, right;
    sending_end tx;
    receiving_end rx;
    explicit pair_of_streams(single_copy_mode when, int family = AF_INET,
                             const socket_calls& calls = system_socket_calls)
        : left(calls, shape, 2), right(calls, shape, 2), tx(left.tx(1)), rx(right.rx(1)) {
        auto [a, b] = connection(family);
        left.set_copy_mode(when);
        left.open(std::move(a), false);
        right.open(std::move(b), false);
    }
    bool move_until(auto&& what) {
        return wait_until([&] {
            left.move();
            right.move();
            return what();
        });
    }
    // Sends as much as the system accepts.
    void send() {
        for (int quiet = 0; quiet < 3;) quiet = left.move() ? 0 : quiet + 1;
    }
};

} // namespace

TEST_CASE("a pipe hands on the very bytes, whatever their place and number, as far as the socket takes them") {
    if (is_missing()) return;
    for (const int family : {AF_INET, AF_INET6, AF_UNIX})
        for (const socket_calls* calls : {&system_socket_calls, &bad_day_calls}) {
            auto ends = connection(family);
            auto &one = ends.first, &other = ends.second;
            page_pipe pages(*calls);
            const auto all = message(5'000'000);
            for (const std::size_t offset : {0, 1, 4095, 100'000})
                for (const std::size_t bytes : {1ul, 4096ul, 4097ul, page_pipe::most_bytes + 3, 4'800'000ul}) {
                    std::vector<std::byte> got(bytes);
                    std::size_t sent = 0, came = 0;
                    REQUIRE(wait_until([&] {
                        if (sent < bytes) {
                            const ssize_t n = pages.send(one.get(), all.data() + offset + sent, bytes - sent);
                            if (n > 0) sent += static_cast<std::size_t>(n);
                            else if (!pages.is_usable() || !detail::would_block(errno)) return true;
                        }
                        const ssize_t n = ::recv(other.get(), got.data() + came, bytes - came, MSG_DONTWAIT);
                        if (n > 0) came += static_cast<std::size_t>(n);
                        return came == bytes;
                    }));
                    REQUIRE(sent == bytes);
                    REQUIRE(std::memcmp(got.data(), all.data() + offset, bytes) == 0);
                }
        }
}

TEST_CASE("a pipe says whether the memory was refused or the socket has ended, and raises no signal") {
    if (is_missing()) return;
    const auto some = message(100'000);
    {
        auto [one, other] = connection(AF_INET);
        page_pipe pages(system_socket_calls);
        CHECK(pages.send(one.get(), reinterpret_cast<const std::byte*>(8), 4096) == -1);
        CHECK_FALSE(pages.is_usable());
    }
    {
        auto [one, other] = connection(AF_UNIX);
        other.close();
        page_pipe pages(system_socket_calls);
        CHECK(pages.send(one.get(), some.data(), some.size()) == -1);
        CHECK(errno == EPIPE);
        CHECK(pages.is_usable());
    }
    socket_calls without = system_socket_calls;
    without.splice = nullptr;
    CHECK_FALSE(page_pipe(without).is_usable());
}

TEST_CASE("an end that closes while a pipe hands over its pages raises no signal") {
    if (is_missing()) return;
    // After a goodbye a reset is reported as EPIPE. Between two pages, splice() raises SIGPIPE and still returns the
    // bytes of the pages before.
    static std::atomic<int> raised{0};
    const auto before = ::signal(SIGPIPE, [](int) { ++raised; });
    const auto some = message(1 << 20);
    int ended = 0;
    for (int round = 0; round < 100; ++round) {
        auto ends = connection(AF_INET);
        auto &one = ends.first, &other = ends.second;
        std::thread closes([&, fd = std::move(other), round]() mutable {
            std::vector<std::byte> room(1 << 20);
            const auto take = [&](int times) {
                for (int i = 0; i < times; ++i)
                    if (::recv(fd.get(), room.data(), room.size(), MSG_DONTWAIT) < 0) std::this_thread::yield();
            };
            take(round % 7);
            ::shutdown(fd.get(), SHUT_WR);
            ::usleep(static_cast<useconds_t>(round % 50));
            take(round % 3);
            fd.close();
        });
        page_pipe pages(system_socket_calls);
        std::size_t sent = 0;
        ended += wait_until([&] {
            const ssize_t n = pages.send(one.get(), some.data() + sent, some.size() - sent);
            if (n > 0) sent = (sent + static_cast<std::size_t>(n)) % some.size();
            return n < 0 && !detail::would_block(errno);
        });
        closes.join();
    }
    ::signal(SIGPIPE, before);
    CHECK(ended == 100);
    CHECK(raised == 0);
}

TEST_CASE("messages go by reference where they are received much sooner, and each way is tried now and then") {
    constexpr std::size_t bytes = 256 * 1024, rounds = 20'000;
    // The arguments are the us that 256 KiB take until the answer. Returns the share that went by reference; counts
    // in `asked` the messages that requested an answer.
    std::size_t asked = 0;
    const auto share = [&](copy_or_reference& c, int copying_us, int referring_us) {
        std::size_t referred = 0;
        asked = 0;
        for (std::size_t i = 0; i < rounds; ++i) {
            const auto by = c.next(bytes);
            referred += by.by_reference;
            asked += by.is_asked;
            if (by.by_reference && !by.is_asked) throw std::logic_error("no message would say when it is free");
            if (by.is_asked) c.add_cost(by.by_reference, (by.by_reference ? referring_us : copying_us) * 1000, bytes);
        }
        return static_cast<double>(referred) / static_cast<double>(rounds);
    };
    copy_or_reference c;
    CHECK_FALSE(c.next(bytes).by_reference); // at first copying, which works everywhere
    CHECK(share(c, 40, 35) < 0.02);          // sooner, but by less than the cost of the answer
    const double tried = share(c, 40, 35);
    CHECK(tried > 0);
    CHECK(tried < 0.01);
    CHECK(asked < rounds / 16);
    CHECK(share(c, 100, 40) > 0.9); // the ranks now run on distant cores
    CHECK(share(c, 40, 40) < 0.1);  // and on near ones again

    copy_or_reference refused; // nothing can go by reference
    std::size_t times = 0;
    for (std::size_t i = 0; i < rounds; ++i) {
        const auto by = refused.next(bytes);
        if (!by.by_reference && by.is_asked) refused.add_cost(false, 1'000'000, bytes);
        times += by.by_reference;
    }
    CHECK(times < rounds / 50);

    copy_or_reference never(single_copy_mode::never), always(single_copy_mode::always);
    CHECK(share(never, 1000, 1) == 0);
    CHECK(asked == 0);
    CHECK(share(always, 1, 1000) == 1);
}

TEST_CASE("who has gone one way for long soon notices that the cores have moved, though single answers come late") {
    constexpr std::size_t mib = std::size_t{1} << 20;
    for (const std::size_t bytes : {std::size_t{131'072}, std::size_t{400'000}, mib}) {
        copy_or_reference c;
        // Sends `total` bytes at these times per MiB; returns the bytes that went the slower way.
        const auto slow_bytes = [&](std::size_t total, double copying_us, double referring_us) {
            std::size_t slow = 0;
            for (std::size_t i = 1; i <= total / bytes; ++i) {
                const auto by = c.next(bytes);
                slow += by.by_reference == (copying_us < referring_us) ? bytes : 0;
                const double us = (by.by_reference ? referring_us : copying_us) * static_cast<double>(bytes) / mib;
                const double late = i % 500 == 0 ? 30 : 1;
                if (by.is_asked) c.add_cost(by.by_reference, static_cast<std::int64_t>(us * late * 1000), bytes);
            }
            return slow;
        };
        INFO("messages of " << bytes);
        CHECK(slow_bytes(2048 * mib, 100, 110) < 100 * mib); // near cores
        CHECK(slow_bytes(512 * mib, 450, 150) < 64 * mib);   // distant cores
        CHECK(slow_bytes(2048 * mib, 450, 150) < 100 * mib);
        CHECK(slow_bytes(512 * mib, 100, 110) < 300 * mib); // near again: less to gain, so switching is less urgent
    }
}

TEST_CASE("answers that come in bunches say what all of their messages took") {
    constexpr std::size_t mib = std::size_t{1} << 20;
    // The first answer of a bunch arrives after the time of all, the other answers directly behind it.
    const auto referred_of = [&](int copying_us, int copied_at_once, int referring_us, int referred_at_once) {
        copy_or_reference c;
        int referred = 0;
        int in_row = 0;
        bool was_reference = false;
        for (int i = 0; i < 4096; ++i) {
            const auto by = c.next(mib);
            referred += by.by_reference;
            const int bunch = by.by_reference ? referred_at_once : copied_at_once;
            const int us = by.by_reference ? referring_us : copying_us;
            if (!by.is_asked) {
                in_row = 0;
                continue;
            }
            was_reference != by.by_reference ? in_row = 0 : 0;
            was_reference = by.by_reference;
            c.add_cost(by.by_reference, (in_row++ % bunch == 0 ? us * bunch : 1) * 1000, mib);
        }
        return referred;
    };
    CHECK(referred_of(100, 2, 130, 4) < 500);
    CHECK(referred_of(100, 4, 130, 2) < 500);
    CHECK(referred_of(300, 2, 130, 4) > 3500);
    CHECK(referred_of(300, 4, 130, 2) > 3500);
}

TEST_CASE("the other end of a connection is found in this system, and gone once it has been reset") {
    for (const int family : {AF_INET, AF_INET6}) {
        auto [one, other] = connection(family);
        detail::counterpart of_one(one.get());
        if (of_one.ask() == detail::counterpart::state::unknown) return skip("the kernel answers no sock_diag");
        CHECK(of_one.ask() == detail::counterpart::state::open);
        const descriptor also(::dup(one.get())); // as a child process would hold
        page_pipe::take_back(one.get());
        CHECK(of_one.ask() == detail::counterpart::state::gone);
        char c;
        CHECK(::recv(other.get(), &c, 1, MSG_DONTWAIT) == -1);
        CHECK(errno == ECONNRESET);
    }
    auto [one, other] = connection(AF_UNIX);
    CHECK(detail::counterpart(one.get()).ask() == detail::counterpart::state::unknown);
    CHECK(page_pipe(system_socket_calls).is_usable_on(one.get()) == page_pipe::is_fast());
    page_pipe::take_back(one.get());
    CHECK(detail::stream_wire::is_reset(other.get()));
    const descriptor alone(::socket(AF_INET, SOCK_STREAM, 0));
    CHECK(detail::counterpart(alone.get()).ask() == detail::counterpart::state::unknown);
    CHECK_FALSE(page_pipe(system_socket_calls).is_usable_on(alone.get()));
}

TEMPLATE_TEST_CASE_SIG("what goes by reference stays with the system until the other end has received it", "",
                       ((int Family), Family), AF_INET, AF_INET6, AF_UNIX) {
    if (is_missing()) return;
    pair_of_streams w(single_copy_mode::always, Family);
    const auto first = message(copy_or_reference::least_bytes, 1), second = message(140'001, 2);
    w.tx.commit_single_copy(first.data(), first.size(), 7);
    // behind them, from a slot
    std::memset(w.tx.try_acquire(100), 1, 100);
    w.tx.commit(100, 9);
    REQUIRE(wait_until([&] {
        w.send();
        return w.left.is_flushed();
    })); // the system has everything
    CHECK(w.left.is_exposed());
    CHECK_FALSE(w.tx.has_all_back());
    CHECK_FALSE(w.tx.is_drained());
    REQUIRE(wait_until([&] {
        w.right.move();
        return w.rx.has_message();
    }));
    CHECK(is_message(w.rx.peek(first.size()), 1, first.size()));
    w.rx.release(first.size());
    REQUIRE(w.move_until([&] { return w.tx.is_drained(); }));
    CHECK_FALSE(w.left.is_exposed());
    REQUIRE(w.move_until([&] { return w.rx.has_message(); }));
    REQUIRE(w.rx.is_expected(100, 9));
    w.rx.release(100);
    w.tx.commit_single_copy(second.data(), second.size(), 8);
    REQUIRE(w.move_until([&] { return w.tx.is_drained(); }));
    REQUIRE(w.move_until([&] { return w.rx.has_message(); }));
    REQUIRE(w.rx.is_expected(second.size(), 8));
    CHECK(is_message(w.rx.peek(second.size()), 2, second.size()));
    w.rx.release(second.size());

    // Shorter ones are copied: the sender is free when the system has them.
    w.tx.commit_single_copy(first.data(), first.size() - 1, 7);
    CHECK(wait_until([&] {
        w.send();
        return w.tx.has_all_back();
    }));
}

TEST_CASE("by reference to where it is wanted, both ways at once, on good days and bad") {
    if (is_missing()) return;
    for (const socket_calls* calls : {&system_socket_calls, &bad_day_calls})
        for (const int family : {AF_INET, AF_UNIX}) {
            pair_of_streams w(single_copy_mode::always, family, *calls);
            w.right.set_copy_mode(single_copy_mode::always);
            sending_end back = w.right.tx(0);
            receiving_end come = w.left.rx(0);
            for (std::uint64_t seed = 1; seed < 12; ++seed) {
                const std::size_t there = 65'536 * seed + seed, here = 4'000'000 / seed;
                const auto out = message(there, seed), in = message(here, 99 - seed);
                std::vector<std::byte> arrived(there), also(here);
                w.tx.commit_single_copy(out.data(), there, 0);
                back.commit_single_copy(in.data(), here, 0);
                w.rx.want_at(arrived.data(), there, 0);
                come.want_at(also.data(), here, 0);
                REQUIRE(w.move_until([&] { return w.rx.has_message() && come.has_message(); }));
                REQUIRE((w.rx.is_posted() && come.is_posted()));
                CHECK((arrived == out && also == in));
                w.rx.release_posted();
                come.release_posted();
                REQUIRE(w.move_until([&] { return w.tx.is_drained() && back.is_drained(); }));
            }
        }
}

TEST_CASE("what the system does not take by reference goes by copy, from the byte where it stopped") {
    if (is_missing()) return;
    static int left_calls;
    for (const int good_calls : {0, 1, 5}) {
        left_calls = good_calls;
        socket_calls calls = system_socket_calls;
        calls.vmsplice = [](int fd, const iovec* parts, std::size_t n, unsigned flags) -> ssize_t {
            if (left_calls-- <= 0) {
                errno = EFAULT;
                return -1;
            }
            return ::vmsplice(fd, parts, n, flags);
        };
        pair_of_streams w(single_copy_mode::always, AF_INET, calls);
        const auto m = message(3'000'000);
        for (int i = 0; i < 2; ++i) {
            w.tx.commit_single_copy(m.data(), m.size(), 0);
            REQUIRE(w.move_until([&] { return w.rx.has_message() && w.tx.is_drained(); }));
            CHECK(is_message(w.rx.peek(m.size()), 1, m.size()));
            w.rx.release(m.size());
        }
    }
}

TEST_CASE("memory is handed back after a failure only when no receiver can see what becomes of it") {
    if (is_missing()) return;
    for (const std::size_t bytes : {200'000ul, 30'000'000ul}) { // the system has all of it, or a part
        for (const bool wanted : {false, true}) {
            pair_of_streams w(single_copy_mode::always);
            auto m = message(bytes);
            std::vector<std::byte> arrived(bytes);
            if (wanted) w.rx.want_at(arrived.data(), bytes, 0);
            w.tx.commit_single_copy(m.data(), bytes, 0);
            REQUIRE(wait_until([&] {
                w.send();
                return w.left.is_flushed() == (bytes == 200'000);
            }));
            REQUIRE(w.left.is_exposed());
            w.left.say_failure(failure(errc::aborted, 0).word);
            w.send();
            w.left.settle();
            CHECK_FALSE(w.left.is_live());
            CHECK_FALSE(w.left.is_exposed());
            m.assign(bytes, std::byte{0xdd}); // the user's memory again
            REQUIRE(wait_until([&] {
                w.right.move();
                return !w.right.is_live();
            }));
            CHECK(w.right.state() == stream::phase::lost);
            CHECK_FALSE(w.rx.has_message());
        }
    }
    // If the first message was received, the connection stays, and data that the system does not have yet goes by copy.
    pair_of_streams w(single_copy_mode::always);
    auto m = message(100'000);
    w.tx.commit_single_copy(m.data(), m.size(), 0);
    REQUIRE(w.move_until([&] { return w.tx.is_drained(); }));
    w.tx.commit_single_copy(m.data(), m.size(), 0); // committed but not started
    w.left.settle();
    CHECK(w.left.is_live());
}

TEST_CASE("memory is handed back also while a child of this process has the socket open, too") {
    if (is_missing()) return;
    for (const int family : {AF_INET, AF_INET6, AF_UNIX})
        for (const std::size_t bytes : {200'000ul, 30'000'000ul}) {
            pair_of_streams w(single_copy_mode::always, family);
            auto m = message(bytes);
            const descriptor childs(::dup(w.left.fd())); // as fork() leaves a child with
            REQUIRE(childs.is_open());
            w.tx.commit_single_copy(m.data(), bytes, 0);
            w.send();
            REQUIRE(w.left.is_exposed());
            w.left.settle();
            m.assign(bytes, std::byte{0xdd});
            REQUIRE(wait_until([&] {
                w.right.move();
                return !w.right.is_live();
            }));
            CHECK_FALSE(w.rx.has_message());
        }
}

TEST_CASE("an end that closes takes its memory back") {
    if (is_missing()) return;
    pair_of_streams w(single_copy_mode::always);
    const auto m = message(200'000);
    w.tx.commit_single_copy(m.data(), m.size(), 0);
    w.send();
    auto nonsense = detail::stream_frame{.magic = 0x1234};
    REQUIRE(::send(w.right.fd(), &nonsense, sizeof nonsense, 0) == sizeof nonsense);
    REQUIRE(wait_until([&] {
        w.left.move();
        return !w.left.is_live();
    }));
    REQUIRE(wait_until([&] {
        w.right.move();
        return !w.right.is_live();
    }));
    CHECK_FALSE(w.rx.has_message());
}
