// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of a persistent group: several calls as one exchange inside a host or one all_gather across hosts, several
// messages as one. Templates, so that programs without persistent groups do not compile them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/algo/one_shot.hpp>
#include <collx/call/persistent.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/comm/options.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The operands of calls [first, last) as one exchange, on one host.
template <class Mover>
class ready_exchange final : public ready_operation {
public:
    ready_exchange(communicator_core& c, typename Mover::calls& calls, std::size_t first, std::size_t last,
                   std::size_t bytes, int at_port, std::int64_t timeout_ns)
        : ready_operation(c, at_port, timeout_ns), elements_(Mover(calls, first, last)) {
        const auto l = chunk_layout::even(bytes, 1);
        bind(elements_, {&c.schedules.bind(algo::one_shot_all_reduce{}, at_port), l, l, bytes, false, false, bytes},
             {"group", bytes});
    }

private:
    void begin() override {} // the group is the call, and looks for the buffers
    typed_elements<Mover> elements_;
};

// The same across hosts. AllGather: the persistent verb.
template <class Mover, class AllGather>
class ready_gather final : public ready_call {
public:
    ready_gather(communicator& c, typename Mover::calls& calls, std::size_t first, std::size_t last, std::size_t bytes,
                 const call_options& o)
        : core_(c.internals()), end_(core_.watch_end()), operands_(calls, first, last), bytes_(bytes),
          all_(static_cast<std::size_t>(c.size()) * bytes), ranks_(static_cast<std::size_t>(c.size())) {
        const contiguous_view<std::byte> own(mine(), bytes);
        gather_ = AllGather{}(c, own, all_, call_options{.timeout = o.timeout}).release();
    }
    void start() override {
        publish();
        gather_->start();
    }
    bool test() override { return gather_->test() && finish(); }
    void wait() override {
        gather_->wait();
        finish();
    }
    void wait_at_most(std::int64_t timeout_ns) override {
        gather_->wait_at_most(timeout_ns);
        finish();
    }
    void run() override {
        publish();
        gather_->run();
        finish();
    }
    void leave() override { gather_->leave(); }
    void rethrow_kept() override { gather_->rethrow_kept(); }

private:
    std::byte* mine() { return all_.data() + static_cast<std::size_t>(core_.net.rank()) * bytes_; }
    void publish() {
        core_.with_user_code([&] { operands_.load(mine(), sched::place::in, 0, bytes_); });
        is_finished_ = false;
    }
    // Folds what has come, once. After an exception in that, each later call throws the communicator's error.
    bool finish() {
        if (is_finished_) return true;
        if (end_->has_come)
            fail(errc::aborted, -1, -1, "wait for calls before that",
                 "the communicator was destroyed here while this call was under way");
        const one_caller::call here(core_.caller, core_.net.rank());
        if (is_folding_) core_.require_alive();
        is_folding_ = true;
        for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r] = all_.data() + r * bytes_;
        core_.with_user_code([&] {
            operands_.fold_ranks(ranks_.data(), core_.net.size(), core_.net.rank(), sched::place::in, 0,
                                 sched::place::out, 0, nullptr, bytes_);
        });
        is_folding_ = false;
        return is_finished_ = true;
    }

    communicator_core& core_;
    const counted_ptr<communicator_end> end_;
    Mover operands_;
    const std::size_t bytes_;
    growing_array<std::byte> all_;
    growing_array<const std::byte*> ranks_; // the operands of each rank; a fold moves them on
    sole_ptr<ready_call> gather_;
    bool is_finished_ = true, is_folding_ = false;
};

// A packed_message that can be moved any number of times.
template <class Message>
class ready_packed final : public ready_call {
public:
    ready_packed(communicator_core& c, counted_ptr<Message> m, int queue, std::int64_t timeout_ns)
        : core_(c), message_(std::move(m)), queue_(queue), timeout_ns_(timeout_ns) {}
    void start() override {
        core_.require_alive();
        under_way_.reset();
        message_->again();
        Message::start(core_, message_, queue_, call_kind::persistent);
        under_way_.emplace(core_, message_, timeout_ns_);
    }
    bool test() override { return !under_way_ || under_way_->test(); }
    void wait() override { wait_at_most(timeout_ns_); }
    void wait_at_most(std::int64_t timeout_ns) override {
        if (under_way_) under_way_->wait_at_most(timeout_ns);
    }
    void leave() override {
        if (under_way_) under_way_->settle_failed();
    }
    void rethrow_kept() override {
        if (under_way_) under_way_->rethrow_kept();
    }

private:
    communicator_core& core_;
    counted_ptr<Message> message_;
    const int queue_;
    const std::int64_t timeout_ns_;
    maybe<call_under_way> under_way_;
};

struct watched_in_group {
    virtual ~watched_in_group() = default;
    virtual void look(const communicator_core& c) const = 0;
};
template <class X>
struct typed_watch final : watched_in_group {
    explicit typed_watch(X* x) : buffer(x) {}
    void look(const communicator_core& c) const override {
        buffer.look([&](std::size_t then, std::size_t now) { refuse_moved(c, "group's", then, now); });
    }
    watched_buffer<X> buffer;
};
// A lazy view that was copied into a group.
template <class X>
struct held_view final : watched_in_group {
    template <class From>
    explicit held_view(From&& x) : view(std::forward<From>(x)) {}
    void look(const communicator_core&) const override {}
    X view;
};
using group_watches = growing_array<sole_ptr<watched_in_group>>;

// Calls: the list of its collectives, which its parts refer to.
template <class Calls>
class ready_group final : public ready_parts {
public:
    ready_group(communicator_core& c, Calls all, group_watches buffers, std::uint64_t fingerprint,
                std::int64_t timeout_ns)
        : ready_parts(c, fingerprint, timeout_ns, !all.empty()), calls(std::move(all)), buffers_(std::move(buffers)) {}
    void require_unmoved() const override {
        for (const auto& b : buffers_) b->look(core_);
    }
    void run() override {
        begin();
        parts.run();
    }

    Calls calls;

private:
    group_watches buffers_;
};

} // namespace detail
COLLX_END_NAMESPACE
