// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// The work of a call, counted from schedules, and its costs as a file: a written file is read back, and a wrong file
// is refused with the line and a remedy.
#include <collx/sim/machine_file.hpp>

#include <catch2/catch.hpp>

#include <cstdio>
#include <string>

#include <collx/algo/linear.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/ring.hpp>

namespace {

namespace sim = collx::sim;
using collx::errc;
using collx::sched::record_all;

const std::string good =
    "collx-machine 1\n# measured in the laboratory\ncpu Abacus 3000 \ncores 4\nl2_bytes 1000\nline_ns 38.5\n\n"
    "windows own points 12 residual 0.05 call_ns 100 round_ns 30 byte_ns 0.5\n"
    "sockets shared call_ns 4000 step_ns 1.5e3\n";

// Reads a file that must be refused; returns the error text.
std::string refused(const std::string& text, errc code = errc::invalid_argument) {
    try {
        (void)sim::read_machine_costs(text, "here.machine");
    } catch (const collx::error& e) {
        CHECK(e.code() == code);
        return e.what();
    }
    FAIL("taken: " << text);
    return {};
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a ring's work is its messages and bytes, of one rank or shared among the cores") {
    const auto s = record_all(collx::algo::ring_all_reduce{}, 4);
    const sim::work alone = sim::work_of(s, {.bytes = 4000}, {.count = 4, .l2_bytes = 1 << 20, .last_bytes = 1 << 20});
    CHECK(alone.of[sim::call] == 1);
    CHECK(alone.of[sim::round] == 6);
    CHECK(alone.of[sim::step] == 12); // six messages, sent and received
    CHECK(alone.of[sim::reduced_byte] == 3000);
    CHECK(alone.of[sim::l2_byte] == 0);
    const sim::work shared = sim::work_of(s, {.bytes = 4000}, {.count = 1, .l2_bytes = 1 << 20, .last_bytes = 1 << 20});
    CHECK(shared.of[sim::call] == 4);
    CHECK(shared.of[sim::step] == 48);
    CHECK(shared.of[sim::reduced_byte] == 12000);
    const sim::work pieces = sim::work_of(s, {.bytes = 4000, .pieces = 3}, {.count = 4});
    CHECK(pieces.of[sim::step] == 36);
    CHECK(pieces.of[sim::byte] == alone.of[sim::byte]);
}

TEST_CASE("windows are read by everyone, and what caches do not hold is counted by itself") {
    const auto s = record_all(collx::algo::one_shot_all_reduce{}, 4);
    const sim::work w =
        sim::work_of(s, {.bytes = 1000, .is_short = true}, {.count = 4, .l2_bytes = 500, .last_bytes = 2000});
    CHECK(w.of[sim::task] == 0);
    CHECK(w.of[sim::reduced_byte] == 3000);
    CHECK(w.of[sim::byte] == 5000); // one put, four operands
    CHECK(w.of[sim::l2_byte] == Approx(5000 * 0.75));
    CHECK(w.of[sim::far_byte] == Approx(5000 * 0.75));
}

TEST_CASE("a prediction is the work times its costs") {
    sim::work w;
    sim::costs c;
    w.of[sim::call] = 1;
    c.of[sim::call] = 100;
    w.of[sim::byte] = 50;
    c.of[sim::byte] = 0.5;
    w.of[sim::round] = 7; // costs nothing in this file
    CHECK(sim::predicted_ns(w, c) == 125);
}

TEST_CASE("what is written is read again") {
    const sim::machine_costs m = sim::read_machine_costs(good);
    CHECK(m.cpu == "Abacus 3000");
    CHECK(m.on.count == 4);
    CHECK(m.on.l2_bytes == 1000);
    CHECK(m.line_ns == 38.5);
    REQUIRE(m.find(sim::medium::windows, false) != nullptr);
    CHECK(m.find(sim::medium::windows, false)->of[sim::round] == 30);
    CHECK(m.find(sim::medium::windows, false)->points == 12);
    CHECK(m.find(sim::medium::sockets, true)->of[sim::step] == 1500);
    CHECK(m.find(sim::medium::windows, true) == nullptr);
    CHECK(m.find(sim::medium::channels, false) == nullptr);
    const std::string again = to_text(m);
    CHECK(to_text(sim::read_machine_costs(again)) == again);
}

TEST_CASE("what is wrong with a machine file is said with its line and a remedy") {
    const std::string head = "collx-machine 1\ncpu X\ncores 2\n";
    CHECK(says(refused(""), "an empty file (write one with collx_perf --fit FILE)"));
    CHECK(says(refused("<system version=\"1\">\n"), "here.machine:1: not a machine file"));
    CHECK(says(refused("collx-machine 2\n"), "here.machine:1: not a machine file"));
    CHECK(says(refused("collx-machine 1\ncores 2\n"), "no line 'cpu'"));
    CHECK(says(refused("collx-machine 1\ncpu X\n"), "no line 'cores'"));
    CHECK(says(refused("collx-machine 1\ncpu\n"), "here.machine:2: cpu without a name"));
    CHECK(says(refused(head + "cpu Y\n"), "here.machine:4: cpu comes twice"));
    CHECK(says(refused("collx-machine 1\ncpu X\ncores 0\n"), "here.machine:3: cores is 0 (give more than 0)"));
    CHECK(says(refused("collx-machine 1\ncpu X\ncores 2.5\n"), "cores is no such number"));
    CHECK(says(refused("collx-machine 1\ncpu X\ncores 2 3\n"), "cores has more than a number"));
    CHECK(says(refused(head + "line_ns -1\n"), "here.machine:4: line_ns is -1 (give 0 or more)"));
    CHECK(says(refused(head + "line_ns 1 2\n"), "line_ns has more than a number"));
    CHECK(says(refused(head + "windows mine call_ns 1\n"), "here.machine:4: windows mine (say own or shared"));
    CHECK(says(refused(head + "pigeons own call_ns 1\n"), "unknown word 'pigeons'"));
    CHECK(says(refused(head + "windows own flight_ns 1\n"), "unknown cost 'flight_ns'"));
    CHECK(says(refused(head + "windows own byte_ns -0.5\n"), "here.machine:4: byte_ns is -0.5 (give 0 or more)"));
    CHECK(says(refused(head + "windows own byte_ns fast\n"), "byte_ns is no number: fast"));
    CHECK(says(refused(head + "windows own byte_ns nan\n"), "byte_ns is no number"));
    CHECK(says(refused(head + "windows own byte_ns\n"), "byte_ns is no number"));
    CHECK(says(refused(head + "windows own byte_ns 1e300\n"), "give a number that a machine has"));
    CHECK(says(refused(head + std::string("l2_bytes 2\0 3\n", 14)), "l2_bytes is no number"));
    CHECK(says(refused(head + "cores 2\n"), "here.machine:4: cores comes twice"));
    CHECK(says(refused(head + "line_ns 2\nline_ns 3\n"), "here.machine:5: line_ns comes twice"));
    CHECK(says(refused(head + "windows own points 1 call_ns 1 points 2\n"), "points comes twice"));
    CHECK(says(refused(head + "windows own points 1\n"), "windows own names no cost"));
    CHECK(says(refused(head + "windows own byte_ns 1 byte_ns 2\n"), "byte_ns comes twice"));
    CHECK(says(refused(head + "windows own call_ns 1\nwindows own call_ns 2\n"),
               "here.machine:5: windows own comes twice"));
    CHECK(says(refused(std::string(sim::most_machine_bytes + 1, '\n')), "a file this long"));
}

TEST_CASE("a file of another machine is a mismatch with the line that differs") {
    const sim::machine_costs m = sim::read_machine_costs(good);
    sim::require_this_machine(m, "Abacus 3000", 4);
    const auto said = [&](const std::string& cpu, int cores) {
        try {
            sim::require_this_machine(m, cpu, cores, "here.machine");
        } catch (const collx::error& e) {
            CHECK(e.code() == errc::mismatch);
            return std::string(e.what());
        }
        return std::string();
    };
    CHECK(says(said("Slide rule", 4), "here.machine:3: measured on 'Abacus 3000', and this is 'Slide rule' (run"));
    CHECK(says(said("Abacus 3000", 8), "here.machine:4: measured with 4 cores, and here are 8 (run collx_perf --fit"));
}

TEST_CASE("a file that is not there is an error of the environment") {
    try {
        (void)sim::read_machine_file("/no/such/machine");
        FAIL("read");
    } catch (const collx::error& e) {
        CHECK(e.code() == errc::environment);
        CHECK(says(e.what(), "/no/such/machine: No such file or directory (write one with collx_perf --fit FILE)"));
    }
    CHECK(!sim::name_of_this_cpu().empty());
}
