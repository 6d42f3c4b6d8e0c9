// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one rank does in a step: it chooses experts, sends tokens to them, answers those of others, and learns.
#pragma once

#include <collx/algo/pairwise.hpp>
#include <collx/collx.hpp>

#include <numeric>
#include <span>
#include <vector>

#include "serial.hpp"

namespace lesson {

using counts = std::vector<int>;
constexpr std::size_t each = 2; // experts of a rank

struct rank_program {
    rank_program(collx::communicator& w, const settings& s)
        : set(s), world(w), wires(w.dup()), me(static_cast<std::size_t>(w.rank())), weights(begin_shared(s.experts)) {
        for (std::size_t k = 0; k < each; ++k) experts.push_back(begin_expert(me * each + k));
    }

    settings set;
    collx::communicator& world;
    collx::communicator wires; // counts what the exchanges of tokens send
    std::size_t me;
    shared weights;
    std::vector<expert> experts;
    // State of one step.
    std::vector<token> tokens;
    std::vector<token*> order; // the kept tokens, expert after expert
    counts asked, from_rank, outgoing, incoming;
    double loss = 0;

    void choose_experts(std::size_t step) {
        tokens.assign(set.tokens, {});
        for (std::size_t i = 0; i < set.tokens; ++i) tokens[i] = make_token(*set.from, step, me * set.tokens + i);
        asked = route(weights, tokens, set.capacity);
        order.clear();
        outgoing.assign(set.ranks, 0);
        incoming.assign(set.ranks, 0);
        from_rank.resize(set.experts);
        // [doc:counts]
        counts for_expert(set.experts); // tokens that this rank sends to each expert
        for (std::size_t e = 0; e < set.experts; ++e)
            for (token& t : tokens)
                if (t.is_kept && t.expert == e) {
                    order.push_back(&t);
                    ++for_expert[e];
                    ++outgoing[e / each];
                }
        collx::all_to_all(world, for_expert, from_rank); // from rank 0 for each of my experts, then from rank 1, ...
        for (std::size_t k = 0; k < from_rank.size(); ++k) incoming[k / each] += from_rank[k];
        collx::all_reduce(world, asked); // over all ranks' tokens; read by the loss for balance
        // [doc:end]
    }
    matrix exchange(const matrix& rows, const counts& to, const counts& from) {
        matrix arrived(static_cast<std::size_t>(std::accumulate(from.begin(), from.end(), 0)));
        collx::all_to_all_v(wires.with(collx::algo::pairwise_all_to_all{}), rows, to, arrived, from);
        return arrived;
    }
    template <class F>
    matrix of_tokens(F&& f) const {
        matrix m;
        for (const token* t : order) m.push_back(f(*t));
        return m;
    }
    // Calls f(expert, i) for each token that is here.
    template <class F>
    matrix by_experts(F&& f) const {
        matrix m;
        for (std::size_t k = 0; k < from_rank.size(); ++k)
            for (int i = 0; i < from_rank[k]; ++i) m.push_back(f(k % each, m.size()));
        return m;
    }

    void step(std::size_t number) {
        const std::size_t all = set.ranks * set.tokens;
        choose_experts(number);
        // [doc:layer]
        const matrix here = exchange(of_tokens([](const token& t) { return t.x; }), outgoing, incoming); // dispatch
        const matrix answers = by_experts([&](std::size_t e, std::size_t i) { return experts[e].forward(here[i]); });
        const matrix y = exchange(answers, incoming, outgoing); // combine
        for (std::size_t i = 0; i < order.size(); ++i) order[i]->y = y[i];
        loss = 0;
        for (token& t : tokens) t.d = loss_of(t, all, loss);
        const matrix dy = exchange(of_tokens(gradient_of_answer), outgoing, incoming);
        std::vector<expert> by_expert(each, zero_expert());
        const matrix dx = exchange(
            by_experts([&](std::size_t e, std::size_t i) { return experts[e].backward(here[i], dy[i], by_expert[e]); }),
            incoming, outgoing);
        for (std::size_t i = 0; i < order.size(); ++i) order[i]->dx = dx[i];
        // [doc:end]
        // [doc:shared]
        shared gradient{matrix(hidden), matrix(set.experts)};
        for (const token& t : tokens) backward(weights, t, set.alpha, asked, all, gradient);
        for (matrix* m : {&gradient.in, &gradient.gate})
            collx::all_reduce(world.with(collx::deterministic{}), std::span(m->front().data(), m->size() * hidden));
        // [doc:end]
        descend(weights.in, gradient.in, set.rate);
        descend(weights.gate, gradient.gate, set.rate);
        for (std::size_t e = 0; e < each; ++e) {
            descend(experts[e].a, by_expert[e].a, set.rate);
            descend(experts[e].b, by_expert[e].b, set.rate);
        }
    }
};

} // namespace lesson
