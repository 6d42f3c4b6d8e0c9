// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ways to send activations and gradients from stage to stage.
#pragma once

#include <collx/collx.hpp>
#include <collx/comm/window.hpp>

#include <deque>

#include "stage.hpp"

namespace pipelined {

struct wire {
    virtual ~wire() = default;
    virtual void give(int peer, int micro, const numbers& x) = 0;
    virtual numbers take(int peer, int micro, std::size_t size) = 0;
    virtual void finish() {}                                // at the end of a step
    virtual std::uint64_t given_bytes() const { return 0; } // so far
};

// [doc:messages]
// A stage may send an activation to its successor while the successor sends it a gradient. If both waited until the
// other receives, they would wait for ever. So sends do not wait, and each keeps its buffer until it is done.
class by_messages : public wire {
public:
    explicit by_messages(collx::communicator& world) : own_(world.dup()), before_(own_.sent().bytes) {}
    void give(int peer, int, const numbers& x) override {
        while (!under_way_.empty() && under_way_.front().test()) {
            under_way_.pop_front();
            kept_.pop_front();
        }
        kept_.push_back(x);
        under_way_.push_back(collx::async::send(own_, kept_.back(), peer));
    }
    numbers take(int peer, int, std::size_t size) override {
        numbers x(size);
        collx::recv(own_, x, peer);
        return x;
    }
    void finish() override {
        for (auto& w : under_way_) w.wait();
        under_way_.clear();
        kept_.clear();
    }
    std::uint64_t given_bytes() const override { return own_.sent().bytes - before_; }

private:
    collx::communicator own_; // its statistics count these messages only
    const std::uint64_t before_;
    std::deque<numbers> kept_;
    std::deque<collx::work<void>> under_way_;
};
// [doc:end]

// [doc:window]
// The neighbours put into this rank's part: the stage before puts activations into the first half, the stage behind
// gradients into the second. A place is free again after this stage's backward pass of the micro-batch that was there.
// The order determines how many micro-batches are under way until then: `places`.
class by_puts : public wire {
public:
    by_puts(collx::communicator& world, int places, std::size_t size)
        : places_(places), size_(size), in_(world, 2 * static_cast<std::size_t>(places) * size) {}
    void give(int peer, int k, const numbers& x) override {
        in_.put_signal(peer, place(peer < in_.rank(), k), x);
        bytes_ += x.size() * sizeof(double);
    }
    numbers take(int peer, int k, std::size_t) override {
        in_.wait(peer);
        const auto x = in_.local().subspan(place(peer > in_.rank(), k), size_);
        return {x.begin(), x.end()};
    }
    void finish() override { in_.fence(); }
    std::uint64_t given_bytes() const override { return bytes_; }

private:
    std::size_t place(bool is_gradient, int k) const {
        return static_cast<std::size_t>((is_gradient ? places_ : 0) + k % places_) * size_;
    }
    const int places_;
    const std::size_t size_;
    std::uint64_t bytes_ = 0;
    collx::window<double> in_;
};
// [doc:end]

// Exercise 3: messages whose sends wait.
struct by_waiting_messages : wire {
    explicit by_waiting_messages(collx::communicator& comm) : world(comm) {}
    void give(int peer, int, const numbers& x) override { collx::send(world, x, peer); }
    numbers take(int peer, int, std::size_t size) override {
        numbers x(size);
        collx::recv(world, x, peer);
        return x;
    }
    collx::communicator& world;
};

} // namespace pipelined
