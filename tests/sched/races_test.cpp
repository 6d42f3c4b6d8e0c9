// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Happens-before: which accesses are ordered and which are not. Small schedules, each with and without the edge in
// question.
#include <collx/algo/algorithms.hpp>
#include <collx/sched/facts.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

namespace {

template <class Text>
struct exchange {
    static constexpr collective op = collective::send_recv;
    static constexpr int chunks(int) { return 1; }
    Text text;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        text(ex, r, n);
    }
};
template <class Text>
exchange(Text) -> exchange<Text>; // clang 14 has no deduction for aggregates
template <class Text>
verdict judge(Text text, int n = 2) {
    return races(exchange<Text>{text}, n);
}

} // namespace

TEST_CASE("a strand orders its own accesses") {
    CHECK(judge([](auto& ex, int, int) {
              ex.step(copy, in(0), tmp(0));
              ex.step(copy, tmp(0), out(0));
          }).ok());
}

TEST_CASE("two strands are ordered by a message between them, and by nothing else") {
    const auto with = [](bool message) {
        return judge([message](auto& ex, int r, int) {
            if (ex.strand(0)) {
                ex.step(copy, in(0), tmp(0));
                ex.step(send, to(r), tmp(0));
                // the next iteration overwrites tmp: strand 1 must have read it
                ex.step(recv | copy, from(1 - r), tmp(0));
            }
            if (ex.strand(1)) {
                if (message) ex.step(recv | send, from(r), to(1 - r), passing(0));
                else ex.step(recv | copy | send, from(r), to(1 - r), tmp(0));
            }
        });
    };
    CHECK(with(true).ok());
    CHECK(with(false).what == problem::race);
}

TEST_CASE("a peer's window is read after its signal and written again after the reader's") {
    const auto with = [](int stages, bool ask_first, int lag) {
        schedule s = record_all(exchange{[=](auto& ex, int r, int) {
                                    if (lag > 0) ex.wait(1, 1 - r, lag);
                                    ex.step(copy, in(0), window(0, 0));
                                    ex.signal(0);
                                    if (ask_first) ex.wait(0, 1 - r);
                                    ex.step(get | copy, at(1 - r, window(0, 0)), out(0));
                                    ex.signal(1);
                                }},
                                2);
        s.window_depth = stages;
        return races(s);
    };
    CHECK(with(1, true, 1).ok());
    CHECK(with(1, false, 1).what == problem::race);
    CHECK(with(1, true, 2).what == problem::race);
    CHECK(with(1, true, 0).what == problem::race);
    CHECK(with(2, true, 2).ok());
    CHECK(with(2, true, 0).ok()); // a rank that has signalled 0 again has read everything before
    CHECK(with(2, false, 3).what == problem::race);
}

TEST_CASE("a writer must not overwrite what is still being read, though nothing else is out of order") {
    // Rank 1 writes its window, rank 0 reads it and signals that; the next iteration's write waits for the signal.
    const auto with = [](bool reads_first, int lag) {
        return judge([=](auto& ex, int r, int) {
            if (r == 1) {
                ex.wait(1, 0, lag);
                ex.step(copy, in(0), window(0, 0));
                ex.signal(0);
            } else {
                ex.wait(0, 1);
                if (!reads_first) ex.signal(1);
                ex.step(get | copy, at(1, window(0, 0)), out(0));
                if (reads_first) ex.signal(1);
            }
        });
    };
    CHECK(with(true, 1).ok());
    const verdict early = with(false, 1); // signals before it reads
    CHECK(early.what == problem::race);
    CHECK(early.rank == 1);                     // found at the write
    CHECK(with(true, 2).what == problem::race); // waits for an older signal
}

TEST_CASE("the user may touch a buffer once the call has returned, and not a moment earlier") {
    const auto with = [](bool entry, bool exit) {
        return judge([=](auto& ex, int r, int) {
            ex.signal(0);
            if (entry) ex.wait(0, 1 - r);
            ex.step(get | copy, at(1 - r, in(0)), out(0));
            ex.signal(1);
            if (exit) ex.wait(1, 1 - r);
        });
    };
    CHECK(with(true, true).ok());
    CHECK(with(false, true).what == problem::race);
    CHECK(with(true, false).what == problem::race);
}

