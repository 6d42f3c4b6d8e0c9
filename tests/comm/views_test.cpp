// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// The buffers that are allowed besides a vector: strided, two-dimensional, const, an array, one element, at any
// offset in memory.
#include "support.hpp"

#include <array>
#include <cstring>
#include <span>

using namespace collx_test;

TEST_CASE("strided inputs and outputs: only the elements in view are touched") {
    for (const int n : {1, 2, 4})
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {1u, 100u, 9001u}) {
                at("n=%d size=%zu", n, size);
                std::vector<float> wide(size * 3, -1.0f), out(size * 2, -1.0f);
                for (std::size_t i = 0; i < size; ++i) wide[3 * i] = sample<float>(w.rank(), i);
                const auto in = collx::strided(wide.data(), size, 3);
                collx::all_reduce(w, in, collx::strided(out.data(), size, 2));
                for (std::size_t i = 0; i < size; ++i)
                    EXPECT_AT(i, out[2 * i] == folded<float>(i, 0, n) && out[2 * i + 1] == -1.0f);
                collx::all_reduce(w, in);
                for (std::size_t i = 0; i < size; ++i)
                    EXPECT_AT(i, wide[3 * i] == out[2 * i] && wide[3 * i + 1] == -1.0f && wide[3 * i + 2] == -1.0f);
                collx::broadcast(w, collx::strided(out.data() + 1, size, 2), {.root = n - 1});
                EXPECT(out[1] == -1.0f);
            }
        });
}

TEST_CASE("a block of a matrix, a column, and a row backwards") {
    for (const int n : {1, 3})
        on_ranks(n, [n](collx::communicator& w) {
            constexpr std::size_t rows = 37, cols = 53, pitch = 64;
            std::vector<int> a(rows * pitch, -1), all(rows * cols * static_cast<std::size_t>(n), -7);
            const auto block = collx::strided2d(a.data(), rows, cols, pitch);
            for (std::size_t i = 0; i < rows * cols; ++i) block[i] = sample(w.rank(), i);
            collx::all_gather(w, block, all);
            for (std::size_t i = 0; i < all.size(); ++i)
                EXPECT_AT(i, all[i] == sample(static_cast<int>(i / (rows * cols)), i % (rows * cols)));
            collx::reduce(w, collx::strided(a.data(), rows, pitch), collx::plus{}, {.root = 0}); // the first column
            for (std::size_t i = 0; i < rows; ++i)
                EXPECT_AT(i, a[i * pitch] == (w.rank() == 0 ? folded(i * cols, 0, n) : sample(w.rank(), i * cols)) &&
                                 a[i * pitch + cols] == -1);
            collx::scan(w, collx::strided(a.data() + cols - 1, cols, -1));
            for (std::size_t i = 1; i < cols; ++i) EXPECT_AT(i, a[i] == folded(i, 0, w.rank() + 1));
        });
}

TEST_CASE("const inputs, arrays, spans, single elements, braces of counts") {
    on_ranks(3, [](collx::communicator& w) {
        const std::vector<double> mine(10, w.rank());
        std::array<double, 10> out{};
        collx::all_reduce(w, mine, out);
        EXPECT(out[0] == 3 && out[9] == 3);
        double raw[10];
        collx::all_reduce(w, std::span<const double>(mine), raw, collx::max{});
        EXPECT(raw[0] == 2 && raw[9] == 2);
        collx::all_reduce(w, mine, raw); // the last argument is an output, not a pointer to an operator
        EXPECT(raw[0] == 3 && raw[9] == 3);
        collx::reduce(w, mine, raw, {.root = 1}); // options in place of the operator: the sum
        collx::all_reduce(w, raw, {.timeout = collx_test::patient(std::chrono::seconds(50))});
        EXPECT(raw[0] == 9 && raw[9] == 9);
        int x = w.rank() + 1;
        collx::all_reduce(w, collx::value(x));
        EXPECT(x == 6);
        std::vector<double> parts(6);
        collx::all_gather_v(w, collx::view(mine.data(), static_cast<std::size_t>(w.rank() + 1)), parts,
                            std::array{1, 2, 3});
        EXPECT(parts == std::vector<double>({0, 1, 1, 2, 2, 2}));
        const int sent = w.rank() * 2;
        int got = -1;
        collx::sendrecv(w, collx::value(sent), (w.rank() + 1) % 3, collx::value(got), (w.rank() + 2) % 3);
        EXPECT(got == (w.rank() + 2) % 3 * 2);
    });
}

