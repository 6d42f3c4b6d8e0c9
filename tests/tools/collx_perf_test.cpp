// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_perf: its definitions (bandwidth, sizes, uneven counts), its check of results, its harness for ranks, and the
// program as users run it.
// collx-test: serial timeout=240
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <collx/sim/machine_file.hpp>
#include <collx/transport/wait.hpp>

#include "perf/fit.hpp"
#include "perf/harness.hpp"
#include "perf/launch.hpp"
#include "perf/operation.hpp"
#include "perf/pattern.hpp"
#include "perf/sampling.hpp"
#include "program.hpp"
#include "support/html_report.hpp"

using namespace collx::tools::perf;
using collx_test::run_program;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) out.push_back(line);
    return out;
}
std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> out;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) out.push_back(cell);
    if (line.ends_with(',')) out.emplace_back();
    return out;
}
const std::string columns =
    "op,bytes,ranks,transport,peer,algo,median_us,p95_us,algbw_GBps,busbw_GBps,place,batch,samples,min_us,p25_us,"
    "line_at_start_ns,line_at_end_ns";

} // namespace

// ---------------------------------------------------------------------------------------------- definitions

TEST_CASE("operations are known by all usual spellings") {
    CHECK(parse_operation("all_reduce") == operation::all_reduce);
    CHECK(parse_operation("AllReduce") == operation::all_reduce);
    CHECK(parse_operation("alltoallv") == operation::all_to_all_v);
    CHECK(parse_operation("reduce-scatter") == operation::reduce_scatter);
    CHECK(parse_operation("send_recv") == operation::sendrecv);
    CHECK_FALSE(parse_operation("all").has_value());
    CHECK_FALSE(parse_operation("").has_value());
    for (int k = 0; k < operation_count; ++k) {
        CHECK(parse_operation(short_name(operation(k))) == operation(k));
        CHECK(parse_operation(long_name(operation(k))) == operation(k));
    }
}

TEST_CASE("bus bandwidth factors are those of nccl-tests") {
    CHECK(bus_factor(operation::all_reduce, 4) == Approx(1.5));
    CHECK(bus_factor(operation::all_gather, 4) == Approx(0.75));
    CHECK(bus_factor(operation::reduce_scatter, 2) == Approx(0.5));
    CHECK(bus_factor(operation::broadcast, 8) == 1);
    CHECK(bus_factor(operation::sendrecv, 8) == 1);
}

TEST_CASE("sizes are rounded to what an operation can have") {
    CHECK(rounded_bytes(operation::all_reduce, 8, 4, 3) == 8);
    CHECK(rounded_bytes(operation::all_reduce, 7, 4, 3) == 4);
    CHECK(rounded_bytes(operation::all_reduce, 0, 4, 3) == 4);
    CHECK(rounded_bytes(operation::all_gather, 8, 4, 4) == 16);
    CHECK(rounded_bytes(operation::all_to_all, 1 << 20, 4, 7) == (1 << 20) / 28 * 28);
    CHECK(rounded_bytes(operation::all_to_all_v, 16, 4, 2) == 32);
    CHECK(rounded_bytes(operation::barrier, 8, 4, 5) == 0);
    for (int op = 0; op < operation_count; ++op)
        for (int ranks = 1; ranks < 70; ++ranks)
            for (std::size_t wanted : {0, 1, 8, 24, 100, 4096, 700 * 1024, 1'000'003}) {
                const std::size_t bytes = rounded_bytes(operation(op), wanted, 4, ranks);
                CHECK(rounded_bytes(operation(op), bytes, 4, ranks) == bytes);
                const std::size_t parts = divides_by_ranks(operation(op)) ? static_cast<std::size_t>(ranks) : 1;
                CHECK(bytes % (4 * parts) == 0);
                if (wanted >= 16 * parts && operation(op) != operation::barrier)
                    CHECK((bytes <= wanted && bytes + 4 * parts > wanted));
            }
    CHECK(rounded_sizes(operation::all_to_all, {8, 16, 64, 1000, 1001}, 4, 7) == std::vector<std::size_t>{28, 56, 980});
    CHECK(rounded_sizes(operation::barrier, {8, 16}, 4, 7) == std::vector<std::size_t>{0});
    CHECK(rounded_sizes(operation::pingpong, {8, 16}, 4, 3).empty());
    CHECK(largest_rounded({operation::all_reduce, operation::all_to_all_v}, {8}, 4, 64) == 1024);
}

TEST_CASE("uneven counts agree between sender and receiver, and no rank sends more than it has") {
    const int n = 5;
    const std::size_t whole = 1000;
    for (int r = 0; r < n; ++r) {
        const auto mine = uneven_counts_of(whole, r, n);
        CHECK(mine.sent <= whole);
        CHECK(mine.sent > whole - 2 * n);
        CHECK(mine.received <= 2 * whole); // the size of the receive buffer
        for (int k = 0; k < n; ++k) {
            const auto theirs = uneven_counts_of(whole, k, n);
            CHECK(mine.send[static_cast<std::size_t>(k)] == theirs.receive[static_cast<std::size_t>(r)]);
        }
    }
    CHECK(uneven_counts_of(whole, 0, 4).send != std::vector<std::size_t>(4, 250));
}

