// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_sim run as a program: its predictions, the files that it writes, what it refuses.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

#include "support/sanitizers.hpp"
#include "support/skip.hpp"

using Catch::Contains;

namespace {

struct result {
    int code;
    std::string text;
};
// before: shell commands, each with its semicolon.
result sim(const std::string& arguments, const std::string& before = "") {
    std::FILE* p = ::popen((before + COLLX_TOOL_DIR "/collx_sim 2>&1 " + arguments).c_str(), "r");
    if (p == nullptr) return {-1, ""};
    std::string text;
    for (char part[4096]; const std::size_t n = std::fread(part, 1, sizeof part, p);) text.append(part, n);
    const int status = ::pclose(p);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}
std::string text_of(const std::string& file) {
    std::ifstream f(file);
    return {std::istreambuf_iterator<char>(f), {}};
}

} // namespace

TEST_CASE("collx_sim predicts times, and names the busiest links") {
    // 14 steps of 125 MB at 450 GB/s.
    const std::string ring = sim("-m dgx-h100 -b 1000000000 --costs nccl-ring-simple").text;
    CHECK_THAT(ring,
               Contains("3944.889") && Contains("443.612") && Contains("GPU0 > NVSwitch") && Contains("98.6 % busy"));
    CHECK_THAT(sim("-m dgx-1v --rings -b 1GB --links 0").text, Contains("149."));
    CHECK_THAT(sim("-m dgx-a100 -c all_to_all -b 1KB,1MB").text,
               Contains("\n          1024 ") && Contains("\n       1048576 "));
}

TEST_CASE("a barrier moves no bytes") {
    const result barrier = sim("-m dgx-1v -c barrier --links 8"), least = sim("-m dgx-1v -b 1 --links 0");
    CHECK(barrier.code == 0);
    CHECK_THAT(barrier.text, Contains("\n             0 ") && !Contains("% busy"));
    const auto us_of = [](const std::string& text) { return std::atof(text.c_str() + text.find('\n') + 15); };
    CHECK(us_of(barrier.text) > 0);
    CHECK(us_of(barrier.text) <= us_of(least.text)); // all_reduce of a byte
    const std::string file = "/tmp/collx-sim-barrier-" + std::to_string(::getpid()) + ".html";
    CHECK(sim("-m dgx-1v -c barrier --report " + file).code == 0);
    const std::string page = text_of(file);
    ::unlink(file.c_str());
    CHECK_THAT(page, Contains("barrier on dgx-1v") && !Contains("nan") && !Contains("inf\""));
}

TEST_CASE("without memory collx_sim ends with a sentence, not with a signal") {
    if (COLLX_TEST_ASAN != 0 || COLLX_TEST_TSAN != 0) return collx_test::skip("sanitizers need address space.");
    const auto ends = [](const std::string& line) {
        std::FILE* p = ::popen((line + " 2>&1").c_str(), "r");
        if (p == nullptr) return result{-1, ""};
        std::string text;
        for (char part[4096]; const std::size_t n = std::fread(part, 1, sizeof part, p);) text.append(part, n);
        const int status = ::pclose(p);
        return result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
    };
    const result little =
        ends("ulimit -v 1000000; exec " COLLX_TOOL_DIR "/collx_sim --rails 4096x8 -c all_to_all -b 1GB");
    CHECK(little.code == 1);
    CHECK_THAT(little.text, Contains("collx_sim: no memory is left (take a smaller machine, batch or fewer pieces)"));
}

TEST_CASE("collx_sim devices: what a call on device memory takes, and why") {
    const std::string two = sim("devices -m dgx-h100 -b 8KiB,256MiB").text;
    CHECK_THAT(two,
               Contains("all_reduce of 8 KiB, 8 ranks: one_shot by LL words\n  because: one exchange of LL words") &&
                   Contains("all_reduce of 256 MiB, 8 ranks: multicast_two_shot by the switch") &&
                   Contains("times are predicted: launch and steps as on one H200"));
    CHECK_THAT(sim("devices -m dgx-h100 -b 256MiB --no-switch").text, Contains("8 ranks: two_shot\n"));
    CHECK_THAT(sim("devices -m dgx-h100 -b 256MiB --deterministic").text, Contains("8 ranks: two_shot\n"));
    CHECK_THAT(sim("devices -m dgx-a100 --ranks 0,1,2,3 -c all_gather -b 1MiB").text,
               Contains("all_gather of 1 MiB, 4 ranks: one_shot\n"));
    for (const char* op :
         {"reduce", "broadcast", "reduce_scatter", "gather", "scatter", "all_to_all", "scan", "exclusive_scan"})
        CHECK_THAT(sim("devices -m dgx-h100 --ranks 0,1 -b 0,1MB -c " + std::string(op)).text,
                   Contains(op + std::string(" of 0 B, 2 ranks: ")) && Contains(" of 1 MiB, 2 ranks: "));
    const result wrong = sim("devices -m dgx-h100 -c all_sum");
    CHECK(wrong.code != 0);
    CHECK_THAT(wrong.text, Contains("no collective is called 'all_sum'") && Contains("reduce_scatter"));
}

