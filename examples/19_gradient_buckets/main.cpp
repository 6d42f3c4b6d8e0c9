// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data parallel with gradient buckets. Each rank computes the gradients of its part of the batch; all need the sums.
// One call for each tensor pays a latency for each; buckets make few large calls; with a progress thread those travel
// while the backward pass goes on; a wire type halves their bytes. All four end with the weights of the serial program.
// docs/training.md has the formulas.
// collx-example: everywhere timeout=60
#include <collx/collx.hpp>
#include <collx/comm/bucketed.hpp>
#include <collx/comm/progress.hpp>
#include <collx/core/clock.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "check.hpp"

namespace {

using numbers = std::vector<float>;

struct shape {
    std::size_t layers = 24, width = 128;
    int parts = 12, steps = 12; // parts of a batch, an equal number for each of 1, 2, 3, 4, 6 or 12 ranks
};

// A chain of layers x -> tanh(Wx + b), trained to turn a sample into its mirror image.
struct network {
    explicit network(const shape& s) : n(s.width) {
        for (std::size_t l = 0; l < s.layers; ++l) {
            numbers w(n * n);
            for (std::size_t i = 0; i < w.size(); ++i)
                w[i] = (static_cast<float>((i * 37 + l * 11) % 101) / 50 - 1) / std::sqrt(static_cast<float>(n));
            weights.push_back(w), weights.emplace_back(n, 0.0f);
        }
        for (const numbers& w : weights) gradients.emplace_back(w.size());
    }
    // Adds the gradients of one sample. is_ready(k): tensor k has its own.
    template <class Ready>
    void learn(int sample, Ready&& is_ready) {
        std::vector<numbers> x{numbers(n)};
        for (std::size_t i = 0; i < n; ++i)
            x[0][i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(sample + 1));
        for (std::size_t l = 0; 2 * l < weights.size(); ++l) x.push_back(forward(l, x[l]));
        numbers d(n);
        for (std::size_t i = 0; i < n; ++i) d[i] = x.back()[i] - 0.5f * x[0][n - 1 - i];
        for (std::size_t l = weights.size() / 2; l-- > 0;) {
            d = backward(l, x[l], x[l + 1], d);
            is_ready(2 * l + 1), is_ready(2 * l);
        }
    }
    void step(float rate) {
        for (std::size_t k = 0; k < weights.size(); ++k)
            for (std::size_t i = 0; i < weights[k].size(); ++i) {
                weights[k][i] -= rate * gradients[k][i];
                gradients[k][i] = 0;
            }
    }
    const std::size_t n;
    std::vector<numbers> weights, gradients; // W, b of the first layer, of the second, …

private:
    numbers forward(std::size_t l, const numbers& x) const {
        numbers y = weights[2 * l + 1];
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) y[i] += weights[2 * l][i * n + j] * x[j];
            y[i] = std::tanh(y[i]);
        }
        return y;
    }
    numbers backward(std::size_t l, const numbers& x, const numbers& y, const numbers& d) {
        numbers before(n, 0.0f);
        for (std::size_t i = 0; i < n; ++i) {
            const float g = d[i] * (1 - y[i] * y[i]);
            gradients[2 * l + 1][i] += g;
            for (std::size_t j = 0; j < n; ++j) {
                gradients[2 * l][i * n + j] += g * x[j];
                before[j] += g * weights[2 * l][i * n + j];
            }
        }
        return before;
    }
};

// Learns this rank's part of the batch; tensors are ready in the pass of the last sample. n: ranks; alone: all parts.
template <class Ready>
void learn_part(network& net, const shape& s, int step, int rank, int ranks, Ready&& is_ready) {
    const int mine = s.parts / ranks;
    for (int p = 0; p < mine; ++p)
        net.learn(step * s.parts + rank * mine + p, [&](std::size_t k) {
            if (p == mine - 1) is_ready(k);
        });
}

struct result {
    numbers weights;
    double ms = 0; // of a step, the median
    std::uint64_t bytes = 0;
};
constexpr float rate = 0.002f;
const auto not_asked = [](std::size_t) {};

