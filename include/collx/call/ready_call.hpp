// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The engine's side of a persistent call: checked, chosen and bound once, run any number of times. A run only makes
// the task anew, in the same place. Independent of element types; compiled once (docs/design/compile-once.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/call/prepared_call.hpp>
#include <collx/call/work.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/maybe.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class ready_call {
public:
    virtual ~ready_call() = default;
    // Throws if a buffer is not where it was, or has another size, as far as that can be seen: of device memory a view
    // does not show it.
    virtual void require_unmoved() const {}
    // start() and run() throw what require_unmoved() throws, before anything has begun.
    virtual void start() = 0;
    virtual bool test() = 0;
    virtual void wait() = 0;
    // wait() for a part of a call whose time limit began before.
    virtual void wait_at_most(std::int64_t /*timeout_ns*/) { wait(); }
    // As start() and wait(), on the shortest path.
    virtual void run() {
        start();
        wait();
    }
    // Ends a call that was started and cannot continue: nothing touches its buffers any more, and test() and wait()
    // throw.
    virtual void leave() = 0;
    // See call_under_way.
    virtual void rethrow_kept() {}
};

[[noreturn]] void refuse_moved(const communicator_core& c, const char* which, std::size_t elems, std::size_t now);

// One call on host memory.
class ready_operation : public ready_call {
public:
    // Declarations have COLLX_ONCE, too: a class with a virtual function that is not inline by the end of the class is
    // compiled into each program, even if the program does not use it.
    COLLX_ONCE void start() final;
    bool test() final { return !under_way_ || under_way_->test(); }
    void wait() final { wait_at_most(timeout_ns_); }
    void wait_at_most(std::int64_t timeout_ns) final {
        if (under_way_) under_way_->wait_at_most(timeout_ns);
    }
    COLLX_ONCE void run() override;
    void leave() final {
        if (under_way_) under_way_->settle_failed();
    }
    void rethrow_kept() final {
        if (under_way_) under_way_->rethrow_kept();
    }

protected:
    ready_operation(communicator_core& c, int queue, std::int64_t timeout_ns)
        : core_(c), queue_(queue), timeout_ns_(timeout_ns) {}
    void bind(element_ops& elements, const prepared_call& p, const call_words& words) {
        ops_ = &elements;
        call_ = p;
        words_ = words;
        words_.algorithm = p.plan->name;
        words_.kind = call_kind::persistent;
    }
    void wait_for_readers() { waits_for_readers_ = true; } // see task
    // Copies from buffers and tables to memory of the call.
    virtual void refresh() {}
    COLLX_ONCE virtual counted_ptr<operation> arm();
    virtual void begin() { core_.begin_collective(); }
    // The agreed number of one start; see call_state.
    virtual std::uint64_t agreed() { return core_.agree(call_.fingerprint); }
    COLLX_ONCE virtual void run_now();
    // Whether other operations of its queue go first.
    bool has_to_queue() const { return !core_.pending.empty() && core_.pending.is_queued(queue_); }

    communicator_core& core_;
    const int queue_;
    const std::int64_t timeout_ns_;
    element_ops* ops_ = nullptr;
    prepared_call call_{};
    call_words words_{}; // of its runs

private:
    bool waits_for_readers_ = false;
    counted_ptr<maybe<task>> task_; // the place of the task; counted, because the communicator's list shares it
    maybe<call_under_way> under_way_;
};

// Several calls, started and waited for in order, with one time limit for all waits.
class ready_sequence final : public ready_call {
public:
    explicit ready_sequence(std::int64_t timeout_ns) : timeout_ns_(timeout_ns) {}
    void add(sole_ptr<ready_call> c) { calls_.push_back(std::move(c)); }
    void require_unmoved() const override {
        for (const auto& c : calls_) c->require_unmoved();
    }
    void start() override {
        require_unmoved(); // all, before any begins
        for (const auto& c : calls_) c->start();
    }
    bool test() override {
        bool all = true;
        for_each([&](ready_call& c) { all = c.test() && all; });
        return all;
    }
    void wait() override { wait_at_most(timeout_ns_); }
    void wait_at_most(std::int64_t timeout_ns) override {
        const call_end end(timeout_ns);
        for_each([&](ready_call& c) { c.wait_at_most(end.left_ns()); });
    }
    void run() override {
        if (calls_.size() == 1) return calls_[0]->run();
        start();
        wait();
    }
    void leave() override {
        for (const auto& c : calls_) c->leave();
    }
    void rethrow_kept() override {
        for (const auto& c : calls_) c->rethrow_kept();
    }

private:
    // What code of the program threw in one of the calls ends the others, too, and goes before their errors.
    template <class F>
    void for_each(F&& f) {
        try {
            for (const auto& c : calls_) f(*c);
        } catch (const error&) {
            rethrow_kept();
            throw;
        }
    }

    growing_array<sole_ptr<ready_call>> calls_;
    const std::int64_t timeout_ns_;
};

// Several calls that begin together, as one collective call; those of a group with messages alone as none.
class ready_parts : public ready_call {
public:
    void start() final {
        begin();
        parts.start();
    }
    bool test() final { return parts.test(); }
    void wait() final { parts.wait(); }
    void leave() final { parts.leave(); }
    void rethrow_kept() final { parts.rethrow_kept(); }

    ready_sequence parts;

protected:
    ready_parts(communicator_core& c, std::uint64_t fingerprint, std::int64_t timeout_ns, bool is_collective = true)
        : parts(timeout_ns), core_(c), fingerprint_(fingerprint), is_collective_(is_collective) {}
    void begin() {
        require_unmoved();
        if (!is_collective_) return;
        core_.begin_collective();
        (void)core_.agree(fingerprint_);
    }

    communicator_core& core_;

private:
    const std::uint64_t fingerprint_;
    const bool is_collective_;
};

// Detects that the elements of a container have moved since the call was made. Containers are checked before each run;
// a view has nothing to check.
template <class X>
class watched_buffer {
public:
    explicit watched_buffer(X* x) {
        if constexpr (is_watched) {
            x_ = x;
            at_ = buffer(*x).data();
            elems_ = buffer(*x).size();
        }
    }
    // Calls refuse(elements then, elements now) if the elements are not in their place.
    template <class Refuse>
    void look(Refuse&& refuse) const {
        if constexpr (is_watched) {
            const auto v = buffer(*x_);
            if (v.data() != at_ || v.size() != elems_) [[unlikely]]
                refuse(elems_, v.size());
        }
    }

private:
    static constexpr bool watch() {
        if constexpr (Buffer<X>) return buffer_t<X>::is_contiguous && owns_elements<std::remove_cv_t<X>>(false);
        return false;
    }
    static constexpr bool is_watched = watch();
    X* x_ = nullptr;
    const void* at_ = nullptr;
    std::size_t elems_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/ready_call_once.hpp>
#endif
