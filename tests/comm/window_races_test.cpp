// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no
//
// Races in recorded uses of windows. The programs of docs/windows.md and example 20 have none. Each defect planted in
// them is found, with the sentence that says what is missing. (Planted races are real races: no sanitizer.)
#include <algorithm>
#include <string>
#include <vector>

#include <collx/testing/recorded_window.hpp>
#include <collx/testing/window_sentences.hpp>

#include "support.hpp"

using namespace collx_test;
using collx::errc;
using collx::testing::recorded_window;
using collx::testing::sentences;
using collx::testing::window_uses;

namespace {

constexpr std::size_t width = 8; // doubles: more than travels with a signal

// Runs f(uses, w) on n ranks and returns the races that were recorded.
template <class F>
std::string recorded(int n, F&& f, const spread& s = {}) {
    window_uses uses(n);
    run_spread(n, s, [&](collx::communicator& w) {
        w.set_timeout(patient(std::chrono::seconds(50)));
        f(uses, w);
    });
    return sentences(uses);
}
void use(const std::vector<double>&) {}
// Whether one line of `text` contains all of these words in this order.
bool says_one(const std::string& text, std::initializer_list<const char*> words) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        const std::string line = text.substr(begin, end - begin);
        std::size_t at = 0;
        for (const char* word : words)
            if (at != std::string::npos) at = line.find(word, at);
        if (at != std::string::npos) return true;
        begin = end + 1;
    }
    UNSCOPED_INFO(text);
    return false;
}

enum class halo_defect { none, no_wait, one_pair };
void halos(window_uses& uses, collx::communicator& w, halo_defect defect) {
    const int n = w.size(), above = (w.rank() + n - 1) % n, below = (w.rank() + 1) % n;
    const std::vector<double> row(width, w.rank());
    recorded_window<double> halo(uses, w, 4 * width);
    for (int s = 0; s < 20; ++s) {
        const std::size_t pair = defect == halo_defect::one_pair ? 0 : static_cast<std::size_t>(s % 2);
        const std::size_t from_above = pair * 2 * width, from_below = from_above + width;
        halo.put_signal(below, from_above, row);
        halo.put_signal(above, from_below, row);
        if (above == below) halo.wait(above, 2);
        else if (defect == halo_defect::no_wait) halo.wait(above);
        else {
            halo.wait(above);
            halo.wait(below);
        }
        (void)halo.load(from_above, width);
        (void)halo.load(from_below, width);
    }
    halo.fence();
}
void counter(window_uses& uses, collx::communicator& w) {
    recorded_window<long> next(uses, w, w.rank() == 0 ? 1 : 0);
    while (next.fetch_add(0, 0, 1) < 40) continue;
    int sum = 1;
    collx::all_reduce(w, collx::value(sum));
    uses.met(w.rank());
    if (w.rank() == 0) (void)next.load(0); // fetch() is complete when it returns, so this is ordered
    next.fence();
}
void ring(window_uses& uses, collx::communicator& w, std::size_t part, std::size_t places) {
    const int n = w.size(), me = w.rank(), to = (me + 1) % n, from = (me + n - 1) % n;
    std::vector<double> chunk(part, me);
    recorded_window<double> in(uses, w, part * static_cast<std::size_t>(2 * n));
    for (int s = 0; s < 2 * (n - 1); ++s) {
        const std::size_t place = static_cast<std::size_t>(s) % places * part;
        in.put_signal(to, place, chunk);
        in.wait(from);
        chunk = in.load(place, part);
    }
    in.fence();
}

} // namespace

TEST_CASE("the programs of the windows' page are free of races, on one host and on several") {
    for (const int per_host : {0, 1, 2}) {
        for (const int n : {1, 2, 4}) {
            CHECK(recorded(n, [](auto& u, auto& w) { halos(u, w, halo_defect::none); }, {per_host}) == "");
            CHECK(recorded(n, [](auto& u, auto& w) { counter(u, w); }, {per_host}) == "");
            for (const std::size_t part : {1, 9})
                CHECK(recorded(n, [&](auto& u, auto& w) { ring(u, w, part, 100); }, {per_host}) == "");
        }
    }
}

