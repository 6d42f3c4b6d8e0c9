// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training step on a machine: the arithmetic by the accelerator's rate, the collectives of each axis by simulate(),
// all groups of the axis at once, so that they share links, and the pipeline by its passes. A prediction of what is
// exposed, not a measurement: kernels, data loading and the optimizer's own arithmetic take no time.
#pragma once

#include <collx/algo/direct.hpp>
#include <collx/algo/ring.hpp>
#include <collx/sim/pipeline.hpp>
#include <collx/sim/simulate.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// The predicted step; times in ns. Exposed: by how much the step would be shorter without the communication of that
// axis; for data, also what ends after the last backward pass.
struct training_step {
    double step_ns = 0;
    double arithmetic_ns = 0; // of the stage that has most, without idle time
    double bubble = 0;        // share of the pipeline's time in which a stage is idle, without communication
    double tensor_ns = 0, expert_ns = 0, pipeline_ns = 0, data_ns = 0; // exposed
    double data_bytes = 0;                                             // that a rank sends for gradients and parameters
    training_memory memory;
    std::vector<std::vector<pass>> passes;
};

namespace detail {

class step_prediction {
public:
    step_prediction(const transformer& m, const training_plan& p, const accelerator& a, fabric& f, const cost_model& c)
        : m_(m), p_(p), a_(a), fabric_(f), costs_(c) {
        costs_.call_ns = 0; // launches overlap with arithmetic
    }

    training_step run() {
        training_step t;
        const double tokens = double{1} * p_.micro_batch * m_.sequence, elements = tokens * m_.hidden;
        const double layers = m_.layers / p_.pipeline, rate = a_.flops_per_s * a_.efficiency / 1e9 * p_.tensor;
        const double layer = tokens * layer_flops(m_) / rate, logits = 2 * tokens * m_.vocabulary * m_.hidden / rate;
        const double all_reduce = collective_ns(algo::ring_all_reduce{}, 2 * elements, groups(p_.tensor, 1));
        const double exchange = m_.experts == 0 ? 0
                                                : collective_ns(algo::direct_all_to_all{},
                                                                2 * elements * m_.experts_per_token, expert_groups());
        const double hop = collective_ns(one_message{}, 2 * elements / (p_.sequence_parallel ? p_.tensor : 1), hops());
        const auto pipeline = [&](double tensor, double expert, double sent) {
            std::vector<stage_times> stages;
            for (int s = 0; s < p_.pipeline; ++s) {
                const double once = layers * layer + (s == p_.pipeline - 1 ? logits : 0);
                const double talk = 2 * layers * (tensor + expert) + gather_ns(layers, once);
                // Recomputed activations are exchanged again.
                stages.push_back({once + talk, (p_.recompute ? 3 : 2) * once + (p_.recompute ? 2 : 1) * talk});
            }
            t.passes = run_pipeline(p_.order, stages, p_.micro_batches(), sent);
            return end_of(t.passes);
        };
        gather_ = 0;
        const double bare = pipeline(0, 0, 0);
        t.bubble = bubble_of(t.passes);
        for (const auto& s : t.passes) {
            double busy = 0;
            for (const pass& one : s) busy += one.end_ns - one.begin_ns;
            t.arithmetic_ns = std::max(t.arithmetic_ns, busy);
        }
        const double with_tensor = pipeline(all_reduce, 0, 0), with_expert = pipeline(all_reduce, exchange, 0);
        const double with_hops = pipeline(all_reduce, exchange, hop);
        gather_ = p_.zero == 3 ? data_ns(algo::ring_all_gather{}, 1 / layers) : 0;
        const double whole = pipeline(all_reduce, exchange, hop);
        t.tensor_ns = with_tensor - bare;
        t.expert_ns = with_expert - with_tensor;
        t.pipeline_ns = with_hops - with_expert;
        const double after = exposed_gradients(t.passes[0].back());
        t.data_ns = whole - with_hops + after;
        t.step_ns = whole + after;
        t.memory = memory_of(m_, p_);
        t.data_bytes = data_bytes();
        return t;
    }

private:
    using orders = std::vector<std::vector<int>>;
    // One message from rank 0 to rank 1.
    struct one_message {
        static constexpr collective op = collective::broadcast;
        static constexpr int chunks(int) { return 1; }
        template <class Ex>
        void operator()(Ex& ex, int r, int) const {
            if (r == 0) ex.step(sched::send, sched::to(1), sched::in(0));
            else ex.step(sched::recv | sched::copy, sched::from(0), sched::out(0));
        }
    };

