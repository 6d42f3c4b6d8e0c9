// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensor parallelism over a communicator: a transformer layer whose heads and perceptron columns are split over the
// ranks, forward and backward. Each half gives partial sums, so a layer takes two all_reduces forward, two backward,
// and none for weights. If the tokens are split too, each all_reduce becomes a reduce_scatter and an all_gather: the
// same bytes, and activations divided by the number of ranks. Both ways are compared with the serial program, whose
// gradients are compared with differences. In example 13 the sum is fused with the operations after it, on a device.
// Explained in docs/lessons/21_transformer_layer.md.
// collx-example: everywhere uses=eigen timeout=60
#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "../draw.hpp"
#include "../timeline.hpp"
#include "model.hpp"

namespace {

using namespace lesson;
using example::say;

// The bytes that a rank sends for `sums` all_reduces of `elems` elements.
double formula(int sums, int ranks, double elems, double elem_bytes = sizeof(double)) {
    return sums * 2.0 * (ranks - 1) * elems * elem_bytes / ranks; // exact where the number of ranks divides elems
}

// Counts and times the calls of a communicator. Computing before a call is marked A and M forward, m and a backward.
struct exchange {
    explicit exchange(collx::communicator& world) : own(world.dup()) {}
    template <class F>
    matrix after_half(F&& call) {
        seen.push_back({last_ms, now.ms(), "AMma"[halves++ % 4]});
        return timed(call);
    }
    template <class F>
    matrix timed(F&& call) {
        const double from_ms = now.ms();
        matrix m = call(own.with(collx::algo::ring_all_reduce{}, collx::algo::ring_all_gather{},
                                 collx::algo::ring_reduce_scatter{}));
        seen.push_back({from_ms, last_ms = now.ms(), '.'});
        return m;
    }
    // Since the previous query.
    std::uint64_t calls() { return own.sequence() - std::exchange(calls_before, own.sequence()); }
    std::uint64_t bytes() { return own.sent().bytes - std::exchange(bytes_before, own.sent().bytes); }

