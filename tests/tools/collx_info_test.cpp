// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_info: every section is printed, JSON has the same content, problems have a remedy and the right exit code.
// collx-test: serial timeout=240
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "info/gpus.hpp"
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
                             "\nTopology (from /sys)\n",
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
                             "\nGPUs\n",
                             "\nTransports\n  memory   yes: ",
                             "  shm      yes: ",
                             "  sockets  yes: several hosts",
                             "  verbs ",
                             "  nvlink ",
                             "  pcie "})
        CHECK(f.prints(text));
}

TEST_CASE("started by a program that ignores the ends of its children, all is found as usable as it is") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto f = run_program("/usr/bin/env", "--ignore-signal=CHLD '" + info + "'");
    INFO(f.out << f.err);
    CHECK(f.status == 0);
    CHECK(f.prints("  shm      yes: "));
}

TEST_CASE("JSON has the same sections") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto f = run_program(info, "--json --env", "COLLX_TIMEOUT=7");
    INFO(f.out << f.err);
    CHECK(f.status == 0);
    const auto all = nlohmann::json::parse(f.out);
    for (const char* key :
         {"collx", "machine", "topology", "limits", "kernel", "job", "variables", "gpus", "transports", "problems"})
        CHECK(all.contains(key));
    CHECK(all["usable"] == true);
    CHECK(all["machine"]["cores"].get<int>() >= 1);
    CHECK(all["transports"]["shm"]["usable"] == true);
    CHECK(all["transports"]["verbs"]["usable"] == all["transports"]["verbs"]["why_not"].is_null());
    CHECK(all["transports"]["verbs"]["usable"] == all["transports"]["verbs"]["device"].is_string());
    CHECK(all["job"]["timeout_ns"] == 7'000'000'000);
    CHECK(all["variables"]["COLLX_TIMEOUT"]["value"] == "7");
    CHECK(all["variables"]["COLLX_TIMEOUT"]["origin"] == "environment");
    CHECK(all["variables"]["COLLX_SIZE"]["origin"] == "default");
    CHECK(all["variables"].size() > 10);
}

