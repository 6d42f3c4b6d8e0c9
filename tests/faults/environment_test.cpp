// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors around a program, seen from outside: wrong variables, ranks that never start, a rank that dies. The user
// must read one line per rank with a remedy, and the status must not be 0. The program tests itself: with
// FAULTS_PROGRAM set it is a small user program instead of the tests.
// collx-test: serial timeout=240 env=RUN_BINARY=$<$<TARGET_EXISTS:collx_run>:$<TARGET_FILE:collx_run>>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <collx/collx.hpp>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/skip.hpp"

namespace {

// Rank 1 dies after a call, in which others may still be. They shrink and sum fifty times; returns the last sum.
int go_on(collx::communicator& world) {
    int sum = 0;
    try {
        collx::barrier(world);
        if (world.rank() == 1) ::raise(SIGKILL);
        for (;;) collx::barrier(world);
    } catch (const collx::peer_failed&) {
        for (int i = 0; i < 50; ++i) {
            auto left = world.shrink();
            sum = 1;
            collx::all_reduce(left, collx::value(sum));
            if (i == 49) world = std::move(left);
        }
    }
    return sum;
}

// A program whose ranks may use some transports only; with `split-minded` they do not agree on them.
collx::communicator world_over(const char* what) {
    using collx::per_peer, collx::shm, collx::sockets;
    const char* rank = std::getenv("COLLX_RANK");
    if (std::strcmp(what, "near") == 0) return collx::basic_communicator<shm>();
    if (std::strcmp(what, "apart") == 0) return collx::communicator(per_peer{sockets{}});
    if (std::strcmp(what, "split-minded") == 0 && std::strcmp(rank, "1") == 0)
        return collx::basic_communicator<sockets>();
    return collx::communicator();
}

// Runs before main(), so that Catch2 prints nothing.
const bool is_program = [] {
    const char* what = std::getenv("FAULTS_PROGRAM");
    if (what == nullptr) return false;
    int status = 0;
    try {
        collx::communicator world = world_over(what);
        int x = 1;
        if (std::strcmp(what, "splits") == 0) (void)world.split(world.rank() / 2);
        if (std::strcmp(what, "survives") == 0) x = go_on(world);
        else collx::all_reduce(world, collx::value(x));
        if (std::strcmp(what, "apart") == 0) { // no memory is shared, and another list of transports is refused
            if (world.internals().net.is_one_host() || world.sent().messages == 0) x = -1;
            const collx::communicator other(collx::per_peer{collx::shm{}});
        }
        if (world.rank() == 1 && std::strcmp(what, "dies") == 0) ::raise(SIGKILL);
        if (world.rank() == 1 && std::strcmp(what, "hangs") == 0) ::sleep(30);
        collx::barrier(world);
        std::printf("sum %d\n", x);
    } catch (const collx::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        status = 3;
    }
    std::fflush(nullptr);
    ::_exit(status);
}();

struct result {
    int status = -1;
    std::string text;
    int lines = 0;
    bool says(std::string_view what) const { return text.find(what) != std::string::npos; }
};

// Runs a command line, with standard error in the output.
result shell(const std::string& command) {
    result r;
    std::FILE* f = ::popen(("exec 2>&1; " + command).c_str(), "r");
    REQUIRE(f != nullptr);
    char line[2048];
    while (std::fgets(line, sizeof line, f) != nullptr) {
        r.text += line;
        ++r.lines;
    }
    const int status = ::pclose(f);
    r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return r;
}
std::string self() {
    char path[4096];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    REQUIRE(n > 0);
    return "'" + std::string(path, static_cast<std::size_t>(n)) + "'";
}
// Runs the program as one process, with these variables.
result alone(const std::string& variables, const char* program = "sums") {
    return shell("timeout " + std::to_string(collx_test::patient_s(100)) +
                 " env FAULTS_PROGRAM=" + std::string(program) + " " + variables + " " + self());
}
bool have_launcher() {
    const char* path = std::getenv("RUN_BINARY");
    if (path != nullptr && *path != '\0') return true;
    collx_test::skip("RUN_BINARY does not name the tool collx_run, which was not built.");
    return false;
}
result launched(const std::string& options, const std::string& variables, const char* program = "sums") {
    const std::string launcher = std::getenv("RUN_BINARY");
    return shell("timeout " + std::to_string(collx_test::patient_s(100)) + " env FAULTS_PROGRAM=" +
                 std::string(program) + " " + variables + " '" + launcher + "' " + options + " " + self());
}

} // namespace

