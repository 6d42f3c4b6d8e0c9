// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A persistent device_group. Where kernels reach every peer, making it checks the calls, chooses their algorithms and
// prepares the arguments of its kernels; a start launches these. On other ways a start makes all calls.
#pragma once

#include <utility>

#include <collx/call/persistent.hpp>
#include <collx/gpu/group_calls.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class Runtime, class Comm, class... Kinds>
class ready_device_group final : public ready_call {
    using started = device_started<Runtime, Comm>;
    using group_calls = device_group_calls<Runtime>;

public:
    ready_device_group(Comm& comm, device_group_list<Comm> all, const device_call_options& o)
        : comm_(kept_communicator(comm)), all_(std::move(all)), options_(o) {
        if (all_.size() == 0) return;
        if (all_.collectives.empty()) device_calls<Runtime>::require_set_up(base_of(comm_.comm), all_.messages[0].peer);
        const started probe(comm_.comm, options_, false);
        probe.launches_nothing();
        if (!probe.g.is_direct()) return;
        kernel_batch batch(kernels_);
        group_calls::template put<persistent_mode, Kinds...>(comm_.comm, all_, options_, batch);
        all_ = {};
    }
    void start() override {
        if (all_.size() != 0) {
            kernel_batch batch;
            group_calls::template put<blocking_mode, Kinds...>(comm_.comm, all_, options_, batch);
        }
        for (const auto& k : kernels_) launch(*k, k.get() == kernels_.front().get());
    }
    bool test() override { return true; }
    void wait() override {}
    void leave() override {}

private:
    // is_first: it waits in its stream for the calls before the group.
    void launch(const grouped_kernel& k, bool is_first) {
        try {
            const unsigned collectives = k.collectives();
            const started call(comm_.comm, options_, collectives != 0, is_first);
            k.launch();
            call.end();
            if (collectives != 0) call.core().sequence += collectives - 1;
        } catch (const error& e) {
            raise(in_group(e, k.first, k.last));
        }
    }

    kept_communicator_t<Comm> comm_;
    device_group_list<Comm> all_; // empty where kernels_ has its calls
    device_call_options options_;
    grouped_kernels kernels_;
};

} // namespace detail
COLLX_END_NAMESPACE
