// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// wait_all, wait_any, wait_some: wait for several handles, of any communicators and verbs: async calls (work) and
// persistent calls. All that are under way advance together, so the order of the list does not matter, and no
// communicator keeps another one waiting.
//
//   std::vector<collx::work<void>> under_way = ...;
//   collx::wait_all(under_way);
//   for (std::size_t k; (k = collx::wait_any(under_way)) != collx::no_work;) use(k);
//
// A persistent call that is not under way counts as waited for. One that these functions have waited for can be
// started again, as after wait().
#pragma once

#include <cstddef>
#include <exception>
#include <type_traits>

#include <collx/call/persistent.hpp>
#include <collx/call/work.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

// What wait_any returns when there is nothing left to wait for.
inline constexpr std::size_t no_work = static_cast<std::size_t>(-1);

namespace detail {

template <class X>
inline constexpr bool is_handle_v = std::is_same_v<X, persistent_call>;
template <class R>
inline constexpr bool is_handle_v<work<R>> = true;

template <class X>
concept Handle = is_handle_v<std::remove_cvref_t<X>>;
template <class X>
concept HandleList = requires(X& list) {
    list.begin() != list.end();
    requires Handle<decltype(*list.begin())>;
};

// Several handles, or a list of them.
template <class... X>
concept Handles = (Handle<X> && ...) || (sizeof...(X) == 1 && (HandleList<X> && ...));

// A handle of either kind. See call_under_way for the meaning of its functions.
class listed_handle {
public:
    template <class R>
    explicit listed_handle(work<R>& w) : once_(&handle_access::of(w)) {}
    explicit listed_handle(persistent_call& p) : again_(&p) {}

    bool test() const { return once_ != nullptr ? once_->test() : again_->test(); }
    bool is_settled() const {
        return once_ != nullptr ? once_->is_settled() : stage() == stages::idle || stage() == stages::given_up;
    }
    bool is_over() const { return once_ != nullptr ? once_->is_over() : stage() == stages::done; }
    void settle() const {
        if (once_ != nullptr) once_->settle();
        else again_->wait(); // it is done
    }
    void settle_failed() const {
        if (once_ != nullptr) return once_->settle_failed();
        again_->call_->leave();
        again_->state_ = stages::given_up;
    }
    void require_caller() const {
        if (once_ != nullptr) return once_->require_caller();
        if (is_reachable()) const one_caller::call here(again_->core_->caller, again_->core_->net.rank());
    }
    const wait_policy* waiting() const {
        if (once_ != nullptr) return once_->waiting();
        return is_reachable() ? &again_->core_->settings.waiting : nullptr;
    }

private:
    using stages = persistent_call::stage;
    stages stage() const { return again_->state_; }
    // Whether it is under way and its communicator is still there.
    bool is_reachable() const { return stage() == stages::under_way && !again_->end_->has_come; }

    call_under_way* once_ = nullptr;
    persistent_call* again_ = nullptr;
};

// The handles of one call of these functions.
class handles {
public:
    template <HandleList List>
    explicit handles(List& list) {
        for (auto& w : list) all_.push_back(listed_handle(w));
    }
    template <Handle... W>
    explicit handles(W&... w) {
        (all_.push_back(listed_handle(w)), ...);
    }

    // Advances all handles, round by round, until is_enough(number of handles that are done and not settled) or none is
    // left. A call that fails is settled, and failed() is called inside the handler of its error.
    template <class Enough, class Failed>
    void poll(Enough&& is_enough, Failed&& failed) {
        wait_policy waiting;
        for (const listed_handle& w : all_) {
            w.require_caller(); // a refusal is no failure of the call waited for
            if (const wait_policy* policy = w.waiting()) waiting = *policy;
        }
        for (backoff wait(waiting);; (void)wait.pause()) {
            std::size_t done = 0, left = 0;
            for (const listed_handle& w : all_) {
                if (w.is_settled()) continue;
                try {
                    ++(w.test() ? done : left);
                } catch (...) {
                    w.settle_failed();
                    failed();
                }
            }
            if (left == 0 || is_enough(done)) return;
        }
    }
    // Settles handles that are done and not settled, at most `most` of them. Returns their places in order.
    growing_array<std::size_t> take(std::size_t most) {
        growing_array<std::size_t> found;
        found.reserve(most < all_.size() ? most : all_.size()); // settled ones must not get lost
        for (std::size_t i = 0; i < all_.size() && found.size() < most; ++i)
            if (!all_[i].is_settled() && all_[i].is_over()) { // may be listed twice
                all_[i].settle();
                found.push_back(i);
            }
        return found;
    }

private:
    growing_array<listed_handle> all_;
};

inline void wait_for_all(handles all) {
    std::exception_ptr first;
    all.poll([](std::size_t) { return false; },
             [&] {
                 if (!first) first = std::current_exception();
             });
    (void)all.take(no_work);
    if (first) std::rethrow_exception(first);
}
inline growing_array<std::size_t> wait_for_some(handles all, std::size_t most) {
    all.poll([](std::size_t done) { return done != 0; }, [] { throw; });
    return all.take(most);
}

} // namespace detail

// Waits until all calls are done: wait_all(list), wait_all(a, b, c). wait() then returns the buffers that they own, at
// once. Handles that were waited for before count as done; an empty list is done.
// Errors: if calls fail, the others are still waited for; then the error that was noticed first is thrown. No call is
//     under way then: the buffers of all may be used. test() is true for the calls that are done; for those that
//     failed, test() and wait() throw the reason.
template <class... W>
requires detail::Handles<W...>
void wait_all(W&&... w) { detail::wait_for_all(detail::handles(w...)); }

// Waits until a call is done and returns its place in the list; no_work if all have been waited for, or there are
// none. That handle counts as waited for: the next wait_any returns another one.
// Errors: throws the error that ended a call; its handle counts as waited for, too. The others stay as they are: a
//     loop may continue with them. (Those of the same communicator fail, too.)
template <class... W>
requires detail::Handles<W...> std::size_t wait_any(W&&... w) {
    const auto found = detail::wait_for_some(detail::handles(w...), 1);
    return found.empty() ? no_work : found[0];
}

// The same for all calls that are done at the moment, at least one: returns their places, in order, as an array with
// size(), [] and iterators; it is empty if all have been waited for.
template <class... W>
requires detail::Handles<W...> detail::growing_array<std::size_t> wait_some(W&&... w) {
    return detail::wait_for_some(detail::handles(w...), no_work);
}

COLLX_END_NAMESPACE
