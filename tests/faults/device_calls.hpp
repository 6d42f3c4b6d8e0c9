// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls on device memory for random programs: one of any verb in a stream, persistent or in a group, and what a program
// leaves open of them. What is destroyed waits for its stream, as cudaFree does.
#pragma once

#include <memory>
#include <vector>

#include "comm/planned_call.hpp"
#include "faults/random_programs.hpp"
#include "gpu/fake_devices.hpp"

#include <collx/gpu/device_group.hpp>
#include <collx/gpu/device_window.hpp>

namespace collx_test {

using device_communicator = collx::bound_communicator<collx::gpus<fake_runtime>>;

// Where a rank's call on device memory is made: its device, and a stream on it.
struct device_place {
    fake_gpus& gpus;
    int device;
    collx::device::fake_stream* stream;
    fake_runtime runtime() const { return fake_runtime(gpus); }
    device_communicator on(collx::communicator& c) const { return c.with(collx::gpus{runtime()}); }
    collx::device_call_options options() const { return {.stream = stream}; }
    // Not collx::synchronize(), which throws.
    void drain() const { runtime().synchronize(stream); }
};

class device_planned_call {
public:
    virtual ~device_planned_call() = default;
    virtual void fill(std::uint64_t seed) = 0;
    virtual void make(device_communicator& c) = 0;
    virtual collx::persistent_call make_ready(device_communicator& c) = 0;
    virtual bool add_to(collx::device_group<device_communicator>& g) = 0;
    virtual bool add_to(collx::persistent::device_group<device_communicator>& g) = 0;
    virtual void check(const collx::communicator& w) = 0;
    virtual const char* text() const = 0;
};

template <class T, class Op>
class typed_device_call final : public device_planned_call, private planned_numbers<T, Op> {
    using numbers = planned_numbers<T, Op>;

public:
    typed_device_call(const planned_shape& s, bool in_place, const device_place& at)
        : numbers(s, in_place), at_(at), in_(at.gpus, at.device, this->numbers::in_.size()),
          out_(at.gpus, at.device, this->numbers::out_.size()) {}
    ~typed_device_call() override { at_.drain(); }
    void fill(std::uint64_t seed) override {
        numbers::fill(seed);
        std::copy(numbers::in_.begin(), numbers::in_.end(), in_.data());
        std::copy(numbers::out_.begin(), numbers::out_.end(), out_.data());
    }
    void make(device_communicator& c) override { this->call(way<at_once>(c), in_, out_); }
    collx::persistent_call make_ready(device_communicator& c) override {
        return this->call(way<made_ready>(c), in_, out_);
    }
    bool add_to(collx::device_group<device_communicator>& g) override { return this->add(g, in_, out_); }
    bool add_to(collx::persistent::device_group<device_communicator>& g) override { return this->add(g, in_, out_); }
    void check(const collx::communicator& w) override {
        std::copy_n(in_.data(), numbers::in_.size(), numbers::in_.begin());
        std::copy_n(out_.data(), numbers::out_.size(), numbers::out_.begin());
        numbers::check(w);
    }
    const char* text() const override { return this->text_.c_str(); }

private:
    template <template <class, class> class Way>
    auto way(device_communicator& c) const {
        return Way<device_communicator, collx::device_call_options>{c, at_.options()};
    }
    device_place at_;
    device_memory<T> in_, out_;
};

// Any verb, count and type.
inline std::unique_ptr<device_planned_call> plan_device_call(const collx::communicator& c, std::uint64_t seed,
                                                             const device_place& at) {
    dice d{seed};
    const auto what = static_cast<planned_shape::verb>(d.below(planned_shape::verbs));
    constexpr std::size_t longest[] = {1, 70, 1500, 1500, 6000, 30'000};
    const std::size_t count = d.below(longest[d.below(6)] + 1);
    const bool in_place = d.one_in(2);
    const planned_shape s(what, c.size(), c.rank(), count, d.below(1'000'000));
    if (d.one_in(2)) return std::make_unique<typed_device_call<int, collx::plus>>(s, in_place, at);
    return std::make_unique<typed_device_call<affine, then>>(s, in_place, at);
}

// Several calls, one or a group, made once at each use; the first use is at the beginning.
class open_device_calls final : public open_thing {
public:
    enum class kind { single, grouped, ready, ready_group };
    open_device_calls(collx::communicator& c, kind k, std::uint64_t seed, const device_place& at)
        : c_(c), bound_(at.on(c)), kind_(k), at_(at) {
        const bool is_group = k == kind::grouped || k == kind::ready_group;
        for (std::uint64_t i = 0; i < (is_group ? 1 + seed % 5 : 1); ++i)
            calls_.push_back(plan_device_call(c, mixed(seed, i), at));
        if (k == kind::ready) ready_ = std::make_unique<collx::persistent_call>(calls_[0]->make_ready(bound_));
        if (k == kind::ready_group) {
            collx::persistent::device_group<device_communicator> g(bound_);
            add_to(g);
            ready_ = std::make_unique<collx::persistent_call>(g.launch(at.options()));
        }
        use(static_cast<int>(seed % 1000));
    }
    void use(int salt) override {
        if (is_under_way_) return finish();
        collx::device_group<device_communicator> g(bound_);
        if (kind_ == kind::grouped) add_to(g); // before fill()
        for (std::size_t i = 0; i < calls_.size(); ++i) calls_[i]->fill(mixed(static_cast<unsigned>(salt), i));
        is_under_way_ = true;
        if (ready_ != nullptr) ready_->start();
        else if (kind_ == kind::single) calls_[0]->make(bound_);
        else g.launch(at_.options());
    }
    void finish() override {
        if (!std::exchange(is_under_way_, false)) return;
        if (ready_ != nullptr) ready_->wait();
        collx::synchronize(bound_, at_.options());
        for (const auto& call : calls_) call->check(c_);
    }

private:
    // Calls of which a group has none are left out.
    template <class Group>
    void add_to(Group& g) {
        for (std::size_t i = 0; i < calls_.size();)
            if (calls_[i]->add_to(g)) ++i;
            else calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const collx::communicator& c_;
    device_communicator bound_;
    kind kind_;
    device_place at_;
    std::vector<std::unique_ptr<device_planned_call>> calls_;
    std::unique_ptr<collx::persistent_call> ready_;
    bool is_under_way_ = false;
};

// A window whose kernels put, signal and wait around the ring.
class open_device_window final : public open_thing {
public:
    open_device_window(collx::communicator& c, std::size_t m, const device_place& at)
        : m_(m), at_(at), mine_(at.gpus, at.device, m), window_(c, m, at.runtime(), options()) {}
    ~open_device_window() override { at_.drain(); }
    bool waits_for_peers() const override { return true; }
    void use(int salt) override {
        if (is_under_way_) return finish();
        is_under_way_ = true;
        salt_ = salt;
        const int n = window_.ranks(), me = window_.rank();
        for (std::size_t i = 0; i < m_; ++i) mine_[i] = salt + me;
        window_.put_signal((me + 1) % n, 0, mine_.data(), m_, at_.stream);
        window_.wait((me + n - 1) % n, at_.stream);
    }
    void finish() override {
        if (!std::exchange(is_under_way_, false)) return;
        window_.synchronize(at_.stream);
        const int n = window_.ranks(), me = window_.rank();
        for (std::size_t i = 0; i < m_; ++i)
            expect_in_program(window_.local()[i] == salt_ + (me + n - 1) % n, "wrong data in a device window");
        window_.fence(at_.stream); // all have read
    }

private:
    static collx::device_window_options options() {
        collx::device_window_options o;
        o.lines = 2;
        o.settings = small();
        return o;
    }
    std::size_t m_;
    device_place at_;
    device_memory<int> mine_;
    collx::basic_device_window<int, fake_runtime> window_;
    int salt_ = 0;
    bool is_under_way_ = false;
};

} // namespace collx_test