// ---------------------------------------------------------------------------------------------- the judge

namespace {

// A correct result, computed without the library's operators.
template <class T>
std::vector<T> reduced_by_hand(const pattern<T>& data, reduction op, int ranks, std::size_t count) {
    std::vector<T> out(count);
    for (std::size_t i = 0; i < count; ++i) {
        double x = static_cast<double>(data.input(0, i));
        for (int r = 1; r < ranks; ++r) {
            const auto y = static_cast<double>(data.input(r, i));
            x = op == reduction::prod  ? x * y
                : op == reduction::min ? std::min(x, y)
                : op == reduction::max ? std::max(x, y)
                                       : x + y;
        }
        if (op == reduction::avg) x /= ranks;
        out[i] = static_cast<T>(x);
    }
    return out;
}

} // namespace

TEMPLATE_TEST_CASE("the judge accepts what is right and counts what is wrong", "", std::int8_t, std::uint64_t, float,
                   double, collx::f16, collx::bf16) {
    const int ranks = 3;
    const std::size_t count = 5000;
    const auto op = GENERATE(reduction::sum, reduction::prod, reduction::min, reduction::max, reduction::avg);
    const auto kind = GENERATE(pattern_kind::exact, pattern_kind::rough);
    const pattern<TestType> data(kind, op, ranks);
    auto got = reduced_by_hand(data, op, ranks, count);
    const auto parts = expected_parts(operation::all_reduce, count, 1, ranks, 0, false);
    REQUIRE(parts.size() == 1);
    CHECK(data.count_wrong(got.data(), parts[0]) == 0);
    got[0] = TestType(got[0] + TestType(1));
    got[4999] = TestType(got[4999] + TestType(1));
    CHECK(data.count_wrong(got.data(), parts[0]) == 2);
}

TEST_CASE("rough sums may differ in their last bits only") {
    const int ranks = 4;
    const pattern<float> data(pattern_kind::rough, reduction::sum, ranks);
    auto got = reduced_by_hand(data, reduction::sum, ranks, 1021);
    const auto part = expected_parts(operation::all_reduce, 1021, 0, ranks, 0, false).front();
    for (float& x : got) x = std::nextafter(x, 100.0f);
    CHECK(data.count_wrong(got.data(), part) == 0);
    for (float& x : got) x += 1e-5f;
    CHECK(data.count_wrong(got.data(), part) > 1000);
    got.assign(1021, std::numeric_limits<float>::quiet_NaN());
    CHECK(data.count_wrong(got.data(), part) == 1021);
}

TEST_CASE("a block in the wrong place is noticed") {
    const int ranks = 3, me = 1;
    const std::size_t whole = 30;
    const pattern<std::int32_t> data(pattern_kind::exact, reduction::sum, ranks);
    const auto count_wrong = [&](operation op, const std::vector<std::int32_t>& got, int root = 0) {
        std::uint64_t wrong = 0;
        for (const auto& p : expected_parts(op, whole, me, ranks, root, false))
            wrong += data.count_wrong(got.data(), p);
        return wrong;
    };
    std::vector<std::int32_t> gathered(whole), exchanged(whole);
    for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < 10; ++i) {
            gathered[static_cast<std::size_t>(r) * 10 + i] = data.input(r, i);
            exchanged[static_cast<std::size_t>(r) * 10 + i] = data.input(r, 10 * me + i);
        }
    CHECK(count_wrong(operation::all_gather, gathered) == 0);
    CHECK(count_wrong(operation::all_to_all, exchanged) == 0);
    CHECK(count_wrong(operation::all_to_all, gathered) > 0);
    std::swap_ranges(gathered.begin(), gathered.begin() + 10, gathered.begin() + 10);
    CHECK(count_wrong(operation::all_gather, gathered) == 20);
    CHECK(expected_parts(operation::reduce, whole, me, ranks, 0, false).empty()); // only the root receives
    CHECK(expected_parts(operation::gather, whole, me, ranks, me, false).size() == 3);
    CHECK(expected_parts(operation::reduce_scatter, whole, me, ranks, 0, true).front().at == 10);
    CHECK(expected_parts(operation::reduce_scatter, whole, me, ranks, 0, false).front().at == 0);
}

TEST_CASE("the first block of another rank is not taken for one's own, whatever its size") {
    const int ranks = 2;
    const pattern<float> data(pattern_kind::exact, reduction::sum, ranks);
    for (std::size_t block = 2; block < 3000; block += block < 600 ? 1 : 37) {
        std::vector<float> got(2 * block); // block 0 of each rank, where rank 1 must have block 1
        for (std::size_t i = 0; i < got.size(); ++i) got[i] = data.input(static_cast<int>(i / block), i % block);
        std::uint64_t wrong = 0;
        for (const auto& p : expected_parts(operation::all_to_all, got.size(), 1, ranks, 0, false))
            wrong += data.count_wrong(got.data(), p);
        INFO(block);
        CHECK((wrong > 0 || block % data.period() == 0));
    }
}