// The second way of lesson 22: neighbours put activations into the first half of a part and gradients into the second
// half. A place is reused after `places` micro-batches.
TEST_CASE("a pipeline of 1F1B by puts needs as many places as stages: with one less there is a race") {
    constexpr int p = 4, m = 12;
    for (const int places : {p, p - 1}) {
        const auto text = recorded(p, [&](auto& uses, auto& w) {
            const int me = w.rank();
            const auto n = static_cast<std::size_t>(places);
            recorded_window<double> in(uses, w, 2 * n * width);
            const auto place = [&](bool is_gradient, int k) {
                return (static_cast<std::size_t>(k) % n + (is_gradient ? n : 0)) * width;
            };
            const std::vector<double> x(width);
            const auto take = [&](int peer, int k) {
                if (peer < 0 || peer == p) return;
                in.wait(peer);
                (void)in.load(place(peer > me, k), width);
            };
            const auto give = [&](int peer, int k) {
                if (peer >= 0 && peer < p) in.put_signal(peer, place(peer < me, k), x);
            };
            const int ahead = std::min(p - 1 - me, m);
            for (int i = 0; i < m + ahead; ++i) {
                if (i < m) {
                    take(me - 1, i);
                    give(me + 1, i);
                }
                if (i >= ahead) {
                    take(me + 1, i - ahead);
                    give(me - 1, i - ahead);
                }
            }
            in.fence();
        });
        if (places == p) CHECK(text == "");
        else
            CHECK(says_one(text, {"part of rank 1", "rank 1's load", "rank 0's put", "rank 0 must wait for it first"}));
    }
}

TEST_CASE("a wait that is left out is named, with both accesses, their bytes and the signal") {
    const auto text = recorded(4, [](auto& u, auto& w) { halos(u, w, halo_defect::no_wait); });
    CHECK(says_one(text, {"window 0, part of rank 1: ", "rank 2's put of bytes 64 to 127 (window_races_test.cpp:",
                          " and rank 1's load of bytes 64 to 127 (window_races_test.cpp:", "are not ordered; ",
                          "rank 2 gives signal 1 to rank 1 after its put: rank 1 must wait for it first"}));
    CHECK(!says_one(text, {"part of rank 1", "rank 0's put", "rank 1's load"})); // for that signal it waits
}

TEST_CASE("a put into what is still read is found in a test of five lines") {
    // [doc:race]
    collx::testing::window_uses uses(2);
    collx::run_threads(2, [&](collx::communicator& w) {
        collx::testing::recorded_window<double> x(uses, w, 8);
        for (int step = 0; step < 2; ++step)
            if (w.rank() == 0) x.put_signal(1, 0, std::vector<double>(8, step));
            else {
                x.wait(0);
                use(x.load(0, 8));
            }
    });
    const std::string races = collx::testing::sentences(uses); // "" where there are none
    // [doc:end]
    CHECK(races.find('\n') == races.size() - 1);
    CHECK(says_one(races,
                   {"window 0, part of rank 1: rank 1's load of bytes 0 to 63", " and rank 0's put of bytes 0 to 63",
                    "rank 1 must give rank 0 a signal after its load, and gives none"}));
}

TEST_CASE("a put into what the neighbour may still read is found") {
    // With four ranks: with two, each signal would answer the other rank's signal.
    const auto text = recorded(4, [](auto& u, auto& w) { halos(u, w, halo_defect::one_pair); });
    CHECK(says_one(text, {"part of rank 2", "rank 2's load of bytes 0 to 63", "rank 1's put of bytes 0 to 63",
                          "rank 2 gives signal 2 to rank 1 after its load: rank 1 must wait for it first"}));
    const auto ring_text = recorded(3, [](auto& u, auto& w) { ring(u, w, 9, 1); });
    CHECK(says_one(ring_text, {"rank 1's load", "rank 0's put",
                               "rank 1 must give rank 0 a signal after its load, and gives none"}));
}

