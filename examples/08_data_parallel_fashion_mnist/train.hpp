// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data-parallel training: every rank holds the whole model and computes the gradient of its share of each batch. collx
// sums the gradients, so all ranks take the same step. All communication is in this file.
#pragma once

#include <collx/collx.hpp>
#include <collx/core/clock.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "data.hpp"
#include "model.hpp"

namespace fashion {

struct settings {
    int epochs = 5, images = 60'000, batch = 600;
    float rate = 0.05f, momentum = 0.9f;
};

// The range [first, last) of `count` items that one of several parts gets. Sizes differ by at most one.
struct share {
    int first, last;
    share(int part, int parts, int count)
        : first(static_cast<int>(std::int64_t{count} * part / parts)),
          last(static_cast<int>(std::int64_t{count} * (part + 1) / parts)) {}
    int size() const { return last - first; }
};

// Sums gradients over ranks during the backward pass: weights with a call for each layer, biases together at the end.
class gradient_exchange {
public:
    gradient_exchange(collx::communicator& world, int batch)
        : world_(world), biases_(world), mean_(1.0f / static_cast<float>(batch)) {}

    void start(layer& l) {
        const std::int64_t begin = collx::now_ns();
        travelling_.push_back(collx::async::all_reduce(world_, l.d_weights, mean_));
        biases_.all_reduce(l.d_bias, mean_);
        spent_ns += collx::now_ns() - begin;
    }
    void finish() {
        const std::int64_t begin = collx::now_ns();
        biases_.launch();
        for (auto& w : travelling_) w.wait();
        travelling_.clear();
        spent_ns += collx::now_ns() - begin;
    }
    std::int64_t spent_ns = 0;

    // The serial program calls this instead: the same sum, part by part, in the order of ranks. Algorithms may add in
    // another order, and then the last bits differ; bound to deterministic{} the bits would be the same.
    void add(layer& l, std::size_t number, bool is_first, bool is_last) {
        if (sums_.size() <= number) sums_.resize(number + 1);
        auto& [weights, bias] = sums_[number];
        l.d_weights *= mean_.scale;
        l.d_bias *= mean_.scale;
        if (is_first) {
            weights = l.d_weights;
            bias = l.d_bias;
        } else {
            weights += l.d_weights;
            bias += l.d_bias;
        }
        if (is_last) {
            l.d_weights = weights;
            l.d_bias = bias;
        }
    }

private:
    std::vector<std::pair<decltype(layer::d_weights), decltype(layer::d_bias)>> sums_;
    collx::communicator& world_;
    collx::group biases_;
    std::vector<collx::work<void>> travelling_;
    collx::premultiplied_sum<float> mean_; // scales in the same pass; correct for shares of any size
};

struct epoch_report {
    double loss, test_accuracy, images_per_s, communication_share;
};

// Returns the share of the test images that are recognised. Every rank evaluates a part of them.
inline double accuracy(collx::communicator& world, network& net, const dataset& test, int images) {
    std::vector<int> order(static_cast<std::size_t>(test.size()));
    std::iota(order.begin(), order.end(), 0);
    int right = 0;
    const share mine(world.rank(), world.size(), std::min(images, test.size()));
    for (int i = mine.first; i < mine.last; i += 500) {
        const int count = std::min(500, mine.last - i);
        right += net.count_right(net.forward(test.columns(order, i, count)),
                                 [&](int c) { return test.label(order, i + c); });
    }
    collx::all_reduce(world, collx::value(right));
    return static_cast<double>(right) / std::min(images, test.size());
}

// Trains from a seed. Every rank of `world` calls it with the same arguments and ends with the same weights. Each
// batch is cut into `parts`, one per rank. A single rank computes all of them in sequence: the serial program. Calls
// report(epoch, epoch_report) after each epoch.
template <class Report>
network train(collx::communicator& world, const std::vector<int>& widths, const dataset& data, const dataset& test,
              const settings& s, int parts, Report&& report) {
    network net(widths);
    if (world.rank() == 0) net.initialise(1);
    for (auto& l : net.layers()) collx::broadcast(world, l.weights, {.root = 0});

    std::vector<int> order(static_cast<std::size_t>(s.images));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(7); // the same seed everywhere, so that all ranks shuffle alike
    for (int epoch = 1; epoch <= s.epochs; ++epoch) {
        std::shuffle(order.begin(), order.end(), random);
        gradient_exchange exchange(world, s.batch);
        const std::int64_t begin = collx::now_ns();
        double loss = 0;
        for (int first = 0; first + s.batch <= s.images; first += s.batch) {
            for (int part = world.rank(); part < parts; part += world.size()) {
                const share mine(part, parts, s.batch);
                net.forward(data.columns(order, first + mine.first, mine.size()));
                std::size_t number = 0;
                loss += net.backward([&](int c) { return data.label(order, first + mine.first + c); },
                                     [&](layer& l) {
                                         if (world.size() == parts) exchange.start(l);
                                         else exchange.add(l, number++, part == 0, part == parts - 1);
                                     });
            }
            exchange.finish();
            for (auto& l : net.layers()) l.descend(s.rate, s.momentum);
        }
        const auto elapsed_ns = static_cast<double>(collx::now_ns() - begin);
        collx::all_reduce(world, collx::value(loss));
        const int seen = s.images / s.batch * s.batch;
        report(epoch, epoch_report{loss / seen, accuracy(world, net, test, test.size()), seen / (elapsed_ns / 1e9),
                                   static_cast<double>(exchange.spent_ns) / elapsed_ns});
    }
    return net;
}

// Returns the first rank whose weights differ in any bit from rank 0's, or -1.
inline int odd_rank(collx::communicator& world, network& net) {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325; // FNV-1a over the bits
    const auto add = [&](const float* p, Eigen::Index n) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(p);
        for (std::size_t i = 0; i < static_cast<std::size_t>(n) * sizeof(float); ++i)
            hash = (hash ^ bytes[i]) * 0x100'0000'01b3;
    };
    for (auto& l : net.layers()) {
        add(l.weights.data(), l.weights.size());
        add(l.bias.data(), l.bias.size());
    }
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    collx::all_gather(world, collx::value(hash), all);
    const auto odd = std::find_if(all.begin(), all.end(), [&](std::uint64_t h) { return h != all[0]; });
    return odd == all.end() ? -1 : static_cast<int>(odd - all.begin());
}

inline double largest_difference(network& a, network& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.layers().size(); ++i) {
        auto &x = a.layers()[i], &y = b.layers()[i];
        most = std::max({most, static_cast<double>((x.weights - y.weights).cwiseAbs().maxCoeff()),
                         static_cast<double>((x.bias - y.bias).cwiseAbs().maxCoeff())});
    }
    return most;
}

} // namespace fashion
