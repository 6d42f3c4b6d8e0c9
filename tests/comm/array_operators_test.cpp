// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=address,nightly
//
// Operators that take arrays, with every verb that reduces and every algorithm, compared with the same operator on
// elements. Also reduce_local, which runs operators without a communicator.
#include "type_support.hpp"

#include <cstring>

#include <collx/algo/ring.hpp>

using namespace collx_test;
using collx::collective;

namespace {

// f(x) = a x + b; the composition applies f first, then g. Associative, not commutative.
struct affine {
    unsigned a, b;
    bool operator==(const affine&) const = default;
};
struct then {
    affine operator()(const affine& f, const affine& g) const { return {g.a * f.a, g.a * f.b + g.b}; }
};
std::atomic<long> calls{0}, elements{0};
struct then_on_arrays {
    void operator()(const affine* in, affine* inout, std::size_t n) const {
        calls.fetch_add(1, std::memory_order_relaxed);
        elements.fetch_add(static_cast<long>(n), std::memory_order_relaxed);
        for (std::size_t i = 0; i < n; ++i) inout[i] = then{}(in[i], inout[i]);
    }
};
affine sample_of(int rank, std::size_t i) {
    return {static_cast<unsigned>(rank * 2 + 3), static_cast<unsigned>(i * 7 + static_cast<std::size_t>(rank))};
}
affine folded_of(int first, int last, std::size_t i) {
    affine x = sample_of(first, i);
    for (int r = first + 1; r < last; ++r) x = then{}(x, sample_of(r, i));
    return x;
}

} // namespace

TEST_CASE("an operator of arrays keeps rank order in all verbs that reduce, called once for many elements") {
    for (const int n : {1, 2, 3, 5, 8})
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {0u, 1u, 17u, 3000u, 40'011u}) {
                at("n=%d size=%zu", n, size);
                const auto u = static_cast<std::size_t>(n), me = static_cast<std::size_t>(w.rank());
                std::vector<affine> mine(size * u), out(size * u), part(size);
                for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = sample_of(w.rank(), i);
                collx::all_reduce(w, mine, out, then_on_arrays{});
                for (std::size_t i = 0; i < out.size(); ++i) EXPECT_AT(i, out[i] == folded_of(0, n, i));
                collx::reduce_scatter(w, mine, part, then_on_arrays{});
                for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, part[i] == folded_of(0, n, me * size + i));
                collx::reduce(w, mine, out, then_on_arrays{}, {.root = n - 1});
                for (std::size_t i = 0; i < out.size(); ++i) EXPECT_AT(i, out[i] == folded_of(0, n, i));
                collx::scan(w, mine, out, then_on_arrays{});
                for (std::size_t i = 0; i < out.size(); ++i) EXPECT_AT(i, out[i] == folded_of(0, w.rank() + 1, i));
                collx::exclusive_scan(w, mine, out, then_on_arrays{});
                for (std::size_t i = 0; w.rank() > 0 && i < out.size(); ++i)
                    EXPECT_AT(i, out[i] == folded_of(0, w.rank(), i));
                collx::group g(w);
                g.all_reduce(mine, then_on_arrays{});
                g.launch();
                for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_AT(i, mine[i] == folded_of(0, n, i));
                EXPECT(collx::async::all_reduce(w, std::vector<affine>(3, {1, 0}), then_on_arrays{}).wait().size() ==
                       3);
            }
        });
    CHECK(elements > 50 * calls); // called for runs of elements, not for single ones
}

TEST_CASE("an operator of arrays goes with every algorithm that keeps order, and with others if it says it commutes") {
    for (const int ranks_per_host : {0, 2})
        on_hosts(5, {ranks_per_host}, [](collx::communicator& w) {
            const auto add = [](const double* in, double* inout, std::size_t n) {
                for (std::size_t i = 0; i < n; ++i) inout[i] += in[i];
            };
            const auto ring = collx::commutative(add);
            std::vector<double> x(10'007, w.rank() + 1.0), y(x);
            collx::all_reduce(w.with(collx::algo::ring_all_reduce{}), x, ring);
            collx::all_reduce(w.with(collx::deterministic{}), y, add);
            for (std::size_t i = 0; i < x.size(); ++i) EXPECT_AT(i, x[i] == 15 && y[i] == 15);
            // Inputs that need blocks: strided, lazily computed, another wire type, hooks.
            std::vector<double> z(3000, w.rank() + 1.0);
            collx::all_reduce(w, collx::strided(z.data(), 1000, 3), add);
            for (std::size_t i = 0; i < z.size(); ++i) EXPECT_AT(i, z[i] == (i % 3 == 0 ? 15 : w.rank() + 1));
            std::vector<double> s(500, w.rank() + 1.0);
            collx::all_reduce(w.with(collx::wire<float>{}), s,
                              collx::with_post(collx::with_pre(add, [](double v) { return v * v; }),
                                               [](double v) { return v + 0.5; }));
            for (std::size_t i = 0; i < s.size(); ++i) EXPECT_AT(i, s[i] == 55.5);
        });
}

TEST_CASE("an operator of arrays of a narrow type is given that type, one of its accumulator that") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<collx::bf16> x(1000, collx::bf16(1)), y(x);
        collx::all_reduce(w, x, [](const collx::bf16* in, collx::bf16* inout, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) inout[i] = collx::bf16(float(in[i]) + float(inout[i]));
        });
        collx::all_reduce(w, y, [](const auto* in, auto* inout, std::size_t n) {
            static_assert(!std::is_same_v<decltype(inout), int*>);
            for (std::size_t i = 0; i < n; ++i) inout[i] = in[i] + inout[i];
        });
        for (std::size_t i = 0; i < x.size(); ++i) EXPECT_AT(i, float(x[i]) == 3 && float(y[i]) == 3);
    });
}

