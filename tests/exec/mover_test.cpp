// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// The operations of one step on elements: hooks, types and views on one side, wire elements on the other.
#include <collx/exec/mover.hpp>

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <catch2/catch.hpp>

using collx::sched::place;

namespace {

template <class Wire, class In, class Out, class Op>
auto make(In in, Out out, Op op, int ranks = 2) {
    return collx::mover<In, Out, Op, Wire>(in, out, op, ranks);
}

} // namespace

TEST_CASE("arrays of one type are copied, and reduced where they lie") {
    std::vector<int> in = {1, 2, 3, 4}, out(4, -1), wire = {10, 20, 30, 40}, forward(4), tmp(4);
    auto m = make<int>(collx::view(in.data(), 4), collx::view(out.data(), 4), collx::plus{});
    STATIC_REQUIRE(decltype(m)::plain);
    m.set_tmp(reinterpret_cast<std::byte*>(tmp.data()), true);
    m.load(forward.data(), place::in, 1, 2);
    CHECK((forward[0] == 2 && forward[1] == 3));
    m.store(place::out, 2, wire.data(), 2);
    CHECK(out == std::vector<int>({-1, -1, 10, 20}));
    m.combine(wire.data(), true, place::in, 0, place::out, 0, forward.data(), 4);
    CHECK((out == std::vector<int>({11, 22, 33, 44}) && forward == out));
    m.combine(wire.data(), false, place::in, 0, place::none, 0, forward.data(), 2);
    CHECK((forward[0] == 11 && out[0] == 11));
    m.combine(wire.data(), true, place::in, 0, place::tmp, 0, nullptr, 4);
    m.move(place::tmp, 1, place::out, 0, 2);
    CHECK((out[0] == 22 && out[1] == 33 && in == std::vector<int>({1, 2, 3, 4})));
}

TEST_CASE("the side of the received operand is kept") {
    const auto minus = [](int a, int b) { return a - b; };
    std::vector<int> in = {5}, out(1), wire = {100};
    auto m = make<int>(collx::view(in.data(), 1), collx::view(out.data(), 1), minus);
    m.combine(wire.data(), true, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == 95);
    m.combine(wire.data(), false, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == -95);
    std::vector<double> wide = {100}; // the same with different types
    auto d = make<double>(collx::view(in.data(), 1), collx::strided(out.data(), 1, 1), minus);
    d.combine(wide.data(), true, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == 95);
}

TEST_CASE("folds take the rank's own operand from where it lies") {
    std::vector<int> in = {3, 4}, out(2), a = {1, 1}, unused = {1000, 1000}, b = {5, 6}, also(2);
    const auto digits = [](int x, int y) { return x * 10 + y; };
    for (const bool plain : {true, false}) {
        const int* sources[3] = {a.data(), unused.data(), b.data()};
        if (plain) {
            make<int>(collx::view(in.data(), 2), collx::view(out.data(), 2), digits)
                .fold_ranks(sources, 3, 1, place::in, 0, place::out, 0, also.data(), 2);
        } else {
            make<int>(collx::strided(in.data(), 2, 1), collx::strided(out.data(), 2, 1), digits)
                .fold_ranks(sources, 3, 1, place::in, 0, place::out, 0, also.data(), 2);
        }
        CHECK((out == std::vector<int>({135, 146}) && also == out));
    }
}

TEST_CASE("hooks: the first on what is read from the input, the last on what is complete in the output") {
    const auto op =
        collx::with_post(collx::with_pre(collx::plus{}, [](int x) { return x * 2; }), [](int x) { return x + 1000; });
    std::vector<int> in = {1, 2, 3}, out(3), wire = {10, 20, 30}, forward(3);
    auto m = make<int>(collx::view(in.data(), 3), collx::view(out.data(), 3), op);
    STATIC_REQUIRE(!decltype(m)::plain);
    m.load(forward.data(), place::in, 0, 3);
    CHECK(forward == std::vector<int>({2, 4, 6}));
    m.combine(wire.data(), true, place::in, 0, place::none, 0, forward.data(), 3);
    CHECK(forward == std::vector<int>({12, 24, 36})); // not complete yet, so without the last hook
    m.combine(wire.data(), true, place::in, 0, place::out, 0, forward.data(), 3);
    CHECK((out == std::vector<int>({1012, 1024, 1036}) && forward == out));
    m.store(place::out, 0, wire.data(), 3);
    CHECK(out == wire); // already complete
    m.move(place::in, 0, place::out, 0, 3);
    CHECK(out == std::vector<int>({1002, 1004, 1006})); // the whole sum of a single rank
}

