// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator with policies bound to it, and functions by which verbs take it or a plain communicator.
#pragma once

#include <type_traits>

#include <collx/call/run.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/core/result.hpp>
#include <collx/plan/policy.hpp>

COLLX_BEGIN_NAMESPACE

// A communicator with policies bound to the calls made through it. Refers to the communicator; cheap to copy.
template <class... Policies>
class bound_communicator {
public:
    bound_communicator(communicator& c, Policies... p) : comm_(&c), policies_(p...) {}
    // The communicator that the policies are bound to. It must outlive this.
    communicator& base() const { return *comm_; }
    // The policies.
    const policy_set<Policies...>& policies() const { return policies_; }
    // As base().rank().
    int rank() const { return comm_->rank(); }
    // As base().size().
    int size() const { return comm_->size(); }
    // The same policies on another communicator.
    bound_communicator rebound(communicator& c) const {
        bound_communicator b = *this;
        b.comm_ = &c;
        return b;
    }

private:
    communicator* comm_;
    policy_set<Policies...> policies_;
};

namespace detail {
// A policy that with() applies once to the communicator, on this rank alone (progress::thread), instead of binding it.
template <class P>
concept CommunicatorPolicy = requires(const P& p, communicator_core& c) {
    p.apply_to(c);
};
// Applies these policies, and binds the others in their order.
template <std::size_t Left>
auto apply_and_bind(communicator& c) {
    return bound_communicator<>(c);
}
template <std::size_t Left, class First, class... Rest>
auto apply_and_bind(communicator& c, First first, Rest... rest) {
    if constexpr (Left == 0) return c.with(first, rest...);
    else if constexpr (CommunicatorPolicy<First>) {
        first.apply_to(c.internals());
        return apply_and_bind<Left - 1>(c, rest...);
    } else return apply_and_bind<Left - 1>(c, rest..., first);
}
} // namespace detail

template <class... Policies>
auto communicator::with(Policies... p) & {
    if constexpr ((detail::CommunicatorPolicy<Policies> || ...)) {
        return detail::apply_and_bind<sizeof...(Policies)>(*this, p...);
    } else {
        (detail::require_policy<Policies>(), ...);
        if constexpr ((Policy<Policies> && ...)) return bound_communicator<Policies...>(*this, p...);
        else return bound_communicator<>(*this); // refused above: no further errors
    }
}

namespace detail {

inline communicator& base_of(communicator& c) { return c; }
template <class... P>
communicator& base_of(const bound_communicator<P...>& c) {
    return c.base();
}
// The communicator that a call is compiled for: one type for all lists of transports (basic_communicator).
template <class Comm>
auto& without_list(Comm& c) {
    if constexpr (std::is_base_of_v<communicator, Comm>) return base_of(c);
    else return c;
}
inline policy_set<> policies_of(communicator&) { return {}; }
template <class... P>
const policy_set<P...>& policies_of(const bound_communicator<P...>& c) {
    return c.policies();
}

template <class X>
concept Communicates = requires(X& x) {
    base_of(x);
};

// Runs f, a whole call. Mode `tried` turns errors into values. An exception that is no collx::error (of an operator, or
// no memory) ends the communicator.
template <class Mode, class Comm, class F>
auto in_mode(Comm& comm, F&& f) {
    if constexpr (std::is_same_v<Mode, try_mode>) {
        try {
            base_of(comm).internals().or_abandon(f);
            return result<void>();
        } catch (const error& e) {
            return result<void>(e);
        }
    } else {
        return base_of(comm).internals().or_abandon(f);
    }
}

} // namespace detail

COLLX_END_NAMESPACE