namespace {

// Buffers at every offset within 16 bytes that the type allows, with guards around them.
template <class T>
void check_offsets(collx::communicator& w) {
    const std::size_t step = alignof(T) < 16 ? alignof(T) : 16;
    for (std::size_t size : {3u, 70u, 1500u})
        for (std::size_t a = 0; a < 16; a += step)
            for (const std::size_t b : {a, 16 - step - a}) {
                at("offsets %zu, %zu size=%zu", a, b, size);
                alignas(64) static thread_local unsigned char in[1600 * sizeof(T)], out[1600 * sizeof(T)];
                std::memset(out, 0xee, sizeof out);
                T* const x = reinterpret_cast<T*>(in + 16 + a);
                T* const y = reinterpret_cast<T*>(out + 16 + b);
                for (std::size_t i = 0; i < size; ++i) x[i] = sample<T>(w.rank(), i);
                collx::all_reduce(w, collx::view(x, size), collx::view(y, size));
                for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, y[i] == folded<T>(i, 0, w.size()));
                EXPECT(out[15 + b] == 0xee && out[16 + b + size * sizeof(T)] == 0xee);
                collx::broadcast(w, collx::view(y, size), {.root = w.size() - 1});
                EXPECT(y[0] == folded<T>(0, 0, w.size()) && out[16 + b + size * sizeof(T)] == 0xee);
            }
}

} // namespace

TEST_CASE("buffers at any offset that their element allows") {
    for (const int n : {1, 3})
        on_ranks(n, [](collx::communicator& w) {
            check_offsets<unsigned char>(w);
            check_offsets<short>(w);
            check_offsets<float>(w);
            check_offsets<double>(w);
        });
}

// Contiguous buffers of a few KiB take a shorter code path; peers must not notice.
TEST_CASE("ranks may differ in how their buffers lie, call by call") {
    for (const int n : {1, 2, 3, 5})
        on_ranks(n, [n](collx::communicator& w) {
            const int me = w.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
            for (const std::size_t size : {1u, 5u, 29u, 30u, 100u, 1000u, 5000u})
                for (int turn = 0; turn < 12; ++turn) {
                    at("n=%d size=%zu turn=%d", n, size, turn);
                    const bool is_wide = (me + turn) % 2 == 0;
                    const std::size_t step = is_wide ? 2 : 1, count = static_cast<std::size_t>(n) * size;
                    std::vector<int> in(step * count), out(step * count, -1);
                    const auto mine = samples(me, count);
                    for (std::size_t i = 0; i < count; ++i) in[step * i] = mine[i];
                    const auto x = collx::strided(in.data(), size, static_cast<std::ptrdiff_t>(step));
                    const auto call = [&](auto verb) { // with contiguous buffers where possible
                        const auto part = collx::strided(out.data(), size, static_cast<std::ptrdiff_t>(step));
                        const auto all = collx::strided(in.data(), count, static_cast<std::ptrdiff_t>(step));
                        const auto all_out = collx::strided(out.data(), count, static_cast<std::ptrdiff_t>(step));
                        if (is_wide) verb(x, part, all, all_out);
                        else
                            verb(collx::view(in.data(), size), collx::view(out.data(), size),
                                 collx::view(in.data(), count), collx::view(out.data(), count));
                    };
                    auto under_way = mine; // so that waits have an outstanding call to advance
                    auto work = collx::async::all_reduce(w, under_way);
                    const int root = turn % n;
                    call([&](auto a, auto b, auto, auto) { collx::all_reduce(w, a, b); });
                    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[step * i] == folded(i, 0, n));
                    call([&](auto a, auto b, auto, auto) { collx::sendrecv(w, a, next, b, before); });
                    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[step * i] == sample(before, i));
                    call([&](auto a, auto b, auto, auto) { collx::reduce(w, a, b, collx::plus{}, {.root = root}); });
                    if (me == root)
                        for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[step * i] == folded(i, 0, n));
                    call([&](auto, auto b, auto a, auto) { collx::reduce_scatter(w, a, b); });
                    for (std::size_t i = 0; i < size; ++i)
                        EXPECT_AT(i, out[step * i] == folded(static_cast<std::size_t>(me) * size + i, 0, n));
                    call([&](auto a, auto, auto, auto b) { collx::all_gather(w, a, b); });
                    for (std::size_t i = 0; i < count; ++i)
                        EXPECT_AT(i, out[step * i] == sample(static_cast<int>(i / size), i % size));
                    call([&](auto a, auto, auto, auto) { collx::broadcast(w, a, {.root = root}); });
                    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, in[step * i] == sample(root, i));
                    work.wait();
                    for (std::size_t i = 0; i < count; ++i) EXPECT_AT(i, under_way[i] == folded(i, 0, n));
                }
        });
}
