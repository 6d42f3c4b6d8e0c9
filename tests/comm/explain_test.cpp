// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: serial
// collx::explain names the algorithm that runs. Its times come from the machine file. A file that cannot be used is
// not an error of the job.
#include <collx/comm/explain.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology_writer.hpp>
#include <collx/topology.hpp>

#include <stdlib.h>

#include <string>

#include "support.hpp"
#include "support/written_file.hpp"

namespace {

using namespace collx_test;
using collx::collective;
using collx::explanation;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Whether the selector binds the explained schedule.
template <collective C>
bool is_bound(collx::communicator& world, const explanation& e, const collx::explain_options& o = {}) {
    collx::communicator_core& c = world.internals();
    const collx::problem p = collx::detail::problem_of(c, C, e.bytes, o);
    const collx::bound_schedule& bound = collx::select<C>(c.schedules, p);
    bool found = false;
    collx::algo::algorithms<C>::for_each([&](auto a) {
        if (e.chosen().name == a.name) found = bound.algorithm == &collx::detail::algorithm_id<decltype(a)>;
    });
    return found;
}
template <class Verb>
void check_what_runs(collx::communicator& world, const Verb& verb) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{6000}, std::size_t{20000}, std::size_t{3000000}}) {
        const explanation e = collx::explain(world, verb, bytes);
        if (!is_bound<Verb::row.does>(world, e)) fail_check(to_text(e));
        int chosen = 0;
        for (const auto& k : e.candidates) chosen += k.is_chosen;
        if (chosen != 1 || !e.chosen().is_chosen || e.because.empty()) fail_check(to_text(e));
    }
}
const auto check_verbs = [](collx::communicator& world) {
    check_what_runs(world, collx::all_reduce);
    check_what_runs(world, collx::broadcast);
    check_what_runs(world, collx::all_gather);
    check_what_runs(world, collx::all_to_all);
};

// The text of a file with costs for every medium.
std::string costs_of(const std::string& cpu) {
    std::string text =
        "collx-machine 1\ncpu " + cpu + "\ncores " + std::to_string(collx::usable_cores()) + "\nline_ns 77\n";
    for (const char* by : {"windows", "channels", "sockets"})
        for (const char* whose : {"own", "shared"})
            text += std::string(by) + " " + whose + " residual 0.125 call_ns 1000 step_ns 100 byte_ns 1\n";
    return text;
}

} // namespace

TEST_CASE("what is explained is what runs, in shared memory and over sockets") {
    for (const int n : {1, 2, 3, 5}) collx::run_threads(n, check_verbs);
    collx::run_threads(collx::per_peer{collx::sockets{}}, 3, check_verbs);
}

TEST_CASE("operators that keep their order, deterministic calls and shared buffers are other calls") {
    collx::run_threads(collx::per_peer{collx::sockets{}}, 3, [](collx::communicator& world) {
        const auto name = [&](const collx::explain_options& o) {
            const explanation e = collx::explain(world, collx::all_reduce, 2000000, o);
            if (!is_bound<collective::all_reduce>(world, e, o)) fail_check(to_text(e));
            return e.chosen().name;
        };
        if (name({}) != "ring") fail_check(name({}));
        if (name({.commutes = false}) != "halving_doubling") fail_check(name({.commutes = false}));
        if (name({.deterministic = true}) != "linear") fail_check(name({.deterministic = true}));
        const explanation ordered = collx::explain(world, collx::all_reduce, 100, {.commutes = false});
        for (const auto& k : ordered.candidates)
            if (k.name == "ring") fail_check("a ring changes the order: " + to_text(ordered));
    });
    collx::run_threads(2, [](collx::communicator& world) {
        const explanation e = collx::explain(world, collx::all_reduce, 2000000, {.shared_buffers = true});
        if (e.chosen().name != "zero_copy") fail_check(to_text(e));
    });
}

TEST_CASE("times come from the machine's file, the choice first and the others by time") {
    const collx_test::written_file costs(costs_of(collx::sim::name_of_this_cpu()));
    collx::run_threads(3, [&](collx::communicator& world) {
        const explanation e = collx::explain(world, collx::all_reduce, 1000000, {.machine = costs.name().c_str()});
        if (!e.no_times.empty() || e.residual != 0.125) fail_check(to_text(e));
        for (std::size_t k = 0; k < e.candidates.size(); ++k) {
            if (!(e.candidates[k].predicted_ns > 1000)) fail_check(to_text(e));
            if (k > 1 && e.candidates[k].predicted_ns < e.candidates[k - 1].predicted_ns) fail_check(to_text(e));
        }
        // A byte costs 1 ns and each rank reads at least 2 MB of other ranks' data, so twice as many bytes take longer.
        const explanation twice = collx::explain(world, collx::all_reduce, 2000000, {.machine = costs.name().c_str()});
        if (!(twice.chosen().predicted_ns > 1.8 * e.chosen().predicted_ns)) fail_check(to_text(twice));
        const std::string text = to_text(e);
        if (!says(text, "all_reduce of 1000000 B, 3 ranks: two_shot\n") || !says(text, "<- runs") ||
            !says(text, "within 12 %") || !says(text, "took 77 ns") || !says(text, "because: each rank sums its part"))
            fail_check(text);
    });
}

