// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=120 sanitize=thread,nightly
//
// A communicator in a call cannot be used by another call, neither from the program's code that the call runs nor
// from another thread. The second call is refused, and the first is not affected.
#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "comm/every_verb.hpp"

using namespace collx_test;
using collx::errc;

namespace {

// All ranks sum by `call(w, x, op)`, with an operator that calls `inside` once on this rank.
template <class Call, class F>
void inside_operator(collx::communicator& w, std::vector<int>& x, Call&& call, F&& inside) {
    bool is_first = true;
    call(w, x, [&](int a, int b) {
        if (is_first) {
            is_first = false;
            inside();
        }
        return a + b;
    });
    EXPECT(!is_first);
}
constexpr auto blocking = [](auto& w, auto& x, auto op) { collx::all_reduce(w, x, collx::commutative(op)); };

} // namespace

TEST_CASE("an operator that makes a call of its communicator gets an error, whatever call, and the first one goes on") {
    for (const spread& hosts : {spread{}, spread{1}})
        on_hosts(2, hosts, [](collx::communicator& w) {
            with_every_verb(w, 2, [&](const char* name, auto verb) {
                std::vector<int> x{w.rank() + 1};
                inside_operator(w, x, blocking, [&] {
                    at("%s", name);
                    const auto e = thrown<collx::error>(w, verb);
                    EXPECT(e.code() == errc::invalid_argument && e.rank() == w.rank() && says(e, "dup()") &&
                           says(e, "an operator, hook or iterator of a call makes another call"));
                });
                EXPECT(x[0] == 3);
            });
        });
}

TEST_CASE("the same in calls that go on by themselves, in groups, in persistent calls and in hooks") {
    for (const std::size_t n : {1u, 40'000u})
        for (const spread& hosts : {spread{}, spread{1}})
            on_hosts(2, hosts, [n](collx::communicator& w) {
                int refused = 0;
                auto other = collx::async::recv(w, std::vector<int>(1), 1 - w.rank());
                const auto inside = [&] {
                    for (const int how : {0, 1, 2})
                        refused += thrown<collx::error>(w, [&] {
                                       if (how == 0) collx::barrier(w);
                                       else if (how == 1) (void)other.test();
                                       else (void)w.progress();
                                   }).code() == errc::invalid_argument;
                };
                std::vector<int> x(n, w.rank() + 1);
                const auto sum = [&](auto&& call) { inside_operator(w, x, call, inside); };
                sum([](auto& c, auto& v, auto op) { collx::async::all_reduce(c, v, op).wait(); });
                EXPECT(refused == 3 && x.back() == 3);
                sum([](auto& c, auto& v, auto op) {
                    collx::group g(c);
                    auto z = v;
                    g.all_reduce(v, op);
                    g.all_reduce(z, op);
                    g.launch();
                });
                EXPECT(refused == 6 && x.back() == 6);
                sum([](auto& c, auto& v, auto op) { collx::persistent::all_reduce(c, v, op)(); });
                EXPECT(refused == 9 && x.back() == 12);
                sum([](auto& c, auto& v, auto op) {
                    collx::persistent::group g(c);
                    auto z = v;
                    g.all_reduce(v, op);
                    g.all_reduce(z, op);
                    auto call = g.launch();
                    call.start();
                    call.wait();
                });
                EXPECT(refused == 12 && x.back() == 24);
                bool is_first = true;
                collx::all_reduce(w, x, collx::with_post(collx::plus{}, [&](int v) {
                                      if (is_first) {
                                          is_first = false;
                                          inside();
                                      }
                                      return v;
                                  }));
                EXPECT(refused == 15 && x.back() == 48);
                collx::barrier(w); // nothing was sent while an operator ran
                const std::vector<int> one(1, 5);
                collx::send(w, one, 1 - w.rank());
                EXPECT(other.wait() == one);
            });
}

TEST_CASE("calls of other communicators are none of this one") {
    on_ranks(2, [](collx::communicator& w) {
        auto other = w.dup();
        std::vector<int> x{1}, y{1};
        inside_operator(w, x, blocking, [&] { collx::all_reduce(other, y); });
        EXPECT(x[0] == 2 && y[0] == 2);
    });
}

TEST_CASE("an operator that lets the error through ends the communicator, and the others hear it at once") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
        std::vector<int> x{1};
        const auto e = thrown<collx::error>(w, [&] {
            collx::all_reduce(w, x, collx::commutative([&](int a, int b) {
                                  if (w.rank() == 1) collx::barrier(w);
                                  return a + b;
                              }));
            collx::barrier(w);
        });
        EXPECT(e.code() == (w.rank() == 1 ? errc::invalid_argument : errc::aborted));
        EXPECT(w.rank() == 1 || e.peer() == 1);
    });
}