TEST_CASE("collx_sim prints what docs/cost_model.md compares with published figures") {
    const std::pair<const char*, const char*> rows[] = {
        {"-m dgx-h100 --nccl-rates --costs nccl-ring-simple -b 8GB", " 370.2"},
        {"-m dgx-h100 --costs nccl-ring-simple -b 8GB", " 449.2"},
        {"-m dgx-h100 --nccl-rates --costs links -c all_gather -b 3GB", " 370.1"},
        {"-m dgx-a100 --nccl-rates -c all_to_all -b 1GB", " 239.8"},
        {"-m dgx-1v --nccl-rates --rings --costs nccl-ring-simple -b 1GB", " 119.5"},
        {"-m dgx-h100 --hosts 2 --nccl-rates --rings -b 1GB", " 367.6"},
        {"-m dgx-a100 --hosts 2 --nccl-rates --rings -b 1GB", " 191."},
        {"-m dgx-h100 --hosts 2 -c all_to_all -b 1GB", " 14.7"}, // without PXN
        {"-m dgx-h100 --hosts 2 -c all_to_all -a direct --pxn --nccl-rates -b 1GB", " 80.5"},
        {"-m dgx-a100 --hosts 2 -c all_to_all -a direct --pxn --nccl-rates -b 1GB", " 41.29"},
        {"-m dgx-a100 --ranks 0,1,2,3 --costs nccl-ring-ll -b 8", " 10.200"},
        {"-m gb200-nvl72 --ranks 0,1,2,3,4,5,6,7 --nccl-rates --costs nccl-ring-ll -b 1MB", " 20.085"}};
    for (const auto& [arguments, number] : rows) {
        CAPTURE(arguments);
        CHECK_THAT(sim(std::string(arguments) + " --links 0").text, Contains(number));
    }
}

TEST_CASE("collx_sim goes host by host, also among thousands of ranks") {
    // 14 steps inside hosts, 62 between 32 hosts, as computed in tests/sim/recording_test.cpp.
    CHECK_THAT(sim("--rails 32x8 -a hierarchical --costs nccl-ring-simple -b 1000000000 --links 0").text,
               Contains("      9656.639 "));
    const result big = sim("--rails 512x8 -a hierarchical-trees --links 1 -b 1GB"); // 9 rounds of an eighth at 50 GB/s
    CHECK(big.code == 0);
    CHECK_THAT(big.text, Contains("rank0 > rail"));
    CHECK_THAT(sim("-m dgx-h100 --hosts 2 -a hierarchical -b 1GB --links 0").text, Contains(" 292."));
}

TEST_CASE("collx_sim prints published figures beside its own, as docs/cost_model.md shows them") {
    const std::string text = sim("published").text;
    CHECK_THAT(text, Contains("factor, geometric mean: 1.030 over 17 large rows (GB/s), 1.152 over 8 small (us), "
                              "1.068 over all 25"));
    CHECK_THAT(text_of(COLLX_SOURCE_DIR "/docs/cost_model.md"), Contains(text));
    CHECK(sim("-m dgx-1v --costs +links").code == 2);
}