TEST_CASE("a reader that says it is through before it reads is found, and the signal that came too early") {
    for (const bool is_early : {false, true}) {
        const auto text = recorded(2, [&](auto& u, auto& w) {
            recorded_window<double> x(u, w, width);
            for (int i = 0; i < 3; ++i)
                if (w.rank() == 0) {
                    x.put_signal(1, 0, std::vector<double>(width, i));
                    x.wait(1);
                } else {
                    x.wait(0);
                    if (is_early) x.signal(0);
                    (void)x.load(0, width);
                    if (!is_early) x.signal(0);
                }
            x.fence();
        });
        if (!is_early) CHECK(text == "");
        else
            CHECK(says_one(text, {"rank 1's load of bytes 0 to 63", "rank 0's put of bytes 0 to 63",
                                  "rank 1 gives signal 2 to rank 0 after its load: rank 0 must wait for it first"}));
    }
    const auto once = recorded(2, [&](auto& u, auto& w) {
        recorded_window<double> x(u, w, width);
        if (w.rank() == 1) {
            x.signal(0);
            (void)x.load(0, width);
        } else {
            x.wait(1);
            x.put(1, 0, std::vector<double>(width));
        }
        x.fence();
    });
    CHECK(once.find("its last to it, signal 1, comes before") != std::string::npos);
}

TEST_CASE("puts of two ranks that overlap are found, those side by side are none") {
    for (const std::size_t apart : {1, 2}) {
        const auto text = recorded(3, [&](auto& u, auto& w) {
            recorded_window<int> x(u, w, 8);
            if (w.rank() < 2) x.put(2, static_cast<std::size_t>(w.rank()) * apart, std::vector<int>{1, 2});
            x.fence();
            (void)x.load(0, 8);
        });
        if (apart == 2) CHECK(text == "");
        else
            CHECK(says_one(text, {"part of rank 2: rank 0's put of bytes 0 to 7", "rank 1's put of bytes 4 to 11",
                                  "rank 0 must give rank 1 a signal after its put, and gives none"}));
    }
}

TEST_CASE("combining with one operator is no race, with two it is one, and so is reading beside it") {
    const auto with = [](auto&& other) {
        return recorded(3, [&](auto& u, auto& w) {
            recorded_window<long> x(u, w, 2);
            if (w.rank() == 0) other(x);
            else x.accumulate(2, 0, std::vector<long>{1, 1});
            x.fence();
            (void)x.get(2, 1);
        });
    };
    CHECK(with([](auto& x) {
              x.accumulate(2, 1, 5L);
              (void)x.fetch_add(2, 0, 1);
          }) == "");
    CHECK(says_one(with([](auto& x) { x.accumulate(2, 1, 5L, collx::max{}); }),
                   {"rank 0's accumulate of bytes 8 to 15", "rank 1's accumulate of bytes 0 to 15",
                    "with two operators the result depends on which comes first"}));
    CHECK(says_one(with([](auto& x) { (void)x.get(2, 1); }), {"rank 0's get of bytes 8 to 15", "rank 1's accumulate"}));
}

