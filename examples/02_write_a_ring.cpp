// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes an algorithm. A ring all-reduce is one page of code over an executor `ex`. From this one function collx
// derives the list of steps, a proof, a refutation of two broken variants with the reason, a picture, and a run on
// real ranks. Next: change the algorithm and see what the proof says. Background: docs/writing_an_algorithm.md.
#include <collx/collx.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sched/render.hpp>
#include <collx/sched/verify.hpp>

#include <cstdio>
#include <fstream>
#include <vector>

#include "check.hpp"

namespace lesson {

// Each name is imported separately: POSIX has global functions send and recv, so `using namespace` would be ambiguous.
using collx::sched::from, collx::sched::to, collx::sched::in, collx::sched::out;
using collx::sched::recv, collx::sched::reduce, collx::sched::copy, collx::sched::send;

enum class mistake { none, shifted_chunk };

// [doc:my_ring]
// Every rank exchanges messages with its two neighbours. The buffer is cut into n chunks. A partial sum of each chunk
// goes round once and is complete at its last stop. Then the finished chunk goes round once more.
template <mistake Mistake = mistake::none>
struct my_ring {
    static constexpr collx::collective op = collx::collective::all_reduce;
    static constexpr const char* name = "my_ring";
    static constexpr int min_depth = 2;             // messages a channel must hold; proved below
    static constexpr bool needs_commutative = true; // chunk c is summed in the order c, c + 1, …, c - 1
    static constexpr int chunks(int n) { return n; }

    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const { // what rank r of n does
        if (n == 1) return ex.step(copy, in(0), out(0));
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        const auto chunk = [n](int c) { return (c % n + n) % n; };
        const int last = Mistake == mistake::shifted_chunk ? chunk(r + 2) : chunk(r + 1);

        ex.step(send, to(next), in(r));
        for (int i = 1; i < n - 1; ++i) ex.step(recv | reduce | send, from(prev), to(next), in(chunk(r - i)));
        ex.step(recv | reduce | copy | send, from(prev), to(next), in(last), out(last));
        for (int i = 0; i < n - 2; ++i) ex.step(recv | copy | send, from(prev), to(next), out(chunk(r - i)));
        ex.step(recv | copy, from(prev), out(chunk(r + 2)));
    }
};
// [doc:end]

// The proof can run at compile time: this file would not compile with a wrong ring.
static_assert(collx::sched::verify(my_ring<>{}, 5).ok());
static_assert(!collx::sched::verify(my_ring<mistake::shifted_chunk>{}, 5).ok());

} // namespace lesson

namespace {

void show_steps(int n) {
    const auto ring = collx::sched::record_all(lesson::my_ring<>{}, n);
    std::printf("my_ring with %d ranks, each step as [from> +operand =stored >to]:\n", n);
    for (int r = 0; r < n; ++r) {
        std::printf("  rank %d:", r);
        for (const auto& step : ring.programs[static_cast<std::size_t>(r)].strands[0])
            std::printf(" [%s]", collx::sched::describe(step, ring.chunks).c_str());
        std::printf("\n");
    }
    const auto facts = collx::sched::facts_of(lesson::my_ring<>{}, n);
    std::printf("derived: %d steps and %d messages per rank, %d rounds, channels at least %d deep\n\n", facts.steps,
                facts.messages, facts.rounds, facts.min_depth);
    example::expect(facts.messages == 2 * (n - 1) && facts.steps == 2 * n - 1 && facts.min_depth == 2,
                    "facts of a ring");
}

void refute(const char* what, const collx::sched::schedule& s) {
    const auto verdict = collx::sched::verify(s);
    std::printf("%s:\n  %s\n\n", what, collx::sched::explain(s, verdict).c_str());
    example::expect(!verdict.ok(), "a broken ring must be refused");
}

} // namespace

int main() {
    show_steps(4);

    for (int n = 1; n <= 64; ++n) example::expect(collx::sched::verify(lesson::my_ring<>{}, n).ok(), "the proof");
    std::printf("proved for 1 to 64 ranks: every chunk of every rank ends as the sum over all ranks, and no rank waits "
                "for ever\n\n");

    refute("with the wrong chunk in the middle",
           collx::sched::record_all(lesson::my_ring<lesson::mistake::shifted_chunk>{}, 4));
    auto shallow = collx::sched::record_all(lesson::my_ring<>{}, 4);
    shallow.depth = 1;
    refute("with channels that hold one message only", shallow);

    std::ofstream picture("my_ring.svg");
    picture << collx::sched::to_svg(collx::sched::record_all(lesson::my_ring<>{}, 4), "my_ring");
    std::printf("%s\n", picture.flush() ? "drawn: my_ring.svg" : "my_ring.svg cannot be written in this directory");

    // The same algorithm on real ranks, which are threads here.
    collx::run_threads(4, [](collx::communicator& world) {
        std::vector<double> x(100'003, world.rank() + 1.0); // need not be a multiple of n
        collx::all_reduce(world.with(lesson::my_ring<>{}), x);
        for (double v : x) example::expect(v == 10, "1 + 2 + 3 + 4");
        if (world.rank() == 0) std::printf("4 ranks summed %zu doubles with it: x[0] = %g\n", x.size(), x[0]);
    });
    return example::result();
}
