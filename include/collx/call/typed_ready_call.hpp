// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The typed part of persistent calls: the tensors, operator, policies and tables of a call, kept for its runs. Where
// the algorithm is known at compile time, runs take its composed form (exec/composed.hpp, composed_messages.hpp).
#pragma once

#include <cstdint>
#include <new>
#include <type_traits>

#include <collx/algo/dissemination.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/scan.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/call/ready_call.hpp>
#include <collx/call/short_calls.hpp>
#include <collx/exec/composed.hpp>
#include <collx/exec/composed_messages.hpp>
#include <collx/exec/relayed_task.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Keeps the buffers of a call, and detects that they have moved.
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
    // Calls refuse(which, elements then, elements now) for each buffer that is not in its place.
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

template <class... Algorithms>
struct algorithm_list {};

// What the default choice takes for short calls on one host. Each costs a compiled function per type and operator.
template <collective C>
constexpr auto composed_by_default() {
    using namespace algo;
    if constexpr (C == collective::all_reduce) return algorithm_list<one_shot_all_reduce, zero_copy_all_reduce>();
    else if constexpr (C == collective::reduce) return algorithm_list<one_shot_reduce>();
    else if constexpr (C == collective::broadcast) return algorithm_list<one_shot_broadcast>();
    else if constexpr (C == collective::all_gather) return algorithm_list<one_shot_all_gather>();
    else if constexpr (C == collective::reduce_scatter) return algorithm_list<one_shot_reduce_scatter>();
    else if constexpr (C == collective::all_to_all) return algorithm_list<one_shot_all_to_all>();
    else if constexpr (C == collective::barrier) return algorithm_list<flag_barrier>();
    else if constexpr (C == collective::scan) return algorithm_list<chain_scan, one_shot_scan>();
    else if constexpr (C == collective::exclusive_scan)
        return algorithm_list<chain_exclusive_scan, one_shot_exclusive_scan>();
    else return algorithm_list<>();
}

// Runs a call by the composed form of its algorithm, where the algorithm is known and fits.
template <collective C, class Mover>
class composed_runs {
public:
    // p: the prepared call.
    template <class Policies>
    void bind(communicator_core& c, const Policies& policies, const call_facts& f, const prepared_call& p, Mover& m) {
        // An any:: call has none: it would be compiled for each verb and size of element.
        if constexpr (requires { typename Mover::in_type::chosen_at_run_time; }) return;
        else bind_typed(c, policies, f, p, m);
    }
    bool is_bound() const { return run_ != nullptr; }
    void run(communicator_core& c, std::uint64_t agreed, std::int64_t timeout_ns) {
        run_(*this, c, agreed, timeout_ns);
    }

private:
    template <class Policies>
    void bind_typed(communicator_core& c, const Policies& policies, const call_facts& f, const prepared_call& p,
                    Mover& m) {
        if (f.private_counts || p.attached || !c.net.is_one_host()) return;
        if (is_composable(*p.plan)) {
            call_.emplace(c.net, *p.plan, m, p.in, p.out, p.piece_elems);
            if (call_->cuts.count != 1) return;
        } else if (is_composable_of_messages(*p.plan)) {
            messages_.emplace(c.net, *p.plan, m, p.in, p.out, p.piece_elems);
            if (!messages_->fits()) return;
        } else {
            return;
        }
        if constexpr (Policies::template has_algorithm<C>)
            bind_if_chosen(policies.template algorithm<C>(), *p.plan, f.root);
        else bind_chosen(composed_by_default<C>(), *p.plan, f.root);
    }
    template <class... A>
    void bind_chosen(algorithm_list<A...>, const bound_schedule& plan, [[maybe_unused]] int root) {
        (bind_if_chosen(A(), plan, root), ...);
    }
    template <class A>
    void bind_if_chosen(A a, const bound_schedule& plan, int root) {
        sched::set_root(a, root);
        if (plan.algorithm != &algorithm_id<A> || plan.parameters != parameter_bits(a)) return;
        ::new (static_cast<void*>(algorithm_)) A(a);
        if constexpr (sched::signals_v<A> != 0) run_ = &run_by<A, composed_run, short_wait, &composed_runs::call_>;
        else run_ = &run_by<A, composed_message_run, message_wait, &composed_runs::messages_>;
    }
    // Call: the member that holds what all runs of this form share.
    template <class A, template <class, class> class Run, class Wait, auto Call>
    [[gnu::flatten]] static void run_by(composed_runs& self, communicator_core& c, std::uint64_t agreed,
                                        std::int64_t timeout_ns) {
        Wait await(c, timeout_ns);
        c.with_user_code([&] {
            Run<Mover, Wait> ex(*(self.*Call), await, agreed);
            (*std::launder(reinterpret_cast<const A*>(self.algorithm_)))(ex, c.net.rank(), c.net.size());
        });
    }

    maybe<composed_call<Mover>> call_; // of an algorithm over windows
    void (*run_)(composed_runs&, communicator_core&, std::uint64_t, std::int64_t) = nullptr;
    alignas(16) std::byte algorithm_[64];      // see parameter_bits
    maybe<composed_messages<Mover>> messages_; // of an algorithm over channels
};

// Call: a typed_call. Refresh: what happens to the buffers before each run.
template <collective C, class Call, bool MayRelay, class Policies, class Kept, class Refresh>
class ready_collective final : public ready_operation {
    using mover_type = typename Call::mover_type;

public:
    ready_collective(communicator_core& c, const Policies& p, const mover_type& m, const call_facts& f,
                     const Kept& kept, const Refresh& refresh, int at_port)
        : ready_operation(c, at_port, f.timeout_ns), policies_(p), elements_(m), facts_(f), buffers_(kept),
          refresh_(refresh), request_(requested(at_port)) {
        bind(elements_, prepare(c, request_), {name_of(f.what), f.total_elems * elements_.is.bytes});
        (void)c.agree(~call_.fingerprint); // inverted: making and running it are different calls
        composed_.bind(c, policies_, facts_, call_, elements_.mover());
    }
    void require_unmoved() const override {
        buffers_.look(
            [&](const char* which, std::size_t then, std::size_t now) { refuse_moved(core_, which, then, now); });
    }
    void run() override {
        if (!composed_.is_bound() || core_.recorder || has_to_queue()) return ready_operation::run();
        require_unmoved();
        core_.begin_collective();
        refresh_();
        composed_.run(core_, agreed(), timeout_ns_);
    }

private:
    call_request requested(int at_port) {
        call_request r = Call::request(core_, policies_, elements_, facts_, at_port);
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
        if (composed_.is_bound()) return composed_.run(core_, agreed(), timeout_ns_); // a recorded run
        ready_operation::run_now();
    }

    const Policies policies_;
    typed_elements<mover_type> elements_;
    const call_facts facts_;
    const watched_buffers<Kept> buffers_;
    const Refresh refresh_;
    const call_request request_; // refers to the members above
    composed_runs<C, mover_type> composed_;
    std::conditional_t<MayRelay, counted_ptr<maybe<relayed_task>>, nothing> relayed_;
};

} // namespace detail
COLLX_END_NAMESPACE