TEST_CASE("hashes see every byte") {
    std::vector<unsigned char> a(37, 7);
    const auto first = hash_of(a.data(), a.size());
    for (auto& byte : a) {
        byte ^= 1;
        CHECK(hash_of(a.data(), a.size()) != first);
        byte ^= 1;
    }
    CHECK(hash_of(a.data(), a.size()) == first);
}

// ---------------------------------------------------------------------------------------------- the meeting place

TEST_CASE("a sample lasts from the first start to the last end, and no rank waits for one that gave up") {
    const int ranks = 3;
    const std::size_t bytes = harness::bytes(ranks);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::vector<std::thread> threads;
    std::atomic<int> before{0}, early{0}, stopped{0};
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            harness h(memory, r, ranks, 2);
            for (int round = 1; round <= 200; ++round) {
                ++before;
                h.barrier();
                if (before < ranks * round) ++early;
                h.barrier();
            }
            h.stamp(0, 100 + r, 200 + 10 * r);
            h.barrier();
            if (r == 0) return h.give_up();
            try {
                h.barrier();
            } catch (const std::runtime_error&) {
                ++stopped;
            }
        });
    for (auto& t : threads) t.join();
    CHECK(early == 0);
    CHECK(stopped == ranks - 1);
    CHECK(harness(memory, 0, ranks, 2).span_ns(0) == 120);
    ::munmap(memory, bytes);
}

TEST_CASE("runs that are measured in turn are in the same order on all ranks, and each keeps its own times") {
    const int ranks = 2;
    const std::size_t bytes = harness::bytes(ranks);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::vector<std::string> order(ranks);
    std::vector<timing> times;
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            harness h(memory, r, ranks, ranks);
            const auto naps_ms = [&](char name, int ms) {
                return std::function<void(int)>([&order, r, name, ms](int calls) {
                    for (int i = 0; i < calls; ++i) {
                        order[static_cast<std::size_t>(r)] += name;
                        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
                    }
                });
            };
            std::vector runs{naps_ms('a', 1), naps_ms('b', 4), naps_ms('c', 2)};
            sampler samples(h, {.budget_ms = 60}, [&h] { h.barrier(); });
            auto mine = samples.measure_in_turn(std::span(runs), 1);
            if (r == 0) times = std::move(mine);
        });
    for (auto& t : threads) t.join();
    ::munmap(memory, bytes);
    CHECK(order[0] == order[1]);
    REQUIRE(times.size() == 3);
    CHECK(times[0].samples == times[1].samples);
    CHECK(times[0].us.min >= 1000);
    CHECK(times[1].us.min >= 4000);
    CHECK(times[2].us.min >= 2000);
    CHECK(times[2].us.min < times[1].us.min);
    // Each has run before each, so the cache contents that one leaves do not always affect the same one.
    for (const char* follows : {"aab", "aac", "bba", "bbc", "cca", "ccb"}) {
        INFO(follows << " in " << order[0]);
        CHECK(order[0].find(follows) != std::string::npos);
    }
}