TEST_CASE("collx_sim writes a report without scripts, in which no label lies over another") {
    const std::string file = "/tmp/collx-sim-" + std::to_string(::getpid()) + ".html";
    const std::string call =
        "-m dgx-h100 --hosts 2 -c all_to_all -a direct --pxn -b 1KB,32KB,1MB,32MB --links 0 --report ";
    CHECK(sim(call + file).code == 0);
    const std::string page = text_of(file);
    ::unlink(file.c_str());
    CHECK(page.find("<script") == page.npos);
    CHECK(page.find("http://") == page.find("http://www.w3.org/2000/svg")); // the page loads nothing
    const auto count = [&](const std::string& part) {
        int n = 0;
        for (std::size_t at = page.find(part); at != page.npos; at = page.find(part, at + 1)) ++n;
        return n;
    };
    CHECK(count("<svg") == 3); // time, bus bandwidth, links
    CHECK(count("<svg") == count("</svg>"));
    CHECK(count("class=\"cx-point\"") == 2 * 4);
    CHECK_THAT(page,
               Contains("h0.GPU0 &gt; h0.NVSwitch, NVLink, 450 GB/s, ") && Contains("<td>h0.NIC0 &gt; rail0</td>"));
    CHECK_THAT(page, Contains("stroke=\"#d9480f\"") && Contains("stroke=\"#d9d9d9\"")); // busy links and idle ones

    CHECK(sim("--rails 64x8 -a hierarchical-trees -b 1MB --report " + file).code == 0); // no graph, so no picture of it
    CHECK_THAT(text_of(file), Contains("rank0 &gt; rail") && !Contains("busy links"));
    ::unlink(file.c_str());
    CHECK(sim("-m dgx-1v --report /no/such/file").code == 1);
}

TEST_CASE("collx_sim predicts a training step") {
    const std::string model = "training -m dgx-h100 --layers 32 --hidden 4096 --batch 16 ";
    const std::string text = sim(model + "--pipeline 8").text;
    CHECK_THAT(text, Contains("30.4 %  (p - 1) / (m + p - 1): 30.4 %") && Contains("16 micro-batches"));
    CHECK_THAT(sim(model + "--tensor 8 --order gpipe").text, Contains("tensor, exposed"));
    const result full = sim(model + "--data 8");
    CHECK(full.code == 1);
    CHECK_THAT(full.text, Contains("does not fit") && Contains("of 80.0"));
    CHECK_THAT(sim(model + "--data 4").text, Contains("4 x 1 x 1 ranks on a machine for 8"));
    CHECK_THAT(sim("training -m dgx-h100 --data 8 --batch 9").text, Contains("a batch of 9"));
    CHECK_THAT(sim("training --rails 2x8 --data 16 --batch 16").text, Contains("give --flops"));
    CHECK(sim("training --rails 2x8 --data 16 --batch 16 --flops 1e14").code == 0);
    CHECK(sim(model + "--order backwards").code == 2);
    // The more buckets, the more their latencies add up, however many they are.
    const auto data_ms = [&](const char* bucket) {
        const std::string said =
            sim("training -m dgx-h100 --layers 2 --hidden 1024 --data 8 --batch 16 --bucket " + std::string(bucket))
                .text;
        const auto at = said.find("data, exposed");
        return at == said.npos ? -1.0 : std::atof(said.c_str() + at + 13);
    };
    CHECK(data_ms("25e6") >= 0);
    CHECK(data_ms("1000") > data_ms("25e6"));
    CHECK(data_ms("1e-9") > data_ms("1000"));
}

TEST_CASE("collx_sim writes traces and GOAL") {
    const std::string file = "/tmp/collx-sim-" + std::to_string(::getpid());
    CHECK(sim("-m dgx-h100 --ranks 0,1 -b 1000 --trace " + file + " --goal " + file + ".goal").code == 0);
    const auto trace = nlohmann::json::parse(text_of(file));
    int messages = 0;
    for (const auto& e : trace["traceEvents"]) messages += e["ph"] == "X" && e["args"]["bytes"] == 500;
    CHECK(messages == 4);
    CHECK(text_of(file + ".goal") == "num_ranks 2\n"
                                     "\nrank 0 {\n"
                                     "l1: send 500b to 1 tag 0 cpu 0\n"
                                     "l2: recv 500b from 1 tag 0 cpu 0\nl2 requires l1\n"
                                     "l3: send 500b to 1 tag 0 cpu 0\nl3 requires l2\n"
                                     "l4: recv 500b from 1 tag 0 cpu 0\nl4 requires l3\n}\n"
                                     "\nrank 1 {\n"
                                     "l1: send 500b to 0 tag 0 cpu 0\n"
                                     "l2: recv 500b from 0 tag 0 cpu 0\nl2 requires l1\n"
                                     "l3: send 500b to 0 tag 0 cpu 0\nl3 requires l2\n"
                                     "l4: recv 500b from 0 tag 0 cpu 0\nl4 requires l3\n}\n");
    ::unlink(file.c_str());
    ::unlink((file + ".goal").c_str());
}

