// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Elements that are structs of the user: odd sizes, large alignment, arrays, larger than a header, larger than a slot.
#include "class_support.hpp"

#include <array>

using namespace collx_test;

namespace {

struct three_bytes {
    unsigned char r, g, b;
    bool operator==(const three_bytes&) const = default;
};
struct alignas(64) line {
    int a[3];
    bool operator==(const line&) const = default;
};
struct big {
    long a[97];
    bool operator==(const big&) const = default;
};

} // namespace

TEST_CASE("arrays and structs of the user travel and are reduced") {
    for (const int n : {1, 3, 4})
        on_ranks(n, [](collx::communicator& w) {
            check_class<three_bytes>(
                w, "three bytes",
                [](int r, std::size_t i) {
                    return three_bytes{static_cast<unsigned char>(r), static_cast<unsigned char>(i), 1};
                },
                [](three_bytes a, three_bytes b) {
                    return three_bytes{static_cast<unsigned char>(a.r + b.r), static_cast<unsigned char>(a.g ^ b.g),
                                       static_cast<unsigned char>(a.b + b.b)};
                });
            check_class<line>(
                w, "aligned 64",
                [](int r, std::size_t i) {
                    return line{{r, static_cast<int>(i), 1}};
                },
                [](line a, const line& b) {
                    for (int k = 0; k < 3; ++k) a.a[k] += b.a[k];
                    return a;
                });
            check_class<std::array<short, 5>>(
                w, "array",
                [](int r, std::size_t i) {
                    return std::array<short, 5>{static_cast<short>(r), static_cast<short>(i), 3};
                },
                [](std::array<short, 5> a, const std::array<short, 5>& b) {
                    for (std::size_t k = 0; k < 5; ++k) a[k] = static_cast<short>(a[k] + b[k]);
                    return a;
                });
            check_class<big>(
                w, "776 bytes",
                [](int r, std::size_t i) {
                    return big{{r, static_cast<long>(i)}};
                },
                [](big a, const big& b) {
                    for (int k = 0; k < 97; ++k) a.a[k] += b.a[k] + 1;
                    return a;
                });
        });
}

TEST_CASE("an element larger than a slot is refused with a sentence") {
    struct huge {
        char bytes[2'000'000];
    };
    on_ranks(2, [](collx::communicator& w) {
        std::vector<huge> x(1);
        const auto e = thrown<collx::error>(
            w, [&] { collx::gather(w.with(collx::algo::linear_gather{}), x, std::vector<huge>(2)); });
        EXPECT(e.code() == collx::errc::unsupported && says(e, "does not fit a slot"));
        // Messages are refused, too: a few would fit the ring, but more of them would overwrite each other.
        std::vector<huge> y(1);
        const int peer = 1 - w.rank();
        const auto is_refused = [&](auto&& f) {
            const auto sent = thrown<collx::error>(w, f);
            EXPECT(sent.code() == collx::errc::unsupported && says(sent, "does not fit a slot"));
        };
        is_refused([&] { w.rank() == 0 ? collx::send(w, x, peer) : collx::recv(w, x, peer); });
        is_refused([&] { collx::sendrecv(w, x, peer, y, peer); });
        is_refused([&] {
            collx::group g(w);
            g.send(x, peer);
            g.recv(y, peer);
            g.launch();
        });
        int alive = 1;
        collx::all_reduce(w, collx::value(alive));
        EXPECT(alive == 2);
    });
}
