// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A training step compared with closed formulas: bubble, bytes and exposed time of each axis, ZeRO's memory. Sizes
// that do not divide or fit are refused with a remedy.
#include <collx/sim/training.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using Catch::Contains;

namespace {

// 4 layers of 4.2 million parameters.
sim::transformer small() {
    sim::transformer m;
    m.layers = 4;
    m.hidden = 512;
    m.sequence = 128;
    return m;
}
const sim::accelerator gpu{100e12, 0.5, 80e9};

// Ranks of one switch, 100 GB/s in each direction, no latency.
sim::training_step step(const sim::transformer& m, const sim::training_plan& p) {
    sim::fabric f = sim::fabric_of({1, p.ranks(), 100e9, 100e9});
    return sim::predict_training(m, p, gpu, f);
}
// Forward and backward pass of one micro-batch of one sample, all layers, in ns.
double arithmetic_ns(const sim::transformer& m) {
    return 3.0 * m.layers * m.sequence * (24.0 * m.hidden * m.hidden + 4.0 * m.sequence * m.hidden) / 50e3;
}
double elements(const sim::transformer& m) { return double{1} * m.sequence * m.hidden; }

} // namespace

TEST_CASE("a pipeline stands still for (p - 1) / (m + p - 1) of the time, in either order") {
    for (const auto order : {sim::pipeline_order::gpipe, sim::pipeline_order::one_forward_one_back})
        for (const int p : {1, 2, 3, 8})
            for (const int m : {1, 2, 7, 16}) {
                CAPTURE(p, m);
                const std::vector<sim::stage_times> stages(static_cast<std::size_t>(p), {10, 20});
                const auto passes = sim::run_pipeline(order, stages, m, 0);
                CHECK(sim::bubble_of(passes) == Approx(double(p - 1) / (m + p - 1)));
                CHECK(sim::end_of(passes) == Approx(30.0 * (m + p - 1)));
                for (const auto& s : passes) { // in sequence, each once, and not more kept than stated
                    int kept = 0, most = 0;
                    for (std::size_t k = 0; k < s.size(); ++k) {
                        if (k > 0) CHECK(s[k].begin_ns >= s[k - 1].end_ns);
                        most = std::max(most, kept += s[k].is_back ? -1 : 1);
                    }
                    CHECK(kept == 0);
                    CHECK(s.size() == static_cast<std::size_t>(2 * m));
                    CHECK(most == (order == sim::pipeline_order::gpipe ? m : std::min(m, p - s[0].stage)));
                }
            }
    CHECK(sim::end_of(sim::run_pipeline(sim::pipeline_order::gpipe, {{1, 2}, {1, 2}}, 1, 5)) == 6 + 2 * 5);
    CHECK_THROWS_WITH(sim::run_pipeline(sim::pipeline_order::gpipe, {}, 1, 0), Contains("0 stages"));
}

TEST_CASE("one rank computes, and nothing else takes time") {
    sim::training_plan p;
    p.batch = 3;
    const sim::training_step t = step(small(), p);
    CHECK(t.step_ns == Approx(3 * arithmetic_ns(small())));
    CHECK(t.arithmetic_ns == Approx(t.step_ns));
    CHECK(t.tensor_ns + t.expert_ns + t.pipeline_ns + t.data_ns + t.bubble + t.data_bytes == 0);
    p.recompute = true; // one third more
    CHECK(step(small(), p).step_ns == Approx(4 * arithmetic_ns(small())));
}

TEST_CASE("tensor ranks: two all_reduces forward and two back in each layer, all exposed") {
    for (const int n : {2, 4, 8}) {
        sim::training_plan p;
        p.tensor = n;
        p.batch = 2;
        const sim::training_step t = step(small(), p);
        const double all_reduce = 2.0 * (n - 1) / n * 2 * elements(small()) / 100;
        CHECK(t.tensor_ns == Approx(2 * 4 * 4 * all_reduce));
        CHECK(t.step_ns == Approx(2 * arithmetic_ns(small()) / n + t.tensor_ns));
    }
}