TEST_CASE("who waits keeps a library's traffic going, spinning and napping") {
    for (const int cores : {1, 2}) {
        void* memory = ::mmap(nullptr, harness::bytes(2), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        std::atomic<int> calls{0};
        std::thread waiting([&] { harness(memory, 0, 2, cores).barrier([&] { ++calls; }, 100'000); });
        // The other rank arrives only when it has seen two calls, or after half a minute.
        for (int ms = 0; ms < 30'000 && calls < 2; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const int seen = calls;
        harness(memory, 1, 2, cores).barrier();
        waiting.join();
        CHECK(seen >= 2);
        ::munmap(memory, harness::bytes(2));
    }
}

// ---------------------------------------------------------------------------------------------- the program

TEST_CASE("mistakes on the command line are answered with a sentence and status 2") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto [arguments, sentence] = GENERATE(table<std::string, std::string>({
        {"", "Name an operation"},
        {"all_redcue", "'all_redcue' is not an operation; there are all_reduce"},
        {"all_reduce --ops all", "either alone (all_reduce) or in --ops, not both"},
        {"all_reduce -d float16", "'float16' is not an element type; there are int8"},
        {"all_reduce -o plus", "'plus' is not a reduction; there are sum"},
        {"all_reduce --transport tcp", "This version has no transport 'tcp'; there are shm"},
        {"all_reduce --algo bruck", "None of these operations has an algorithm 'bruck'; they have ring"},
        {"all_reduce --algo ring -o max", "leave -d and -o out"},
        {"all_reduce -b 1M -e 8", "-b 1M is larger than -e 8"},
        {"all_reduce -b 8 -e 1T -i 8", "From 8 to 1T these are more than 100000 sizes"},
        {"all_reduce --sizes 8,16777215T", "sizes go up to 64T"},
        {"all_reduce -b 1KB", "decimal units are not accepted"},
        {"all_reduce -f 1", "-f must be above 1"},
        {"all_reduce -b 0 -e 0", "No size is left"},
        {"all_reduce --ranks 2 --threads 2", "give one of them"},
        {"all_reduce --ranks 2 -g 2", "give one of them"},
        {"all_reduce -t 64 -g 64", "must be from 1 to 1024"},
        {"all_reduce -g -1", "must be from 1 to 1024"},
        {"all_reduce -t 2 -g 2 -r 4", "-r 4 is no rank: there are 4"},
        {"all_reduce --transport shm -g 2", "--transport shm runs ranks as processes"},
        {"all_reduce --ranks 2 -r 2", "-r 2 is no rank: there are 2"},
        {"all_reduce -r 5000", "-r 5000 is no rank: there are "}, // of a number that the machine says
        {"all_reduce -b 8 -e 64 -i 8 -f 2", "give one of them"},
        {"all_reduce --place out --in-place", "--in-place is --place in, not --place out"},
        {"all_reduce --place both --in-place", "--in-place is --place in, not --place both"},
        {"all_reduce --piece 0", "--piece must have a byte"},
        {"all_reduce --place above", "'above' is no place; there are out, in and both"},
        {"broadcast --in-place", "broadcast is not measured in place; all_reduce"},
        {"all_reduce --csv - --json -", "cannot both be written to standard output"},
        {"broadcast --attach --shared", "--attach goes alone"},
        {"all_reduce --attach --ranks 2",
         "--attach is for broadcast, all_gather and all_to_all: leave it out for all_reduce"},
        {"--ops broadcast,scan --attach", "leave it out for scan."},
        {"all_reduce --algo ''", "--algo: an empty value, as of a shell variable that is not set"},
        {"all_reduce --sizes ''", "--sizes: an empty value"},
        {"all_reduce --ranks ''", "--ranks: an empty value"},
        {"all_reduce --predict ''", "--predict: an empty value"},
        {"all_reduce --csv ''", "--csv: an empty value"},
        {"all_reduce --json ''", "--json: an empty value"},
        {"all_reduce --html ''", "--html: an empty value"},
        {"--fit ''", "--fit: an empty value"},
        {"all_reduce --ranks 0x2", "'0x2' is not decimal"},
        {"all_reduce --nonsense", "--nonsense"},
        {"all_reduce --every-algo --algo ring", "leave --algo, --piece and --attach out"},
        {"all_reduce --every-algo --json -", "leave --json and --html out"},
        {"all_reduce --every-algo --place both", "give --place in or out"},
        {"all_reduce --every-algo -d half", "leave -d and -o out"},
        {"sendrecv --every-algo", "sendrecv has one way only"},
    }));
    const auto f = run_program(perf, arguments);
    INFO(arguments << "\n" << f.err);
    CHECK(f.status == 2);
    CHECK(f.complains(sentence));
    CHECK(f.out.empty());
    CHECK(lines_of(f.err).size() == 1);
}

TEST_CASE("an output that cannot be written is refused before anything is measured") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    for (const char* ranks : {"--ranks 2", "--threads 2"})
        for (const char* option : {"--csv", "--json", "--html"}) {
            const auto f = run_program(perf, std::string("all_reduce -b 8 -e 8 ") + ranks + " " + option + " /none/x");
            INFO(f.out << f.err);
            CHECK(f.status == 1);
            CHECK(f.out.empty());
            CHECK(f.complains("cannot write '/none/x'"));
        }
}

TEST_CASE("a comparison prints the columns of the comparison harness") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const std::string transport = GENERATE("shm", "memory", "sockets");
    const auto f = run_program(perf, "--ranks 2 --transport " + transport +
                                         " --ops all --sizes 8,4K --place both --budget-ms 1 --csv -");
    INFO(f.err);
    REQUIRE(f.status == 0);
    const auto lines = lines_of(f.out);
    REQUIRE(!lines.empty());
    CHECK(lines[0] == columns);
    // Ten operations: barrier once, three of the others also in place.
    CHECK(lines.size() == 1 + 9 * 2 + 1 + 3 * 2);
    for (std::size_t k = 1; k < lines.size(); ++k) {
        const auto cells = cells_of(lines[k]);
        INFO(lines[k]);
        REQUIRE(cells.size() == 17);
        CHECK(cells[2] == "2");
        CHECK(cells[3] == transport);
        CHECK(cells[4] == "collx");
        CHECK(cells[5] == "default");
        const double median = std::stod(cells[6]), p95 = std::stod(cells[7]), algbw = std::stod(cells[8]);
        CHECK(median > 0);
        CHECK(p95 >= median);
        CHECK(std::stod(cells[13]) <= median);
        CHECK(algbw == Approx(std::stod(cells[1]) / median / 1e3).epsilon(0.05).margin(2e-3));
        CHECK(std::stoi(cells[12]) >= 7);
    }
}

TEST_CASE("--every-algo measures each algorithm that can run beside the library's choice") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto [transport, shared, has_windows] = GENERATE(
        table<std::string, bool, bool>({{"shm", false, true}, {"memory", true, true}, {"sockets", false, false}}));
    const auto f = run_program(perf, "--every-algo --ranks 2 --ops allreduce,sendrecv,scan --sizes 64,4K --budget-ms 1 "
                                     "--transport " +
                                         transport + (shared ? " --shared" : "") + " --csv - --no-header");
    INFO(f.err);
    REQUIRE(f.status == 0);
    std::map<std::string, int> lines; // for all_reduce
    for (const std::string& line : lines_of(f.out)) {
        const auto cells = cells_of(line);
        REQUIRE(cells.size() == 17);
        CHECK(cells[0] != "sendrecv"); // measured in one direction only
        if (cells[0] == "allreduce") ++lines[cells[5]];
        CHECK(std::stod(cells[6]) > 0);
    }
    const std::string more = shared ? "+shared" : "";
    for (const char* name : {"default", "ring", "recursive_doubling"}) CHECK(lines[name + more] == 2);
    CHECK(lines["one_shot" + more] == (has_windows ? 2 : 0));
    CHECK(lines["zero_copy" + more] == (shared ? 2 : 0));
}

TEST_CASE("--every-algo names the fastest first, and says how often the choice is near it") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto f = run_program(perf, "scan --every-algo --ranks 2 --sizes 64 --budget-ms 1 -q");
    INFO(f.err << f.out);
    REQUIRE(f.status == 0);
    const auto lines = lines_of(f.out);
    REQUIRE(lines.size() == 4);
    std::istringstream words(lines[2]);
    std::string op, size, unit, name;
    words >> op >> size >> unit;
    CHECK((op == "scan" && size == "64" && unit == "B"));
    double before = 0, us = 0, choice = 0, fastest = 0;
    std::vector<std::string> names;
    for (; words >> name >> us; before = us, names.push_back(name)) {
        CHECK(us >= before);
        if (names.empty()) fastest = us;
        if (name == "default") choice = us;
    }
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"chain", "default", "doubling", "one_shot"});
    const bool is_near = lines[3].find("at 1 of 1 points") != std::string::npos;
    CHECK(is_near != (lines[3].find("at 0 of 1 points") != std::string::npos));
    if (choice > 1.2 * fastest) CHECK_FALSE(is_near); // printed times are rounded
    if (choice == fastest) CHECK(is_near);
}