TEST_CASE("devices and what joins them, as the driver tells it") {
    using namespace collx::tools::info;
    gpu_driver d;
    d.init = [](unsigned) { return 0; };
    d.version = [](int* v) {
        *v = 13000;
        return 0;
    };
    d.count = [](int* n) {
        *n = 3;
        return 0;
    };
    d.get = [](int* h, int i) {
        *h = 10 + i;
        return 0;
    };
    d.name = [](char* s, int n, int) {
        std::snprintf(s, static_cast<unsigned>(n), "a device");
        return 0;
    };
    d.bus_id = [](char* s, int n, int h) {
        std::snprintf(s, static_cast<unsigned>(n), "0000:%d:00.0", h);
        return 0;
    };
    d.can_access = [](int* yes, int a, int b) {
        *yes = a + b != 23;
        return 0;
    }; // not between 1 and 2
    d.p2p = [](int* x, int what, int a, int b) {
        *x = what == 3 && a + b == 21;
        return 0;
    }; // atomics between 0 and 1
    // The fabric: only device 1; multicast: all except device 2.
    d.attribute = [](int* x, int what, int h) {
        *x = what == 128 ? h == 11 : what != 132 || h != 12;
        return 0;
    };
    const auto found = ask_for_gpus(d);
    const std::string text = to_text({{gpus_section(found)}, {}});
    INFO(text);
    for (const char* line :
         {"driver is for CUDA  13.0", "a device, 0000:11:00.0", "device 0 and 1      nvlink",
          "device 0 and 2      pcie", "device 1 and 2      by way of the host: the driver offers no peer access"})
        CHECK(text.find(line) != std::string::npos);
    CHECK(handles_of(found.devices[0]) == "file descriptors, CUDA IPC; no fabric handles: the driver offers none (they "
                                          "need an NVLink fabric and nvidia-imex)");
    CHECK(handles_of(found.devices[1]) == "fabric handles, file descriptors, CUDA IPC");
    CHECK(text.find("device 1 handles    mapped by fabric handles") != std::string::npos);
    CHECK(text.find("device 1 switch     reduces and multicasts") != std::string::npos);
    CHECK(text.find("device 2 switch     none that reduces and multicasts") != std::string::npos);
    section s{"transports", "Transports"};
    add_gpu_transports(s, found);
    CHECK(s.facts[0].text == "yes: GPUs joined by NVLink; 1 pairs, not tried");
    CHECK(s.facts[1].text == "yes: GPUs joined by PCI Express; 1 pairs, not tried");
    d.count = [](int* n) {
        *n = 0;
        return 0;
    };
    CHECK(ask_for_gpus(d).why_none.find("sees no device") != std::string::npos);
    d.init = [](unsigned) { return 999; };
    CHECK(ask_for_gpus(d).why_none.find("CUDA error 999") != std::string::npos);
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
    const auto machine = run_program(info, "--quick", "COLLX_TOPOLOGY=/no/such/file");
    CHECK(machine.status == 1);
    CHECK(machine.prints("ERROR    rank 0: COLLX_TOPOLOGY=/no/such/file: No such file or directory"));
    const auto folder = run_program(info, "--quick", "COLLX_TOPOLOGY=/etc");
    CHECK(folder.prints("ERROR    rank 0: COLLX_TOPOLOGY=/etc: Is a directory"));
    const std::string fifo = collx_test::temporary_file().path() + ".fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    const auto no_file = run_program(info, "--quick", "COLLX_TOPOLOGY=" + fifo);
    CHECK(no_file.status == 1);
    CHECK(no_file.prints("COLLX_TOPOLOGY=" + fifo + ": Not a regular file"));
    const auto costs = run_program(info, "--quick", "COLLX_MACHINE=" + fifo);
    ::unlink(fifo.c_str());
    CHECK(costs.status == 0);
    CHECK(
        costs.prints("warning  COLLX_MACHINE cannot be used, so explain() has no times: " + fifo + ": Not a regular"));
    const auto bytes = run_program(info, "--quick --json", "COLLX_RANK=0 COLLX_SIZE=2 COLLX_STORE=file:/tmp/\xff");
    CHECK(bytes.prints("\"problems\""));
    CHECK(run_program(info, "--quick >/dev/full").status == 1);
    const auto job = run_program(info, "--quick", "COLLX_RANK=1 COLLX_SIZE=4096 COLLX_JOB=j");
    CHECK(job.status == 0);
    CHECK(job.prints("found by               environment"));
    CHECK(job.prints("warning  4096 ranks share "));
    CHECK(job.prints("remedy: start at most "));
}

TEST_CASE("what a program would not find at its start, or when it asks for times, is found here") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto nowhere = run_program(info, "--quick", "COLLX_RECORD_DIR=/nonexist/a");
    INFO(nowhere.out);
    CHECK(nowhere.status == 1);
    CHECK(
        nowhere.prints("ERROR    calls cannot be recorded in COLLX_RECORD_DIR=/nonexist/a: No such file or directory\n"
                       "           remedy: let COLLX_RECORD_DIR name a directory where this user may write"));
    CHECK(run_program(info, "--quick", "COLLX_RECORD_DIR=/dev/null").prints("COLLX_RECORD_DIR=/dev/null: Not a dir"));
    CHECK(run_program(info, "--quick", "COLLX_RECORD=0 COLLX_RECORD_DIR=/nonexist/a").status ==
          0); // nothing is recorded
    const collx_test::temporary_file mark;
    const std::string folder = mark.path() + ".records";
    const auto good = run_program(info, "--quick", "COLLX_RECORD_DIR=" + folder);
    CHECK(good.status == 0);
    CHECK(!good.prints("COLLX_RECORD_DIR=" + folder + ":"));
    CHECK(!std::filesystem::exists(folder)); // it is left to the ranks
    std::filesystem::create_directory(folder);
    CHECK(run_program(info, "--quick", "COLLX_RECORD_DIR=" + folder).status == 0);
    CHECK(std::filesystem::is_empty(folder));
    std::filesystem::remove(folder);

    const auto costs = run_program(info, "--quick", "COLLX_MACHINE=/nonexist/b");
    CHECK(costs.status == 0);
    CHECK(costs.prints("warning  COLLX_MACHINE cannot be used, so explain() has no times: /nonexist/b: No such file or "
                       "directory\n           remedy: write one with collx_perf --fit FILE"));
}

