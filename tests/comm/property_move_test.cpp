// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=rapidcheck optimised sanitize=nightly
//
// Random calls that only move elements (of three bytes each), compared with what each rank should receive.
#include "property_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

struct three_bytes {
    unsigned char r, g, b;
    bool operator==(const three_bytes&) const = default;
};
using elements = std::vector<three_bytes>;

three_bytes element(const random_call& c, int rank, std::size_t i) {
    return {static_cast<unsigned char>(rank + 1), static_cast<unsigned char>(i + c.seed),
            static_cast<unsigned char>(i / 256)};
}
elements mine(const random_call& c, int rank, std::size_t n) {
    elements x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = element(c, rank, i);
    return x;
}
constexpr three_bytes untouched{0, 7, 7};
const auto any = [](auto) { return true; };

// Counts for a v-variant, many of them zero.
std::size_t count_of(const random_call& c, int from, int to) {
    const unsigned h = (c.seed + static_cast<unsigned>(from) * 71 + static_cast<unsigned>(to) * 13) % 5;
    return h < 2 ? 0 : c.count / h;
}

void all_to_all_v(collx::communicator& w, const random_call& c) {
    const int n = w.size(), me = w.rank();
    std::vector<std::size_t> sends, receives;
    elements in, out, expected;
    for (int k = 0; k < n; ++k) {
        sends.push_back(count_of(c, me, k));
        receives.push_back(count_of(c, k, me));
        for (std::size_t i = 0; i < sends.back(); ++i) in.push_back(element(c, me, i + static_cast<std::size_t>(k)));
        for (std::size_t i = 0; i < receives.back(); ++i)
            expected.push_back(element(c, k, i + static_cast<std::size_t>(me)));
    }
    out.resize(expected.size(), untouched);
    collx::all_to_all_v(w.with(collx::piece{c.piece}), in, sends, out, receives);
    EXPECT(out == expected);
}

void all_gather_v(collx::communicator& w, const random_call& c) {
    std::vector<std::size_t> counts;
    elements expected;
    for (int k = 0; k < w.size(); ++k) {
        counts.push_back(count_of(c, k, 0));
        const auto part = mine(c, k, counts.back());
        expected.insert(expected.end(), part.begin(), part.end());
    }
    run_with<collective::all_gather>(w, c, any, [&](auto&& comm) {
        elements out(expected.size(), untouched);
        collx::all_gather_v(comm, mine(c, w.rank(), counts[static_cast<std::size_t>(w.rank())]), out, counts);
        EXPECT(out == expected);
    });
}

void make_call(collx::communicator& w, const random_call& c) {
    const int n = w.size(), me = w.rank(), root = static_cast<int>(c.root) % n;
    const auto u = static_cast<std::size_t>(n), r = static_cast<std::size_t>(me);
    const std::size_t part = c.count / u;
    const collx::call_options at_root{.root = root};
    switch (c.verb) {
        case 0:
            return run_with<collective::broadcast>(w, c, any, [&](auto&& comm) {
                elements x = me == root ? mine(c, root, c.count) : elements(c.count, untouched);
                collx::broadcast(comm, x, at_root);
                EXPECT(x == mine(c, root, c.count));
            });
        case 1:
            return run_with<collective::all_gather>(w, c, any, [&](auto&& comm) {
                elements out(part * u, untouched);
                if (c.in_place) {
                    for (std::size_t i = 0; i < part; ++i) out[r * part + i] = element(c, me, i);
                    collx::all_gather(comm, out);
                } else {
                    collx::all_gather(comm, mine(c, me, part), out);
                }
                for (std::size_t i = 0; i < out.size(); ++i)
                    EXPECT_AT(i, out[i] == element(c, static_cast<int>(i / part), i % part));
            });
        case 2:
            return run_with<collective::gather>(w, c, any, [&](auto&& comm) {
                elements out(me == root ? part * u : 0, untouched);
                collx::gather(comm, mine(c, me, part), out, at_root);
                for (std::size_t i = 0; i < out.size(); ++i)
                    EXPECT_AT(i, out[i] == element(c, static_cast<int>(i / part), i % part));
                EXPECT(me == root || out.empty());
            });
        case 3:
            return run_with<collective::scatter>(w, c, any, [&](auto&& comm) {
                elements out(part, untouched);
                collx::scatter(comm, mine(c, root, me == root ? part * u : 0), out, at_root);
                for (std::size_t i = 0; i < part; ++i) EXPECT_AT(i, out[i] == element(c, root, r * part + i));
            });
        case 4:
            return run_with<collective::all_to_all>(w, c, any, [&](auto&& comm) {
                elements out(part * u, untouched);
                collx::all_to_all(comm, mine(c, me, part * u), out);
                for (std::size_t i = 0; i < out.size(); ++i)
                    EXPECT_AT(i, out[i] == element(c, static_cast<int>(i / part), r * part + i % part));
            });
        case 5: return all_to_all_v(w, c);
        case 6: return all_gather_v(w, c);
        default: {
            const auto outgoing = mine(c, me, c.count);
            elements incoming(c.count, untouched);
            const int step = 1 + static_cast<int>(c.root) % n;
            collx::sendrecv(w, outgoing, (me + step) % n, incoming, (me + n * 2 - step) % n);
            EXPECT(incoming == mine(c, (me + n * 2 - step) % n, c.count));
        }
    }
}

} // namespace

TEST_CASE("random calls move every element to its place") {
    check_random_calls("elements arrive", 8, make_call, [](collx::communicator&) {});
}
