// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The typed edge of persistent calls: the tensors, operator, policies and tables of one, kept for its runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/comm/ready_call.hpp>
#include <collx/exec/relayed_task.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The buffers of a call, or what they were moved into.
template <class Kept>
class watched_buffers {
    template <class X>
    static watched_buffer<X> watched(X* x) {
        return watched_buffer<X>(x);
    }
    using in_type = std::remove_pointer_t<decltype(Kept::in)>;
    using out_type = std::remove_pointer_t<decltype(Kept::out)>;

public:
    explicit watched_buffers(const Kept& kept) : kept_(kept), in_(kept.in), out_(kept.out) {}
    // refuse(which, elements then, elements now)
    template <class Refuse>
    void look(Refuse&& refuse) const {
        in_.look([&](std::size_t then, std::size_t now) { refuse("input", then, now); });
        out_.look([&](std::size_t then, std::size_t now) { refuse("output", then, now); });
    }

private:
    Kept kept_;
    watched_buffer<in_type> in_;
    watched_buffer<out_type> out_;
};

// Call: a typed_call. Refresh: what is done with the buffers before each run.
template <class Call, bool MayRelay, class Policies, class Layouts, class Kept, class Refresh>
class ready_collective final : public ready_operation {
    using mover_type = typename Call::mover_type;

public:
    ready_collective(communicator_core& c, const Policies& p, const mover_type& m, const call_facts& f,
                     const Layouts& l, const Kept& kept, const Refresh& refresh, int at_port)
        : ready_operation(c, at_port, f.timeout_ns), policies_(p), elements_(m), facts_(f), layouts_(l), buffers_(kept),
          refresh_(refresh), request_(requested(at_port)) {
        bind(elements_, prepare(c, request_));
    }
    void require_unmoved() const override {
        buffers_.look([&](const char* which, std::size_t then, std::size_t now) { refuse_moved(which, then, now); });
    }

private:
    call_request requested(int at_port) {
        call_request r = Call::request(core_, policies_, elements_, facts_, layouts_, at_port);
        r.is_persistent = true;
        return r;
    }
    void refresh() override { refresh_(); }
    counted_ptr<operation> arm() override {
        if constexpr (MayRelay)
            if (is_relayed(request_, call_)) {
                if (!relayed_) relayed_ = make_counted<maybe<relayed_task>>();
                auto& t = relayed_->emplace(core_.net, *call_.plan, elements_, call_.in, call_.out, call_.piece_elems,
                                            agreed(), numbers_of_relayed(core_, request_, call_));
                return counted_ptr<operation>(relayed_, &t);
            }
        return ready_operation::arm();
    }
    void run_now() override {
        if constexpr (MayRelay)
            if (is_relayed(request_, call_)) return run_relayed(core_, request_, call_);
        ready_operation::run_now();
    }

    const Policies policies_;
    typed_elements<mover_type> elements_;
    const call_facts facts_;
    const Layouts layouts_;
    const watched_buffers<Kept> buffers_;
    const Refresh refresh_;
    const call_request request_; // refers to the others
    std::conditional_t<MayRelay, counted_ptr<maybe<relayed_task>>, nothing> relayed_;
};

} // namespace detail
COLLX_END_NAMESPACE
