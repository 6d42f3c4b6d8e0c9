// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `collx_sim training`: predicts a training step of a model on a machine, by axis, as text.
#pragma once

#include <CLI/CLI.hpp>

#include <collx/sim/training.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace collx::tools {

struct training_choice {
    sim::transformer model;
    sim::training_plan plan;
    sim::accelerator gpu{0, 0.5, -1};
    std::string order = "1f1b";
};

/// Returns dense bf16 (P100: fp16) flops/s and bytes of known machines' GPUs (NVIDIA's data sheets). Zeros: unknown.
inline std::pair<double, double> data_sheet(const std::string& machine) {
    static constexpr struct {
        const char* name;
        double flops, bytes;
    } known[] = {{"dgx-1p", 21.2e12, 16e9},      {"dgx-1v", 125e12, 32e9},   {"dgx-2", 125e12, 32e9},
                 {"dgx-a100", 312e12, 80e9},     {"dgx-h100", 989e12, 80e9}, {"hgx-b200", 2250e12, 180e9},
                 {"gb200-nvl72", 2500e12, 186e9}};
    for (const auto& k : known)
        if (machine == k.name) return {k.flops, k.bytes};
    return {0, 0};
}

inline void add_options(CLI::App& app, training_choice& c) {
    app.add_option("--layers", c.model.layers, "of the transformer");
    app.add_option("--hidden", c.model.hidden, "elements of a token");
    app.add_option("--sequence", c.model.sequence, "tokens of a sample");
    app.add_option("--vocabulary", c.model.vocabulary, "0: no embedding and no logits");
    app.add_option("--experts", c.model.experts, "of each layer, 0: dense");
    app.add_option("--experts-per-token", c.model.experts_per_token, "of them");
    app.add_option("--data", c.plan.data, "ranks of the data axis");
    app.add_option("--tensor", c.plan.tensor, "ranks of the tensor axis: neighbours");
    app.add_option("--pipeline", c.plan.pipeline, "stages");
    app.add_option("--expert", c.plan.expert, "ranks of the data axis that share the experts out");
    app.add_option("--zero", c.plan.zero, "stage of ZeRO: 0 to 3");
    app.add_option("--batch", c.plan.batch, "samples of a step, of all ranks");
    app.add_option("--micro-batch", c.plan.micro_batch, "samples that pass the pipeline together");
    app.add_option("--order", c.order, "gpipe or 1f1b")->check(CLI::IsMember({"gpipe", "1f1b"}));
    app.add_flag("--sequence-parallel", c.plan.sequence_parallel, "the tensor axis shares activations out, too");
    app.add_flag("--recompute", c.plan.recompute, "activations are computed again");
    app.add_option("--bucket", c.plan.bucket_bytes, "bytes of gradients that are summed at once");
    app.add_option("--flops", c.gpu.flops_per_s, "flops/s of a GPU, if not those of its data sheet");
    app.add_option("--efficiency", c.gpu.efficiency, "the share of them that is reached");
    app.add_option("--memory", c.gpu.memory_bytes, "bytes of a GPU, if not those of its data sheet; 0: no limit");
}

inline std::string to_text(const training_choice& c, const sim::training_step& t) {
    std::string text;
    char line[200];
    const auto say = [&](auto... values) {
        std::snprintf(line, sizeof line, values...);
        text += line;
    };
    const sim::training_plan& p = c.plan;
    say("%.3g billion parameters, data %d x tensor %d x pipeline %d, %d micro-batches\n",
        sim::parameters(c.model) / 1e9, p.data, p.tensor, p.pipeline, p.micro_batches());
    const auto row = [&](const char* name, double ns) {
        say("  %-22s %12.3f ms %6.1f %%\n", name, ns / 1e6, 100 * ns / t.step_ns);
    };
    row("step", t.step_ns);
    row("arithmetic", t.arithmetic_ns);
    row("tensor, exposed", t.tensor_ns);
    row("expert, exposed", t.expert_ns);
    row("pipeline, exposed", t.pipeline_ns);
    row("data, exposed", t.data_ns);
    say("  %-22s %26.1f %%  (p - 1) / (m + p - 1): %.1f %%\n", "bubble", 100 * t.bubble,
        100.0 * (p.pipeline - 1) / (p.micro_batches() + p.pipeline - 1));
    say("  %-22s %12.3f GB a rank\n", "data axis sends", t.data_bytes / 1e9);
    const sim::training_memory& m = t.memory;
    say("  %-22s %12.3f GB: parameters %.3f, gradients %.3f, optimizer %.3f, activations %.3f\n", "memory",
        m.total() / 1e9, m.parameters / 1e9, m.gradients / 1e9, m.optimizer / 1e9, m.activations / 1e9);
    say("  %-22s %12.0f tokens/s\n", "all ranks", double{1} * p.batch * c.model.sequence / t.step_ns * 1e9);
    return text;
}

// A pass of a micro-batch through a stage takes some 150 bytes: 0.6 GB.
inline constexpr double most_passes = 1 << 22;

/// Errors: as sim::predict_training(); invalid_argument where the GPU's rate is not known, or the batch takes too long.
inline std::string training_text(training_choice c, const std::string& machine, sim::fabric& f,
                                 const sim::cost_model& costs) {
    const auto [flops, bytes] = data_sheet(machine);
    if (c.gpu.flops_per_s == 0) c.gpu.flops_per_s = flops;
    if (c.gpu.memory_bytes < 0) c.gpu.memory_bytes = bytes;
    if (c.gpu.flops_per_s == 0)
        fail(errc::invalid_argument, -1, -1, "give --flops, and --memory", "the GPUs' arithmetic is not known");
    const double passes =
        double{1} * c.plan.batch / std::max(1, c.plan.data) / std::max(1, c.plan.micro_batch) * c.plan.pipeline;
    if (passes > most_passes)
        fail(errc::invalid_argument, -1, -1, "give a smaller --batch, or a larger --micro-batch",
             "%.3g passes of micro-batches through stages are to be simulated, and the most are %.3g", passes,
             most_passes);
    c.plan.order = c.order == "gpipe" ? sim::pipeline_order::gpipe : sim::pipeline_order::one_forward_one_back;
    return to_text(c, sim::predict_training(c.model, c.plan, c.gpu, f, costs));
}

} // namespace collx::tools
