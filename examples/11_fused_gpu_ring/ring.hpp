// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithm, and a call of it on any team.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <collx/gpu/fused_team.hpp>

namespace lesson {

using collx::sched::from, collx::sched::to, collx::sched::in, collx::sched::out;
using collx::sched::recv, collx::sched::reduce, collx::sched::copy, collx::sched::send;

struct my_ring {
    static constexpr collx::collective op = collx::collective::all_reduce;
    static constexpr const char* name = "my_ring";
    static constexpr int min_depth = 2;
    static constexpr bool needs_commutative = true;
    static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE // with COLLX_HD: the algorithm compiles for host and device
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        const auto chunk = [n](int c) { return (c % n + n) % n; };
        ex.step(send, to(next), in(r));
        for (int i = 1; i < n - 1; ++i) ex.step(recv | reduce | send, from(prev), to(next), in(chunk(r - i)));
        ex.step(recv | reduce | copy | send, from(prev), to(next), in(chunk(r + 1)), out(chunk(r + 1)));
        for (int i = 0; i < n - 2; ++i) ex.step(recv | copy | send, from(prev), to(next), out(chunk(r - i)));
        ex.step(recv | copy, from(prev), out(chunk(r + 2)));
    }
};

constexpr int ranks = 4;
constexpr std::size_t elems = 100'000;

// Computes the mean over the ranks, in place. `data` has one view per rank. The team may run on a GPU or host threads.
template <class Team, class Data>
void mean_of_ranks(Team& team, Data& data) {
    const auto cut = [](int chunks) { return collx::chunk_layout::even(elems, chunks, 16); };
    team.template run<collx::device::simple_protocol>(my_ring{}, data, data, collx::average{}, {}, cut, cut);
    team.synchronize();
}

using host_data = std::array<std::vector<float>, ranks>;

// The same on host threads. Defined in twin.cpp, because a file that nvcc compiles may not contain host-only code.
void mean_on_twin(host_data& data);

} // namespace lesson