TEST_CASE("the address that other hosts reach this rank at, and why it is that one") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const std::string job = "env -i COLLX_RANK=0 COLLX_SIZE=2 COLLX_STORE=tcp:127.0.0.1:5000 ";
    const auto net = run_program(info, "--quick", job + "COLLX_ADDRESS=127.0.0.0/8");
    INFO(net.out << net.err);
    CHECK(net.status == 0);
    CHECK(net.prints("127.0.0.1 (COLLX_ADDRESS=127.0.0.0/8: lo has it)"));
    CHECK(run_program(info, "--quick", job + "COLLX_ADDRESS=unix").prints("unix sockets of this machine"));
    CHECK(run_program(info, "--quick", job + "COLLX_HOST_ID=a").prints("COLLX_ADDRESS is not set"));
    const auto wrong = run_program(info, "--quick", job + "COLLX_ADDRESS=eth99");
    CHECK(wrong.status == 1);
    CHECK(wrong.prints("no interface with an address has this name"));
    CHECK(wrong.prints("lo 127.0.0.1"));
}

TEST_CASE("limits that hurt are named with a remedy") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const auto f = run_program(info, "--quick", "ulimit -n 32;");
    CHECK(f.prints("only 32 files may be open"));
    CHECK(f.prints("remedy: ulimit -n 1024"));
    CHECK(f.status == 0);
    // Room for a library and for one end of a pipe. What runs the tests may have left descriptor 3 open.
    const auto few = run_program("bash", "-c \"exec 3>&-; ulimit -n 4; exec '" + info + "' --quick\"");
    INFO(few.out << few.err);
    CHECK(few.prints("cross-memory attach could not be tried: no pipe: Too many open files"));
    CHECK(few.prints("remedy: raise the limit of open files (ulimit -n)"));
    CHECK(!few.prints("ptrace_scope="));
    const auto typo = run_program(info, "--jsn");
    CHECK(typo.status == 2);
    CHECK(typo.complains("--jsn"));
}

TEST_CASE("which launcher was found, why, and which others were there") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const std::string clean = "env -i PATH=/usr/bin:/bin ";
    const auto alone = run_program(info, "--quick", clean);
    CHECK(alone.status == 0);
    CHECK(alone.prints("alone: no launcher's variables are set"));
    CHECK(alone.prints("also there             no other"));

    const std::string slurm = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 ";
    const std::string torch = "TORCHELASTIC_RUN_ID=a RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 ";
    const auto both = run_program(info, "--quick", clean + slurm + torch);
    INFO(both.out);
    CHECK(both.status == 0);
    CHECK(both.prints("found by               torchrun: TORCHELASTIC_RUN_ID=a, RANK=1, WORLD_SIZE=2\n"));
    CHECK(
        both.prints("torch variables (RANK=1, WORLD_SIZE=2, MASTER_ADDR=h, MASTER_PORT=1); Slurm (SLURM_STEP_ID=0, "));
    CHECK(both.prints("lost: outer launchers are asked last"));
    CHECK(both.prints("the name torch-"));
    const auto forced =
        nlohmann::json::parse(run_program(info, "--quick --json", clean + slurm + torch + "COLLX_BOOTSTRAP=slurm").out);
    CHECK(forced["job"]["found_by"] == "Slurm");
    CHECK(forced["job"]["also_there"] == nlohmann::json({"torchrun", "torch variables"}));

    const auto unknown = run_program(info, "--quick", clean + "COLLX_BOOTSTRAP=pmx");
    CHECK(unknown.status == 1);
    CHECK(unknown.prints(
        "ERROR    COLLX_BOOTSTRAP=pmx makes no sense\n           remedy: give it one of env|torch|pmi|pmix|"));
    const auto missing = run_program(info, "--quick", clean + "COLLX_BOOTSTRAP=pmi PMI_RANK=1");
    CHECK(missing.status == 1);
    CHECK(missing.prints(
        "looked for PMI_FD PMI_RANK PMI_SIZE, or PMI_PORT PMI_ID; not set: PMI_FD PMI_SIZE PMI_PORT PMI_ID\n"));
}