TEST_CASE("a narrower wire rounds the own operand and the result as the peers will see them") {
    std::vector<float> in = {1.0f + 1.0f / 1024}, out(1);
    std::vector<collx::bf16> wire = {collx::bf16(1.0f)}, forward(1);
    auto m = make<collx::bf16>(collx::view(in.data(), 1), collx::view(out.data(), 1), collx::plus{});
    m.load(forward.data(), place::in, 0, 1);
    CHECK(float(forward[0]) == 1.0f);
    m.combine(wire.data(), true, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == 2.0f);
    const collx::bf16* sources[2] = {wire.data(), nullptr};
    m.fold_ranks(sources, 2, 1, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == 2.0f);
    in[0] = 1.0f / 256; // both operands are exact on the wire, their sum is not
    m.combine(wire.data(), true, place::in, 0, place::out, 0, forward.data(), 1);
    CHECK((out[0] == 1.0f && float(forward[0]) == 1.0f));
    m.combine(wire.data(), false, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == 1.0f);
    m.fold_ranks(sources, 2, 1, place::in, 0, place::out, 0, nullptr, 1);
    CHECK(out[0] == 1.0f);
}

TEST_CASE("a partial result in scratch keeps its digits until it travels") {
    std::vector<float> in = {1.0f}, out(1), tmp(1);
    std::vector<collx::bf16> small = {collx::bf16(1.0f / 256)};
    auto m = make<collx::bf16>(collx::view(in.data(), 1), collx::view(out.data(), 1), collx::plus{});
    for (const bool travels : {false, true}) {
        m.set_tmp(reinterpret_cast<std::byte*>(tmp.data()), travels);
        m.combine(small.data(), false, place::in, 0, place::tmp, 0, nullptr, 1);
        CHECK(tmp[0] == 1.0f + 1.0f / 256); // bf16 has 8 bits of it
        m.combine(small.data(), false, place::tmp, 0, place::out, 0, nullptr, 1);
        CHECK(out[0] == (travels ? 1.0f : 1.0f + 1.0f / 128));
    }
}

TEST_CASE("long operands of mixed types go through in blocks") {
    constexpr std::size_t n = 1000;
    std::vector<short> in(n);
    std::vector<double> out(2 * n, -1), wire(n);
    for (std::size_t i = 0; i < n; ++i) {
        in[i] = static_cast<short>(i);
        wire[i] = 1;
    }
    auto m = make<double>(collx::view(in.data(), n), collx::strided(out.data(), n, 2), collx::plus{});
    m.combine(wire.data(), true, place::in, 0, place::out, 0, nullptr, n);
    bool is_right = true;
    for (std::size_t i = 0; i < n; ++i) is_right &= out[2 * i] == static_cast<double>(i + 1) && out[2 * i + 1] == -1;
    CHECK(is_right);
}

TEST_CASE("nothing may lie nowhere") {
    int* const null = nullptr;
    auto m = make<int>(collx::view(null, 0), collx::view(null, 0), collx::plus{});
    m.load(null, place::in, 0, 0);
    m.store(place::out, 0, null, 0);
    m.move(place::in, 0, place::out, 0, 0);
    SUCCEED();
}

TEST_CASE("results that go past the caches are the same") {
    using int_view = decltype(collx::view(static_cast<int*>(nullptr), 0));
    const std::size_t large = (std::size_t{4} << 20) / sizeof(int) + 100;
    for (const std::size_t n : {large - 200, large})
        for (const bool in_place : {false, true}) {
            const std::size_t size = in_place ? 8 * n : n; // in place the limits are higher: 16 and 32 MiB
            std::vector<int> in(size), other(size), out(size, -1), also(size, -1);
            for (std::size_t i = 0; i < size; ++i) {
                in[i] = static_cast<int>(i % 1000);
                other[i] = static_cast<int>(i % 77);
            }
            int_view from = collx::view(in.data(), size), to = in_place ? from : collx::view(out.data(), size);
            auto sum = make<int>(from, to, collx::plus{});
            auto moves = make<int>(from, to, collx::no_op{});
            const int* sources[] = {other.data(), nullptr};
            sum.fold_ranks(sources, 2, 1, place::in, 3, place::out, 3, also.data() + 3, size - 3);
            const int* result = to.data();
            bool good = true;
            for (std::size_t i = 3; i < size; ++i) {
                const int expected = static_cast<int>(i % 1000) + other[i - 3];
                good &= result[i] == expected && also[i] == expected;
            }
            CHECK(good);
            CHECK(result[0] == (in_place ? 0 : -1));
            if (!in_place) {
                std::fill(also.begin(), also.end(), -1);
                sum.combine(other.data(), true, place::in, 0, place::out, 0, also.data(), size);
                good = true;
                for (std::size_t i = 0; i < size; ++i) good &= out[i] == in[i] + other[i] && also[i] == out[i];
                CHECK(good);
            }
            moves.store(place::out, 1, other.data(), size - 1);
            CHECK(std::equal(other.begin(), other.end() - 1, result + 1));
            if (!in_place) {
                moves.move(place::in, 0, place::out, 0, size);
                CHECK(in == out);
                moves.stay_in_caches(); // between hosts: what arrives stays in caches, what is only copied need not
                moves.move(place::in, 0, place::out, 3, size - 3);
                CHECK(std::equal(in.begin(), in.end() - 3, out.begin() + 3));
                moves.store(place::out, 1, other.data(), size - 1);
                CHECK(std::equal(other.begin(), other.end() - 1, out.begin() + 1));
            }
        }
}