    collx::communicator own;
    example::stopwatch now;
    example::events seen;
    double last_ms = 0;
    std::size_t halves = 0;
    std::uint64_t calls_before = own.sequence(), bytes_before = own.sent().bytes;
};

struct results {
    matrix y, dx;
    attention attend;
    perceptron mlp;
};

// Runs the layer on this rank's part of the weights. `x` and `dy` hold the tokens that this rank keeps.
template <class In, class Out>
results split(collx::communicator& world, const char* name, const model& m, exchange& e, const matrix& x,
              const matrix& dy, In in, Out out, std::uint64_t calls) {
    const auto me = static_cast<std::size_t>(world.rank()), n = static_cast<std::size_t>(world.size());
    results r{{}, {}, m.attend.part(me, n), m.mlp.part(me, n)};
    layer<In, Out> mine{r.attend, r.mlp, in, out};
    // the first calls also make channels
    (void)mine.forward(x);
    (void)mine.backward(dy);
    (void)e.bytes();
    (void)e.calls();
    e.seen.clear();
    collx::barrier(world);
    e.now = {};
    e.last_ms = 0;
    r.y = mine.forward(x);
    const std::uint64_t forward = e.bytes(), forward_calls = e.calls();
    r.dx = mine.backward(dy);
    const std::uint64_t backward = e.bytes(), backward_calls = e.calls();
    const double each = formula(2, world.size(), static_cast<double>(m.x.x.size()));
    example::expect(forward_calls == calls && backward_calls == calls, "so many calls forward, and as many backward");
    example::expect(static_cast<double>(forward) == each && static_cast<double>(backward) == each,
                    "the formula's bytes");
    say(world, "%-18s %7llu + %llu %10llu + %-10llu %10.0f each way %8zu\n", name,
        static_cast<unsigned long long>(forward_calls), static_cast<unsigned long long>(backward_calls),
        static_cast<unsigned long long>(forward), static_cast<unsigned long long>(backward), each, r.y.x.size());
    return r;
}

void compare(const collx::communicator& world, const model& m, const results& r, const matrix& y, const matrix& dx) {
    const auto me = static_cast<std::size_t>(world.rank()), n = static_cast<std::size_t>(world.size());
    const attention &w = m.attend, a = attention{w.width, w.sequence, w.dq, w.dk, w.dv, w.d_o}.part(me, n);
    const perceptron p = perceptron{m.mlp.da, m.mlp.db}.part(me, n);
    const double off = std::max({distance(r.y, y), distance(r.dx, dx), distance(r.attend.dq, a.q),
                                 distance(r.attend.dk, a.k), distance(r.attend.dv, a.v), distance(r.attend.d_o, a.o),
                                 distance(r.mlp.da, p.a), distance(r.mlp.db, p.b)});
    example::expect(off < 1e-10, "results and gradients of the serial program");
}

// The perceptron split the other way: rows of the first matrix give partial sums, which must be complete before gelu.
// Columns of the second give a part of each token.
void rows_first(collx::communicator& world, const model& m, const matrix& expected) {
    const auto me = static_cast<std::size_t>(world.rank()), n = static_cast<std::size_t>(world.size());
    const std::size_t h = m.hidden, mine = h / n;
    exchange e(world);
    matrix u = m.x.block(0, me * mine, m.tokens, mine) * m.mlp.a.block(me * mine, 0, mine, 4 * h);
    matrix all(n * m.tokens, mine), y(m.tokens, h);
    (void)e.timed([&](auto c) {
        collx::all_reduce(c, u.x);
        return matrix();
    });
    const matrix part = gelu(u) * m.mlp.b.block(0, me * mine, 4 * h, mine);
    (void)e.timed([&](auto c) {
        collx::all_gather(c, part.x, all.x);
        return matrix();
    });
    for (std::size_t r = 0; r < n; ++r) y.put(0, r * mine, all.block(r * m.tokens, 0, m.tokens, mine));
    example::expect(distance(y, expected) < 1e-10, "rows first gives the same");
    const double half = formula(1, world.size(), static_cast<double>(m.x.x.size()));
    const auto bytes = static_cast<double>(e.bytes());
    example::expect(bytes == 4.5 * half, "4.5 times the bytes");
    say(world, "perceptron forward, columns first: %.0f bytes; rows first: %.0f, %.1f times as many\n", half, bytes,
        bytes / half);
}

void run(collx::communicator& world) {
    const auto n = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    model m{12 % n == 0 ? 12 : n};
    const matrix y = m.whole().forward(m.x), dx = m.whole().backward(m.dy);
    if (me == 0) check_by_differences(m);
    say(world, "%zu tokens of %zu numbers, %zu heads; a rank has %zu heads, %zu columns of the perceptron\n\n",
        m.tokens, m.hidden, m.heads, m.heads / n, 4 * m.hidden / n);
    say(world, "%-18s %11s %23s %19s %12s\n", "", "calls", "bytes sent, counted", "2 * 2(n-1)/n T h w", "kept of x");

    exchange sums(world), pieces(world);
    // [doc:tensor]
    // Each rank keeps all tokens. The partial sums are summed over the ranks.
    const auto sum = [&](matrix partial) {
        return sums.after_half([&](auto c) {
            collx::all_reduce(c, partial.x);
            return partial;
        });
    };
    compare(world, m, split(world, "tensor", m, sums, m.x, m.dy, same_fn{}, sum, 2), y, dx);
    // [doc:end]
    // [doc:sequence]
    // Each rank keeps its own tokens. A half reads all of them.
    const std::size_t own = m.tokens / n;
    const auto mine = [&](const matrix& all) { return all.block(me * own, 0, own, all.cols); };
    const auto gather = [&](const matrix& some) {
        matrix all(m.tokens, some.cols);
        return pieces.timed([&](auto c) {
            collx::all_gather(c, some.x, all.x);
            return all;
        });
    };
    const auto scatter = [&](const matrix& partial) {
        matrix some(own, partial.cols);
        return pieces.after_half([&](auto c) {
            collx::reduce_scatter(c, partial.x, some.x);
            return some;
        });
    };
    const results r = split(world, "tensor, sequence", m, pieces, mine(m.x), mine(m.dy), gather, scatter, 4);
    // [doc:end]
    compare(world, m, r, mine(y), mine(dx));

    say(world, "\nA attention, M perceptron, m and a their backward passes, . in a call\ntensor\n");
    example::draw_with_waits(world, sums.seen);
    say(world, "tensor, sequence\n");
    example::draw_with_waits(world, pieces.seen);
    say(world, "\n");
    rows_first(world, m, perceptron(m.mlp).forward(m.x));
    say(world, "2048 tokens of 12288 numbers in bf16 on 8 ranks: %.0f MB a layer\n",
        formula(4, 8, 2048 * 12288, 2) / 1e6);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
