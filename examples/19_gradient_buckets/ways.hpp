// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ways to sum the gradients of all ranks: a call for each tensor, or buckets.
#pragma once

#include <collx/collx.hpp>
#include <collx/comm/bucketed.hpp>
#include <collx/comm/progress.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../timeline.hpp"
#include "network.hpp"

// One way to sum the gradients, and the network that it trains.
struct way {
    way(const char* name, const shape& s) : name(name), net(s) {}
    double median_ms() const { return ms[ms.size() / 2]; } // once ms is sorted
    const char* name;
    std::size_t wire_width = sizeof(float); // bytes of a number on the wire
    double tolerance = 1e-5;                // of weights, against the serial program
    network net;
    std::function<void(std::size_t)> ready = [](std::size_t) {}; // called for each tensor during the backward pass
    std::function<void()> exchange;                              // called after it
    std::function<std::uint64_t()> sent;                         // returns the bytes sent so far
    std::uint64_t sent_before = 0;
    std::vector<double> ms{}; // of each step
    example::events seen{};   // of the last step
};
using ways = std::vector<std::unique_ptr<way>>;

inline std::uint64_t bytes_of(const collx::links::traffic& t) { return t.bytes + t.window_bytes_written; }

inline std::unique_ptr<way> one_by_one(collx::communicator& world, const shape& s) {
    auto w = std::make_unique<way>("a call for each tensor", s);
    const auto own = std::make_shared<collx::communicator>(world.dup());
    w->exchange = [own, &net = w->net] {
        for (std::size_t k = net.tensors(); k-- > 0;) collx::all_reduce(*own, net.gradient(k));
    };
    w->sent = [own] { return bytes_of(own->sent()); };
    return w;
}

template <class Wire>
std::unique_ptr<way> in_buckets(collx::communicator& world, const shape& s, const char* name, bool overlaps) {
    auto w = std::make_unique<way>(name, s);
    network& net = w->net;
    // [doc:buckets]
    using gradient_buckets = collx::bucketed<float, Wire>;
    const auto buckets =
        std::make_shared<gradient_buckets>(world, collx::bucket_options{.bytes = 256 << 10, .first_bytes = 64 << 10});
    for (std::size_t k = 0; k < net.tensors(); ++k)
        (void)buckets->add((k % 2 == 0 ? "weights " : "bias ") + std::to_string(k / 2), net.gradient(k));
    if (overlaps) buckets->with(collx::progress::thread{});
    const auto is_ready = [buckets](std::size_t k) { buckets->ready(static_cast<int>(k)); }; // for the backward pass
    // [doc:end]
    if (overlaps) w->ready = is_ready;
    w->exchange = [=, count = net.tensors()] {
        if (!overlaps)
            for (std::size_t k = count; k-- > 0;) is_ready(k);
        buckets->finish();
    };
    w->sent = [buckets] { return bytes_of(buckets->sent()); };
    w->wire_width = sizeof(Wire);
    return w;
}
