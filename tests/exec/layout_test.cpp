// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// Chunks of a buffer of any size cover it exactly once, in order.
#include <collx/exec/count_table.hpp>
#include <collx/exec/layout.hpp>

#include <vector>

#include <catch2/catch.hpp>

using collx::chunk_layout;

TEST_CASE("even chunks cover every element once, in order, almost equal, cut where asked") {
    for (const std::size_t align : {1u, 16u})
        for (int chunks = 1; chunks <= 17; ++chunks)
            for (std::size_t total = 0; total < 700; ++total) {
                const auto l = chunk_layout::even(total, chunks, align);
                std::size_t next = 0, largest = 0;
                bool is_cut_well = true;
                for (int c = 0; c < chunks; ++c) {
                    if (l.size(c) != 0) is_cut_well &= l.offset(c) == next;
                    is_cut_well &= l.offset(c) <= total;
                    next += l.size(c);
                    largest = l.size(c) > largest ? l.size(c) : largest;
                    const bool is_last = next == total;
                    if (!is_last && total > align * static_cast<std::size_t>(chunks)) is_cut_well &= next % align == 0;
                }
                if (!is_cut_well || next != total || l.largest() != largest || l.chunks() != chunks)
                    FAIL("total " << total << " chunks " << chunks << " align " << align);
                const std::size_t fair =
                    (total + static_cast<std::size_t>(chunks) - 1) / static_cast<std::size_t>(chunks);
                if (largest > (fair + align - 1) / align * align)
                    FAIL("chunk too large: total " << total << " chunks " << chunks);
            }
    SUCCEED();
}

TEST_CASE("blocks have equal sizes, tables any, packed buffers begin with their only chunk") {
    const auto b = chunk_layout::blocks(7, 5);
    CHECK((b.size(4) == 7 && b.offset(4) == 28 && b.largest() == 7 && b.chunks() == 5));
    CHECK((b.packed().offset(4) == 0 && b.packed().size(4) == 7));
    const auto none = chunk_layout::blocks(0, 5);
    CHECK((none.size(0) == 0 && none.offset(4) == 0 && none.largest() == 0));
    const std::vector<std::size_t> sizes = {3, 0, 9, 1}, offsets = {10, 10, 20, 0};
    const auto t = chunk_layout::table(sizes.data(), offsets.data(), 4);
    CHECK((t.size(2) == 9 && t.offset(2) == 20 && t.offset(3) == 0 && t.size(1) == 0 && t.largest() == 9));
    CHECK((t.packed().offset(2) == 0 && t.packed().size(2) == 9));
}

TEST_CASE("layouts are known at compile time") {
    STATIC_REQUIRE(chunk_layout::even(100, 3, 16).size(0) == 48);
    STATIC_REQUIRE(chunk_layout::even(100, 3, 16).size(2) == 4);
    STATIC_REQUIRE(chunk_layout::even(5, 8).size(7) == 0);
}

TEST_CASE("tables of counts that overflow or overlap are refused") {
    collx::detail::count_table t;
    const std::vector<std::size_t> counts = {3, 2}, apart = {2, 0}, overlapping = {1, 0};
    CHECK_THROWS_AS(t.assign(0, 2, std::vector<std::size_t>{SIZE_MAX - 1, 2}, "send"), collx::invalid_argument);
    const std::vector<std::size_t> beyond = {SIZE_MAX - 1, 0};
    CHECK_THROWS_AS(t.assign(0, 2, counts, beyond, "receive"), collx::invalid_argument);
    t.assign(0, 2, counts, apart, "receive");
    t.require_disjoint(0, "receive");
    CHECK(t.end() == 5);
    t.assign(0, 2, counts, overlapping, "receive");
    CHECK_THROWS_AS(t.require_disjoint(0, "receive"), collx::invalid_argument);
}
