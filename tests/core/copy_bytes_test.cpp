// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies are correct for all positions of both ends; a page alias is a position at which a processor would be slow.
// collx-test: sanitize=address
#include <collx/core/copy_bytes.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t page = 4096, room_bytes = 8 * page;

// Two areas, each beginning at a page.
struct rooms {
    std::vector<std::byte> both = std::vector<std::byte>(2 * room_bytes + page);
    std::byte* first = both.data() + (page - reinterpret_cast<std::uintptr_t>(both.data()) % page) % page;
    std::byte* second = first + room_bytes;
    void fill() {
        unsigned state = 1;
        for (std::size_t i = 0; i < 2 * room_bytes; ++i)
            first[i] = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    }
};

} // namespace

TEST_CASE("what is copied is what was there, and nothing beside it is touched") {
    rooms r, expected;
    for (const std::size_t from : {0u, 1u, 20u, 4095u})
        for (std::size_t ahead = 0; ahead <= 40; ++ahead)
            for (const std::size_t n : {0u, 1u, 63u, 2047u, 2048u, 2049u, 2111u, 4096u, 12'292u, 20'011u}) {
                r.fill();
                expected.fill();
                collx::copy_bytes(r.second + from + ahead, r.first + from, n);
                std::memmove(expected.second + from + ahead, expected.first + from, n);
                INFO(n << " bytes from " << from << ", " << ahead << " ahead");
                REQUIRE(std::memcmp(r.first, expected.first, 2 * room_bytes) == 0);
            }
}

TEST_CASE("a destination may overlap the source, from either side") {
    rooms r, expected;
    for (const std::size_t to : {0u, 4u, 8u, 4096u, 4100u, 8000u, 8196u})
        for (const std::size_t from : {0u, 4u, 4096u, 4104u, 8192u})
            for (const std::size_t n : {100u, 3000u, 12'000u}) {
                r.fill();
                expected.fill();
                collx::copy_bytes(r.first + to, r.first + from, n);
                std::memmove(expected.first + to, expected.first + from, n);
                INFO(n << " bytes from " << from << " to " << to);
                REQUIRE(std::memcmp(r.first, expected.first, 2 * room_bytes) == 0);
            }
}

TEST_CASE("aliases are destinations up to 31 bytes further into a page") {
    const rooms r;
    const auto are = [&](std::size_t to, std::size_t from) {
        return collx::detail::are_page_aliases(r.second + to, r.first + from);
    };
    CHECK_FALSE(are(0, 0));
    CHECK(are(1, 0));
    CHECK(are(31, 0));
    CHECK_FALSE(are(32, 0));
    CHECK_FALSE(are(0, 1));
    CHECK(are(page + 4, 0));
    CHECK(are(2, page - 2)); // past the end of a page
    CHECK_FALSE(are(page - 4, 0));
}
