// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who reads shared connections while their rank waits: also what comes over one that the communicator in which it waits
// does not use. (One shared connection: trunk_test.cpp.)
#include <collx/net.hpp>
#include <collx/transport/remote_links.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "connections.hpp"
#include "support/patience.hpp"
#include "support/toy_macs.hpp"

using namespace collx;
using collx_test::loopback;
using collx_test::patient;

namespace {

// Seals that seal nothing. What matters is that records are read ahead.
struct open_sealer final : detail::sealer {
    bool seal(const unsigned char*, std::size_t, unsigned char*, std::size_t, unsigned char*) override { return true; }
    bool open(const unsigned char*, std::size_t, unsigned char*, std::size_t, const unsigned char*) override {
        return true;
    }
};
constexpr detail::seal_component open_seals{
    "a toy", [](const detail::secret&, bool, bool) -> sole_ptr<detail::sealer> { return make_sole<open_sealer>(); }};
struct with_open_seals {
    const detail::seal_component* before = detail::seals;
    with_open_seals() { detail::seals = &open_seals; }
    with_open_seals(const with_open_seals&) = delete;
    ~with_open_seals() { detail::seals = before; }
};

template <class Is>
void wait_until(Is&& is) {
    for (const deadline until = deadline::in_ns(patient(30'000'000'000)); !is();)
        if (until.passed()) FAIL("what is waited for does not come");
}

// Three ranks on three hosts, all in this thread.
struct three_ranks {
    explicit three_ranks(bool is_sealed, std::int64_t linger_ns = 0) {
        std::vector<socket_address> at(3, loopback(false));
        std::vector<descriptor> listeners;
        for (socket_address& a : at) listeners.push_back(socket_hub::listen_on(a));
        const job_protection by =
            is_sealed ? job_protection{protection::integrity, job_key(std::string(64, 'k'))} : job_protection();
        for (descriptor& l : listeners)
            hubs.push_back(make_counted<socket_hub>(std::move(l), "a job", at, linger_ns, system_socket_calls, by));
    }
    ~three_ranks() {
        for (auto& l : links) l->say_bye();
    }
    remote_links& join(std::uint64_t number, bool shares, int rank) {
        links.push_back(std::make_unique<remote_links>(hubs[static_cast<std::size_t>(rank)],
                                                       remote_members{.id = remote_members::id_of(number, shares),
                                                                      .rank = rank,
                                                                      .ranks = {0, 1, 2},
                                                                      .shape = {.depth = 4, .slot_bytes = 64 * 1024},
                                                                      .ports = 1}));
        links.back()->begin(failed);
        return *links.back();
    }
    void move_all() {
        for (auto& l : links) (void)l->move();
    }
    collx::atomic<std::uint64_t> failed{0};
    std::vector<counted_ptr<socket_hub>> hubs;
    std::vector<std::unique_ptr<remote_links>> links;
};
// Messages of one rank to rank 0 in one communicator.
struct way_to_zero {
    way_to_zero(remote_links& f, remote_links& t) : from(f), to(t), tx(f.tx(0, 0)), rx(t.rx(0, f.rank())) {}
    void send(std::size_t bytes) {
        wait_until([&] {
            (void)from.move();
            return tx.try_acquire(bytes) != nullptr;
        });
        tx.commit(bytes);
        wait_until([&] {
            (void)from.move();
            return tx.is_drained();
        });
    }
    remote_links &from, &to;
    sending_end tx;
    receiving_end rx;
};

} // namespace

TEST_CASE("a rank that waits in one communicator reads what comes for others over any shared connection") {
    const collx_test::with_toy_macs macs;
    const with_open_seals seals;
    for (const bool is_behind : {false, true}) // a large message of another communicator, from which a seal reads on
        for (const bool shares : {false, true}) {
            CAPTURE(is_behind, shares);
            three_ranks all(is_behind);
            way_to_zero large(all.join(11, true, 1), all.join(11, true, 0)),
                awaited(all.join(13, true, 1), all.join(13, true, 0)),
                elsewhere(all.join(15, shares, 2), all.join(15, shares, 0)),
                second(all.join(17, true, 2), all.join(17, true, 0)); // so that there are two shared connections
            for (std::uint64_t k = 0; k < 40; ++k) (void)all.join(101 + 2 * k, false, 0);
            for (way_to_zero* w : {&large, &awaited, &elsewhere, &second}) {
                w->tx.commit(0);
                wait_until([&] {
                    all.move_all();
                    return w->rx.has_message();
                });
                w->rx.release(0);
            }
            REQUIRE(all.hubs[0]->shared().can_tell());
            int most_moves = 0;
            for (int turn = 0; turn < 8; ++turn) {
                for (int i = 0; i < 20; ++i) all.move_all();
                if (is_behind) large.send(40'000);
                awaited.send(60'000);
                if (is_behind) {
                    wait_until([&] {
                        (void)large.to.move();
                        return large.rx.has_message();
                    });
                    large.rx.release(40'000);
                }
                int moves = 0;
                wait_until([&] {
                    (void)elsewhere.to.move();
                    ++moves;
                    return awaited.rx.has_message();
                });
                awaited.rx.release(60'000);
                most_moves = std::max(most_moves, moves);
            }
            CHECK(most_moves <= 80); // among 45 communicators the turn of each comes after 360
            CHECK(all.failed.load() == 0);
        }
}

TEST_CASE("the end of a job opens a shared connection over which something is to be sent") {
    three_ranks all(false, patient(20'000'000'000));
    remote_links& leaver = all.join(11, true, 0);
    leaver.tx(0, 1).commit(0);
    leaver.say_bye();
    all.links.clear();
    std::thread end([hub = std::exchange(all.hubs[0], nullptr)]() mutable { hub = nullptr; });
    remote_links& peer = all.join(11, true, 1);
    const deadline until = deadline::in_ns(patient(10'000'000'000));
    while (all.hubs[1]->shared().count() == 0 && !until.passed()) (void)peer.move();
    const receiving_end rx = peer.rx(0, 0); // earlier, rank 1 would connect, and find the listener closed
    while (!rx.has_message() && !until.passed()) (void)peer.move();
    CHECK(rx.has_message());
    end.join();
}
