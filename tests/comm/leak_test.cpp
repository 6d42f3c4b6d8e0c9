// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=no
//
// A thousand communicators are made, fail and are destroyed. They leave no descriptor, no mapping, no memory and no
// hole in the shared arena behind.
#include "support.hpp"

#include <dirent.h>
#include <unistd.h>

#include <fstream>
#include <string>

using namespace collx_test;
using namespace std::chrono_literals;

namespace {

struct belongings {
    long descriptors = 0, mappings = 0, resident_kib = 0;
};
belongings count_belongings() {
    belongings b;
    DIR* const d = ::opendir("/proc/self/fd");
    while (d != nullptr && ::readdir(d) != nullptr) ++b.descriptors;
    if (d != nullptr) ::closedir(d);
    std::ifstream maps("/proc/self/maps"), status("/proc/self/status");
    for (std::string line; std::getline(maps, line);) ++b.mappings;
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmRSS:", 0) == 0) b.resident_kib = std::stol(line.substr(6));
    return b;
}

// The free address space of the arena, and the number of its parts.
std::pair<std::uint64_t, int> free_space(collx::communicator& w) {
    collx::barrier(w); // no rank is still releasing memory
    const auto& h = w.membership()->memory->header();
    std::uint64_t bytes = 0;
    for (int i = 0; i < h.free_count; ++i) bytes += h.free[i].bytes;
    const std::pair<std::uint64_t, int> result(bytes, h.free_count);
    collx::barrier(w); // no rank is already allocating again
    return result;
}

// The life of one communicator: calls of several kinds, then an end of one of several kinds, possibly while the other
// rank is still busy.
void live(collx::communicator& w, int how) {
    try {
        std::vector<int> x(20'000, 1);
        collx::all_reduce(w, x);
        collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x);
        collx::broadcast(w, x);
        auto shared = collx::make_shared_vector<int>(w, 1000);
        collx::all_reduce(w, shared);
        if (how % 4 == 0) return;
        if (how % 4 == 1) w.abort();
        if (how % 4 == 2 && w.rank() == 0) (void)collx::async::recv(w, x, 1); // dropped while outstanding
        if (how % 4 == 3 && w.rank() == 0)
            collx::all_reduce(w, x, collx::plus{}, {.timeout = 2ms}); // rank 1 does not call
        collx::recv(w, x, 1 - w.rank(), {.timeout = 2ms});
    } catch (const collx::error&) {
    }
}

} // namespace

TEST_CASE("jobs of threads leave nothing behind, however they end") {
    const auto job = [](int how) {
        try {
            collx::run_threads(2, [&](collx::communicator& w) {
                live(w, how);
                if (how % 5 == 0) throw std::runtime_error("end");
            });
        } catch (const std::exception&) {
        }
    };
    for (int i = 0; i < 40; ++i) job(i); // the C library keeps stacks and heaps of threads
    const belongings before = count_belongings();
    for (int i = 0; i < 400; ++i) job(i);
    const belongings after = count_belongings();
    CHECK(after.descriptors == before.descriptors);
    CHECK(after.mappings <= before.mappings + 8);
    CHECK(after.resident_kib <= before.resident_kib + 4096);
}

TEST_CASE("communicators of one job leave nothing behind, however they end") {
    on_ranks(2, [](collx::communicator& w) {
        const auto life = [&](int i) {
            auto c = w.split(0);
            live(c, i);
            if (i % 3 == 0) {
                auto d = w.split(i % 2 == 0 ? w.rank() : -1);
                if (!d.is_empty()) live(d, 0);
            }
        };
        for (int i = 0; i < 40; ++i) life(i);
        const auto space = free_space(w);
        const auto count = [&] { // on one rank only: counting opens descriptors, too
            const belongings b = w.rank() == 0 ? count_belongings() : belongings{};
            collx::barrier(w);
            return b;
        };
        const belongings before = count();
        for (int i = 0; i < 600; ++i) life(i);
        EXPECT(free_space(w) == space);
        const belongings after = count();
        EXPECT_AT(after.descriptors - before.descriptors, after.descriptors == before.descriptors);
        EXPECT_AT(after.mappings - before.mappings, after.mappings <= before.mappings + 8);
        EXPECT_AT(after.resident_kib - before.resident_kib, after.resident_kib <= before.resident_kib + 4096);
    });
}

TEST_CASE("a split that fails leaves nothing behind") {
    on_ranks(2, [](collx::communicator& w) {
        const auto space = free_space(w);
        for (int i = 0; i < 100; ++i) {
            auto c = w.split(0);
            if (w.rank() == i % 2) {
                c.set_timeout(2ms);
                (void)thrown<collx::error>(w, [&] { (void)c.split(0); }); // in time, or the other one has ended c
            }
        }
        EXPECT(free_space(w) == space);
    });
}
