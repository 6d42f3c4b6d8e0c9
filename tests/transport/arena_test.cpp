// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arena's table of free ranges: compared with a model, at its limits, used by many threads, and when a process
// dies that holds its lock.
//
// collx-test: needs=rapidcheck
#include <collx/transport/memory.hpp>
#include <collx/transport/shm.hpp>

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <rapidcheck.h>

#include "support/processes.hpp"
#include "support/sanitizers.hpp"
#include "support/skip.hpp"
#include "transport/shm_support.hpp"

using namespace collx;
using namespace collx_test;

namespace {

constexpr std::size_t small = std::size_t{64} << 20;

std::size_t free_bytes(const arena& a) {
    std::size_t sum = 0;
    for (int i = 0; i < a.header().free_count; ++i) sum += a.header().free[i].bytes;
    return sum;
}
bool is_in_order(const arena& a) {
    const auto& h = a.header();
    for (int i = 0; i < h.free_count; ++i) {
        if (h.free[i].bytes == 0 || h.free[i].offset % page_bytes != 0 || h.free[i].bytes % page_bytes != 0)
            return false;
        if (i > 0 && h.free[i - 1].offset + h.free[i - 1].bytes >= h.free[i].offset)
            return false; // adjacent ranges must be merged
    }
    return true;
}
errc code_of_take(arena& a, std::size_t bytes) {
    try {
        (void)a.take(bytes);
    } catch (const error& e) {
        return e.code();
    }
    return errc::forked;
}

} // namespace

TEST_CASE("where the file size limit is in the way, the remedy says so and the reason is true") {
    rlimit usual{};
    ::getrlimit(RLIMIT_FSIZE, &usual);
    const auto text_under = [&](std::size_t most_bytes, auto&& f) {
        const rlimit low{most_bytes, usual.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &low);
        std::string text = "no error";
        try {
            f();
        } catch (const error& e) {
            text = e.what();
        }
        ::setrlimit(RLIMIT_FSIZE, &usual);
        return text;
    };
    const std::string none = text_under(page_bytes, [] { (void)collx::detail::make_sealed_arena(1, small); });
    const std::string full =
        text_under(small, [] { (void)collx::detail::make_sealed_arena(1, 2 * small)->take(2 * small); });
    CHECK(none.find("ulimit -f") != std::string::npos);
    CHECK(none.find("Success") == std::string::npos);
    CHECK(full.find("ulimit -f") != std::string::npos);
    CHECK(full.find("COLLX_ARENA_BYTES") == std::string::npos);
    const std::string usual_text =
        text_under(usual.rlim_cur, [] { (void)make_memory_arena(1, small)->take(2 * small); });
    if (usual.rlim_cur == RLIM_INFINITY) CHECK(usual_text.find("ulimit -f") == std::string::npos);
}

TEST_CASE("a fresh arena is one free range behind its header") {
    auto a = make_memory_arena(3, small);
    CHECK(a->bytes() == small);
    CHECK(a->header().ranks == 3);
    CHECK(a->header().free_count == 1);
    CHECK(a->header().free[0].offset >= sizeof(arena_header));
    CHECK(free_bytes(*a) == small - a->header().free[0].offset);
}

TEST_CASE("an arena has what begins at a page and ends within it") {
    const auto a = make_memory_arena(1, small);
    CHECK(a->has(0, small));
    CHECK(a->has(page_bytes, small - page_bytes));
    CHECK_FALSE(a->has(1, 1));
    CHECK_FALSE(a->has(0, small + 1));
    CHECK_FALSE(a->has(page_bytes, small));
    CHECK_FALSE(a->has(small + page_bytes, 0));
}

TEST_CASE("ranges given back become one again, in any order") {
    auto a = make_memory_arena(1, small);
    const std::size_t all = free_bytes(*a);
    const std::vector<std::vector<int>> orders = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}};
    for (const auto& order : orders) {
        std::uint64_t at[3];
        for (auto& o : at) o = a->take(3 * page_bytes - 5);
        CHECK(at[1] == at[0] + 3 * page_bytes);
        for (const int i : order) {
            a->give_back(at[i], 3 * page_bytes - 5);
            CHECK(is_in_order(*a));
        }
        CHECK(a->header().free_count == 1);
        CHECK(free_bytes(*a) == all);
    }
}

