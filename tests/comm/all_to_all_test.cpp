// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised timeout=300 sanitize=thread,nightly
#include "algorithm_support.hpp"

#include <functional>

using namespace collx_test;
using collx::collective;

namespace {

// Integers that are read through a function.
struct watched_list {
    struct cell {
        int* at;
        const std::function<void()>* on_read;
        operator int() const {
            (*on_read)();
            return *at;
        }
        const cell& operator=(int v) const {
            *at = v;
            return *this;
        }
    };
    struct view {
        using value_type = int;
        static constexpr bool is_contiguous = false, is_output = true, is_window = false;
        int* data;
        std::size_t count;
        const std::function<void()>* on_read;
        std::size_t size() const { return count; }
        cell operator[](std::size_t i) const { return {data + i, on_read}; }
    };
    std::vector<int> values;
    std::function<void()> on_read;
    view collx_buffer() { return {values.data(), values.size(), &on_read}; }
};

// Element i of the part from rank `from` to rank `to`.
int meant(int from, int to, std::size_t i) { return from * 1000 + to * 100 + static_cast<int>(i % 97); }

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size) {
    const int n = w.size();
    std::vector<int> in(static_cast<std::size_t>(n) * size), out(in.size(), -1);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = meant(w.rank(), static_cast<int>(i / size), i % size);
    const auto before = in;
    collx::all_to_all(bound, in, out);
    for (std::size_t i = 0; i < out.size(); ++i)
        EXPECT_AT(i, out[i] == meant(static_cast<int>(i / size), w.rank(), i % size));
    EXPECT(in == before);
    auto x = in;
    collx::all_to_all(bound, x);
    EXPECT(x == out);
};

} // namespace

TEST_CASE("all_to_all exchanges parts between all pairs, whatever the algorithm") {
    check_algorithms<collective::all_to_all>(check_call);
}

TEST_CASE("all_to_all cuts parts into pieces of any size") { check_pieces<collective::all_to_all>(check_call); }

TEST_CASE("all_to_all_v: each rank knows its own counts only; any of them may be zero") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            const int me = w.rank();
            for (int round = 0; round < 6; ++round) {
                at("n=%d round=%d", n, round);
                const auto count = [&](int from, int to) -> std::size_t {
                    switch (round) {
                        case 0: return 0;
                        case 1: return from == 0 ? 700 : 0;   // one rank sends to all
                        case 2: return to == n - 1 ? 700 : 0; // all send to one rank
                        case 3: return static_cast<std::size_t>((from * 5 + to * 3) % 4);
                        case 4:
                            return static_cast<std::size_t>((from * 5 + to * 3) % 4) *
                                   30'000; // different numbers of pieces
                        default: return from == to ? 50 : (from + to) % 2 == 0 ? 100'000 : 1;
                    }
                };
                const auto u = static_cast<std::size_t>(n);
                std::vector<std::size_t> sc(u), so(u), rc(u), ro(u);
                std::size_t s = 0, r = 0;
                for (int k = 0; k < n; ++k) {
                    const auto i = static_cast<std::size_t>(k);
                    so[i] = s + 1;
                    sc[i] = count(me, k);
                    s = so[i] + sc[i];
                    ro[i] = r + 2;
                    rc[i] = count(k, me);
                    r = ro[i] + rc[i];
                }
                std::vector<int> in(s, -5), out(r, -1), in_packed, out_packed;
                for (int k = 0; k < n; ++k)
                    for (std::size_t i = 0; i < sc[static_cast<std::size_t>(k)]; ++i) {
                        in[so[static_cast<std::size_t>(k)] + i] = meant(me, k, i);
                        in_packed.push_back(meant(me, k, i));
                    }
                for (const std::size_t c : rc) out_packed.insert(out_packed.end(), c, -1);
                collx::all_to_all_v(w, in, sc, so, out, rc, ro);
                collx::all_to_all_v(w, in_packed, sc, out_packed, rc);
                std::size_t p = 0, q = 0;
                for (int k = 0; k < n; ++k) {
                    for (; q < ro[static_cast<std::size_t>(k)]; ++q) EXPECT_AT(q, out[q] == -1);
                    for (std::size_t i = 0; i < rc[static_cast<std::size_t>(k)]; ++i, ++p, ++q)
                        EXPECT_AT(i, out[q] == meant(k, me, i) && out_packed[p] == meant(k, me, i));
                }
                EXPECT(p == out_packed.size() && q == out.size());
            }
        });
}

TEST_CASE("all_to_all_v in place: as many elements come from each rank as go to it, at their place") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 2, 3, 5})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                const int me = w.rank();
                for (const std::size_t unit : {0u, 1u, 17u, 20'000u}) {
                    at("n=%d unit=%zu", n, unit);
                    const auto u = static_cast<std::size_t>(n);
                    std::vector<std::size_t> counts(u), offsets(u);
                    std::size_t end = 0;
                    for (int k = 0; k < n; ++k) { // each pair has its own count, equal in both directions
                        const auto i = static_cast<std::size_t>(k);
                        counts[i] = unit * static_cast<std::size_t>((k + me) % 3);
                        offsets[i] = end + 3;
                        end = offsets[i] + counts[i];
                    }
                    std::vector<int> x(end + 5, -7), packed, expected(x), expected_packed;
                    for (int k = 0; k < n; ++k)
                        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(k)]; ++i) {
                            x[offsets[static_cast<std::size_t>(k)] + i] = meant(me, k, i);
                            expected[offsets[static_cast<std::size_t>(k)] + i] = meant(k, me, i);
                            packed.push_back(meant(me, k, i));
                            expected_packed.push_back(meant(k, me, i));
                        }
                    collx::all_to_all_v(w, x, counts, offsets);
                    EXPECT(x == expected); // the gaps between the parts are unchanged
                    collx::all_to_all_v(w, packed, counts);
                    EXPECT(packed == expected_packed);
                }
            });
}