    // All groups of n ranks that lie `stride` apart.
    orders groups(int n, int stride) const {
        orders all;
        for (int first = 0; first < p_.ranks(); ++first) {
            if (first / stride % n != 0) continue;
            all.emplace_back();
            for (int k = 0; k < n; ++k) all.back().push_back(first + k * stride);
        }
        return all;
    }
    orders data_groups() const { return groups(p_.data, p_.tensor); }
    orders expert_groups() const { return groups(p_.expert, p_.tensor); }
    orders hops() const {
        orders all;
        const int stage = p_.data * p_.tensor;
        for (int r = 0; r + stage < p_.ranks(); ++r) all.push_back({r, r + stage});
        return all;
    }
    // The time of a collective of `bytes` in each group, all groups at once.
    template <class A>
    double collective_ns(const A& a, double bytes, const orders& groups) {
        if (groups.empty() || groups[0].size() < 2 || bytes <= 0) return 0;
        options o;
        o.orders = groups;
        o.bytes = bytes * static_cast<double>(groups.size());
        return simulate(record_short(a, static_cast<int>(groups[0].size())), fabric_, costs_, o).time_ns;
    }
    // Time of a collective on `share` of a rank's parameters, 2 bytes each: those of all replicas, then of experts.
    template <class A>
    double data_ns(const A& a, double share) {
        const rank_parameters own = parameters_of_rank(m_, p_);
        return collective_ns(a, 2 * own.dense * share, data_groups()) +
               collective_ns(a, 2 * own.expert * share, groups(p_.data / p_.expert, p_.tensor * p_.expert));
    }
    // ZeRO 3: the parameters of a layer are gathered while the layer before computes.
    double gather_ns(double layers, double once) const {
        return gather_ <= 0 ? 0 : gather_ + (layers - 1) * std::max(0.0, gather_ - once / layers);
    }
    // The exposed sums of gradients. Buckets become ready during the last backward pass, and are summed in turn.
    double exposed_gradients(const pass& last) {
        const double bytes = 2 * parameters_of_rank(m_, p_).all();
        const double buckets = std::ceil(bytes / p_.bucket_bytes);
        if (buckets < 1 || p_.data < 2) return 0;
        const double each = p_.zero == 0 ? data_ns(algo::ring_all_reduce{}, 1.0 / buckets)
                                         : data_ns(algo::ring_reduce_scatter{}, 1.0 / buckets);
        // Each bucket is summed when its gradients are there and the one before it is done: either all sums follow the
        // first bucket without a pause, or the last sum waits for the last gradients.
        const double first = last.begin_ns + (last.end_ns - last.begin_ns) / buckets;
        const double end = std::max(first + buckets * each, last.end_ns + each);
        // ZeRO 1 and 2: the parameters that each rank has updated are gathered before the next step begins.
        const double gathered = p_.zero == 1 || p_.zero == 2 ? data_ns(algo::ring_all_gather{}, 1) : 0;
        return end - last.end_ns + gathered;
    }
    double data_bytes() const {
        const rank_parameters own = parameters_of_rank(m_, p_);
        const int n = p_.data, e = p_.data / p_.expert;
        const double once = 2 * (own.dense * (n - 1) / n + own.expert * (e - 1) / e);
        return p_.zero == 3 ? once * (1 + 2 * p_.micro_batches()) : 2 * once;
    }

    const transformer m_;
    const training_plan p_;
    const accelerator a_;
    fabric& fabric_;
    cost_model costs_;
    double gather_ = 0;
};

} // namespace detail

// Predicts a training step. Cost: a simulation of each axis's collectives.
// Errors: invalid_argument for numbers that do not divide, axes whose product is not the number of ranks, an
//     accelerator without a rate; resource if the rank that needs most needs more memory than there is; as simulate().
inline training_step predict_training(const transformer& m, const training_plan& p, const accelerator& a, fabric& f,
                                      const cost_model& costs = {}) {
    check(m, p);
    if (p.ranks() != f.ranks())
        fail(errc::invalid_argument, -1, -1, "data x tensor x pipeline is the number of ranks",
             "%d x %d x %d ranks on a machine for %d", p.data, p.tensor, p.pipeline, f.ranks());
    if (!(a.flops_per_s > 0) || !(a.efficiency > 0) || !(a.efficiency <= 1) || !(a.memory_bytes >= 0))
        fail(errc::invalid_argument, -1, -1, "give flops/s above 0, an efficiency of at most 1, memory of 0 or more",
             "an accelerator of %g flops/s, efficiency %g and %g bytes", a.flops_per_s, a.efficiency, a.memory_bytes);
    const training_memory needed = memory_of(m, p);
    if (a.memory_bytes > 0 && needed.total() > a.memory_bytes)
        fail(errc::resource, 0, -1,
             "more tensor or pipeline ranks, a higher stage of ZeRO, smaller micro-batches, or recompute",
             "the model does not fit: rank 0 needs %.1f GB (parameters %.1f, gradients %.1f, optimizer %.1f, "
             "activations %.1f) of %.1f",
             needed.total() / 1e9, needed.parameters / 1e9, needed.gradients / 1e9, needed.optimizer / 1e9,
             needed.activations / 1e9, a.memory_bytes / 1e9);
    return detail::step_prediction(m, p, a, f, costs).run();
}

} // namespace sim
COLLX_END_NAMESPACE