TEST_CASE("a peer's buffer is used once that peer has said where it lies: with signal 0") {
    // asked: the signal that is waited for before the read; first: the one that is given first.
    const auto with = [](int asked, int first) {
        return exchange{[=](auto& ex, int r, int) {
            ex.signal(first);
            ex.signal(1 - first);
            ex.wait(asked, 1 - r);
            ex.step(get | copy, at(1 - r, in(0)), out(0));
            ex.signal(2);
            ex.wait(2, 1 - r);
        }};
    };
    CHECK(races(with(0, 0), 2).ok());
    CHECK(races(with(1, 0), 2).ok()); // signal 0 was given before
    CHECK(races(with(0, 1), 2).ok());
    CHECK(races(with(1, 1), 2).what == problem::unknown_buffer);
    CHECK(judge([](auto& ex, int r, int) { // the signal of the iteration before
              ex.signal(1);
              ex.wait(1, 1 - r);
              ex.wait(0, 1 - r, 1);
              ex.step(get | copy, at(1 - r, in(0)), out(0));
              ex.signal(0);
              ex.signal(2);
              ex.wait(2, 1 - r);
          })
              .what == problem::unknown_buffer);
    CHECK(judge([](auto& ex, int r, int) { // no rank ever gives it
              ex.signal(1);
              ex.wait(1, 1 - r);
              ex.step(get | copy, at(1 - r, in(0)), out(0));
              ex.signal(2);
              ex.wait(2, 1 - r);
          })
              .what == problem::unknown_buffer);
    // The window of a peer has its place.
    CHECK(judge([](auto& ex, int r, int) {
              ex.wait(2, 1 - r, 1);
              ex.step(copy, in(0), window(0, 0));
              ex.signal(1);
              ex.wait(1, 1 - r);
              ex.step(get | copy, at(1 - r, window(0, 0)), out(0));
              ex.signal(2);
          }).ok());
}

namespace {

// Ranks put, the root reduces. Before a rank puts again it waits for the root, or for all.
template <bool AsksAll>
struct to_root {
    static constexpr collective op = collective::reduce;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) {
            if (AsksAll) ex.wait_all(1, 1);
            else ex.wait(1, root, 1);
            ex.step(copy, in(0), window(0, 0));
        }
        ex.signal(0);
        if (r == root) {
            ex.wait_all(0);
            ex.step(fold | copy, in(0), at_ranks(0, n, window(0, 0)), out(0));
        }
        ex.signal(1);
    }
};

// Only the root puts and signals 0, only the others read and signal 1. The root has one strand more.
struct from_root {
    static constexpr collective op = collective::broadcast;
    static constexpr int signals = 2;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (r == root) {
            if (ex.strand(0)) {
                ex.step(copy, in(0), window(0, 0));
                ex.signal(0);
                for (int k = 0; k < n; ++k)
                    if (k != root) ex.wait(1, k);
            }
            if (ex.strand(1)) ex.step(copy, in(0), out(0));
        } else {
            ex.wait(0, root);
            ex.step(get | copy, at(root, window(0, 0)), out(0));
            ex.signal(1);
        }
    }
};

} // namespace

TEST_CASE("calls with another root use the same windows") {
    for (const int root : {0, 1, 2}) {
        const to_root<false> only_root{root};
        CHECK(verify(only_root, 3).ok());
        CHECK(races(record_all(only_root, 3)).ok()); // as long as the root stays
        CHECK(races(only_root, 3).what == problem::race);
        CHECK(races(to_root<true>{root}, 3).ok());
        CHECK(races(from_root{root}, 3).ok());
    }
}

TEST_CASE("only the signal that is asked for orders, not a later one that happened to come first") {
    // Rank 1 signals 0 before it writes and 1 after; rank 0 waits for one of them and reads.
    const auto asking = [](int index) {
        return judge([index](auto& ex, int r, int) {
            if (r == 1) {
                ex.wait(2, 0, 1);
                ex.signal(0);
                ex.step(copy, in(0), window(0, 0));
                ex.signal(1);
            } else {
                ex.wait(index, 1);
                ex.step(get | copy, at(1, window(0, 0)), out(0));
                ex.signal(2);
            }
        });
    };
    CHECK(asking(1).ok());
    CHECK(asking(0).what == problem::race);
}

TEST_CASE("readers do not disturb each other") {
    CHECK(judge(
              [](auto& ex, int r, int n) {
                  if (r == 0) {
                      ex.wait_all(1, 1);
                      ex.step(copy, in(0), window(0, 0));
                      ex.signal(0);
                  } else {
                      ex.wait(0, 0);
                      ex.step(get | copy, at(0, window(0, 0)), out(0));
                  }
                  ex.signal(1);
                  (void)n;
              },
              4)
              .ok());
}

TEST_CASE("every algorithm orders its accesses for 1 to 17 ranks") {
    for_each_algorithm([&](auto a) {
        for (int n = 1; n <= 17; ++n)
            for (int root : {0, n / 2, n - 1}) {
                if (root != 0 && !collx::sched::has_root<decltype(a)>) continue;
                collx::sched::set_root(a, root);
                const verdict v = races(a, n);
                if (v.ok()) continue;
                CAPTURE(decltype(a)::name, name_of(a.op), n, root, static_cast<int>(v.what), v.rank, v.strand, v.step,
                        v.peer, v.chunk);
                CHECK(v.ok());
            }
        CHECK(races(decltype(a){}, 4).ok());
    });
}
