// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: serial timeout=240
//
// collx_calls, and collx_run when it records, run as programs; this program is also the job.
#include <collx/collx.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

#include "tools/program.hpp"

using namespace collx_test;
using Catch::Contains;

namespace {
std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
} // namespace

TEST_CASE("a rank of the job below: all reduce, and one leaves before the last call", "[.rank]") {
    collx::communicator w;
    std::vector<float> x(1024, 1.0f);
    collx::all_reduce(w, x);
    collx::async::all_reduce(w, x).wait();
    if (std::getenv("LEAVES") != nullptr && w.rank() == 1) ::_exit(3);
    collx::barrier(w);
}

TEST_CASE("collx_run writes the calls of all ranks as one trace") {
    std::string run, calls;
    if (!find_program("collx_run", run) || !find_program("collx_calls", calls)) return;
    const temporary_file trace(".json");
    const finished f = run_program(run, "-n 3 --trace '" + trace.path() + "' '" + own_path() + "' '[.rank]'");
    CAPTURE(f.out, f.err);
    REQUIRE(f.status == 0);
    const auto events = nlohmann::json::parse(file_contents(trace.path()))["traceEvents"];
    int whole[3] = {}, begun[3] = {}, ended[3] = {}, lines = 0;
    for (const auto& e : events) {
        lines += e["name"] == "thread_name";
        if (e["ph"] == "M") continue;
        CHECK(e["pid"] == 1);
        const int rank = e["tid"];
        whole[rank] += e["ph"] == "X";
        begun[rank] += e["ph"] == "b";
        ended[rank] += e["ph"] == "e";
        if (e["ph"] == "b") CHECK((e["name"] == "all_reduce" && e["args"]["bytes"] == 4096 && e["args"]["call"] == 2));
    }
    CHECK(lines == 3);
    for (int r = 0; r < 3; ++r) {
        CHECK(whole[r] >= 2);
        CHECK(begun[r] == 1);
        CHECK(ended[r] == 1);
    }
}

TEST_CASE("collx_run refuses a trace that would not come, before any rank runs") {
    std::string run;
    if (!find_program("collx_run", run)) return;
    const auto refused = [&](const std::string& arguments, const std::string& before, const char* why) {
        const finished f = run_program(run, "-n 2 " + arguments + " sh -c 'echo ran'", before);
        CAPTURE(arguments, f.err);
        CHECK(f.status == 2);
        CHECK(f.out.empty());
        CHECK(f.complains(why));
    };
    const temporary_file trace(".json");
    const std::string there = "--trace '" + trace.path() + "'";
    refused("--trace /no/such/folder/x.json", "", "/no/such/folder/x.json: this file cannot be written");
    refused(there, "COLLX_RECORD=0", "COLLX_RECORD is 0");
    refused(there + " --env COLLX_RECORD_DIR=/tmp", "", "COLLX_RECORD_DIR is /tmp: leave one out");
    const finished none = run_program(run, "-n 2 " + there + " true");
    CHECK(none.status == 2);
    CHECK(none.complains("no rank has recorded a call, so " + trace.path() + " is not written"));
    CHECK(::access(trace.path().c_str(), F_OK) == 0); // it was there
    CHECK(run_program(run, "-n 2 --trace '" + trace.path() + ".new' true").status == 2);
    CHECK(::access((trace.path() + ".new").c_str(), F_OK) != 0);
}

TEST_CASE("after a failure collx_run and collx_calls say which rank did not come") {
    std::string run, calls;
    if (!find_program("collx_run", run) || !find_program("collx_calls", calls)) return;
    const temporary_file beside(".json"), trace(".json");
    const std::string folder = beside.path() + ".records";
    const finished f =
        run_program(run, "-n 3 --grace 20 --env COLLX_RECORD_DIR='" + folder + "' '" + own_path() + "' '[.rank]'",
                    "LEAVES=1 COLLX_CHECKED=0");
    CAPTURE(f.out, f.err);
    CHECK((f.status == 3 || f.status == 1)); // the other ranks fail within its milliseconds
    CHECK(f.complains("communicator 1, 3 ranks:\n  rank 1: ended collective 2 (all_reduce, 4096 bytes, async)\n"));
    const finished again = run_program(calls, "'" + folder + "'");
    CHECK(again.status == 0);
    CHECK(again.prints("rank 1: ended collective 2 (all_reduce, 4096 bytes, async)"));
    std::ofstream(beside.path()) << R"({"traceEvents":[{"ph":"X","name":"to 1","pid":0,"tid":0,"ts":0,"dur":1}]})";
    CHECK(
        run_program(calls, "'" + folder + "' --trace '" + trace.path() + "' --beside '" + beside.path() + "'").status ==
        0);
    bool is_predicted = false, is_recorded = false;
    const auto events = nlohmann::json::parse(file_contents(trace.path()))["traceEvents"];
    for (const auto& e : events) (e["pid"] == 0 ? is_predicted : is_recorded) = true;
    CHECK((is_predicted && is_recorded));
    for (const std::string& none : {folder, beside.path() + ".none"})
        CHECK(run_program(calls, "'" + folder + "' --trace '" + trace.path() + "' --beside '" + none + "'")
                  .complains("collx_calls: " + none + " is no file that can be read."));
    const finished unwritten = run_program(calls, "'" + folder + "' --trace /no/such/folder/x.json");
    CHECK(unwritten.status == 1);
    CHECK(unwritten.complains("collx_calls: cannot write /no/such/folder/x.json."));
    std::filesystem::remove_all(folder);

    const finished traced =
        run_program(run, "-n 3 --grace 20 --trace '" + trace.path() + "' '" + own_path() + "' '[.rank]'",
                    "LEAVES=1 COLLX_CHECKED=0");
    CAPTURE(traced.err);
    CHECK(traced.status != 0);
    CHECK(
        traced.complains("the calls that the ranks recorded are in " + trace.path() + "; their directory is removed"));
}