TEST_CASE("the error of predictions is the median over the points, also of two") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    namespace sim = collx::sim;
    sim::machine_costs m; // a call takes a second, whatever it is
    m.cpu = sim::name_of_this_cpu();
    m.on.count = collx::usable_cores();
    for (int by = 0; by < sim::medium_count; ++by)
        for (const bool shares_cores : {false, true}) {
            m.has[by][shares_cores] = true;
            m.of[by][shares_cores].of[sim::call] = 1e9;
        }
    const collx_test::temporary_file machine, csv;
    collx::tools::write_text_file(machine.path(), sim::to_text(m));
    const auto f = run_program(perf, "all_reduce --ranks 2 --sizes 4K,4M --budget-ms 1 --predict " + machine.path() +
                                         " --csv " + csv.path());
    INFO(f.err << f.out);
    REQUIRE(f.status == 0);
    const auto lines = lines_of(collx_test::file_contents(csv.path()));
    REQUIRE(lines.size() == 3);
    double errors[2] = {};
    for (std::size_t k = 0; k < 2; ++k) {
        const auto cells = cells_of(lines[k + 1]);
        errors[k] = 100 * (std::stod(cells.back()) / std::stod(cells[6]) - 1);
    }
    const std::string before = "median error ", between = " %, nine of ten within ";
    const std::size_t at = f.out.find(before), then = f.out.find(between);
    REQUIRE((at != std::string::npos && then != std::string::npos));
    CHECK(std::stod(f.out.substr(at + before.size())) == Approx((errors[0] + errors[1]) / 2).epsilon(0.01));
    CHECK(std::stod(f.out.substr(then + between.size())) == Approx(std::max(errors[0], errors[1])).epsilon(0.01));
}