TEST_CASE("in a trace each message is on its GPU's line, and only events that may overlap do") {
    const std::string file = "/tmp/collx-sim-lines-" + std::to_string(::getpid());
    CHECK(sim("-m dgx-1v --rings --trace " + file).code == 0);
    std::set<std::string> of_gpu_3;
    const auto rings = nlohmann::json::parse(text_of(file));
    for (const auto& e : rings["traceEvents"])
        if (e["ph"] != "M" && e["tid"] == 3) of_gpu_3.insert(e["name"].get<std::string>());
    CHECK(of_gpu_3 == std::set<std::string>{"to 0", "to 1", "to 2", "to 7"}); // its NVLinks
    CHECK(sim("-m dgx-1v -c broadcast -a chain --pieces 16 -b 64MB --trace " + file).code == 0);
    std::map<int, double> end_of_line;
    int overlapping = 0, plain = 0;
    const auto chain = nlohmann::json::parse(text_of(file));
    for (const auto& e : chain["traceEvents"]) {
        overlapping += e["ph"] == "b";
        if (e["ph"] != "X") continue;
        ++plain;
        double& end = end_of_line[e["tid"].get<int>()];
        CHECK(e["ts"].get<double>() >= end - 1e-6);
        end = e["ts"].get<double>() + e["dur"].get<double>();
    }
    CHECK(overlapping + plain == 7 * 4 * 16); // hops, chunks, pieces
    CHECK(overlapping > 0);
    ::unlink(file.c_str());
}

