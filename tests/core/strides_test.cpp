// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which strided views have several elements at one address, compared with a list of all addresses.
#include <collx/core/mappings.hpp>
#include <collx/core/views.hpp>

#include <set>

#include <catch2/catch.hpp>

namespace {

template <class Offset>
bool have_addresses_each(std::size_t size, Offset&& offset) {
    std::set<std::ptrdiff_t> seen;
    for (std::size_t i = 0; i < size; ++i) seen.insert(offset(i));
    return seen.size() == size;
}

} // namespace

TEST_CASE("a matrix with any strides repeats exactly where two elements lie at one address") {
    int repeated = 0, wrong = 0;
    static int zero;
    for (std::size_t rows = 0; rows < 5; ++rows)
        for (std::size_t cols = 0; cols < 5; ++cols)
            for (std::ptrdiff_t a = -7; a <= 7; ++a)
                for (std::ptrdiff_t b = -7; b <= 7; ++b) {
                    const collx::strided_view<int> v(&zero, rows, cols, a, b);
                    const bool repeats = !have_addresses_each(rows * cols, [&](std::size_t i) {
                        return static_cast<std::ptrdiff_t>(i / cols) * a + static_cast<std::ptrdiff_t>(i % cols) * b;
                    });
                    repeated += repeats;
                    wrong += v.repeats() != repeats;
                }
    CHECK(wrong == 0);
    CHECK(repeated > 500);
}

TEST_CASE("of more dimensions, no repetition is missed, and parts of dense tensors have none") {
    int missed = 0, refused = 0;
    for (std::size_t e = 0; e < 27; ++e)
        for (int s = 0; s < 12 * 12 * 12; ++s) {
            collx::strided_mapping m;
            const std::ptrdiff_t strides[] = {s % 12 - 5, s / 12 % 12 - 5, s / 144 - 5};
            const std::size_t extents[] = {1 + e % 3, 1 + e / 3 % 3, 1 + e / 9};
            for (int d = 0; d < 3; ++d) m.add(extents[d], strides[d]);
            if (m.repeats()) continue;
            missed += !have_addresses_each(m.size(), [&](std::size_t i) { return m.offset(i); });
        }
    CHECK(missed == 0);
    // A dense tensor of 4 x 5 x 6, every k-th row, plane and column, in all six orders of its dimensions.
    const std::size_t extents[] = {4, 5, 6}, strides[] = {30, 6, 1};
    const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto& order : orders)
        for (std::size_t k = 1; k <= 3; ++k)
            for (const int sign : {1, -1}) {
                collx::strided_mapping m;
                for (const int d : order)
                    m.add((extents[d] + k - 1) / k, sign * static_cast<std::ptrdiff_t>(strides[d] * k));
                refused += m.repeats();
            }
    CHECK(refused == 0);
}