TEST_CASE("the table has the columns of nccl-tests, and JSON and the page the same numbers") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const collx_test::temporary_file json(".json"), page(".html"), csv(".csv");
    const auto f = run_program(perf, "all_reduce -b 8 -e 1K -f 128 -d double -o max --threads 2 --budget-ms 1 -J " +
                                         json.path() + " --html " + page.path() + " --csv " + csv.path());
    INFO(f.err);
    REQUIRE(f.status == 0);
    CHECK(f.prints("#wrong      time   algbw   busbw #wrong\n"));
    CHECK(f.prints("double     max      -1"));
    CHECK(f.prints("# Cache line, one way  : "));
    CHECK(f.prints("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "));
    const auto all = nlohmann::json::parse(collx_test::file_contents(json.path()));
    REQUIRE(all["results"].size() == 2);
    const auto& line = all["results"][1];
    CHECK(line["size"] == 1024);
    CHECK(line["count"] == 128);
    CHECK(line["type"] == "double");
    CHECK(line["redop"] == "max");
    for (const char* place : {"out_of_place", "in_place"}) {
        CHECK(line[place]["nwrong"] == 0);
        const auto& more = line[place]["collx"]; // a number, or null if no two ranks had their own cores
        CHECK((more["line_at_start_ns"].is_null() || more["line_at_start_ns"] > 0));
        CHECK((more["line_at_end_ns"].is_null() || more["line_at_end_ns"] > 0));
        CHECK(line[place]["alg_bw"].get<double>() == Approx(1024 / line[place]["time"].get<double>() / 1e3));
    }
    CHECK(all["out_of_bounds"]["okay"] == true);
    const auto rows = lines_of(collx_test::file_contents(csv.path()));
    REQUIRE(rows.size() == 5);
    CHECK(cells_of(rows[1])[5] == "default+double+max");
    const std::string html = collx_test::file_contents(page.path());
    CHECK(html.find("<svg") != std::string::npos);
    CHECK(html.find("all_reduce: bus bandwidth") != std::string::npos);
    CHECK(html.find("http://") == html.find("http://www.w3.org")); // the page loads nothing
    CHECK(html.find("<script") == std::string::npos);
}

TEST_CASE("each size that was checked says so, the first too, and a barrier that nothing was checked") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const collx_test::temporary_file json(".json"), page(".html");
    const auto wrong_of = [](const std::string& line) { // both places
        std::istringstream stream(line);
        std::vector<std::string> cells;
        for (std::string cell; stream >> cell;) cells.push_back(cell);
        return cells.size() != 13 ? "" : cells[8] + " " + cells[12];
    };
    const auto rows = [&](const std::string& out) {
        std::vector<std::string> wrong;
        for (const auto& line : lines_of(out))
            if (!line.starts_with('#')) wrong.push_back(wrong_of(line));
        return wrong;
    };
    const std::string few = " --threads 2 -n 1 -w 1 ";
    const auto f = run_program(perf, "all_reduce --sizes 8,1K" + few);
    INFO(f.out << f.err);
    CHECK(rows(f.out) == std::vector<std::string>{"0 0", "0 0"});
    CHECK(f.prints("# Out of bounds values : 0 OK\n"));
    const auto unchecked = run_program(perf, "all_reduce --sizes 8 -c 0" + few);
    INFO(unchecked.out);
    CHECK(rows(unchecked.out) == std::vector<std::string>{"N/A N/A"});
    CHECK(unchecked.prints("# Out of bounds values : not checked\n"));
    const auto barrier = run_program(perf, "barrier -J " + json.path() + " --html " + page.path() + few);
    INFO(barrier.out);
    CHECK(rows(barrier.out) == std::vector<std::string>{"N/A N/A"});
    CHECK(barrier.prints("# Out of bounds values : not checked\n"));
    const auto all = nlohmann::json::parse(collx_test::file_contents(json.path()));
    CHECK(all["out_of_bounds"]["okay"].is_null());
    CHECK(all["out_of_bounds"]["count"].is_null());
    CHECK(collx_test::file_contents(page.path()).find("every element of every rank") == std::string::npos);
}

TEST_CASE("every operation is right in processes and in threads, with shared buffers and with named algorithms") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto arguments = GENERATE(
        as<std::string>(), "gather -d half --ranks 3", "scatter --threads 3", "scan -o prod -d int64 --threads 3",
        "all_reduce --shared --ranks 2", "all_gather --algo bruck --threads 3", "reduce_scatter --piece 100 --ranks 2",
        "all_reduce -o avg -d bfloat16 --threads 3", "all_to_all_v --threads 4", "reduce -r 1 -d uint8 --ranks 2");
    const auto f = run_program(perf, arguments + " --sizes 96,9600 -n 3 -w 1");
    INFO(arguments << "\n" << f.out << f.err);
    CHECK(f.status == 0);
    CHECK(f.prints("9600  "));
    CHECK(f.prints(": 0 OK"));
}

TEST_CASE("ranks whose output is read no further end without a complaint") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto f = run_program("bash", "-c \"'" + perf + "' all_reduce --ranks 2 --sizes 8,16,32,64 --budget-ms 20 | " +
                                           "(read line; echo \\$line); echo ended \\${PIPESTATUS[0]}\"");
    CAPTURE(f.out);
    CHECK(f.err == "");
    CHECK(f.prints("ended 1\n"));
}