TEST_CASE("calls host by host have times, by channels inside hosts and sockets between them") {
    const collx_test::written_file costs(costs_of(collx::sim::name_of_this_cpu()));
    collx::run_threads(std::vector<int>{0, 0, 1, 1}, [&](collx::communicator& world) {
        const collx::explain_options o{.machine = costs.name().c_str()};
        for (const std::size_t bytes : {std::size_t{1000}, std::size_t{40000}, std::size_t{4000000}}) {
            const explanation e = collx::explain(world, collx::all_reduce, bytes, o);
            if (!says(e.chosen().name, "hierarchical") || !e.no_times.empty() || !(e.chosen().predicted_ns > 1000))
                fail_check(to_text(e));
            int chosen = 0;
            for (const auto& k : e.candidates) chosen += k.is_chosen;
            if (chosen != 1 || e.residual != 0.125) fail_check(to_text(e));
            // Half of the buffer crosses at least once, at 1 ns a byte.
            if (!(e.chosen().predicted_ns > static_cast<double>(bytes) / 2)) fail_check(to_text(e));
        }
        for (const explanation& e :
             {collx::explain(world, collx::broadcast, 4000000, o), collx::explain(world, collx::all_gather, 4000000, o),
              collx::explain(world, collx::all_to_all, 4000, o)})
            if (!(e.chosen().predicted_ns > 1000)) fail_check(to_text(e));
    });
}

TEST_CASE("calls along a machine's rings have times") {
    const collx_test::written_file costs(costs_of(collx::sim::name_of_this_cpu()));
    const written_file machine(collx::topo::write_nccl_topology(collx::topo::dgx_1v(), 70));
    ::setenv("COLLX_TOPOLOGY", machine.name().c_str(), 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "0,2,4,6", 1);
    collx::run_threads(4, [&](collx::communicator& world) {
        const collx::explain_options o{.machine = costs.name().c_str()};
        for (const explanation& e : {collx::explain(world, collx::all_reduce, 4000000, o),
                                     collx::explain(world, collx::all_gather, 4000000, o),
                                     collx::explain(world, collx::broadcast, 4000000, o)}) {
            if (!says(e.chosen().name, "of the machine") || !e.no_times.empty()) fail_check(to_text(e));
            if (!(e.chosen().predicted_ns > 3000000)) fail_check(to_text(e)); // 3/4 of the bytes come in, at 1 ns each
        }
    });
    ::unsetenv("COLLX_TOPOLOGY");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("a machine file that cannot be taken is said, and the job runs by the table") {
    const written_file other(costs_of("Slide rule")), broken("collx-machine 1\ncpu X\ncores -2\n");
    const std::pair<const char*, std::string> cases[] = {
        {other.name().c_str(), ":2: measured on 'Slide rule', and this is"},
        {broken.name().c_str(), ":3: cores is -2 (give more than 0)"},
        {"/no/such/machine", "No such file or directory (write one with collx_perf --fit FILE)"}};
    for (const auto& [file, said] : cases) {
        ::setenv("COLLX_MACHINE", file, 1);
        collx::run_threads(2, [&, said = said](collx::communicator& world) {
            std::vector<int> x(10, 1);
            collx::all_reduce(world, x);
            if (x[9] != 2) fail_check("the job does not run");
            const explanation e = collx::explain(world, collx::all_reduce, 40);
            if (e.chosen().name != "one_shot" || e.chosen().predicted_ns == e.chosen().predicted_ns)
                fail_check(to_text(e));
            if (!says(e.no_times, said)) fail_check(e.no_times);
            if (!says(to_text(e), "no times: collx: ")) fail_check(to_text(e));
        });
        ::unsetenv("COLLX_MACHINE");
    }
    collx::run_threads(1, [&](collx::communicator& world) {
        const explanation e = collx::explain(world, collx::barrier, 0);
        if (!says(e.no_times, "COLLX_MACHINE is not set")) fail_check(e.no_times);
    });
}
