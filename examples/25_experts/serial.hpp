// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The serial program: all experts and the tokens of all ranks, one after the other. Also a check of its gradients by
// differences of losses. Independent of communicators.
#pragma once

#include "../check.hpp"
#include "model.hpp"

namespace lesson {

struct settings {
    std::size_t ranks = 4, tokens = 64, experts = 8; // tokens of a rank in a step
    int capacity = 10;                               // of an expert, for the tokens of one rank
    double alpha = 0, rate = 0.6;
    const example::text* from = nullptr; // source of the tokens
};

struct serial_program {
    explicit serial_program(const settings& s) : set(s), weights(begin_shared(s.experts)) {
        for (std::size_t e = 0; e < s.experts; ++e) experts.push_back(begin_expert(e));
    }

    // Computes gradients. Returns the loss of the outputs and of the balance.
    double forward_backward(std::size_t step) {
        const std::size_t all = set.ranks * set.tokens;
        std::vector<std::vector<token>> of(set.ranks, std::vector<token>(set.tokens));
        std::vector<int> asked(set.experts);
        for (std::size_t r = 0; r < set.ranks; ++r) {
            for (std::size_t i = 0; i < set.tokens; ++i) of[r][i] = make_token(*set.from, step, r * set.tokens + i);
            const std::vector<int> mine = route(weights, of[r], set.capacity);
            for (std::size_t e = 0; e < set.experts; ++e) asked[e] += mine[e];
        }
        expert_gradients.assign(set.experts, zero_expert());
        double loss = 0;
        for (std::size_t r = 0; r < set.ranks; ++r) {
            // Sums one rank's gradients first, then those of all ranks: the parallel program's order of additions.
            shared of_rank{matrix(hidden), matrix(set.experts)};
            for (token& t : of[r]) {
                if (t.is_kept) t.y = experts[t.expert].forward(t.x);
                t.d = loss_of(t, all, loss);
                if (t.is_kept)
                    t.dx = experts[t.expert].backward(t.x, gradient_of_answer(t), expert_gradients[t.expert]);
                backward(weights, t, set.alpha, asked, all, of_rank);
                for (std::size_t e = 0; e < set.experts; ++e)
                    loss += t.p[e] * balance_gradient(set.alpha, asked, e, all);
            }
            if (r == 0) gradient = of_rank;
            else {
                descend(gradient.in, of_rank.in, -1);
                descend(gradient.gate, of_rank.gate, -1);
            }
        }
        return loss;
    }
    void step(std::size_t number) {
        (void)forward_backward(number);
        descend(weights.in, gradient.in, set.rate);
        descend(weights.gate, gradient.gate, set.rate);
        for (std::size_t e = 0; e < set.experts; ++e) {
            descend(experts[e].a, expert_gradients[e].a, set.rate);
            descend(experts[e].b, expert_gradients[e].b, set.rate);
        }
    }

    settings set;
    shared weights, gradient;
    std::vector<expert> experts, expert_gradients;
};

// Compares each kind of gradient with a difference of losses.
inline void check_by_differences(settings set) {
    set.alpha = 0.5;
    serial_program s(set);
    (void)s.forward_backward(0);
    const shared said = s.gradient;
    const std::vector<expert> said_by = s.expert_gradients;
    const auto check = [&](double& weight, double gradient, const char* what) {
        const double was = weight, epsilon = 1e-6;
        weight = was + epsilon;
        const double above = s.forward_backward(0);
        weight = was - epsilon;
        const double slope = (above - s.forward_backward(0)) / (2 * epsilon);
        weight = was;
        example::expect(std::abs(slope - gradient) < 1e-6 * (1 + std::abs(gradient)), what);
        example::expect(gradient != 0, "a gradient to check");
    };
    check(s.weights.in[3][5], said.in[3][5], "the gradient of the first matrix");
    for (std::size_t e = 0; e < set.experts; e += 3) check(s.weights.gate[e][2], said.gate[e][2], "of the gate");
    std::size_t busy = 0; // an expert that has tokens, and an inner number that is not cut off
    while (said_by[busy].a[4][1] == 0 && busy + 1 < set.experts) ++busy;
    check(s.experts[busy].a[4][1], said_by[busy].a[4][1], "of an expert's first matrix");
    check(s.experts[busy].b[4][1], said_by[busy].b[4][1], "of its second");
}

} // namespace lesson