TEST_CASE("sizes that do not divide are rounded, in a table and in a comparison, and none is dropped") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto table = run_program(perf, "all_gather --threads 3 --sizes 8,100 -n 1 -w 1");
    CHECK(table.prints("\n          12  "));
    CHECK(table.prints("\n          96  "));
    const auto comparison =
        run_program(perf, "--ops allgather,alltoallv --threads 3 --sizes 8,96,100 --budget-ms 1 --no-header");
    std::vector<std::string> bytes;
    for (const auto& line : lines_of(comparison.out)) bytes.push_back(cells_of(line)[1]);
    CHECK(bytes == std::vector<std::string>{"12", "96", "48", "96"});
    const auto pair = run_program(perf, "pingpong --threads 3 --sizes 8 -n 1 -w 1");
    CHECK(pair.prints("# pingpong: not measured, it is between 2 ranks and there are 3"));
}

TEST_CASE("a comparison has three sizes, or those of -b, -e, -f and -i") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto [words, sizes] = GENERATE(table<std::string, std::vector<std::string>>(
        {{"", {"8", "4096", "1048576"}},
         {"-b 1M", {"1048576", "2097152", "4194304"}},
         {"-e 16", {"8", "16"}},
         {"--minbytes 64 --maxbytes 1K --stepfactor 4", {"64", "256", "1024"}},
         {"-f 1000", {"8", "8000"}},
         {"-e 24 -i 8", {"8", "16", "24"}},
         {"-b 64 --sizes 96", {"96"}}}));
    const auto f = run_program(perf, "--ops allreduce,broadcast --threads 1 -n 1 -w 1 --no-header " + words);
    INFO(words << "\n" << f.out << f.err);
    std::vector<std::string> bytes[2];
    for (const auto& line : lines_of(f.out)) bytes[cells_of(line)[0] == "broadcast"].push_back(cells_of(line)[1]);
    CHECK(bytes[0] == sizes);
    CHECK(bytes[1] == sizes);
}

TEST_CASE("-t and -g multiply, as in nccl-tests") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto [words, ranks] = GENERATE(table<std::string, std::string>({{"-t 3", "3"},
                                                                          {"-g 2", "2"},
                                                                          {"-t 2 -g 2", "4"},
                                                                          {"--nthreads 1 --ngpus 3", "3"},
                                                                          {"-g 2 --transport memory", "2"}}));
    const auto f = run_program(perf, "--ops broadcast " + words + " --sizes 96 --budget-ms 1 --no-header");
    INFO(words << "\n" << f.err);
    REQUIRE(lines_of(f.out).size() == 1);
    CHECK(cells_of(f.out)[2] == ranks);
    CHECK(cells_of(f.out)[3] == "memory");
}

TEST_CASE("a rank that cannot go on ends all with a message") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto f = run_program(perf, "all_reduce --ranks 2 --algo zero_copy --sizes 4K");
    CHECK(f.status == 1);
    CHECK(f.complains("zero-copy"));
    // The parent process ignores how its children end, which exec passes on.
    const auto ignoring = run_program("/usr/bin/env", "--ignore-signal=CHLD '" + perf +
                                                          "' all_reduce --ranks 2 --algo zero_copy --sizes 4K");
    CHECK(ignoring.status == 1);
    CHECK(ignoring.complains("ended with exit code 1"));
    const auto wrong_count = run_program(perf, "all_reduce --ranks 3 --sizes 8", "COLLX_RANK=0 COLLX_SIZE=1");
    CHECK(wrong_count.status == 2);
    CHECK(wrong_count.complains("--ranks 3, but the launcher started 1"));
}

TEST_CASE("what a rank finds wrong with the command line is wrong use for the whole") {
    const auto code_of = [](std::initializer_list<int> ends, int code = 0) {
        std::vector<pid_t> pids;
        for (const int end : ends) {
            const pid_t pid = ::fork();
            if (pid == 0) ::_exit(end);
            pids.push_back(pid);
        }
        return detail::wait_for_ranks(pids, code, exit_wrong);
    };
    CHECK(code_of({0, 0}) == 0);
    CHECK(code_of({0, exit_wrong}) == exit_wrong);
    CHECK(code_of({exit_usage, exit_usage}) == exit_usage);
    CHECK(code_of({exit_usage, exit_failed}) == exit_usage); // in either order
    CHECK(code_of({exit_failed, exit_wrong}) == exit_failed);
    CHECK(code_of({0}, exit_failed) == exit_failed);
}

TEST_CASE(
    "a host and a way to start that the environment names for other programs do not reach collx_perf's own ranks") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    for (const char* variable : {"COLLX_HOST_ID=here", "COLLX_BOOTSTRAP=single"}) {
        const auto f = run_program(perf, "barrier --ranks 2 -n 1 -w 1", variable);
        INFO(variable << f.err);
        CHECK(f.status == 0);
    }
}

TEST_CASE("without a standard output nothing is printed into what took its number, and that is said") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    for (const char* ranks : {"--threads 2", "--ranks 2", "--threads 2 --transport sockets"}) {
        const auto f = run_program(perf, std::string("all_reduce --sizes 8 -n 1 -w 1 ") + ranks + " >&-");
        INFO(f.err);
        CHECK(f.status == 1);
        CHECK(f.complains("collx_perf: standard output is not complete"));
    }
}

