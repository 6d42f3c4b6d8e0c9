// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reading a peer's private memory through the kernel, where the peer is this process itself, which needs no permission;
// and what the links of a rank remember and report.
#include <collx/transport/links.hpp>
#include <collx/transport/memory.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstring>
#include <numeric>
#include <vector>

TEST_CASE("private memory is read to any place, also to one that lies in its page as the source does") {
    const auto memory = collx::make_memory_arena(2);
    const auto layout = collx::links_layout::for_ranks(2);
    collx::links net(*memory, memory->take(layout.bytes()), 0, 2);
    collx::detail::growing_array<int> pids;
    for (int r = 0; r < 2; ++r) pids.push_back(::getpid());
    net.set_processes(std::move(pids));

    constexpr std::size_t page = 4096, most = 100'000;
    std::vector<unsigned char> room(2 * most + 4 * page), expected;
    unsigned char* const source = room.data() + (page - reinterpret_cast<std::uintptr_t>(room.data()) % page);
    unsigned char* const destination = source + (most + 2 * page) / page * page;
    for (const std::size_t bytes : {std::size_t{100}, page, std::size_t{33'000}, std::size_t{70'001}, most})
        for (const std::size_t ahead : {0u, 4u, 31u, 32u}) {
            for (std::size_t i = 0; i < most; ++i) source[i] = static_cast<unsigned char>(i * 7 + i / 251 + ahead);
            std::memset(destination, 0xA5, bytes + 2 * page < 2 * most ? bytes + 64 : bytes);
            REQUIRE(net.read_private(1, destination + ahead, reinterpret_cast<std::uintptr_t>(source), bytes));
            INFO(bytes << " bytes, " << ahead << " ahead");
            CHECK(std::memcmp(destination + ahead, source, bytes) == 0);
            if (ahead != 0) CHECK(destination[ahead - 1] == 0xA5);
        }
    CHECK_FALSE(net.read_private(1, destination + 4, 1, page)); // nothing is mapped there
}

TEST_CASE("a message that its receiver refuses is remembered with its length and the expected one") {
    const auto memory = collx::make_memory_arena(2);
    const auto layout = collx::links_layout::for_ranks(2);
    const auto at = memory->take(layout.bytes());
    collx::links from(*memory, at, 0, 2), to(*memory, at, 1, 2);
    CHECK(to.refused().peer == -1);
    auto& tx = from.tx(collx::port::messages, 1);
    REQUIRE(tx.try_acquire(24) != nullptr);
    tx.commit(24);
    auto& rx = to.rx(collx::port::messages, 0);
    REQUIRE(rx.has_message());
    const collx::failure f = to.refuse(rx, 0, 16);
    CHECK(f.code() == collx::errc::mismatch);
    CHECK(f.rank() == 0);
    CHECK(to.refused().peer == 0);
    CHECK(to.refused().came == 24);
    CHECK(to.refused().expected == 16);
}

TEST_CASE("a rank that finds the arena full is named in its error and, with what it is short of, to the others") {
    const auto layout = collx::links_layout::for_ranks(2);
    const auto memory = collx::make_memory_arena(2, layout.bytes() + (std::size_t{8} << 20));
    const auto at = memory->take(layout.bytes());
    collx::links full(*memory, at, 1, 2), other(*memory, at, 0, 2);
    for (std::size_t bytes = memory->bytes(); bytes >= 4096; bytes /= 2) try {
            for (;;) (void)memory->take(bytes);
        } catch (const collx::error&) { // no such range any more
        }
    try {
        (void)full.tx(collx::port::blocking, 0);
        FAIL("there is room");
    } catch (const collx::error& e) {
        CHECK(e.code() == collx::errc::resource);
        CHECK(e.rank() == 1);
        CHECK(std::strstr(e.what(), "collx: rank 1: no ") != nullptr);
    }
    CHECK(other.failed().code() == collx::errc::resource);
    CHECK(other.failed().rank() == 1);
    CHECK(other.failed().short_of() == collx::detail::shortage::arena);
}