TEST_CASE("without a launcher the program is one rank") {
    const result r = alone("");
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(r.text == "sum 1\n");
}

TEST_CASE("COLLX_DEBUG=INFO says once what the job is, and what each communicator made of it is") {
    CHECK(alone("COLLX_DEBUG=WARN").text == "sum 1\n");
    const result one = alone("COLLX_DEBUG=INFO");
    INFO(one.text);
    CHECK(one.lines == 2);
    CHECK(one.says("collx: info: collx " COLLX_VERSION_STRING ": 1 rank (found by: alone) on 1 host, over shm; "));
    if (!have_launcher()) return;
    const result r = launched("-n 4 --hosts 2 --no-prefix", "COLLX_DEBUG=INFO COLLX_TIMEOUT=90", "splits");
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(r.lines == 4 + 3);
    CHECK(r.says("4 ranks (found by: "));
    CHECK(r.says(") on 2 hosts, over shm,verbs,sockets; "));
    CHECK(r.says("; time limit 90 s"));
    CHECK(r.says("collx: info: a communicator of 2 of 4 ranks, the first is rank 0, on 1 host\n"));
    CHECK(r.says("collx: info: a communicator of 2 of 4 ranks, the first is rank 2, on 1 host\n"));
}

TEST_CASE("a variable that makes no sense is one line with its name and a remedy") {
    const struct {
        const char *variables, *names, *remedy;
    } cells[] = {
        {"COLLX_TIMEOT=5", "COLLX_TIMEOT", "COLLX_TIMEOUT"},
        {"COLLX_RANK=0", "COLLX_SIZE", "set both or neither"},
        {"COLLX_SIZE=2", "COLLX_RANK", "set both or neither"},
        {"COLLX_RANK=2 COLLX_SIZE=2 COLLX_JOB=x", "COLLX_RANK=2", "ranks count from 0"},
        {"COLLX_RANK=-1 COLLX_SIZE=2 COLLX_JOB=x", "COLLX_RANK", ""},
        {"COLLX_RANK=0 COLLX_SIZE=0", "COLLX_SIZE", ""},
        {"COLLX_RANK=0 COLLX_SIZE=99999999999999999999 COLLX_JOB=x", "COLLX_SIZE", ""},
        {"COLLX_RANK=zero COLLX_SIZE=2 COLLX_JOB=x", "COLLX_RANK", ""},
        {"COLLX_RANK= COLLX_SIZE=2 COLLX_JOB=x", "COLLX_RANK", ""},
        {"COLLX_RANK=0 COLLX_SIZE=2", "COLLX_JOB", "collx_run"},
        {"COLLX_RANK=0 COLLX_SIZE=2 COLLX_JOB=x COLLX_STORE=file:.", "COLLX_STORE", "unset one"},
        {"COLLX_TIMEOUT=-3", "COLLX_TIMEOUT", ""},
        {"COLLX_TIMEOUT=soon", "COLLX_TIMEOUT", ""},
        {"COLLX_CHECKED=maybe", "COLLX_CHECKED", ""},
        {"COLLX_WAIT=sleep", "COLLX_WAIT", "spin"},
        {"COLLX_ARENA_BYTES=lots", "COLLX_ARENA_BYTES", ""},
        {"COLLX_BOOTSTRAP=mpi", "COLLX_BOOTSTRAP", ""},
        {"\"$(printf 'COLLX_WAIT=\\377\\376')\"", "COLLX_WAIT", ""},
    };
    for (const auto& c : cells) {
        const result r = alone(c.variables);
        INFO(c.variables << ": " << r.text);
        CHECK(r.status == 3);
        CHECK(r.lines == 1);
        CHECK(r.text.rfind("collx: ", 0) == 0);
        CHECK(r.says(c.names));
        CHECK(r.says(c.remedy));
        CHECK(r.says("(")); // the remedy is in parentheses
        CHECK(r.text.size() < 400);
    }
}