TEST_CASE("wrong words, an empty directory and files that are no records end with 2 and a sentence") {
    std::string calls;
    if (!find_program("collx_calls", calls)) return;
    const temporary_file mark;
    const std::string folder = mark.path() + ".records";
    CHECK(run_program(calls, "").status == 2);
    CHECK(run_program(calls, "'" + folder + "'").complains("No such file"));
    std::filesystem::create_directory(folder);
    const finished empty = run_program(calls, "'" + folder + "'");
    CHECK(empty.status == 2);
    CHECK(empty.complains("has no records of calls; run the ranks with COLLX_RECORD_DIR="));
    std::ofstream(folder + "/a.calls") << std::string(500, 'x');
    const finished wrong = run_program(calls, "'" + folder + "'");
    CHECK(wrong.status == 2);
    CHECK(wrong.complains("a.calls: collx: no file of recorded calls: it begins otherwise"));
    CHECK(run_program(calls, "'" + folder + "' --beside x").complains("--beside needs --trace"));
    CHECK(run_program(calls, "'" + folder + "' --trace ''").complains("--trace: an empty value"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("a file that cannot be read hides no other, and a FIFO does not hang") {
    std::string run, calls;
    if (!find_program("collx_run", run) || !find_program("collx_calls", calls)) return;
    const temporary_file mark;
    const std::string folder = mark.path() + ".records";
    const finished f = run_program(run, "-n 2 --env COLLX_RECORD_DIR='" + folder + "' '" + own_path() + "' '[.rank]'");
    CAPTURE(f.out, f.err);
    REQUIRE(f.status == 0);
    std::filesystem::create_directory(folder + "/a.calls");
    std::filesystem::create_symlink("/no/such/file", folder + "/b.calls");
    REQUIRE(::mkfifo((folder + "/c.calls").c_str(), 0600) == 0);
    std::ofstream(folder + "/d.calls") << "no record";
    const finished all = run_program(calls, "'" + folder + "'");
    CAPTURE(all.out, all.err);
    CHECK(all.status == 0);
    CHECK(all.prints("communicator 1, 2 ranks:\n  ranks 0, 1: ended collective 3 (barrier)\n"));
    CHECK(all.complains("/a.calls: Is a directory\n"));
    CHECK(all.complains("/b.calls: No such file or directory\n"));
    CHECK(all.complains("/c.calls: Not a regular file\n"));
    CHECK(all.complains("/d.calls: collx: no file of recorded calls: it is too short"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("with --keep-going a rank that fails is followed by the report, also if the status is 0") {
    std::string run;
    if (!find_program("collx_run", run)) return;
    const temporary_file mark;
    const std::string folder = mark.path() + ".records";
    const finished f = run_program(run, "-n 2 --keep-going --env COLLX_RECORD_DIR='" + folder + "' sh -c \"'" +
                                            own_path() + "' '[.rank]' && exit \\$COLLX_RANK\"");
    CAPTURE(f.out, f.err);
    CHECK(f.status == 0);
    CHECK(f.complains("rank 1 (pid "));
    CHECK(f.complains("communicator 1, 2 ranks:\n  ranks 0, 1: ended collective 3 (barrier)\n"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("Ctrl-C while the trace is written leaves no directory behind") {
    std::string run;
    if (!find_program("collx_run", run)) return;
    const temporary_file mark;
    const std::string folder = mark.path() + ".tmp", fifo = mark.path() + ".fifo";
    std::filesystem::create_directory(folder);
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    const int reader = ::open(fifo.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    REQUIRE(reader >= 0);
    char block[4096] = {};
    while (::write(reader, block, sizeof block) > 0) {
    } // full: collx_run waits in the trace
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::setenv("TMPDIR", folder.c_str(), 1);
        ::execl(run.c_str(), "collx_run", "-n", "2", "--trace", fifo.c_str(), own_path().c_str(), "[.rank]", nullptr);
        ::_exit(99);
    }
    // The job is over when collx_run has had children and has none: ranks and its guard.
    const std::string list = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children";
    const auto until = std::chrono::steady_clock::now() + patient(std::chrono::seconds(60));
    bool has_begun = false, is_over = false;
    while (!is_over && std::chrono::steady_clock::now() < until) {
        const bool has_children = !file_contents(list).empty();
        has_begun = has_begun || has_children;
        is_over = has_begun && !has_children;
        ::usleep(1000);
    }
    CHECK(is_over);
    ::kill(pid, SIGINT);
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(pid, &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < until)
        if (::read(reader, block, sizeof block) <= 0) ::usleep(1000);
    if (ended == 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &status, 0);
    }
    ::close(reader);
    ::unlink(fifo.c_str());
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
    CHECK(std::filesystem::is_empty(folder));
    std::filesystem::remove_all(folder);
}
