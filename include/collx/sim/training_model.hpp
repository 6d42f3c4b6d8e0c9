// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transformer, the layout of its training over ranks, and what follows without a machine: parameters, arithmetic,
// bytes of memory. Sources: Shoeybi et al. 2019 (Megatron-LM: 12 h^2 parameters a layer, two all_reduces each way);
// Narayanan et al. 2021 (arithmetic); Rajbhandari et al. 2020 (ZeRO's bytes); Korthikanti et al. 2022 (activations,
// with attention recomputed or fused); Fedus et al. 2021 (experts).
#pragma once

#include <algorithm>
#include <cmath>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// A transformer: layers of attention and two linear maps of 4 h. With experts, each layer has one pair of maps per
// expert, and a token uses `experts_per_token` of them.
struct transformer {
    int layers = 24;
    int hidden = 2048;
    int sequence = 2048; // tokens of a sample
    int vocabulary = 0;  // 0: no embedding and no logits
    int experts = 0;     // 0: dense
    int experts_per_token = 1;
};

// The order in which a stage takes its micro-batches: all forward and then all back (Huang et al. 2019), or one
// forward, one back (Narayanan et al. 2019).
enum class pipeline_order : unsigned char { gpipe, one_forward_one_back };

// The layout: rank ((stage * data) + replica) * tensor + shard. Experts are divided inside a group of `data`.
struct training_plan {
    int data = 1, tensor = 1, pipeline = 1;
    int expert = 1; // ranks of a data group among which the experts are divided
    int zero = 0;   // stage of ZeRO: 0 to 3
    int batch = 1;  // samples of a step, of all ranks
    int micro_batch = 1;
    pipeline_order order = pipeline_order::one_forward_one_back;
    bool sequence_parallel = false; // activations of a layer divided along the tensor axis, too
    bool recompute = false;         // activations are computed again: a third more arithmetic
    double bucket_bytes = 25e6;     // of gradients that are summed while the backward pass runs (Li et al. 2020)
    int ranks() const { return data * tensor * pipeline; }
    int micro_batches() const { return batch / (data * micro_batch); }
};

// The accelerator of one rank.
struct accelerator {
    double flops_per_s = 0;  // of its data sheet
    double efficiency = 0.5; // share of flops_per_s that a training step reaches: a guess until it is measured
    double memory_bytes = 0; // 0: no limit
};

// Bytes of the rank that needs most.
struct training_memory {
    double parameters = 0, gradients = 0, optimizer = 0, activations = 0;
    double total() const { return parameters + gradients + optimizer + activations; }
};

// Errors: invalid_argument, which names the number that does not divide, and by what, or the count that is out of
// range.
inline void check(const transformer& m, const training_plan& p) {
    for (const int v : {m.layers, m.hidden, m.sequence, m.experts_per_token, p.data, p.tensor, p.pipeline, p.expert,
                        p.batch, p.micro_batch})
        if (v < 1)
            fail(errc::invalid_argument, -1, -1, "counts are 1 or more", "a training step with a count of %d", v);
    if (m.vocabulary < 0 || m.experts < 0 || p.zero < 0 || p.zero > 3 || !(p.bucket_bytes > 0))
        fail(errc::invalid_argument, -1, -1, "ZeRO has the stages 0 to 3, a bucket more than 0 bytes",
             "a vocabulary of %d, %d experts, ZeRO stage %d, buckets of %g bytes", m.vocabulary, m.experts, p.zero,
             p.bucket_bytes);
    if (double{1} * p.data * p.tensor * p.pipeline > 1 << 24)
        fail(errc::invalid_argument, -1, -1, "a job has at most 16777216 ranks", "%d x %d x %d ranks", p.data, p.tensor,
             p.pipeline);
    const auto divides = [](const char* whole, long n, const char* part, long by) {
        if (n % by != 0)
            fail(errc::invalid_argument, -1, -1, "choose numbers that divide", "%s %ld cannot be divided by %s %ld",
                 whole, n, part, by);
    };
    divides("layers", m.layers, "pipeline stages", p.pipeline);
    divides("hidden size", m.hidden, "tensor ranks", p.tensor);
    divides("a batch of", p.batch, "data ranks times samples of a micro-batch", long{p.data} * p.micro_batch);
    divides("data ranks", p.data, "expert ranks", p.expert);
    if (m.experts > 0) divides("experts", m.experts, "expert ranks", p.expert);
    if (m.experts == 0 && p.expert > 1)
        fail(errc::invalid_argument, -1, -1, "give the model experts, or leave the axis at 1",
             "a dense model with an expert axis of %d", p.expert);
    if (m.experts > 0 && m.experts_per_token > m.experts)
        fail(errc::invalid_argument, -1, -1, "a token takes as many experts as there are, at most",
             "%d of %d experts for a token", m.experts_per_token, m.experts);
}

// Parameters of a layer that all ranks of the data axis hold alike, and those of its experts.
inline double dense_parameters(const transformer& m) { return (m.experts > 0 ? 4.0 : 12.0) * m.hidden * m.hidden; }
inline double expert_parameters(const transformer& m) { return 8.0 * m.hidden * m.hidden * m.experts; }
// Parameters of the model.
inline double parameters(const transformer& m) {
    return m.layers * (dense_parameters(m) + expert_parameters(m)) + double{1} * m.vocabulary * m.hidden;
}
// Multiplications and additions forward of one token in one layer: two for each parameter it uses, and attention.
inline double layer_flops(const transformer& m) {
    const double maps = m.experts > 0 ? 4.0 + 8.0 * m.experts_per_token : 12.0;
    return 2 * maps * m.hidden * m.hidden + 4.0 * m.sequence * m.hidden;
}

// Parameters of a rank: those summed over all replicas, and those of experts, summed over replicas of the experts.
struct rank_parameters {
    double dense = 0, expert = 0;
    double all() const { return dense + expert; }
};
// The parameters of a rank of the first stage, which holds the embedding.
inline rank_parameters parameters_of_rank(const transformer& m, const training_plan& p) {
    const double layers = m.layers / p.pipeline;
    return {(layers * dense_parameters(m) + double{1} * m.vocabulary * m.hidden) / p.tensor,
            layers * expert_parameters(m) / p.tensor / p.expert};
}
// Bytes of the activations of one layer for one micro-batch.
inline double activation_bytes(const transformer& m, const training_plan& p) {
    const double elements = double{1} * m.sequence * p.micro_batch * m.hidden;
    if (p.recompute) return 2 * elements;
    return elements * (p.sequence_parallel ? 34.0 / p.tensor : 10 + 24.0 / p.tensor);
}
// The memory of a rank with Adam in mixed precision: 2 bytes a parameter, 2 a gradient, 12 for the optimizer.
inline training_memory memory_of(const transformer& m, const training_plan& p) {
    const rank_parameters own = parameters_of_rank(m, p);
    const auto held = [&](double bytes, int from_stage) {
        if (p.zero < from_stage) return bytes * own.all();
        return bytes * (own.dense / p.data + own.expert / (p.data / p.expert));
    };
    const int kept = p.order == pipeline_order::gpipe ? p.micro_batches() : std::min(p.micro_batches(), p.pipeline);
    return {held(2, 3), held(2, 2), held(12, 1), double{1} * kept * (m.layers / p.pipeline) * activation_bytes(m, p)};
}

} // namespace sim
COLLX_END_NAMESPACE