TEST_CASE("what an operator of arrays throws ends the communicator, as with elements") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(100, 1);
        const auto op = [&](const int*, int*, std::size_t) {
            if (w.rank() == 1) throw wrong("mine");
        };
        if (w.rank() == 1) (void)thrown<wrong>(w, [&] { collx::all_reduce(w, x, op); });
        else
            (void)thrown<collx::aborted>(w, [&] {
                for (;;) collx::all_reduce(w, x, op);
            });
    });
}

TEST_CASE("reduce_local combines two buffers: into the second, or into a third") {
    collx::communicator w;
    for (const std::size_t size : {0u, 1u, 17u, 5000u}) {
        const auto a = samples(0, size), b = samples(1, size);
        auto inout = b, out = std::vector<int>(size);
        collx::reduce_local(a, inout);
        collx::reduce_local(a, b, out, collx::max{});
        for (std::size_t i = 0; i < size; ++i) {
            EXPECT_AT(i, inout[i] == a[i] + b[i]);
            EXPECT_AT(i, out[i] == std::max(a[i], b[i]));
        }
    }
    // The left operand stays on the left, also when the result replaces it, for elements and for arrays.
    std::vector<affine> f{{2, 3}}, g{{5, 7}}, h(1), k = g;
    const affine fg = then{}(f[0], g[0]);
    collx::reduce_local(f, g, h, then{});
    collx::reduce_local(f, k, then_on_arrays{});
    collx::reduce_local(f, g, f, then{});
    EXPECT(h[0] == fg && k[0] == fg && f[0] == fg);
}

TEST_CASE("reduce_local takes any tensors, narrow types and all operators") {
    collx::communicator w;
    std::vector<float> rows(20, 1);
    const std::vector<double> more(5, 0.5);
    collx::reduce_local(more, collx::strided(rows.data(), 5, 4), collx::multiplies{});
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_AT(i, rows[i] == (i % 4 == 0 ? 0.5f : 1.0f));
    const std::vector<collx::f16> a(1000, collx::f16(1.5f)), b(1000, collx::f16(0.25f));
    std::vector<collx::f16> sum(1000);
    std::vector<float> wide(1000);
    collx::reduce_local(a, b, sum);
    collx::reduce_local(a, b, wide);
    for (std::size_t i = 0; i < 1000; ++i) EXPECT_AT(i, float(sum[i]) == 1.75f && wide[i] == 1.75f);
    std::vector<char> truth{0, 2, 0, 4};
    collx::reduce_local(std::vector<char>{0, 0, 1, 1}, truth, collx::logical_xor{});
    EXPECT(truth == std::vector<char>({0, 1, 1, 0}));
}

TEST_CASE("reduce_local refuses what cannot be right") {
    collx::communicator w;
    std::vector<int> six(6), seven(7);
    int* const null = nullptr;
    const auto refuses = [&](const char* text, auto&& call) {
        const auto e = thrown<collx::invalid_argument>(w, call);
        EXPECT(says(e, text) && e.rank() == -1 && e.peer() == -1);
    };
    refuses("operands have 6 and 7 elements, the result 7", [&] { collx::reduce_local(six, seven); });
    refuses("operands have 6 and 6 elements, the result 7", [&] { collx::reduce_local(six, six, seven); });
    refuses("the left buffer is null", [&] { collx::reduce_local(collx::view(null, 6), six); });
    refuses("the output buffer is null", [&] { collx::reduce_local(six, six, collx::view(null, 6)); });
    refuses("overlap", [&] { collx::reduce_local(collx::view(seven.data(), 6), collx::view(seven.data() + 1, 6)); });
    refuses("overlap",
            [&] { collx::reduce_local(six, collx::view(seven.data(), 6), collx::view(seven.data() + 1, 6)); });
    collx::reduce_local(collx::view(null, 0), collx::view(null, 0));
}