TEST_CASE("numbers on the command line are decimal, also with leading zeros") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto f = run_program(perf, "--ops barrier --threads 010 -n 01 -w 1 --no-header");
    INFO(f.err);
    REQUIRE(cells_of(f.out).size() > 2);
    CHECK(cells_of(f.out)[2] == "10");
}

TEST_CASE("-n fixes the number of calls, however many samples that takes") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    for (const int calls : {1, 100, 9001, 1'500'000}) {
        const auto f = run_program(perf, "all_reduce --threads 1 --sizes 8 -w 1 --place out --csv - --sample-us 1 -n " +
                                             std::to_string(calls));
        CAPTURE(calls, f.out, f.err);
        REQUIRE(f.status == 0);
        std::stringstream line(f.out.substr(f.out.find("\nallreduce,") + 1));
        std::vector<std::string> cells;
        for (std::string cell; std::getline(line, cell, ',');) cells.push_back(cell);
        REQUIRE(cells.size() > 12);
        const int batch = std::stoi(cells[11]), samples = std::stoi(cells[12]);
        CHECK(batch * samples >= calls);
        CHECK(batch * samples < calls + samples);
    }
}

TEST_CASE("--list names operations and algorithms") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const auto f = run_program(perf, "--list");
    CHECK(f.status == 0);
    CHECK(f.prints("all_reduce      ring "));
    CHECK(f.prints("\nall_to_all_v"));
}

// ---------------------------------------------------------------------------------------------- what calls cost

TEST_CASE("a fit finds the costs that times were made of, and a few wild times do not bend it") {
    namespace sim = collx::sim;
    sim::costs truth;
    truth.of[sim::call] = 300;
    truth.of[sim::step] = 80;
    truth.of[sim::byte] = 0.25;
    std::vector<fitted_point> points;
    for (int i = 0; i < 40; ++i) {
        fitted_point p;
        p.is.of[sim::call] = 1 + i % 2;
        p.is.of[sim::step] = 3 + i % 7;
        p.is.of[sim::byte] = 8 << i % 18;
        p.is.of[sim::reduced_byte] = i % 3 * 100;
        p.measured_ns = sim::predicted_ns(p.is, truth) * (i % 13 == 5 ? 4 : 1);
        points.push_back(p);
    }
    const sim::costs found = fit(points);
    CHECK(found.points == 40);
    CHECK(found.residual < 0.01);
    CHECK(found.of[sim::call] == Approx(300).epsilon(0.05));
    CHECK(found.of[sim::step] == Approx(80).epsilon(0.05));
    CHECK(found.of[sim::byte] == Approx(0.25).epsilon(0.01));
    CHECK(found.of[sim::reduced_byte] < 0.01);
    for (const double ns : found.of) CHECK(ns >= 0);

    // Known costs are not attributed a second time.
    for (fitted_point& p : points) {
        p.known_ns = 5000;
        p.measured_ns += 5000;
    }
    const sim::costs rest = fit(points);
    CHECK(rest.residual < 0.01);
    CHECK(rest.of[sim::call] == Approx(300).epsilon(0.05));
    CHECK(rest.of[sim::byte] == Approx(0.25).epsilon(0.01));
}

TEST_CASE("--fit measures this machine and writes a file that can be read") {
    std::string perf;
    if (!collx_test::find_program("collx_perf", perf)) return;
    const std::string file = "/tmp/collx_perf_fit-" + std::to_string(::getpid());
    const auto run = run_program(perf, "--fit " + file + " --transport shm --budget-ms 0.2");
    INFO(run.out << run.err);
    REQUIRE(run.status == 0);
    CHECK(run.prints("windows, "));
    CHECK(run.prints("all                  97 "));
    const auto m = collx::sim::read_machine_file(file);
    ::unlink(file.c_str());
    CHECK(m.cpu == collx::sim::name_of_this_cpu());
    CHECK((m.find(collx::sim::medium::windows, false) != nullptr ||
           m.find(collx::sim::medium::windows, true) != nullptr));
    CHECK(m.find(collx::sim::medium::sockets, true) == nullptr);
    const auto refused = [&](const std::string& arguments, const std::string& said) {
        const auto r = run_program(perf, arguments);
        INFO(arguments << ": " << r.err);
        CHECK(r.status != 0);
        CHECK(r.complains(said));
    };
    refused("--fit x --ranks 2", "--fit measures points of its own: leave --ranks out.");
    refused("--fit x all_reduce", "leave collective out.");
    refused("--fit x --transport verbs", "--fit measures shm and sockets, or one of them.");
    refused("all_reduce --fit-grid", "--fit-grid says how --fit FILE measures: add it.");
    refused("--fit /no/such/folder/x", "cannot write '/no/such/folder/x': No such file or directory");
}