TEST_CASE("what was given back is zero when it is taken again") {
    for (const bool is_memfd : {false, true}) {
        auto a = is_memfd ? join_shm(nullptr, 0, 1, {}, small) : make_memory_arena(1, small);
        const auto at = a->take(2 * page_bytes);
        a->reserve(at, 2 * page_bytes);
        std::memset(a->at(at), 7, 2 * page_bytes);
        a->give_back(at, 2 * page_bytes);
        const auto again = a->take(2 * page_bytes);
        REQUIRE(again == at);
        for (std::size_t i = 0; i < 2 * page_bytes; i += 97) REQUIRE(*a->at(again + i) == std::byte{0});
    }
}

// The kernel does not free locked pages on madvise().
TEST_CASE("what was given back is zero also in programs that lock their memory") {
    for (const bool is_memfd : {false, true}) {
        auto a = is_memfd ? join_shm(nullptr, 0, 1, {}, small) : make_memory_arena(1, small);
        const auto at = a->take(2 * page_bytes);
        a->reserve(at, 2 * page_bytes);
        if (::mlock(a->at(at), page_bytes) != 0) return skip("this system locks no memory for users (ulimit -l)");
        std::memset(a->at(at), 7, 2 * page_bytes);
        a->give_back(at, 2 * page_bytes);
        const auto again = a->take(2 * page_bytes);
        CHECK(again == at);
        for (std::size_t i = 0; i < 2 * page_bytes; i += 97) REQUIRE(*a->at(again + i) == std::byte{0});
        std::memset(a->at(again), 1, 2 * page_bytes);
        a->give_back(again, 2 * page_bytes);
        CHECK(a->header().free_count == 1);
    }
}

TEST_CASE("what does not fit is an error, and the arena is as before") {
    auto a = make_memory_arena(1, small);
    const std::size_t all = free_bytes(*a);
    for (const std::size_t bytes : {all + 1, small, SIZE_MAX, SIZE_MAX - page_bytes + 2, SIZE_MAX / 2})
        CHECK(code_of_take(*a, bytes) == errc::resource);
    CHECK_THROWS_WITH(a->take(SIZE_MAX),
                      Catch::Contains(std::to_string(all) + " are free, at most " + std::to_string(all)));
    CHECK(free_bytes(*a) == all);
    const auto at = a->take(all);
    CHECK(a->header().free_count == 0);
    CHECK(code_of_take(*a, 1) == errc::resource);
    a->give_back(at, all);
    CHECK(free_bytes(*a) == all);
}

TEST_CASE("nothing takes a page of its own, so that two takers never share an address") {
    auto a = make_memory_arena(1, small);
    const std::size_t all = free_bytes(*a);
    const auto x = a->take(0), y = a->take(0);
    CHECK(x != y);
    a->give_back(x, 0);
    a->give_back(y, 0);
    CHECK(free_bytes(*a) == all);
    CHECK(a->header().free_count == 1);
}

TEST_CASE("too many holes leak address space and do nothing worse") {
    auto a = make_memory_arena(1, small);
    std::vector<std::uint64_t> at;
    for (int i = 0; i < 2 * arena_header::max_free + 100; ++i) at.push_back(a->take(page_bytes));
    for (std::size_t i = 0; i < at.size(); i += 2) a->give_back(at[i], page_bytes);
    CHECK(a->header().free_count == arena_header::max_free);
    CHECK(is_in_order(*a));
    for (std::size_t i = 1; i < at.size(); i += 2) a->give_back(at[i], page_bytes);
    CHECK(is_in_order(*a));
    CHECK(a->take(small / 4) > 0);
}

TEST_CASE("any sequence of taking and giving back keeps ranges apart and loses nothing") {
    const bool is_good = rc::check("arena against a model", [](const std::vector<unsigned>& choices) {
        auto a = make_memory_arena(1, small);
        const std::size_t all = free_bytes(*a);
        std::map<std::uint64_t, std::size_t> held; // offset -> bytes
        std::size_t held_bytes = 0;
        for (const unsigned choice : choices) {
            if (choice % 3 != 0 || held.empty()) {
                const std::size_t bytes = (choice / 3) % (choice % 7 == 0 ? small : 40 * page_bytes);
                const std::size_t whole = round_up(bytes > 0 ? bytes : 1, page_bytes);
                std::uint64_t at = 0;
                try {
                    at = a->take(bytes);
                } catch (const error&) {
                    for (int i = 0; i < a->header().free_count; ++i) RC_ASSERT(a->header().free[i].bytes < whole);
                    continue;
                }
                const auto next = held.lower_bound(at);
                RC_ASSERT(at >= sizeof(arena_header));
                RC_ASSERT(at + whole <= small);
                // Outside RC_ASSERT, which evaluates both sides.
                const bool is_before_next = next == held.end() || at + whole <= next->first;
                const bool is_after_last =
                    next == held.begin() || std::prev(next)->first + std::prev(next)->second <= at;
                RC_ASSERT(is_before_next);
                RC_ASSERT(is_after_last);
                held[at] = whole;
                held_bytes += whole;
            } else {
                auto it = held.begin();
                std::advance(it, choice / 3 % held.size());
                a->give_back(it->first, it->second);
                held_bytes -= it->second;
                held.erase(it);
            }
            RC_ASSERT(is_in_order(*a));
            RC_ASSERT(free_bytes(*a) + held_bytes == all);
        }
        for (const auto& [at, bytes] : held) a->give_back(at, bytes);
        RC_ASSERT(a->header().free_count == 1);
        RC_ASSERT(free_bytes(*a) == all);
    });
    CHECK(is_good);
}

