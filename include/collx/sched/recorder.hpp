// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recording reading: writes the steps of one rank into flat lists, one per strand. The host engine walks these
// lists with a cursor; the verifier, the facts and the pictures read them too. 0.2 to 0.4 ns a step, once per plan.
#pragma once

#include <vector> // constexpr in C++20: proofs record at compile time

#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

struct program {
    std::vector<std::vector<step>> strands;
};

class recorder : public verbs<recorder> {
public:
    constexpr recorder() = default;
    // Makes room for a program about as long as `like`.
    constexpr explicit recorder(const program& like) {
        result_.strands.reserve(like.strands.size());
        for (const auto& s : like.strands) {
            result_.strands.emplace_back();
            result_.strands.back().reserve(s.size());
        }
    }
    constexpr bool strand(int k) {
        while (static_cast<int>(result_.strands.size()) <= k) result_.strands.emplace_back();
        if (k >= asked_) asked_ = k + 1;
        current_ = k;
        return true;
    }
    template <action What>
    constexpr void emit(const sched::step& s) {
        if (asked_ == 0) strand(0);
        result_.strands[static_cast<unsigned>(current_)].push_back(s);
    }
    constexpr program take() {
        if (asked_ == 0) strand(0);
        result_.strands.resize(static_cast<unsigned>(asked_));
        return static_cast<program&&>(result_);
    }

private:
    program result_;
    int current_ = 0;
    int asked_ = 0; // strands the text has named so far
};

// The steps of rank `rank` of `n`.
template <class Algorithm>
constexpr program record(const Algorithm& algorithm, int rank, int n) {
    recorder ex;
    algorithm(ex, rank, n);
    return ex.take();
}

// The same when a neighbour's program is at hand: most are of one length, so nothing is moved while recording.
template <class Algorithm>
constexpr program record(const Algorithm& algorithm, int rank, int n, const program& like) {
    recorder ex(like);
    algorithm(ex, rank, n);
    return ex.take();
}

} // namespace sched
COLLX_END_NAMESPACE
