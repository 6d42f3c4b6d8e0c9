// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Both ends of a part on device memory cut it into the same pieces, whatever the views and the size of the elements:
// one end moves whole elements, because its view is strided, the other units of up to 8 bytes. Parts are longer than a
// slot. Messages, groups and collectives by kernels, by way of the host, and in two levels.
#include "levels_support.hpp"

#include <collx/gpu/device_group.hpp>

namespace {

template <std::size_t Bytes>
struct block { // aligned as one byte
    std::uint8_t x[Bytes];
    bool operator==(const block&) const = default;
};
struct vec3 {
    float x, y, z;
    bool operator==(const vec3&) const = default;
};
struct double3 {
    double x, y, z;
    bool operator==(const double3&) const = default;
};

// Element i of what a rank sends.
template <class T>
T element(int rank, std::size_t i) {
    std::uint8_t bytes[sizeof(T)];
    for (std::size_t k = 0; k < sizeof(T); ++k)
        bytes[k] = static_cast<std::uint8_t>((i * 7 + k * 3 + static_cast<std::size_t>(rank) * 50) % 97);
    T t;
    std::memcpy(&t, bytes, sizeof t);
    return t;
}
// n elements, every second one of the memory.
template <class T>
auto every_second(const device_memory<T>& m, std::size_t n) {
    return on_device(strided(m.data(), n, 2));
}
template <class T>
void fill(const device_memory<T>& m, int rank, std::size_t n, std::size_t stride) {
    for (std::size_t i = 0; i < n; ++i) m[i * stride] = element<T>(rank, i);
}
template <class T>
std::size_t wrong_ones(const device_memory<T>& m, int rank, std::size_t first, std::size_t n, std::size_t stride) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += !(m[i * stride] == element<T>(rank, first + i));
    return wrong;
}

// Rank 0 strided and rank 1 contiguous, as sender, as receiver, in a scatter and in an all_to_all_v.
template <class T>
void check_ends(const device_settings& settings, std::size_t n) {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, settings);
        const int me = w.rank(), peer = 1 - me;
        const std::size_t stride = me == 0 ? 2 : 1;
        const std::vector<std::size_t> half{n - n / 2, n / 2}, mine(2, half[static_cast<std::size_t>(me)]);
        device_memory<T> x(g, me, 2 * n), y(g, me, 2 * n), part(g, me, 2 * n), all(g, me, 2 * n);
        fill(x, me, n, stride);
        const auto run = [&](const auto& in, const auto& out, const auto& own, const auto& whole) {
            sendrecv(c, in, peer, out, peer);
            scatter_v(c, in, own, me == 0 ? half : std::vector<std::size_t>(), std::vector<std::size_t>(), {});
            all_to_all_v(c, in, half, whole, mine);
        };
        const std::size_t got = half[static_cast<std::size_t>(me)];
        if (me == 0) run(every_second(x, n), every_second(y, n), every_second(part, got), every_second(all, 2 * got));
        else
            run(device_view<T>(x.data(), n), device_view<T>(y.data(), n), device_view<T>(part.data(), got),
                device_view<T>(all.data(), 2 * got));
        synchronize(c);
        EXPECT(wrong_ones(y, peer, 0, n, stride) == 0);
        EXPECT(wrong_ones(part, 0, me == 0 ? 0 : half[0], got, stride) == 0);
        EXPECT(wrong_ones(all, 0, me == 0 ? 0 : half[0], got, stride) == 0);
    });
    CHECK(g.pieces() == 0);
}

// Messages of a group, whose elements are bytes to its kernel, and single ones, strided or not.
template <class Group>
void check_group(Group&& launch) {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        const std::size_t n = 2000;
        const int me = w.rank();
        device_memory<vec3> x(g, me, n), y(g, me, 2 * n);
        device_memory<int> numbers(g, me, n), more(g, me, n);
        device_memory<block<20>> blocks(g, me, n);
        if (me == 0) {
            fill(x, 0, n, 1);
            fill(numbers, 0, n, 1);
            fill(more, 0, n, 1);
            fill(blocks, 0, n, 1);
            launch(c, x, numbers, blocks, more);
        } else { // in the order of the kernels of rank 0
            collx::recv(c, numbers, 0);
            collx::recv(c, more, 0);
            collx::recv(c, every_second(y, n), 0);
            collx::recv(c, blocks, 0);
        }
        synchronize(c);
        EXPECT(wrong_ones(numbers, 0, 0, n, 1) == 0);
        EXPECT(wrong_ones(more, 0, 0, n, 1) == 0);
        EXPECT(me == 0 || wrong_ones(y, 0, 0, n, 2) == 0);
        EXPECT(wrong_ones(blocks, 0, 0, n, 1) == 0);
    });
    CHECK(g.pieces() == 0);
}

} // namespace

