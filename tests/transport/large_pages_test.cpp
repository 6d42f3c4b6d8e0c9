// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A system with pages of 64 KiB, as kernels for ARM often have them, while layouts count in 4 KiB: sysconf() says so
// here, and madvise() is as strict as there.
//
// collx-test: sanitize=no
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/collx.hpp>

namespace {

constexpr std::size_t large = 64 << 10;
int refused = 0, dropped = 0;

} // namespace

extern "C" long __sysconf(int name) noexcept; // of the C library
extern "C" long sysconf(int name) noexcept { return name == _SC_PAGESIZE ? long{large} : __sysconf(name); }
extern "C" int madvise(void* p, std::size_t bytes, int advice) noexcept {
    if (reinterpret_cast<std::uintptr_t>(p) % large != 0) {
        ++refused;
        errno = EINVAL;
        return -1;
    }
    if (advice == MADV_DONTNEED) ++dropped;
    return static_cast<int>(::syscall(SYS_madvise, p, collx::round_up(bytes, large), advice));
}

namespace {

// At the start of a large page, as such a system would map it.
collx::counted_ptr<collx::arena> arena_of(std::size_t bytes) {
    auto* const all = static_cast<std::byte*>(
        ::mmap(nullptr, bytes + large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    REQUIRE(static_cast<void*>(all) != MAP_FAILED);
    const auto behind = reinterpret_cast<std::uintptr_t>(all) % large, skipped = behind == 0 ? 0 : large - behind;
    if (skipped != 0) ::munmap(all, skipped);
    ::munmap(all + skipped + bytes, large - skipped);
    auto a = collx::make_counted<collx::arena>(all + skipped, bytes, -1);
    a->format(1);
    return a;
}

struct piece {
    std::uint64_t at;
    std::size_t bytes;
    unsigned char mark;
};
bool is_all(const collx::arena& a, const piece& p, unsigned char mark) {
    for (std::size_t i = 0; i < p.bytes; ++i)
        if (a.at(p.at)[i] != std::byte{mark}) return false;
    return true;
}

} // namespace

TEST_CASE("memory that is given back takes nothing along from the same large page, and is zero when taken again") {
    std::mt19937 random(7);
    const auto a = arena_of(64 << 20);
    const auto all = a->header().free[0].bytes;
    std::vector<piece> held;
    for (int turn = 0; turn < 2000; ++turn) {
        if (held.size() < 40) {
            piece p{0, collx::page_bytes * (1 + random() % 50), static_cast<unsigned char>(1 + turn % 255)};
            p.at = a->take(p.bytes);
            REQUIRE(is_all(*a, p, 0));
            std::memset(a->at(p.at), p.mark, p.bytes);
            held.push_back(p);
            continue;
        }
        const std::size_t which = random() % held.size();
        a->give_back(held[which].at, held[which].bytes);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        for (const piece& p : held) REQUIRE(is_all(*a, p, p.mark));
    }
    for (const piece& p : held) a->give_back(p.at, p.bytes);
    CHECK(a->header().free_count == 1);
    CHECK(a->header().free[0].bytes == all);
    CHECK(refused == 0);
    CHECK(dropped > 0);
}

TEST_CASE("communicators and shared buffers come and go on large pages") {
    std::atomic<int> right{0};
    collx::run_threads(3, [&](collx::communicator& world) {
        for (int turn = 0; turn < 20; ++turn) {
            auto half = world.split(world.rank() % 2);
            auto x = collx::make_shared_vector<int>(half, 1000, turn);
            collx::all_reduce(half, x);
            right += std::count(x.begin(), x.end(), turn * half.size()) == 1000;
            collx::barrier(world);
        }
    });
    CHECK(right == 3 * 20);
}
