// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many threads copy a run of elements: every element once, nothing beside it, 16 bytes at a time where source and
// destination have the same offset.
#include <collx/exec/device/copy_run.hpp>

#include <vector>

#include <catch2/catch.hpp>

#include <collx/exec/device/staging.hpp>

using namespace collx;

namespace {

std::size_t wide = 0, loads = 0;
struct counting {
    template <class Unit>
    static Unit load(const Unit* p) {
        CHECK(reinterpret_cast<std::uintptr_t>(p) % sizeof(Unit) == 0);
        ++loads;
        wide += sizeof(Unit) == 16;
        return *p;
    }
    template <class Unit>
    static void store(Unit* p, Unit x) {
        *p = x;
    }
};

struct triple {
    double v[3];
};
struct odd_one {
    std::uint8_t v[5];
};

// Copies from byte `from` of a 16-byte unit to byte `to` of another.
template <class T>
void check(std::size_t from, std::size_t to, std::size_t n, std::size_t step) {
    const std::size_t bytes = n * sizeof(T);
    struct alignas(16) line {
        unsigned char v[16];
    };
    std::vector<line> source(bytes / 16 + 3), target(bytes / 16 + 3);
    unsigned char *s = source[0].v, *t = target[0].v;
    for (std::size_t i = 0; i < source.size() * 16; ++i) {
        s[i] = static_cast<unsigned char>(i * 7 + 1);
        t[i] = 0xee;
    }
    for (std::size_t me = 0; me < step; ++me)
        device::copy_run<counting>(reinterpret_cast<T*>(t + to), reinterpret_cast<const T*>(s + from), n, me, step);
    int wrong = 0;
    for (std::size_t i = 0; i < target.size() * 16; ++i)
        wrong += t[i] != (i >= to && i < to + bytes ? s[from + i - to] : 0xee);
    INFO("elements of " << sizeof(T) << " bytes, from " << from << " to " << to << ", " << n << " by " << step);
    CHECK(wrong == 0);
}

} // namespace

TEMPLATE_TEST_CASE("a run is copied from any place to any other", "", std::uint8_t, std::uint16_t, float, double,
                   triple, odd_one) {
    for (std::size_t from = 0; from < 16; from += alignof(TestType))
        for (std::size_t to = 0; to < 16; to += alignof(TestType))
            for (const std::size_t n : {0u, 1u, 3u, 40u, 131u}) check<TestType>(from, to, n, n == 40 ? 1 : 3);
}

TEST_CASE("runs that agree modulo 16 go 16 bytes at a time but for their ends") {
    loads = wide = 0;
    check<float>(4, 4, 1000, 7);
    CHECK(wide == 249);
    CHECK(loads == 249 + 4);
    loads = wide = 0;
    check<triple>(8, 8, 1000, 7); // 8 bytes, 1499 packs, 8 bytes
    CHECK(wide == 1499);
    CHECK(loads == 1499 + 2);
    loads = wide = 0;
    check<float>(4, 8, 1000, 7);
    CHECK(wide == 0);
    CHECK(loads == 1000);
}

TEST_CASE("runs of a staged buffer are where its numbers say") {
    device::staging_range r;
    r.at = 5;
    r.count = 3;
    r.pitch = 10;
    r.blocks = 4;
    device::staging_runs s;
    s.add(7, 2);
    s.add(100, 0);
    s.add(40, 5);
    const auto agrees = [](const auto& range) {
        std::size_t seen = 0;
        for (unsigned k = 0; k < range.runs(); ++k) {
            const device::staging_run run = range.run(k);
            CHECK(run.staged_at == seen);
            for (std::size_t i = 0; i < run.count; ++i) CHECK(range.index(run.staged_at + i) == run.at + i);
            seen += run.count;
        }
        CHECK(seen == range.size());
    };
    agrees(r);
    agrees(s);
}