TEST_CASE("a larger cache keeps more, between what was measured and what was seen before") {
    constexpr std::size_t mib = std::size_t{1} << 20;
    using collx::detail::most_kept_bytes;
    CHECK((most_kept_bytes(0) == 7 * mib && most_kept_bytes(8 * mib) == 7 * mib)); // 0: unknown
    CHECK((most_kept_bytes(16 * mib) == 10 * mib && most_kept_bytes(32 * mib) == 20 * mib));
    CHECK(most_kept_bytes(384 * mib) == 20 * mib);
}

TEST_CASE("large results go past the caches, by what all ranks of the host keep together") {
    constexpr std::size_t mib = (std::size_t{1} << 20) / sizeof(float);
    std::vector<float> memory(17 * mib);
    const auto streams = [&](std::size_t elems, int ranks, bool in_place, auto op) {
        return make<float>(collx::view(memory.data(), elems),
                           collx::view(memory.data() + (in_place ? 0 : elems), elems), op, ranks)
            .streams();
    };
    const collx::no_op moves;
    const std::size_t kept = collx::detail::most_kept_bytes(collx::detail::shared_cache_bytes) / sizeof(float);
    for (const bool in_place : {false, true})
        for (const int ranks : {2, 4, 8, 64}) { // more ranks have more caches
            const std::size_t each = kept / static_cast<std::size_t>(ranks > 8 ? 8 : ranks) / (in_place ? 1 : 2);
            CHECK((streams(each, ranks, in_place, moves) && !streams(each - 1, ranks, in_place, moves)));
        }
    CHECK((streams(kept / 8, 8, false, collx::plus{}) && !streams(kept / 8, 8, true, collx::plus{})));
    CHECK((streams(8 * mib, 8, true, collx::plus{}) && !streams(4 * mib, 8, true, collx::plus{})));
    auto m = make<float>(collx::view(memory.data(), 4 * mib), collx::view(memory.data() + 4 * mib, 4 * mib), moves);
    m.stay_in_caches();
    CHECK(!m.streams());
}

namespace {
struct alignas(128) line {
    int x = 0, filling[31] = {};
};
struct large {
    std::byte bytes[300'000];
};
} // namespace

TEST_CASE("elements that are aligned to more than a message are moved from and to any place in it") {
    std::vector<line> in(6), out(6);
    for (int i = 0; i < 6; ++i) in[static_cast<std::size_t>(i)].x = i + 1;
    alignas(128) std::byte message[64 + 3 * sizeof(line)];
    auto* const wire = reinterpret_cast<line*>(message + 64); // as messages do: a multiple of 64 bytes
    auto m = make<line>(collx::strided(in.data(), 3, 2), collx::strided(out.data(), 3, 2), collx::no_op{});
    STATIC_REQUIRE(!decltype(m)::plain);
    m.load(wire, place::in, 0, 3);
    m.store(place::out, 0, wire, 3);
    CHECK((out[0].x == 1 && out[2].x == 3 && out[4].x == 5 && out[1].x == 0));
}

TEST_CASE("large elements are converted one at a time: two lie on the stack, not sixteen") {
    // On a stack of 2.2 MB: eight of them take 2.4 MB.
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, 2'200'000) == 0);
    static std::vector<large> in(6), wire(3);
    for (auto& x : in) x.bytes[299'999] = std::byte{7};
    const auto run = [](void*) -> void* {
        const auto first = [](const large& a, const large&) -> const large& { return a; };
        auto m = make<large>(collx::strided(in.data(), 3, 2), collx::strided(in.data(), 3, 2), first);
        m.load(wire.data(), place::in, 0, 3);
        m.combine(wire.data(), true, place::in, 0, place::out, 0, nullptr, 3);
        return nullptr;
    };
    pthread_t thread;
    REQUIRE(pthread_create(&thread, &attributes, run, nullptr) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    CHECK((wire[2].bytes[299'999] == std::byte{7} && in[4].bytes[299'999] == std::byte{7}));
}