// way: ready(k), exchange(gradients), sent(): bytes so far.
result train(collx::communicator& world, const shape& s, const std::function<void(std::size_t)>& ready, network& net,
             const std::function<void()>& exchange, const std::function<std::uint64_t()>& sent) {
    std::vector<double> ms;
    std::uint64_t before = 0;
    for (int step = 0; step < s.steps; ++step) {
        if (step == 1) before = sent(); // the first step also compares registrations
        collx::barrier(world);
        const std::int64_t begin = collx::now_ns();
        learn_part(net, s, step, world.rank(), world.size(), ready);
        exchange();
        net.step(rate);
        ms.push_back(static_cast<double>(collx::now_ns() - begin) / 1e6);
    }
    std::sort(ms.begin(), ms.end());
    result r{{}, ms[ms.size() / 2], (sent() - before) / static_cast<std::uint64_t>(s.steps - 1)};
    for (const numbers& w : net.weights) r.weights.insert(r.weights.end(), w.begin(), w.end());
    return r;
}

std::uint64_t bytes_of(const collx::links::traffic& t) { return t.bytes + t.window_bytes_written; }

result one_by_one(collx::communicator& world, const shape& s) {
    network net(s);
    auto own = world.dup();
    return train(
        world, s, not_asked, net,
        [&] {
            for (std::size_t k = net.gradients.size(); k-- > 0;) collx::all_reduce(own, net.gradients[k]);
        },
        [&] { return bytes_of(own.sent()); });
}

template <class Wire>
result in_buckets(collx::communicator& world, const shape& s, bool overlaps) {
    network net(s);
    // [doc:buckets]
    collx::bucketed<float, Wire> buckets(world, {.bytes = 512 << 10, .first_bytes = 128 << 10});
    for (std::size_t k = 0; k < net.gradients.size(); ++k)
        (void)buckets.add((k % 2 == 0 ? "weights " : "bias ") + std::to_string(k / 2), net.gradients[k]);
    if (overlaps) buckets.with(collx::progress::thread{});
    const auto is_ready = [&](std::size_t k) { buckets.ready(static_cast<int>(k)); }; // the backward pass says so
    // [doc:end]
    const auto all_ready = [&] {
        if (!overlaps)
            for (std::size_t k = net.gradients.size(); k-- > 0;) is_ready(k);
        buckets.finish();
    };
    return train(world, s, overlaps ? std::function<void(std::size_t)>(is_ready) : not_asked, net, all_ready,
                 [&] { return bytes_of(buckets.sent()); });
}

void run(collx::communicator& world) {
    shape s;
    if (example::is_short()) s.layers = 8, s.width = 64, s.steps = 4;
    if (s.parts % world.size() != 0) s.parts = world.size();
    network serial(s);
    for (int step = 0; step < s.steps; ++step) learn_part(serial, s, step, 0, 1, not_asked), serial.step(rate);
    numbers expected;
    for (const numbers& w : serial.weights) expected.insert(expected.end(), w.begin(), w.end());
    const double share = 2.0 * (world.size() - 1) / world.size() * static_cast<double>(expected.size());
    if (world.rank() == 0)
        std::printf("%zu tensors, %zu weights, %d ranks\n%-26s %9s %14s %14s\n", serial.weights.size(), expected.size(),
                    world.size(), "", "ms a step", "bytes a step", "2(n-1)/n N w");
    const auto judge = [&](const char* name, const result& r, std::size_t width, double tolerance) {
        double worst = 0;
        for (std::size_t i = 0; i < expected.size(); ++i)
            worst = std::max(worst, static_cast<double>(std::abs(r.weights[i] - expected[i])));
        example::expect(worst <= tolerance, name);
        const double formula = share * static_cast<double>(width);
        if (world.rank() == 0)
            std::printf("%-26s %9.2f %14llu %14.0f   weights differ by %.1e\n", name, r.ms,
                        static_cast<unsigned long long>(r.bytes), formula, worst);
    };
    judge("a call for each tensor", one_by_one(world, s), 4, 1e-5);
    judge("buckets, after the pass", in_buckets<float>(world, s, false), 4, 1e-5);
    judge("buckets, during it", in_buckets<float>(world, s, true), 4, 1e-5);
    judge("the same, bf16 on the wire", in_buckets<collx::bf16>(world, s, true), 2, 1e-3);
}

} // namespace

int main() try {
    collx::communicator world;
    run(world);
    int wrong = example::wrong;
    collx::all_reduce(world, collx::value(wrong));
    if (world.rank() == 0) std::printf("%s\n", wrong == 0 ? "All as expected." : "Something was wrong, see above.");
    return wrong == 0 ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