TEST_CASE("a strided end and a contiguous one cut a part alike, whatever the size of its elements") {
    for (const bool staged : {false, true}) {
        check_ends<block<3>>(small(staged), 5000);
        check_ends<vec3>(small(staged), 3000);
        check_ends<block<20>>(small(staged), 300);
        check_ends<double3>(small(staged), 300);
        check_ends<double>(small(staged), 300);
    }
    device_settings large = small(); // slots that no piece fills
    large.slot_bytes = 512 * 1024;
    check_ends<vec3>(large, 100'000);
}

TEST_CASE("pieces that a policy asks for are whole elements at both ends") {
    constexpr std::size_t beyond_32_bits = std::size_t{1} << 32;
    static_assert(detail::by_kernel::piece_in_32_bits(1000) == 1000);
    static_assert(detail::by_kernel::piece_in_32_bits(beyond_32_bits) == UINT32_MAX);
    static_assert(detail::by_kernel::piece_in_32_bits(beyond_32_bits + 48) == UINT32_MAX);
    for (const std::size_t wanted : {std::size_t{5}, std::size_t{100}, std::size_t{500}, beyond_32_bits + 16}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r}, piece{wanted});
            use_device(c, small());
            const std::size_t n = 700;
            device_memory<vec3> x(g, w.rank(), 2 * n);
            if (w.rank() == 0) {
                fill(x, 0, n, 2);
                collx::send(c, every_second(x, n), 1);
            } else {
                collx::recv(c, device_view<vec3>(x.data(), n), 0);
            }
            synchronize(c);
            EXPECT(w.rank() == 0 || wrong_ones(x, 0, 0, n, 1) == 0);
        });
    }
}

TEST_CASE("messages of a group are cut as single ones of their elements") {
    check_group([](const auto& c, auto& x, auto& numbers, auto& blocks, auto& more) {
        device_group group(c);
        group.send(x, 1);
        group.send(numbers, 1);
        group.send(blocks, 1);
        group.send(more, 1);
        group.launch();
    });
    check_group([](const auto& c, auto& x, auto& numbers, auto& blocks, auto& more) {
        device_group(c).send(x, 1).send(numbers, 1).send(blocks, 1).send(more, 1).launch();
    });
}

TEST_CASE("elements of which a slot holds no piece that both ends can cut are refused where they are strided") {
    using odd = block<1001>; // pieces of 16 elements; a slot has 1024 bytes
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        const int me = w.rank(), peer = 1 - me;
        device_memory<odd> x(g, me, 6), y(g, me, 6);
        fill(x, me, 6, 1);
        sendrecv(c, x, peer, y, peer);
        synchronize(c);
        EXPECT(wrong_ones(y, peer, 0, 6, 1) == 0);
        const auto e = thrown<error>(w, [&] { collx::send(c, every_second(x, 3), peer); });
        EXPECT(e.code() == errc::unsupported &&
               says(e, "1001 bytes that are not contiguous travel in pieces of 16016"));
    });
}

TEST_CASE("ranks with other strides receive alike in two levels") {
    fake_gpus g;
    on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, const device_settings& o) {
        const auto c = w.with(gpus{r});
        use_device(c, o);
        const int me = w.rank();
        const std::size_t n = 1500, stride = me % 2 == 0 ? 2 : 1;
        device_memory<vec3> x(g, me, 2 * n), all(g, me, 8 * n);
        fill(x, me, n, stride);
        const auto run = [&](const auto& part, const auto& whole) {
            all_gather(c, part, whole);
            broadcast(c, part, {.root = 3});
        };
        if (stride == 2) run(every_second(x, n), every_second(all, 4 * n));
        else run(device_view<vec3>(x.data(), n), device_view<vec3>(all.data(), 4 * n));
        synchronize(c);
        EXPECT(wrong_ones(x, 3, 0, n, stride) == 0);
        for (int k = 0; k < 4; ++k)
            for (std::size_t i = 0; i < n; ++i)
                EXPECT_AT(i, all[(static_cast<std::size_t>(k) * n + i) * stride] == element<vec3>(k, i));
    });
    CHECK(g.pieces() == 0);
}
