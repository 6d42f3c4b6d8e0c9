// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Messages between two ranks: sizes, order, messages to itself, rings, several outstanding.
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

using namespace collx_test;

TEST_CASE("messages of any size arrive, in order, between all pairs") {
    for (const int n : {1, 2, 3, 5})
        on_ranks(n, [n](collx::communicator& w) {
            for (int from = 0; from < n; ++from)
                for (int to = 0; to < n; ++to) {
                    if (from == to) continue;
                    for (const std::size_t size : sizes) {
                        at("%d to %d size=%zu", from, to, size);
                        if (w.rank() == from) collx::send(w, samples(from, size), to);
                        if (w.rank() == to) {
                            std::vector<int> x(size + 1, -1);
                            collx::recv(w, collx::view(x.data(), size), from);
                            for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == sample(from, i));
                            EXPECT(x[size] == -1);
                        }
                    }
                }
            EXPECT(w.size() == n);
        });
}

TEST_CASE("small messages do not wait for their receiver, and keep their order") {
    on_ranks(2, [](collx::communicator& w) {
        for (int round = 0; round < 50; ++round) {
            if (w.rank() == 0) {
                for (int i = 0; i < 8; ++i) collx::send(w, collx::value(i), 1); // before the first is received
                collx::barrier(w);
            } else {
                collx::barrier(w);
                for (int i = 0; i < 8; ++i) {
                    int x = -1;
                    collx::recv(w, collx::value(x), 0);
                    EXPECT(x == i);
                }
            }
            EXPECT(true);
        }
    });
}

TEST_CASE("a ring of sendrecv does not lock, whatever the size") {
    for (const int n : {1, 2, 3, 8})
        on_ranks(n, [n](collx::communicator& w) {
            const int next = (w.rank() + 1) % n, before = (w.rank() + n - 1) % n;
            for (const std::size_t size : {0u, 1u, 1000u, 400'000u}) {
                at("n=%d size=%zu", n, size);
                std::vector<int> x(size, -1);
                collx::sendrecv(w, samples(w.rank(), size), next, x, before);
                EXPECT(x == samples(before, size));
                x.assign(size, -1);
                EXPECT(collx::try_::sendrecv(w, samples(w.rank(), size), next, x, before).has_value());
                EXPECT(x == samples(before, size));
            }
            std::vector<int> a(2), b(2);
            EXPECT(collx::try_::sendrecv(w, a, n, b, before).error().code() == collx::errc::invalid_argument);
        });
}

TEST_CASE("an async sendrecv is one handle for both messages, beside others under way") {
    for (const int n : {1, 2, 3, 8})
        on_ranks(n, [n](collx::communicator& w) {
            const int next = (w.rank() + 1) % n, before = (w.rank() + n - 1) % n;
            for (const std::size_t size : {0u, 1u, 1000u, 400'000u}) {
                at("n=%d size=%zu", n, size);
                const auto mine = samples(w.rank(), size);
                std::vector<int> x(size, -1), y(size, -1);
                auto first = collx::async::sendrecv(w, mine, next, x, before);
                auto second = collx::async::sendrecv(w, mine, before, y, next); // the other direction of the ring
                collx::wait_all(first, second);
                EXPECT(x == samples(before, size));
                EXPECT(y == samples(next, size));
                // Buffers that are moved in: the sent one lives as long as the call, the received one is returned.
                auto moved =
                    collx::async::sendrecv(w, samples(w.rank(), size), next, std::vector<int>(size, -1), before);
                EXPECT(moved.wait() == samples(before, size));
            }
            std::vector<int> a(2), b(2);
            EXPECT(thrown<collx::invalid_argument>(w, [&] {
                       (void)collx::async::sendrecv(w, a, n, b, before);
                   }).peer() == -1);
            EXPECT(
                says(thrown<collx::invalid_argument>(w, [&] { (void)collx::async::sendrecv(w, a, next, a, before); }),
                     "overlap"));
            collx::barrier(w); // the refused calls left nothing behind
        });
}

TEST_CASE("an async sendrecv does not wait for one that was started before it") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            const int me = w.rank();
            std::vector<int> mine(4, me), from_1(4, -1), from_2(4, -1), go(1, 7);
            if (me == 0) {
                std::vector<collx::work<void>> both;
                both.push_back(collx::async::sendrecv(w, mine, 1, from_1, 1));
                both.push_back(collx::async::sendrecv(w, mine, 2, from_2, 2));
                EXPECT(collx::wait_any(both) == 1); // rank 1 answers only after what follows
                EXPECT(from_2 == std::vector<int>(4, 2));
                collx::neighbor_all_gather(w, {{2}, {2}}, mine, from_2); // nor does a call on a graph
                collx::send(w, go, 2);
                both[0].wait();
                EXPECT(from_1 == std::vector<int>(4, 1));
            } else if (me == 2) {
                collx::sendrecv(w, mine, 0, from_1, 0);
                collx::neighbor_all_gather(w, {{0}, {0}}, mine, from_2);
                collx::recv(w, go, 0);
                collx::send(w, go, 1);
                EXPECT(from_1 == std::vector<int>(4, 0) && from_2 == from_1);
            } else {
                std::vector<int> none;
                collx::neighbor_all_gather(w, {{}, {}}, mine, none);
                collx::recv(w, go, 2);
                collx::sendrecv(w, mine, 0, from_1, 0);
                EXPECT(from_1 == std::vector<int>(4, 0));
            }
        });
}