TEST_CASE("collx_sim refuses what is wrong, with the remedy") {
    const auto ends = [](int code, const std::string& arguments) {
        CAPTURE(arguments);
        const result r = sim(arguments);
        CHECK(r.code == code);
        return r.text;
    };
    const auto refused = [&](const std::string& arguments) { return ends(2, arguments); };
    for (const char* bytes : {"-1", "18446744073709551615"}) {
        CHECK_THAT(refused("-m dgx-h100 -b " + std::string(bytes)), Contains("a buffer of ") && !Contains("bus GB/s"));
        CHECK_THAT(refused("devices -m dgx-h100 -b " + std::string(bytes)), Contains("a buffer of "));
    }
    CHECK_THAT(refused("-m dgx-h100 -c all_gather -a zero_copy --by-switch"),
               Contains("the switch has nothing to do") && !Contains("bus GB/s"));
    CHECK_THAT(refused("-m toaster"), Contains("no machine is called 'toaster'") && Contains("dgx-1v"));
    CHECK_THAT(refused("-m dgx-1v -c all_reduse"), Contains("'all_reduse'") && Contains(" all_to_all"));
    CHECK_THAT(refused("-m dgx-1v -a rign"), Contains("'rign'") && Contains(" halving_doubling"));
    CHECK_THAT(refused("-m dgx-1v --costs free"), Contains("'free'") && Contains("nccl-ring-simple"));
    CHECK_THAT(refused("-m dgx-1v --ranks 3"), Contains("1 ranks"));
    CHECK_THAT(refused("-m dgx-1v --lost GPU0,GPU7"), Contains("no link joins 'GPU0' and 'GPU7'"));
    CHECK_THAT(refused("-m dgx-1v --lost GPU0"), Contains("name both its ends"));
    CHECK_THAT(ends(1, "-m dgx-1v --dead 3"), Contains("rank 3 is dead") && Contains("shrink()"));
    CHECK_THAT(refused("-m dgx-1v --slow 8 --slowdown 2"), Contains("slow rank 8"));
    CHECK_THAT(refused("-m dgx-1v -a one_shot --goal /dev/null"), Contains("GOAL has messages only"));
    CHECK_THAT(ends(1, "-m dgx-1v --trace /no/such/file"), Contains("cannot write"));
    const std::string file = "/tmp/collx-sim-limit-" + std::to_string(::getpid());
    const result limited = sim("-m dgx-1v --trace " + file, "ulimit -f 1; "); // no signal ends it
    CHECK(limited.code == 1);
    CHECK_THAT(limited.text, Contains("cannot write '" + file + "'"));
    ::unlink(file.c_str());
    CHECK_THAT(refused("-m dgx-1v --ranks 0,99"), Contains("rank 99 of a machine for 8 ranks"));
    CHECK_THAT(ends(1, "-f /no/such/file"), Contains("no file '/no/such/file'"));
    CHECK_THAT(refused("--rails 8"), Contains("rails of '8'") && Contains("--rails 2048x8"));
    CHECK_THAT(refused("--rails 1000000x8"), Contains("2^20"));
    CHECK_THAT(refused("--rails 2x8 --rings"), Contains("a formula"));
    CHECK_THAT(refused("--rails 1x1"), Contains("a collective of 1 ranks"));
    CHECK_THAT(refused("--rails 4294967298x8"), Contains("rails of '4294967298x8'"));
    CHECK_THAT(refused("-m dgx-1v --ranks 0,0"), Contains("rank 0 is named twice"));
    for (const char* wide : {"-m dgx-1v --slow 3 --slowdown 1e15", "-m dgx-1v -b 1EB", "-m dgx-1v -b 4EB",
                             "-m dgx-1v -b 1GB --hosts 2 --nic 1e-9"})
        CHECK_THAT(refused(wide), Contains("simulated times end after 53 days"));
    CHECK_THAT(ends(0, "-m dgx-1v --dead 3 --dead-at 1e16"), Contains("bus GB/s")); // long after the run
    CHECK_THAT(refused("devices -m dgx-h100 --hosts 2"), Contains("that a network joins take two levels"));
    CHECK_THAT(refused("devices --rails 2x8"), Contains("that a network joins take two levels"));
    CHECK_THAT(refused("devices -m fat-tree"), Contains("name GPUs of one host"));
    CHECK_THAT(refused("devices -m gb200-nvl72"), Contains("a kernel has at most 16 ranks, and these are 72"));
    for (const char* option : {"--algorithm ring", "--rings", "--trace x.json", "--report x.html", "--goal x", "--pxn",
                               "--pieces 2", "--costs links", "--links 1"}) {
        const std::string name = std::string(option).substr(0, std::string(option).find(' '));
        CHECK_THAT(refused(std::string("devices -m dgx-h100 ") + option), Contains("devices takes no " + name));
    }
    CHECK_THAT(refused("training -m dgx-h100 --pipeline 8 --batch 8 --slow 3 --slowdown 8"),
               Contains("training takes no --slow"));
    CHECK_THAT(refused("training -m dgx-h100 --pipeline 8 --batch 8 -b 1KB"), Contains("training takes no --bytes"));
    CHECK_THAT(refused("published --trace x.json"), Contains("published takes no --trace"));
    CHECK_THAT(refused("published -m nonsense"), Contains("published takes no --machine"));
    CHECK_THAT(refused("--rails 2x8 --hosts 4"), Contains("they take no") && Contains("--hosts"));
    CHECK_THAT(refused("--rails 2x8 --pxn"), Contains("they take no") && Contains("--pxn"));
    CHECK_THAT(refused("-m dgx-1v --slowdown 2"), Contains("--slowdown requires --slow"));
    CHECK_THAT(refused("-m dgx-1v --slow 2"), Contains("--slow requires --slowdown"));
    CHECK_THAT(refused("-m dgx-1v --dead-at 5"), Contains("--dead-at requires --dead"));
    CHECK_THAT(refused("-m dgx-1v --dead 3 --dead-at nan"), Contains("'nan' is no finite number"));
    CHECK_THAT(refused("-m dgx-1v --slow 3 --slowdown inf"), Contains("'inf' is no finite number"));
    CHECK_THAT(refused("-m dgx-1v --dead -2"), Contains("--dead"));
    CHECK_THAT(refused("training -m dgx-h100 --pipeline 8 --batch 2147483647"),
               Contains("1.72e+10 passes of micro-batches") && Contains("give a smaller --batch"));
    CHECK_THAT(refused("-m dgx-1v -c barrier -b 8"), Contains("a barrier moves no bytes"));
    CHECK_THAT(ends(1, "-m dgx-1v > /dev/full"), Contains("standard output is not complete: No space left"));
    for (const char* option : {"--machine", "--file", "--rails", "--collective", "--algorithm", "--costs", "--lost",
                               "--trace", "--report", "--goal"})
        CHECK_THAT(refused(std::string(option) + " ''"), Contains(std::string(option) + ": an empty value"));
    CHECK(sim("--pieces 0").code == 2);
    CHECK(sim("--help").code == 0);
}