TEST_CASE("what another host may see later is a race also where threads are lucky") {
    const auto through_a_third = [](bool flushes, std::size_t n) {
        return recorded(3, [&](auto& u, auto& w) {
            recorded_window<int> x(u, w, n);
            if (w.rank() == 0) {
                x.put(1, 0, std::vector<int>(n, 1));
                if (flushes) x.flush();
                x.signal(2);
            } else if (w.rank() == 2) {
                x.wait(0);
                (void)x.get(1, 0);
            }
            x.fence();
        });
    };
    CHECK(through_a_third(true, 1) == "");
    CHECK(says_one(through_a_third(false, 20), {"rank 0's put", "rank 2's get", "rank 2 has heard of it",
                                                "on its way to rank 1", "a flush of rank 0 must come before"}));
    // A barrier orders what the ranks have done, but completes no put.
    const auto over_a_barrier = [](bool flushes) {
        return recorded(2, [&](auto& u, auto& w) {
            recorded_window<int> x(u, w, 20);
            if (w.rank() == 0) x.put(1, 0, std::vector<int>(20));
            if (flushes) x.flush();
            collx::barrier(w);
            u.met(w.rank());
            if (w.rank() == 1) (void)x.load(0, 20);
            x.fence();
        });
    };
    CHECK(over_a_barrier(true) == "");
    CHECK(says_one(over_a_barrier(false), {"rank 0's put", "rank 1's load", "a flush of rank 0 must come before"}));
}

TEST_CASE("a put that travels with its signal is not there until that is taken, not even to its giver") {
    const auto again = [](bool hears, std::size_t n) {
        return recorded(2, [&](auto& u, auto& w) {
            recorded_window<int> x(u, w, n);
            if (w.rank() == 0) {
                x.put_signal(1, 0, std::vector<int>(n, 1));
                if (hears) x.wait(1);
                x.put(1, 0, std::vector<int>(n, 2));
            } else {
                x.wait(0);
                x.signal(0);
            }
            x.fence();
        });
    };
    CHECK(again(true, 8) == "");
    CHECK(again(false, 9) == ""); // the signals arrive in the order of the puts
    CHECK(says_one(again(false, 8), {"rank 0's put with its signal of bytes 0 to 31", "rank 0's put of bytes 0 to 31",
                                     "it is stored when rank 1 waits for its signal"}));
}

TEST_CASE("signals of one window order what was done to another, and counts take their own signals") {
    CHECK(recorded(2, [](auto& u, auto& w) {
              recorded_window<int> data(u, w, 20), bell(u, w, 0);
              if (w.rank() == 0) {
                  data.put(1, 0, std::vector<int>(20));
                  data.flush(1);
                  bell.signal(1);
              } else {
                  bell.wait(0);
                  (void)data.load(3, 10);
              }
              data.fence();
          }) == "");
    const auto counted = [](std::uint64_t count) {
        return recorded(2, [&](auto& u, auto& w) {
            recorded_window<int> x(u, w, 40);
            if (w.rank() == 0) {
                x.put_signal(1, 0, std::vector<int>(20));
                x.put_signal(1, 20, std::vector<int>(20));
            } else {
                x.wait(0, count);
                (void)x.load(0, 40);
            }
            x.fence();
        });
    };
    CHECK(counted(2) == "");
    CHECK(says_one(counted(1), {"rank 0's put of bytes 80 to 159", "load of bytes 0 to 159", "rank 0 gives signal 2"}));
}

TEST_CASE("a wait for more signals than there are is said, and a record of other ranks is refused") {
    window_uses uses(2);
    collx::testing::window_use u;
    u.what = collx::testing::window_use::kind::signal;
    u.peer = 1;
    uses.add(0, u);
    u.what = collx::testing::window_use::kind::wait;
    u.peer = 0;
    u.count = 3;
    CHECK(uses.next_window(0) == 0);
    uses.add(1, u);
    CHECK(says_one(sentences(uses), {"window 0: rank 1's wait asks for more signals than rank 0 gives", "1 in all"}));
    CHECK_THROWS_AS(window_uses(0), collx::error);
    on_ranks(2, [](collx::communicator& w) {
        window_uses three(3);
        refused(
            w, [&] { recorded_window<int>(three, w, 1); }, errc::invalid_argument,
            "a record of 3 ranks for a window of 2");
    });
}