TEST_CASE("a key is used or missed, and never shown") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const std::string key(40, 'S');
    for (const char* options : {"--quick --env", "--quick --env --json"}) {
        const auto f = run_program(info, options, "COLLX_KEY=" + key);
        CHECK(f.out.find("SSS") == std::string::npos);
        CHECK(f.prints("not shown"));
        // Either this build can compute with the key, or it says that it cannot.
        CHECK((f.prints("auth_only") || f.prints("link collx::sodium")));
    }
    CHECK(run_program(info, "--quick", "").prints("none: no key is given"));
}

TEST_CASE("one remedy for each problem with a launcher") {
    std::string info;
    if (!collx_test::find_program("collx_info", info)) return;
    const struct {
        const char *variables, *level, *what, *remedy;
    } table[] = {
        {"SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=4", "warning", "alone although SLURM_PROCID=0 is set",
         "with srun"},
        {"JOB_COMPLETION_INDEX=0", "warning", "alone although JOB_COMPLETION_INDEX=0 is set: COLLX_SIZE not",
         "COLLX_SIZE and COLLX_STORE"},
        {"RANK=0 WORLD_SIZE=2", "ERROR", "MASTER_ADDR, MASTER_PORT missing", "set the missing ones too"},
        {"PMI_RANK=0 PMI_SIZE=2", "ERROR", "PMI_FD missing", "set the missing ones too"},
        {"PMI_RANK=0 PMI_SIZE=2 PMI_FD=77", "ERROR", "PMI_FD=77 is not a socket", "COLLX_BOOTSTRAP=single"},
        {"JOB_COMPLETION_INDEX=0 COLLX_SIZE=2", "ERROR", "only 1 of 2 ranks are on this host",
         "set COLLX_STORE=tcp:ADDRESS:PORT in the job file"},
        {"JOB_COMPLETION_INDEX=0 COLLX_STORE=tcp:10.0.0.1:5000", "ERROR", "nothing says which rank this is",
         "COLLX_SIZE"},
        {"COLLX_ADDRESS=0.0.0.0 COLLX_RANK=0 COLLX_SIZE=2 COLLX_STORE=tcp:127.0.0.1:5000", "ERROR",
         "no other host reaches this address", "set COLLX_ADDRESS to an address"},
        {"PMIX_NAMESPACE=a PMIX_RANK=0", "ERROR", "no variable says how many ranks", "link collx::pmix"},
        {"COLLX_RANK=0 COLLX_SIZE=2 COLLX_STORE=tcp:10.0.0.1:5000", "ERROR", "can be reached from outside",
         "give the job a key"},
        {"COLLX_RANK=0 COLLX_SIZE=2 COLLX_STORE=tcp:10.0.0.1:5000 COLLX_INSECURE=1", "warning", "can join",
         "give the job a key"},
        {"COLLX_RANK=0 COLLX_SIZE=2 COLLX_JOB=j COLLX_KEY_FILE=/dev/null", "ERROR", "COLLX_KEY_FILE=/dev/null is not",
         "chmod 600"},
    };
    for (const auto& t : table) {
        const auto f = run_program(info, "--quick", std::string("env -i PATH=/usr/bin:/bin ") + t.variables);
        INFO(t.variables << "\n" << f.out);
        CHECK(f.status == (t.level == std::string("ERROR") ? 1 : 0));
        const auto line = f.out.find(t.what);
        REQUIRE(line != std::string::npos);
        const auto start = f.out.rfind('\n', line) + 1, end = f.out.find('\n', line);
        CHECK(f.out.compare(start, 2 + std::string(t.level).size(), std::string("  ") + t.level) == 0);
        CHECK(f.out.substr(end, f.out.find('\n', end + 1) - end).find(t.remedy) != std::string::npos);
    }
}
