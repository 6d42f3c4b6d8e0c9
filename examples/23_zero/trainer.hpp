// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data parallelism in four ways. Plain: each rank has everything. ZeRO 1: each rank has Adam's states for only its
// part of the weights. ZeRO 2: also the gradients of only that part. ZeRO 3: also the weights of only that part. All
// communication is in this file.
#pragma once

#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>

#include "../timeline.hpp"
#include "model.hpp"

namespace zero {

class trainer {
public:
    // stage: 0 for plain. rings: sums go round, so that each part begins at a different rank; otherwise in rank order.
    trainer(collx::communicator& world, const shape& s, int stage, bool rings)
        : s_(s), stage_(stage), rings_(rings), world_(world), own_(world.dup()),
          part_(s.layer / static_cast<std::size_t>(world.size())),
          first_(static_cast<std::size_t>(world.rank()) * part_), watch_(world) {
        own_.set_checked(false); // so that only data is counted
        const std::size_t first = stage_ >= 1 ? first_ : 0;
        for (std::size_t l = 0; l < s.layers; ++l) {
            weights_.emplace_back(stage_ >= 3 ? part_ : s.layer);
            slopes_.emplace_back(stage_ >= 2 ? part_ : s.layer);
            adam_.emplace_back(stage_ >= 1 ? part_ : s.layer);
            for (std::size_t i = 0; i < adam_[l].master.size(); ++i) adam_[l].master[i] = first_weight(s, l, first + i);
            for (std::size_t i = 0; i < weights_[l].size(); ++i)
                weights_[l][i] = collx::bf16(first_weight(s, l, (stage_ >= 3 ? first_ : 0) + i));
        }
        before_ = moved();
    }

    void step(int number) {
        watch_ = example::stopwatch(world_);
        held.clear();
        pass(
            s_, number, own_.rank(), [&](char what, std::size_t l, auto&& f) { with_weights(what, l, f); },
            [&](std::size_t l, auto&& slope) { put_gradient(l, slope); });
        for (std::size_t l = 0; l < s_.layers; ++l) update(l, number);
    }

    // Returns Adam's weights, all of them on each rank. Collective.
    numbers all_weights() {
        numbers all;
        for (const adam& a : adam_) {
            numbers layer(s_.layer);
            if (stage_ == 0) layer.assign(a.master.begin(), a.master.end());
            else collx::all_gather(own_, a.master, layer);
            all.insert(all.end(), layer.begin(), layer.end());
        }
        return all;
    }
    // Returns the bytes that this rank has sent, or read from other ranks' windows.
    std::uint64_t moved_bytes() const { return moved() - before_; }
    const example::events& seen() const { return watch_.seen; } // of the last step
    example::events held; // of the last step, in eighths of what plain data parallelism holds

private:
    void during(char what, auto&& f) {
        watch_.during(what, -1, f);
        const auto eighths = (memory.all + s_.all()) / (2 * s_.all()); // rounded
        held.push_back(watch_.seen.back());
        held.back().mark = static_cast<char>('0' + eighths);
    }

    // [doc:weights]
    // ZeRO 3 has a layer's weights only while it computes with them. It gathers them again for the backward pass.
    void with_weights(char what, std::size_t l, auto&& f) {
        if (stage_ < 3) return during(what, [&] { f(weights_[l]); });
        weights whole(s_.layer);
        during('G', [&] { collx::all_gather(own_.with(collx::algo::ring_all_gather{}), weights_[l], whole); });
        during(what, [&] { f(whole); });
    }
    // [doc:end]

    // [doc:gradient]
    // A rank that updates a part of the weights needs the sum of that part only: reduce_scatter instead of all_reduce.
    void put_gradient(std::size_t l, auto&& slope) {
        slopes own;
        if (stage_ >= 2) own.resize(s_.layer); // of one layer, until its sum is complete
        slopes& g = stage_ >= 2 ? own : slopes_[l];
        during('B', [&] {
            for (std::size_t i = 0; i < s_.layer; ++i) g[i] = slope(i);
        });
        if (stage_ == 0) during('R', [&] { sum_all(g); });
        if (stage_ == 1) during('S', [&] { sum_part(g); }); // in place, into this rank's part
        if (stage_ >= 2) during('S', [&] { sum_part(g, slopes_[l]); });
    }
    // [doc:end]

    // [doc:update]
    void update(std::size_t l, int number) {
        const std::size_t g = stage_ == 1 ? first_ : 0, w = stage_ == 1 || stage_ == 2 ? first_ : 0;
        during('U', [&] {
            for (std::size_t i = 0; i < adam_[l].master.size(); ++i)
                weights_[l][w + i] = adam_[l].step(i, slopes_[l][g + i], number);
        });
        if (stage_ == 1 || stage_ == 2) // in place: each rank sends its part to the others
            during('G', [&] { collx::all_gather(own_.with(collx::algo::ring_all_gather{}), weights_[l]); });
    }
    // [doc:end]

    void sum_all(slopes& g) {
        if (rings_) collx::all_reduce(own_.with(collx::algo::ring_all_reduce{}), g);
        else collx::all_reduce(own_.with(collx::deterministic{}), g);
    }
    void sum_part(auto&... buffers) {
        if (rings_) collx::reduce_scatter(own_.with(collx::algo::ring_reduce_scatter{}), buffers...);
        else collx::reduce_scatter(own_.with(collx::deterministic{}), buffers...);
    }
    std::uint64_t moved() const {
        std::uint64_t bytes = own_.sent().window_bytes_read;
        for (int r = 0; r < own_.size(); ++r)
            if (r != own_.rank()) bytes += own_.sent_to(r).bytes; // not what a sum in rank order keeps for this rank
        return bytes;
    }

    const shape& s_;
    const int stage_;
    const bool rings_;
    collx::communicator& world_;
    collx::communicator own_;        // its statistics count these calls only
    const std::size_t part_, first_; // elements of a rank's part of a layer, and where it begins
    example::stopwatch watch_;
    std::vector<weights> weights_; // by layer
    std::vector<slopes> slopes_;
    std::vector<adam> adam_;
    std::uint64_t before_ = 0;
};

} // namespace zero
