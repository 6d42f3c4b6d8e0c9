// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a rank reaches peers over a program's own transport, as start-up sees it. The implementation is in
// job/custom_transport.hpp, which only programs with such a transport compile.
#pragma once

#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/remote_ranks.hpp>
#include <collx/transport/transport_concept.hpp>

COLLX_BEGIN_NAMESPACE

class job;
struct transports;

namespace detail {

class custom_connector : public any_connector {
public:
    virtual endpoint_address address() = 0;
    // peer: a rank of the job.
    virtual void connect(int peer, const endpoint_address& there) = 0;
    // The connector by which the job came up, and by which survivors of a failure will find each other.
    void stand_before(counted_ptr<any_connector> d) { behind_ = std::move(d); }
    socket_connector* of_sockets() override { return behind_ ? behind_->of_sockets() : nullptr; }
    void serve() override {
        if (behind_) behind_->serve();
    }

private:
    counted_ptr<any_connector> behind_;
};

struct custom_transport {
    const char* name;
    counted_ptr<custom_connector> (*open)(int rank, int size);
    // The job to continue with: over the transport, where that is used for any rank. Collective.
    counted_ptr<job> (*join)(const counted_ptr<job>& near);
    // Jobs of threads, which share memory only with threads of the same number in host_of.
    growing_array<counted_ptr<job>> (*join_threads)(const growing_array<int>& host_of, const transports& over);
};

} // namespace detail

COLLX_END_NAMESPACE
