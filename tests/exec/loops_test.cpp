// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// The loops with any number of sources, length, alignment and destination, compared with an element-wise fold.
#include <collx/exec/loops.hpp>
#include <collx/exec/streaming.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace {

template <class T>
T value(int source, std::size_t i) {
    return static_cast<T>((source * 7 + static_cast<int>(i) * 3) % 5 + 1);
}

template <class T, class Op>
void check(Op op) {
    constexpr std::size_t longest = 9000, guard = 16;
    std::vector<std::vector<T>> memory;
    std::vector<const T*> s;
    for (int k = 0; k < 70; ++k) {
        auto& m = memory.emplace_back(longest + guard);
        const std::size_t shift = static_cast<std::size_t>(k) % 4; // sources at different offsets
        for (std::size_t i = 0; i < longest; ++i) m[shift + i] = value<T>(k, i);
        s.push_back(m.data() + shift);
    }
    for (const int sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16, 22, 23, 33, 64, 65, 70})
        for (const std::size_t n : {0u, 1u, 3u, 7u, 8u, 15u, 16u, 31u, 32u, 33u, 64u, 100u, 1027u, 8200u}) {
            std::vector<T> expected(n), first(n + guard, T(77)), second(n + guard, T(77)), third(n + guard, T(77));
            for (std::size_t i = 0; i < n; ++i) {
                T a = s[0][i];
                for (int k = 1; k < sources; ++k) a = static_cast<T>(op(a, s[static_cast<std::size_t>(k)][i]));
                expected[i] = a;
            }
            const auto is_right = [&](const std::vector<T>& x, std::size_t shift) {
                for (std::size_t i = 0; i < n; ++i)
                    if (x[shift + i] != expected[i]) return false;
                return x[shift + n] == T(77) && (shift == 0 || x[shift - 1] == T(77));
            };
            collx::fold_arrays(op, first.data() + 1, s.data(), sources, n);
            if (!is_right(first, 1)) FAIL("one destination, sources " << sources << " n " << n);
            T* const other = second.data() + 3;
            collx::fold_for_others(op, first.data() + 1, &other, 1, s.data(), sources, n);
            if (!is_right(first, 1) || !is_right(second, 3))
                FAIL("two destinations, sources " << sources << " n " << n);
            T* to[3] = {first.data() + 2, second.data(), third.data() + 1};
            std::fill(first.begin(), first.end(), T(77));
            std::fill(second.begin(), second.end(), T(77));
            collx::fold_for_others(op, static_cast<T*>(nullptr), to, 3, s.data(), sources, n);
            if (!is_right(first, 2) || !is_right(second, 0) || !is_right(third, 1))
                FAIL("three destinations, sources " << sources << " n " << n);
            if (sources <= collx::most_in_blocks) {
                for (auto* x : {&first, &second, &third}) std::fill(x->begin(), x->end(), T(77));
                collx::fold_past_caches(op, to, 2, third.data() + 1, s.data(), sources, n);
                if (!is_right(first, 2) || !is_right(second, 0) || !is_right(third, 1))
                    FAIL("past the caches, sources " << sources << " n " << n);
            }
            // In place: the destination is one of the sources.
            std::vector<T> own(s[0], s[0] + n);
            own.push_back(T(77));
            auto with_own = s;
            with_own[0] = own.data();
            collx::fold_arrays(op, own.data(), with_own.data(), sources, n);
            if (!is_right(own, 0)) FAIL("in place, sources " << sources << " n " << n);
        }
    SUCCEED();
}

} // namespace

TEST_CASE("folds of integers") {
    check<std::uint8_t>(collx::plus{});
    check<std::int16_t>(collx::max{});
    check<int>(collx::plus{});
    check<std::uint64_t>(collx::bit_xor{});
}

TEST_CASE("folds of floating-point numbers") {
    check<float>(collx::plus{});
    check<double>(collx::min{});
    check<long double>(collx::plus{}); // there are no vectors of these
}

TEST_CASE("folds with operators of the user keep their order") {
    check<long>([](long a, long b) { return (a * 31 + b) % 1'000'003; });
}

TEST_CASE("folds with operators of arrays are folds from the left") {
    struct difference { // distinguishes left from right and one grouping from another
        long operator()(long a, long b) const { return a - b; }
        void operator()(const long* in, long* inout, std::size_t n) const {
            for (std::size_t i = 0; i < n; ++i) inout[i] = in[i] - inout[i];
        }
    };
    check<long>(difference{});
}

TEST_CASE("minima and maxima of vectors and of single elements agree on NaN and signed zeros") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t n : {1u, 4u, 37u}) {
        std::vector<float> a(n, 1.0f), b(n, 2.0f), out(n), zero(n, 0.0f), minus(n, -0.0f);
        a[n / 2] = nan;
        for (const bool swapped : {false, true}) {
            const float* s[2] = {swapped ? b.data() : a.data(), swapped ? a.data() : b.data()};
            collx::fold_arrays(collx::max{}, out.data(), s, 2, n);
            for (std::size_t i = 0; i < n; ++i) CHECK((i == n / 2 ? std::isnan(out[i]) : out[i] == 2.0f));
            const float* z[2] = {swapped ? zero.data() : minus.data(), swapped ? minus.data() : zero.data()};
            collx::fold_arrays(collx::min{}, out.data(), z, 2, n);
            for (const float x : out) CHECK(std::signbit(x));
            collx::fold_arrays(collx::max{}, out.data(), z, 2, n);
            for (const float x : out) CHECK(!std::signbit(x));
        }
    }
}

TEST_CASE("copies copy what was asked for and nothing else") {
    std::vector<unsigned char> from(3000);
    alignas(64) std::array<unsigned char, 3000> to{};
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 13 + i / 256 + 1);
    const auto check = [&](const char* which, std::size_t n, auto&& copy) {
        for (std::size_t a = 0; a < 66; a += n < 300 ? 1 : 13)
            for (const std::size_t b : {0u, 1u, 7u, 32u, 61u}) {
                std::fill(to.begin(), to.end(), static_cast<unsigned char>(0));
                copy(to.data() + a, from.data() + b, n);
                bool good = true;
                for (std::size_t i = 0; i < to.size(); ++i)
                    good &= to[i] == (i >= a && i < a + n ? from[b + i - a] : 0);
                if (!good) FAIL(which << " n " << n << " to " << a << " from " << b);
            }
    };
    for (const std::size_t n : {0u, 1u, 15u, 63u, 64u, 127u, 128u, 255u, 256u, 257u, 300u, 1000u, 2047u, 2500u})
        check("past the caches", n, [](auto... x) { collx::copy_past_caches(x...); });
    // Below, at and above the lengths at which string copies begin; `to` is sometimes at the beginning of a line.
    for (const std::size_t n : {0u, 1u, 191u, 192u, 193u, 1023u, 1024u, 1025u, 2111u, 2112u, 2113u, 2500u})
        for (const std::size_t least : {192u, 1024u})
            check("for others", n, [&](auto... x) { collx::write_for_others(x..., least); });
    SUCCEED();
}