TEST_CASE("an async sendrecv that no rank answers names the rank it waits for") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> a(2), b(2);
        if (w.rank() == 0) {
            const auto e = thrown<collx::timed_out>(
                w, [&] { collx::async::sendrecv(w, a, 1, b, 1, {.timeout = std::chrono::milliseconds(100)}).wait(); });
            EXPECT(e.peer() == 1);
        } else {
            EXPECT(thrown<collx::error>(w, [&] { collx::barrier(w); }).code() == collx::errc::timeout);
        }
    });
}

TEST_CASE("a rank may send to itself while it receives") {
    on_ranks(2, [](collx::communicator& w) {
        for (const std::size_t size : {0u, 5u, 300'000u}) {
            std::vector<int> x(size, -1);
            auto receiving = collx::async::recv(w, x, w.rank());
            collx::send(w, samples(w.rank(), size), w.rank());
            receiving.wait();
            EXPECT(x == samples(w.rank(), size));
        }
    });
}

TEST_CASE("several messages under way to and from several ranks, waited for in any order") {
    const auto text = [](int from, int to, int j) {
        return samples(from * 16 + to * 4 + j, static_cast<std::size_t>((from * 3 + to * 5 + j * 7) % 11) * 9000);
    };
    on_ranks(4, [&](collx::communicator& w) {
        for (int round = 0; round < 10; ++round) {
            std::vector<std::vector<int>> in, out;
            for (int j = 0; j < 3; ++j)
                for (int k = 0; k < 4; ++k) {
                    out.push_back(text(w.rank(), k, j));
                    in.emplace_back(text(k, w.rank(), j).size(), -1);
                }
            std::vector<collx::work<void>> works;
            for (std::size_t i = 0; i < 12; ++i) {
                works.push_back(collx::async::recv(w, in[i], static_cast<int>(i % 4)));
                works.push_back(collx::async::send(w, out[i], static_cast<int>(i % 4)));
            }
            if (round % 2 == 0) std::swap(works.front(), works.back());
            while (!works.empty()) {
                works.back().wait();
                works.pop_back();
            }
            for (int j = 0; j < 3; ++j)
                for (int k = 0; k < 4; ++k)
                    EXPECT_AT(k, in[static_cast<std::size_t>(j * 4 + k)] == text(k, w.rank(), j));
        }
    });
}

TEST_CASE("the handle of an async sendrecv that is dropped takes its messages along") {
    for (const int ranks_per_host : {0, 1}) {
        std::atomic<int> stage{0};
        on_hosts(2, {ranks_per_host}, [&](collx::communicator& w) {
            auto other = w.dup();
            other.set_checked(false);
            std::vector<char> out(1 << 20, 'x'), in(1 << 20, '-');
            if (w.rank() == 1) {
                collx_test::until([&] { return stage == 1; });
                auto both = collx::async::sendrecv(other, out, 0, in, 0);
                collx_test::until([&] {
                    (void)other.progress();
                    return stage == 3;
                });
                try { // it may be done
                    both.wait();
                } catch (const collx::aborted&) {
                }
                EXPECT(true);
                return;
            }
            std::size_t before = 0;
            {
                const auto both = collx::async::sendrecv(other, out, 1, in, 1);
                stage = 1;
                std::this_thread::sleep_for(std::chrono::milliseconds(20)); // rank 1 fills what is on the way
                before = static_cast<std::size_t>(std::count(in.begin(), in.end(), 'x'));
            }
            for (int k = 0; k < 20; ++k) (void)other.progress();
            EXPECT(static_cast<std::size_t>(std::count(in.begin(), in.end(), 'x')) == before);
            stage = 3;
        });
    }
}
