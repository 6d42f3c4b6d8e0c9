// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a program's own transport (transport/transport_concept.hpp) available to its communicators, with the choice
// of algorithms over channels. Include it where per_peer{..., mine{}} is written.
#pragma once

#include <collx/core/error.hpp>
#include <collx/core/pointers.hpp>
#include <collx/job/join_custom.hpp>
#if !defined(COLLX_COMPILED)
#include <collx/job/remote_calls.hpp>
#include <collx/plan/channel_selector.hpp>
#endif
#include <collx/transport/custom_connector.hpp>
#include <collx/transport/custom_links.hpp>
#include <collx/transport/per_peer.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <CustomTransport T>
class custom_connector_of final : public custom_connector {
public:
    custom_connector_of(int rank, int size) : hub_(make_counted<custom_hub>(made(rank, size), size)) {}
    endpoint_address address() override { return hub_->address(); }
    void connect(int peer, const endpoint_address& there) override { hub_->connect(peer, there); }
    sole_ptr<remote_ranks> open(remote_members m) override { return make_sole<custom_links>(hub_, std::move(m)); }

private:
    static sole_ptr<custom_endpoint> made(int rank, int size) {
        auto e = make_sole<custom_endpoint_of<typename T::endpoint>>(rank, size);
        if (e->most_bytes() < 256)
            fail(errc::invalid_argument, rank, -1, "let most_bytes() of its endpoint be 256 at least",
                 "the transport %s takes messages of %zu bytes", T::name, e->most_bytes());
        return e;
    }
    counted_ptr<custom_hub> hub_;
};

template <class T>
struct custom_transport_of {
    static counted_ptr<custom_connector> open(int rank, int size) {
        return make_counted<custom_connector_of<T>>(rank, size);
    }
    static constexpr custom_transport value{T::name, &open, &join_by_custom, &custom_thread_jobs};
};

} // namespace detail

COLLX_END_NAMESPACE