TEST_CASE("a pipeline on a machine: the bubble of the formula, and hops") {
    sim::training_plan p;
    p.pipeline = 4;
    p.batch = 8;
    const sim::training_step t = step(small(), p);
    CHECK(t.bubble == Approx(3.0 / 11));
    const double hop = 2 * elements(small()) / 100;
    CHECK(t.pipeline_ns >= 2 * 3 * hop * (1 - 1e-9)); // filling and draining the pipeline
    CHECK(t.step_ns == Approx(11 * arithmetic_ns(small()) / 4 + t.pipeline_ns));
    p.batch = 1;
    CHECK(step(small(), p).pipeline_ns == Approx(2 * 3 * hop));
    sim::transformer m = small();
    m.vocabulary = 5000; // logits make the last stage longer
    CHECK(step(m, p).arithmetic_ns > step(small(), p).arithmetic_ns);
}

TEST_CASE("data ranks: gradients are summed behind the backward pass, bucket by bucket") {
    sim::training_plan p;
    p.data = 4;
    p.batch = 4;
    p.bucket_bytes = 1e12;
    const double psi = sim::parameters(small()), all_reduce = 2 * 3.0 / 4 * 2 * psi / 100;
    CHECK(psi == 4 * 12.0 * 512 * 512);
    const sim::training_step one = step(small(), p);
    CHECK(one.data_ns == Approx(all_reduce)); // a single bucket is ready with the last gradient
    CHECK(one.data_bytes == Approx(2 * 3.0 / 4 * 2 * psi));
    p.bucket_bytes = 2 * psi / 10 * 1.0001; // ten buckets
    const sim::training_step ten = step(small(), p);
    const double back = arithmetic_ns(small()) * 2 / 3;
    // The sums take longer than the pass: they begin with the first bucket and never pause.
    CHECK(all_reduce > back);
    CHECK(ten.data_ns == Approx(back / 10 + all_reduce - back));
    sim::transformer wide = small();
    wide.sequence = 4096; // now the pass takes longer: only the last bucket is exposed
    CHECK(step(wide, p).data_ns == Approx(all_reduce / 10));
}

TEST_CASE("ZeRO: memory and traffic of each stage") {
    sim::training_plan p;
    p.data = 4;
    p.batch = 4;
    const double psi = sim::parameters(small()), share = 3.0 / 4 * 2 * psi;
    const double bytes[] = {16 * psi, 4 * psi + 12 * psi / 4, 2 * psi + 14 * psi / 4, 16 * psi / 4};
    const double sent[] = {2 * share, 2 * share, 2 * share, 3 * share};
    for (const int stage : {0, 1, 2, 3}) {
        p.zero = stage;
        const sim::training_step t = step(small(), p);
        CHECK(t.memory.total() - t.memory.activations == Approx(bytes[stage]));
        CHECK(t.data_bytes == Approx(sent[stage]));
    }
    p.zero = 0;
    p.bucket_bytes = 1e12;
    const double plain = step(small(), p).data_ns;
    p.zero = 1;
    CHECK(step(small(), p).data_ns == Approx(plain)); // the same bytes: a reduce_scatter, then an all_gather
    p.zero = 3;
    CHECK(step(small(), p).data_ns > plain);
    p.batch = 8; // parameters are gathered for each micro-batch
    CHECK(step(small(), p).data_bytes == Approx(5 * share));
}

TEST_CASE("experts: two all_to_all each way in a layer, and gradients of experts among their replicas only") {
    sim::transformer m = small();
    m.experts = 8;
    m.experts_per_token = 2;
    sim::training_plan p;
    p.data = 4;
    p.expert = 4;
    p.batch = 4;
    p.bucket_bytes = 1e12;
    const sim::training_step t = step(m, p);
    CHECK(t.expert_ns == Approx(4 * 4 * 3.0 / 4 * 2 * elements(m) * 2 / 100));
    const double dense = 4 * 4.0 * 512 * 512;
    CHECK(t.data_bytes == Approx(2 * 3.0 / 4 * 2 * dense));
    CHECK(t.memory.parameters == Approx(2 * (dense + 4 * 8 * 8.0 * 512 * 512 / 4)));
    p.expert = 2;
    const double experts = 4 * 8 * 8.0 * 512 * 512 / 2;
    CHECK(step(m, p).data_bytes == Approx(2 * 2 * (3.0 / 4 * dense + 1.0 / 2 * experts)));
}