TEST_CASE("all_to_all_v: ranks with short parts and ranks with long or strided ones meet in one call") {
    on_ranks(3, [](collx::communicator& w) {
        const int me = w.rank();
        for (int round = 0; round < 40; ++round) { // more calls than a channel has slots
            // Parts between ranks 0 and 2 may be long. Those of rank 1 are short, and those of rank 2 are every
            // second element.
            const auto count = [&](int from, int to) -> std::size_t {
                return from + to == 2 && from != to && round % 4 == 0
                           ? 5'000
                           : static_cast<std::size_t>((from + 2 * to + round) % 5);
            };
            std::vector<std::size_t> sends, receives;
            std::vector<int> in, expected;
            for (int k = 0; k < 3; ++k) {
                sends.push_back(count(me, k));
                receives.push_back(count(k, me));
                for (std::size_t i = 0; i < sends.back(); ++i)
                    in.push_back(meant(me, k, i + static_cast<std::size_t>(round)));
                for (std::size_t i = 0; i < receives.back(); ++i)
                    expected.push_back(meant(k, me, i + static_cast<std::size_t>(round)));
            }
            at("round %d", round);
            if (me == 2) {
                std::vector<int> spread(2 * in.size() + 1, -1), out(2 * expected.size() + 1, -1);
                for (std::size_t i = 0; i < in.size(); ++i) spread[2 * i] = in[i];
                collx::all_to_all_v(w, collx::strided(spread.data(), in.size(), 2), sends,
                                    collx::strided(out.data(), expected.size(), 2), receives);
                for (std::size_t i = 0; i < expected.size(); ++i)
                    EXPECT_AT(i, out[2 * i] == expected[i] && out[2 * i + 1] == -1);
            } else {
                std::vector<int> out(expected.size(), -1);
                collx::all_to_all_v(w, in, sends, out, receives);
                EXPECT(out == expected);
            }
        }
    });
}

TEST_CASE("in place works on strided elements and on types of any alignment, too") {
    struct alignas(64) wide {
        int value;
    };
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(3 * 4 * 2, -1);
        const auto every_second = collx::strided(x.data(), 12, 2);
        for (std::size_t i = 0; i < 12; ++i) x[2 * i] = meant(w.rank(), static_cast<int>(i / 4), i % 4);
        collx::all_to_all(w, every_second);
        for (std::size_t i = 0; i < 12; ++i)
            EXPECT_AT(i, x[2 * i] == meant(static_cast<int>(i / 4), w.rank(), i % 4) && x[2 * i + 1] == -1);
        std::vector<wide> y(3);
        for (int k = 0; k < 3; ++k) y[static_cast<std::size_t>(k)].value = meant(w.rank(), k, 0);
        collx::all_to_all_v(w, y, {1, 1, 1});
        for (int k = 0; k < 3; ++k) EXPECT(y[static_cast<std::size_t>(k)].value == meant(k, w.rank(), 0));
    });
}

TEST_CASE("all_to_all_v in place: a peer whose count differs is named") {
    for (const bool checked : {true, false})
        on_ranks(2, [checked](collx::communicator& w) {
            w.set_checked(checked);
            std::vector<int> x(5000, w.rank());
            const std::size_t other = w.rank() == 0 ? 2000 : 2001;
            const auto e = thrown<collx::mismatch>(w, [&] {
                collx::all_to_all_v(
                    w, x, w.rank() == 0 ? std::vector<std::size_t>{1, other} : std::vector<std::size_t>{other, 1});
            });
            at("%s", e.what());
            EXPECT(checked ? e.peer() == 1 - w.rank() && says(e, "where the counts say") : names_odd_part(e));
        });
}

TEST_CASE("in place: what reading the buffer throws ends the communicator, also if it is an error of collx") {
    for (const int how : {0, 1, 2})
        on_ranks(2, [how](collx::communicator& world) {
            auto w = world.dup();
            w.set_checked(false);
            bool is_armed = false;
            watched_list x{{1, 2, 3, 4}, [&] {
                               if (!is_armed) return;
                               if (how == 2) collx::barrier(w); // refused: the call is under way
                               collx::fail(collx::errc::unsupported, w.rank(), -1, "none", "of the program");
                           }};
            auto again = collx::persistent::all_to_all(w, x);
            is_armed = w.rank() == 0;
            const auto call = [&] {
                if (how == 0) again();
                else collx::all_to_all(w, x);
            };
            const auto e = thrown<collx::error>(w, call);
            if (w.rank() == 1) EXPECT(e.code() == collx::errc::aborted && e.peer() == 0);
            else EXPECT(says(e, how == 2 ? "makes another call of the same communicator" : "of the program"));
            collx::barrier(world);
        });
}
