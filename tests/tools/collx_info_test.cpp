// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_info: every section is there, JSON says the same, problems come with a remedy and with the right exit code.
// collx-test: serial timeout=120
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "program.hpp"

using collx_test::run_program;

TEST_CASE("a usable machine: each section, both transports tried, status 0") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto f = run_program(info, "");
    INFO(f.out << f.err);
    CHECK(f.status == 0);
    for (const char* text : {"collx\n  version",
                             "\nMachine\n  cores usable",
                             "memory available",
                             "/dev/shm",
                             "huge pages, shared memory",
                             "\nLimits\n  open files",
                             "lockable memory",
                             "address space",
                             "\nKernel\n",
                             "memfd with seals",
                             "pidfd",
                             "cross-memory attach",
                             "\nJob\n  found by",
                             "alone",
                             "\nVariables\n",
                             "\nTransports\n  memory   yes: ",
                             "  shm      yes: ",
                             "  sockets  no: not in this version",
                             "  verbs ",
                             "  nvlink ",
                             "  pcie "})
        CHECK(f.prints(text));
}

TEST_CASE("JSON has the same sections") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto f = run_program(info, "--json --env", "COLLX_TIMEOUT=7");
    INFO(f.out << f.err);
    CHECK(f.status == 0);
    const auto all = nlohmann::json::parse(f.out);
    for (const char* key : {"collx", "machine", "limits", "kernel", "job", "variables", "transports", "problems"})
        CHECK(all.contains(key));
    CHECK(all["usable"] == true);
    CHECK(all["machine"]["cores"].get<int>() >= 1);
    CHECK(all["transports"]["shm"]["usable"] == true);
    CHECK(all["transports"]["verbs"]["why_not"] == "not in this version");
    CHECK(all["job"]["timeout_ns"] == 7'000'000'000);
    CHECK(all["variables"]["COLLX_TIMEOUT"]["value"] == "7");
    CHECK(all["variables"]["COLLX_TIMEOUT"]["origin"] == "environment");
    CHECK(all["variables"]["COLLX_SIZE"]["origin"] == "default");
    CHECK(all["variables"].size() > 10);
}

TEST_CASE("an environment that contradicts itself is an error with a remedy") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto half = run_program(info, "--quick", "COLLX_RANK=1");
    CHECK(half.status == 1);
    CHECK(half.prints("ERROR    COLLX_RANK is set but COLLX_SIZE is not\n           remedy: set both or neither"));
    const auto unknown = run_program(info, "--quick", "COLLX_TIMEOT=3");
    CHECK(unknown.status == 1);
    CHECK(unknown.prints("unknown variable COLLX_TIMEOT"));
    CHECK(unknown.prints("remedy: did you mean COLLX_TIMEOUT?"));
    const auto job = run_program(info, "--quick", "COLLX_RANK=1 COLLX_SIZE=4096 COLLX_JOB=j");
    CHECK(job.status == 0);
    CHECK(job.prints("found by               environment"));
    CHECK(job.prints("warning  4096 ranks share "));
    CHECK(job.prints("remedy: start at most "));
}

TEST_CASE("limits that hurt are named with a remedy") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto f = run_program(info, "--quick", "ulimit -n 32;");
    CHECK(f.prints("only 32 files may be open"));
    CHECK(f.prints("remedy: ulimit -n 1024"));
    CHECK(f.status == 0);
    const auto typo = run_program(info, "--jsn");
    CHECK(typo.status == 2);
    CHECK(typo.complains("--jsn"));
}