TEST_CASE("threads take and give back at the same time") {
    auto a = make_memory_arena(1, small);
    const std::size_t all = free_bytes(*a);
    std::atomic<int> overlaps{0};
    std::vector<std::thread> threads;
    for (int t = 1; t <= 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i) {
                const std::size_t bytes = page_bytes * static_cast<std::size_t>(1 + (i * t) % 5);
                const auto at = a->take(bytes);
                // Memory that this thread owns keeps what it wrote, to the last byte.
                auto* first = reinterpret_cast<int*>(a->at(at));
                auto* last = reinterpret_cast<int*>(a->at(at + bytes)) - 1;
                *first = *last = t;
                std::this_thread::yield();
                if (*first != t || *last != t) ++overlaps;
                a->give_back(at, bytes);
            }
        });
    for (auto& t : threads) t.join();
    CHECK(overlaps == 0);
    CHECK(free_bytes(*a) == all);
    CHECK(a->header().free_count == 1);
}

TEST_CASE("a communicator takes what is left of an arena that is nearly full, and gives back that much") {
    constexpr int pages = 10; // that are left: less than a communicator takes at a time
    auto a = make_memory_arena(1, small);
    (void)a->take(free_bytes(*a) - pages * page_bytes);
    arena_room room{};
    collx::atomic<std::uint64_t> words[pages + 1] = {};
    for (int i = 0; i < pages; ++i) {
        const std::uint64_t at = a->take_once(words[i], room, page_bytes);
        CHECK(a->has(at, page_bytes));
        for (int k = 0; k < i; ++k) CHECK(words[k].load() != at);
        CHECK(a->take_once(words[i], room, page_bytes) == at);
        CHECK(free_bytes(*a) == static_cast<std::size_t>(pages - 1 - i) * page_bytes);
        CHECK(room.bytes() == static_cast<std::size_t>(i + 1) * page_bytes);
    }
    CHECK_THROWS_AS(a->take_once(words[pages], room, page_bytes), error);
    CHECK(words[pages].load() == 0);
    a->give_back(room);
    CHECK(free_bytes(*a) == pages * page_bytes);
    CHECK(is_in_order(*a));
}

TEST_CASE("a table that was overwritten is an error, and is neither walked through nor written to") {
    using table = arena_header;
    const std::vector<void (*)(table&)> ways = {
        [](table& h) { h.free_count = INT32_MAX; },
        [](table& h) { h.free_count = table::max_free + 1; },
        [](table& h) { h.free_count = -1; },
        [](table& h) { h.free[0].offset = small + page_bytes; },
        [](table& h) { h.free[0].bytes = small; },
        [](table& h) {
            h.free[0] = {UINT64_MAX - page_bytes + 1, 2 * page_bytes};
        },
        [](table& h) { std::memset(static_cast<void*>(&h), 0x7f, sizeof h); }, // the lock is one of no process
    };
    for (std::size_t i = 0; i < ways.size(); ++i) {
        INFO("way " << i);
        auto a = make_memory_arena(1, small);
        const std::uint64_t mine = a->take(page_bytes);
        ways[i](a->header());
        CHECK(code_of_take(*a, page_bytes) == errc::protocol);
        CHECK(code_of_take(*a, 2 * small) == errc::protocol);
        const std::vector<std::byte> before(a->at(0), a->at(sizeof(table)));
        a->give_back(mine, page_bytes);
        CHECK(std::memcmp(a->at(0), before.data(), before.size()) == 0);
    }
}