TEST_CASE("a job that is not complete in time says who is missing") {
    const result r =
        alone("COLLX_RANK=0 COLLX_SIZE=3 COLLX_TIMEOUT=0.3 COLLX_JOB=incomplete-" + std::to_string(::getpid()));
    INFO(r.text);
    CHECK(r.status == 3);
    CHECK(r.lines == 1);
    CHECK(r.says("1"));
    CHECK(r.says("COLLX_TIMEOUT"));
}

TEST_CASE("under the launcher ranks sum up") {
    if (!have_launcher()) return;
    const result r = launched("-n 3 --no-prefix", "");
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(r.text == "sum 3\nsum 3\nsum 3\n");
}

TEST_CASE("under the launcher a wrong variable fails the job, with the line of a rank") {
    if (!have_launcher()) return;
    const result r = launched("-n 2", "COLLX_TIMEOT=5");
    INFO(r.text);
    CHECK(r.status != 0);
    CHECK(r.status != 124);
    CHECK(r.says("COLLX_TIMEOT"));
    CHECK(r.says("COLLX_TIMEOUT"));
    CHECK(r.lines <= 4);
}

TEST_CASE("under the launcher a dead rank is named and its status returned") {
    if (!have_launcher()) return;
    const result r = launched("-n 3", "", "dies");
    INFO(r.text);
    CHECK(r.status == 128 + SIGKILL);
    CHECK(r.says("rank 1"));
    CHECK(r.says("SIGKILL"));
}

TEST_CASE("under the launcher the survivors of a dead rank go on if both want it") {
    if (!have_launcher()) return;
    const result r = launched("-n 4 --keep-going --no-prefix", "", "survives");
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(r.says("SIGKILL"));
    std::size_t sums = 0;
    for (std::size_t at = r.text.find("sum 3"); at != std::string::npos; at = r.text.find("sum 3", at + 1)) ++sums;
    CHECK(sums == 3);
}

TEST_CASE("under the launcher a rank that does not come is named by those who wait") {
    if (!have_launcher()) return;
    for (const bool is_checked : {false, true}) {
        const result r = launched(
            "-n 3", is_checked ? "COLLX_TIMEOUT=3 COLLX_CHECKED=1" : "COLLX_TIMEOUT=3 COLLX_CHECKED=0", "hangs");
        INFO(r.text);
        CHECK(r.status == 3);
        CHECK(r.says("timed out waiting for rank 1"));
        CHECK(r.says("set_timeout() waits longer"));
        CHECK(r.says("set_checked(true) compares calls") == !is_checked);
    }
}

TEST_CASE("a program's list of transports holds for all its ranks") {
    if (!have_launcher()) return;
    for (const char* how : {"-n 3", "-n 4 --hosts 2"}) {
        const result apart = launched(how, "", "apart");
        INFO(apart.text);
        CHECK(apart.status == 3);
        CHECK(apart.says("has joined its job over per_peer{sockets}, and is asked for per_peer{shm}"));
        CHECK(!apart.says("sum -1"));
    }
    const result one = launched("-n 3", "", "near");
    INFO(one.text);
    CHECK(one.status == 0);
    CHECK(one.says("sum 3"));
    const result several = launched("-n 4 --hosts 2", "", "near");
    INFO(several.text);
    CHECK(several.status == 3);
    CHECK((several.says("rank 2 is on another host") || several.says("rank 0 is on another host")));
    CHECK(several.says("add sockets{} to per_peer"));
    for (const char* how : {"-n 3", "-n 3 --hosts 3"}) {
        const result torn = launched(how, "COLLX_TIMEOUT=" + std::to_string(collx_test::patient_s(20)), "split-minded");
        INFO(torn.text);
        CHECK(torn.status == 3);
        CHECK(torn.says("rank 1"));
        CHECK(torn.says("per_peer=sockets"));
        CHECK(torn.says("per_peer=shm,verbs,sockets"));
    }
}