TEST_CASE("a second thread gets an error while the first is in a call, waiting or working, and not after it") {
    std::atomic<bool> over{false};
    on_ranks(2, [&](collx::communicator& w) {
        std::vector<int> x{1}, y{w.rank()};
        const auto refused = [&] { // the call of a second thread
            std::string said;
            std::thread([&] {
                try {
                    collx::barrier(w);
                } catch (const collx::error& e) {
                    if (e.code() == errc::invalid_argument) said = e.what();
                }
            }).join();
            return said.find("another thread is in a call of this communicator") != std::string::npos;
        };
        inside_operator(w, x, blocking, [&] { EXPECT(refused()); });
        EXPECT(x[0] == 2);
        EXPECT(!refused()); // the second threads of both ranks call the same barrier
        if (w.rank() == 1) return collx_test::until([&] { return over.load(); });
        // Rank 0 waits for rank 1, which sends nothing, and must not leave, or the wait would end by that.
        std::atomic<bool> was_seen{false};
        std::thread second([&] {
            const std::int64_t until = collx::now_ns() + collx_test::patient(20'000'000'000);
            while (!was_seen && collx::now_ns() < until) {
                try {
                    (void)w.progress(); // does nothing before the first call has started
                } catch (const collx::error& e) {
                    was_seen = e.code() == errc::invalid_argument;
                }
                std::this_thread::yield();
            }
            w.abort();
        });
        (void)thrown<collx::error>(w, [&] { collx::recv(w, y, 1); });
        second.join();
        over = true;
        EXPECT(was_seen);
    });
}

TEST_CASE("a call that one rank alone was refused is not counted, so that the ranks still agree") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        std::vector<int> x{1};
        inside_operator(w, x, blocking, [&] {
            if (w.rank() != 0) return;
            const auto before = w.sequence();
            with_every_verb(w, 2, [&](const char* name, auto verb) {
                at("%s", name);
                (void)thrown<collx::error>(w, verb);
                EXPECT(w.sequence() == before);
            });
            (void)thrown<collx::error>(w, [&] { (void)w.dup(); });
            EXPECT(w.sequence() == before);
        });
        collx::all_reduce(w, x);
        EXPECT(x[0] == 4 && w.dup().size() == 2);
    });
}

TEST_CASE("handles that an operator waits for in vain lose nothing") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x{1}, y(7);
        auto message = collx::async::recv(w, y, 1 - w.rank());
        inside_operator(w, x, blocking, [&] {
            const auto refused = [&](auto&& wait) {
                EXPECT(thrown<collx::error>(w, wait).code() == errc::invalid_argument);
            };
            refused([&] { message.wait(); });
            refused([&] { (void)message.wait_for(collx::duration::from_ns(1)); });
            refused([&] { collx::wait_all(message); });
            refused([&] { (void)collx::wait_any(message); });
        });
        EXPECT(x[0] == 2);
        collx::barrier(w); // nothing was sent while an operator waited
        auto sent = collx::async::send(w, std::vector<int>(7, w.rank()), 1 - w.rank());
        EXPECT(collx::wait_any(message) == 0 && y[6] == 1 - w.rank());
        sent.wait();
    });
}

TEST_CASE("a handle that an operator drops ends the communicator, and its buffer is not touched any more") {
    std::atomic<int> drops{0}; // one rank may learn of the other's drop before its operator runs
    on_ranks(2, [&](collx::communicator& world) {
        auto w = world.dup();
        std::vector<int> x(40'000, 1), y(40'000);
        auto gone = std::make_unique<std::vector<int>>(40'000);
        std::optional<collx::work<void>> dropped = collx::async::recv(w, *gone, 1 - w.rank());
        auto other = collx::async::recv(w, y, 1 - w.rank());
        const auto& walked = w.internals().pending; // walked by the call that runs the operator
        std::size_t before = 0, after = 0;
        (void)thrown<collx::aborted>(w, [&] {
            for (int i = 0; i < 1000; ++i) { // a wait reports the drop
                bool is_first = i == 0;
                collx::async::all_reduce(w, x, [&](int a, int b) {
                    if (is_first) {
                        is_first = false;
                        ++drops;
                        before = walked.size();
                        dropped.reset();
                        gone.reset();
                        after = walked.size();
                    }
                    return a + b;
                }).wait();
            }
        });
        EXPECT(after == before); // a dropped operation stays in the list until the walk has passed it
        (void)thrown<collx::aborted>(w, [&] { other.wait(); });
        collx::barrier(world);
        EXPECT(drops >= 1 && (before == 3 || before == 0));
    });
}