TEST_CASE("a process that dies holding the lock does not lock out the others, one that lives does") {
    auto a = join_shm(nullptr, 0, 1, {}, small);
    processes p;
    p.start(0, [&] {
        a->header().lock.store(static_cast<std::uint32_t>(::getpid()));
        return 0;
    });
    p.wait();
    REQUIRE(a->header().lock.load() != 0);
    const std::int64_t begin = now_ns();
    CHECK(a->take(1) > 0);
    CHECK(now_ns() - begin < collx_test::patient(15'000'000'000));
    CHECK(a->header().lock.load() == 0);

    shared_page<std::atomic<int>> has_released;
    const pid_t holder = p.start(1, [&] {
        a->header().lock.store(static_cast<std::uint32_t>(::getpid()));
        ::usleep(2'000'000);
        has_released->store(1);
        a->header().lock.store(0);
        return 0;
    });
    while (a->header().lock.load() != static_cast<std::uint32_t>(holder)) ::usleep(100);
    CHECK(a->take(1) > 0);
    CHECK(has_released->load() == 1);
    p.wait();
}

TEST_CASE("the owner of the lock has died also while no process has waited for it") {
    auto a = join_shm(nullptr, 0, 1, {}, small);
    const pid_t child = ::fork();
    if (child == 0) {
        a->header().lock.store(static_cast<std::uint32_t>(::getpid()));
        ::_exit(0);
    }
    siginfo_t end{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT) == 0);
    REQUIRE(a->header().lock.load() == static_cast<std::uint32_t>(child));
    // as in the middle of a change
    a->header().free[1] = a->header().free[0];
    a->header().free_count = 2;
    CHECK(a->take(1) > 0);
    CHECK(is_in_order(*a));
    REQUIRE(::waitpid(child, nullptr, 0) == child);
}

#if !COLLX_TEST_TSAN // single-threaded: nothing for it to see, and ptrace would step through its code
// Dies at each instruction between taking the lock and releasing it.
TEST_CASE("a process that dies anywhere in the table leaves no process memory that another one has") {
    const auto die_in = [](arena& a, int instructions, auto&& f) { // false: it survived
        const pid_t child = ::fork();
        if (child == 0) {
            ::ptrace(PTRACE_TRACEME, 0, 0, 0);
            ::raise(SIGSTOP);
            f();
            ::_exit(0);
        }
        int status = 0, held = 0;
        ::waitpid(child, &status, 0);
        while (WIFSTOPPED(status) && held < instructions) {
            if (::ptrace(PTRACE_SINGLESTEP, child, 0, 0) != 0 || ::waitpid(child, &status, 0) != child) break;
            if (a.header().lock.load() != 0) ++held;
            else if (held != 0) break;
        }
        if (!WIFSTOPPED(status)) return false;
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
        return held == instructions;
    };
    auto a = join_shm(nullptr, 0, 1, {}, small);
    if (!die_in(*a, 1, [&] { (void)a->take(1); }))
        return skip("this system lets no process step through a child (ptrace)");
#if COLLX_TEST_ASAN
    constexpr int stride = 199; // most instructions are the sanitizer's
#else
    constexpr int stride = 5;
#endif
    int deaths = 0;
    for (int what = 0; what < 6; ++what)
        for (int instructions = 1;; instructions += stride) {
            a = join_shm(nullptr, 0, 1, {}, small);
            std::uint64_t at[7];
            for (auto& x : at) x = a->take(page_bytes);
            for (const int i : {1, 3, 6}) a->give_back(at[i], page_bytes);
            const std::size_t before = free_bytes(*a);
            const bool has_died = die_in(*a, instructions, [&] {
                if (what < 2) (void)a->take(what == 0 ? page_bytes : 3 * page_bytes);
                else a->give_back(at[what == 2 ? 2 : what == 3 ? 4 : what == 4 ? 0 : 5], page_bytes);
            });
            if (!has_died) break;
            ++deaths;
            a->header().lock.store(0);
            arena::repair(a->header()); // as the process that takes over the lock does
            INFO("what " << what << ", " << instructions << " instructions");
            REQUIRE(is_in_order(*a));
            CHECK(free_bytes(*a) + 4 * page_bytes >= before);
            for (int i = 0; i < 7; ++i) {
                if (i == 1 || i == 3 || i == 6 ||
                    (what >= 2 && i == (what == 2   ? 2
                                        : what == 3 ? 4
                                        : what == 4 ? 0
                                                    : 5)))
                    continue;
                for (int k = 0; k < a->header().free_count; ++k)
                    CHECK_FALSE((a->header().free[k].offset <= at[i] &&
                                 at[i] < a->header().free[k].offset + a->header().free[k].bytes));
            }
        }
    CHECK(deaths > 10);
}
#endif

// In another container the holder's number means no process or another process.
TEST_CASE("whether a holder lives is not asked by numbers that do not mean it") {
    for (const bool is_hidden_here : {true, false}) {
        auto a = join_shm(nullptr, 0, 1, {}, small);
        if (is_hidden_here) a->hide_number();
        const pid_t child = ::fork();
        if (child == 0) ::_exit(0);
        REQUIRE(::waitpid(child, nullptr, 0) == child);
        a->header().lock.store(static_cast<std::uint32_t>(child) | (is_hidden_here ? 0 : 1u << 31));
        std::atomic<bool> has_released{false};
        std::thread holder([&] {
            ::usleep(2'500'000);
            has_released = true;
            a->header().lock.store(0);
        });
        CHECK(a->take(1) > 0);
        CHECK(has_released);
        holder.join();
    }
}

TEST_CASE("an address is inside only with all its bytes") {
    auto a = make_memory_arena(1, small);
    CHECK(a->contains(a->at(0), small));
    CHECK(a->contains(a->at(small - 1), 1));
    CHECK_FALSE(a->contains(a->at(small - 1), 2));
    CHECK_FALSE(a->contains(a->at(1), SIZE_MAX));
    CHECK_FALSE(a->contains(a->at(0) + small, 0));
    int outside = 0;
    CHECK_FALSE(a->contains(&outside, sizeof outside));
    CHECK(a->offset_of(a->at(12345)) == 12345);
}

// Replaces the C library's function to simulate many signals: interrupts three of four short calls, and every long
// one. (Some kernels do not check for signals here, so real signals would test nothing.)
namespace {
bool is_stormy = false;
long interrupted = 0;
} // namespace
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    static long calls = 0;
    if (is_stormy && (bytes > off_t{1} << 20 || ++calls % 4 != 0)) {
        ++interrupted;
        errno = EINTR;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}

TEST_CASE("reserving succeeds under a storm of signals") {
    auto a = join_shm(nullptr, 0, 1, {}, std::size_t{1} << 30);
    const std::size_t bytes = (std::size_t{16} << 20) + page_bytes;
    const auto at = a->take(bytes);
    struct stat before {
    }, after{};
    ::fstat(a->fd(), &before);
    interrupted = 0;
    is_stormy = true;
    CHECK_NOTHROW(a->reserve(at, bytes));
    is_stormy = false;
    ::fstat(a->fd(), &after);
    CHECK(interrupted == 3 * 17);
    CHECK(after.st_blocks >= before.st_blocks);
    std::memset(a->at(at), 1, bytes);
    ::fstat(a->fd(), &before);
    CHECK(after.st_blocks == before.st_blocks); // all of it was allocated before
    a->give_back(at, bytes);
}

TEST_CASE("what is populated is mapped before it is written") {
    auto a = detail::make_sealed_arena(1, small);
    constexpr std::size_t bytes = std::size_t{1} << 20, pages = bytes / page_bytes;
    const std::uint64_t at = a->take(bytes), other = a->take(page_bytes);
    a->reserve(at, bytes);
    a->reserve(other, page_bytes);
    if (::madvise(a->at(other), page_bytes, MADV_POPULATE_WRITE) != 0) {
        collx_test::skip("this kernel does not populate memory on advice (MADV_POPULATE_WRITE)");
        return;
    }
    a->populate(at, bytes);
    // A bit per page in pagemap says that it is mapped here (counting faults would include a sanitizer's own faults).
    std::vector<std::uint64_t> entries(pages);
    std::FILE* map = std::fopen("/proc/self/pagemap", "rb");
    if (map == nullptr) {
        collx_test::skip("/proc/self/pagemap cannot be read here");
        return;
    }
    const auto first = reinterpret_cast<std::uintptr_t>(a->at(at)) / page_bytes;
    const bool is_there = std::fseek(map, static_cast<long>(first * sizeof(std::uint64_t)), SEEK_SET) == 0;
    const std::size_t got = is_there ? std::fread(entries.data(), sizeof(std::uint64_t), pages, map) : 0;
    std::fclose(map);
    REQUIRE(got == pages);
    for (std::size_t i = 0; i < pages; ++i) CHECK((entries[i] >> 63 & 1) == 1);
}