TEST_CASE("activations that are kept: m micro-batches, or as many as there are stages") {
    sim::training_plan p;
    p.pipeline = 4;
    p.batch = 8;
    const double layer = 34 * elements(small());
    CHECK(step(small(), p).memory.activations == Approx(4 * layer));
    p.order = sim::pipeline_order::gpipe;
    CHECK(step(small(), p).memory.activations == Approx(8 * layer));
    p.recompute = true;
    CHECK(step(small(), p).memory.activations == Approx(8 * 2 * elements(small())));
    p.recompute = false;
    p.pipeline = 1;
    p.tensor = 4;
    p.batch = 1;
    CHECK(step(small(), p).memory.activations == Approx(4 * 16 * elements(small())));
    p.sequence_parallel = true;
    CHECK(step(small(), p).memory.activations == Approx(layer));
    sim::training_plan many; // more layers of micro-batches than an int counts
    many.batch = 1 << 30;
    many.order = sim::pipeline_order::gpipe;
    CHECK(sim::memory_of(small(), many).activations == Approx(std::ldexp(4 * 34 * elements(small()), 30)));
}

TEST_CASE("groups of one axis share links") {
    topo::graph g; // two switches of two ranks with one link between them
    for (int r = 0; r < 4; ++r) g.add({"C" + std::to_string(r), topo::site_type::cpu});
    const int a = g.add({"a", topo::site_type::network_switch}), b = g.add({"b", topo::site_type::network_switch});
    for (int r = 0; r < 4; ++r) g.link(r, r < 2 ? a : b, topo::link_type::network, {100e9, 0});
    g.link(a, b, topo::link_type::network, {100e9, 0});
    sim::fabric f(g, g.all(topo::site_type::cpu));
    sim::training_plan p;
    // both data groups cross the link
    p.data = 2;
    p.tensor = 2;
    p.batch = 2;
    p.bucket_bytes = 1e12;
    const double psi = sim::parameters(small()) / 2;
    CHECK(sim::predict_training(small(), p, gpu, f).data_ns == Approx(2 * (2 * psi / 100)));
}

TEST_CASE("what does not divide or fit is refused, with the remedy") {
    const auto refused = [](errc code, const sim::training_plan& p, const sim::transformer& m = small(), int ranks = -1,
                            sim::accelerator a = gpu) {
        try {
            sim::fabric f = sim::fabric_of({1, ranks < 0 ? p.ranks() : ranks});
            sim::predict_training(m, p, a, f);
        } catch (const error& e) {
            CHECK(e.code() == code);
            return std::string(e.what());
        }
        return std::string("nothing");
    };
    constexpr errc bad = errc::invalid_argument;
    const auto plan = [](int data, int tensor, int pipeline, int batch) {
        sim::training_plan p;
        p.data = data;
        p.tensor = tensor;
        p.pipeline = pipeline;
        p.batch = batch;
        return p;
    };
    sim::transformer wide = small();
    wide.hidden = wide.layers = 1 << 12;
    CHECK_THROWS_WITH(check(wide, plan(1 << 12, 1 << 12, 1 << 12, 1 << 12)), Contains("4096 x 4096 x 4096 ranks"));
    CHECK_THAT(refused(bad, plan(2, 2, 2, 2), small(), 4), Contains("2 x 2 x 2 ranks on a machine for 4"));
    CHECK_THAT(refused(bad, plan(2, 1, 1, 5)), Contains("a batch of 5") && Contains("2"));
    CHECK_THAT(refused(bad, plan(1, 1, 3, 1)), Contains("layers 4") && Contains("pipeline stages 3"));
    CHECK_THAT(refused(bad, plan(1, 3, 1, 1)), Contains("hidden size 512"));
    CHECK_THAT(refused(bad, plan(0, 1, 1, 1), small(), 1), Contains("count of 0"));
    sim::training_plan p = plan(4, 1, 1, 4);
    p.expert = 2;
    CHECK_THAT(refused(bad, p), Contains("a dense model"));
    sim::transformer m = small();
    m.experts = 3;
    CHECK_THAT(refused(bad, p, m), Contains("experts 3"));
    m.experts = 2;
    m.experts_per_token = 3;
    CHECK_THAT(refused(bad, p, m), Contains("3 of 2 experts"));
    p = plan(1, 1, 1, 1);
    p.zero = 4;
    CHECK_THAT(refused(bad, p), Contains("ZeRO stage 4"));
    p.zero = 0;
    CHECK_THAT(refused(bad, p, small(), 1, {0, 0.5, 0}), Contains("0 flops/s"));
    CHECK_THAT(refused(bad, p, small(), 1, {1e12, 1.5, 0}), Contains("efficiency 1.5"));
    // 175 billion parameters on one rank
    m = {};
    m.layers = 96;
    m.hidden = 12288;
    CHECK_THAT(refused(errc::resource, p, m), Contains("does not fit") && Contains("of 80.0") && Contains("ZeRO"));
}
