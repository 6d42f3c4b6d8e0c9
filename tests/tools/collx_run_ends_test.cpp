// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a job of collx_run ends: nothing that was written is lost, nothing is left running, and what was ended is said.
// collx-test: serial timeout=240 env=RUN_BINARY=$<$<TARGET_EXISTS:collx_run>:$<TARGET_FILE:collx_run>>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "collx_run_support.hpp"

using namespace collx_test;

namespace {

// Each of 40 ranks writes 600 lines, more than a pipe and the launcher's queue take, to a reader that comes late.
constexpr const char* more_than_fits =
    "i=0; while test $i -lt 600; do printf '%099d\\n' $i; i=$((i + 1)); done | { lines=$(cat); echo \"$lines\"; }";

// Waits until a process is stopped by a signal.
bool is_stopped_within(pid_t pid, std::chrono::nanoseconds limit) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    for (const auto deadline = steady::now() + limit; steady::now() < deadline; usleep(5000)) {
        std::ifstream file(path);
        std::string stat;
        std::getline(file, stat);
        if (stat.size() > stat.rfind(')') + 2 && stat[stat.rfind(')') + 2] == 'T') return true;
    }
    return false;
}

struct child_end {
    int status;
    std::string said; // on standard error
};
// start() becomes another program.
template <class Start>
child_end end_of_child(Start&& start) {
    int err[2];
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(err[1], 2);
        start();
        _exit(99);
    }
    close(err[1]);
    child_end e{0, ""};
    char buffer[256];
    for (ssize_t n; (n = read(err[0], buffer, sizeof buffer)) > 0;) e.said.append(buffer, static_cast<std::size_t>(n));
    close(err[0]);
    REQUIRE(waitpid(pid, &e.status, 0) == pid);
    return e;
}

} // namespace

TEST_CASE("what a rank leaves in the background ends with the job") {
    if (!have_binary()) return;
    const auto start = steady::now();
    const auto r = run_shell("2", "setsid sleep 300 & echo pid=$!; exit 0");
    CHECK(r.status == 0);
    const auto pids = pids_in(r.out);
    REQUIRE(pids.size() == 2);
    CHECK(all_dead_within(pids, 20s));
    CHECK(steady::now() - start < collx_test::patient(40s));
}

TEST_CASE("a launcher that is killed leaves neither ranks nor directories") {
    if (!have_binary()) return;
    std::string temporary = (std::filesystem::temp_directory_path() / "collx_test_XXXXXX").string();
    REQUIRE(mkdtemp(temporary.data()) != nullptr);
    const char* const usual = std::getenv("TMPDIR");
    const std::string kept = usual != nullptr ? usual : "";
    setenv("TMPDIR", temporary.c_str(), 1);
    {
        tool t({"-n", "2", "--hosts", "2", "--trace", temporary + "/trace.json", "sh", "-c",
                "touch $COLLX_RECORD_DIR/0.calls; echo pid=$$ begun; sleep 300"});
        usual != nullptr ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
        CHECK(t.wait_for("begun"));
        kill(t.pid(), SIGKILL);
        CHECK(all_dead_within(pids_in(t.seen().out), 20s));
    }
    const auto directories = [&] {
        int count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(temporary)) count += entry.is_directory();
        return count;
    };
    for (const auto deadline = steady::now() + collx_test::patient(20s); steady::now() < deadline && directories() > 0;)
        usleep(5000);
    CHECK(directories() == 0);
    std::filesystem::remove_all(temporary);
}

TEST_CASE("a reader that leaves ends the job as in a shell pipeline") {
    if (!have_binary()) return;
    int out[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], 1);
        close(2);
        open("/dev/null", O_WRONLY);
        execl(std::getenv("RUN_BINARY"), "collx_run", "-n", "2", "sh", "-c", "while echo y; do :; done", nullptr);
        _exit(99);
    }
    close(out[1]);
    char buffer[64];
    CHECK(read(out[0], buffer, sizeof buffer) > 0);
    close(out[0]);
    int status = 0;
    const auto deadline = steady::now() + 30s;
    while (waitpid(pid, &status, WNOHANG) == 0 && steady::now() < deadline) usleep(10'000);
    const bool ended = steady::now() < deadline;
    CHECK(ended);
    if (!ended) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    INFO("wait status " << status);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGPIPE));
}

TEST_CASE("output that a full disk does not take is reported, and the status is not 0") {
    if (!have_binary()) return;
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    REQUIRE(full >= 0);
    const auto [status, said] = end_of_child([&] {
        dup2(full, 1);
        execl(std::getenv("RUN_BINARY"), "collx_run", "-n", "2", "echo", "lost", nullptr);
    });
    close(full);
    INFO(said);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
    CHECK(contains(said, "the output of the ranks is not complete: No space left on device"));
}

TEST_CASE("who ignores SIGTERM is killed after the grace time") {
    if (!have_binary()) return;
    // Rank 0 fails once rank 1 ignores SIGTERM.
    const auto r = run_shell("2",
                             "f=/tmp/$COLLX_JOB.ready; test $COLLX_RANK = 0 && while ! test -e $f; do sleep 0.05; done "
                             "&& rm $f && exit 3; trap '' TERM; : > $f; while :; do sleep 0.1; done",
                             {"--grace", "300ms"});
    CHECK(r.status == 3);
    CHECK(contains(r.err, "rank 1 did not end within 300 ms of SIGTERM and was killed"));
}

TEST_CASE("output waits for a reader that comes after the last rank has ended") {
    if (!have_binary()) return;
    for (const char* to : {"", " >&2"}) {
        tool t({"-n", "40", "--grace", "100ms", "sh", "-c", std::string("{ ") + more_than_fits + "; }" + to});
        usleep(2'500'000); // the time of the ranks is long over
        const auto r = t.finish();
        CHECK(r.status == 0);
        CHECK(lines_of(*to == 0 ? r.out : r.err).size() == 40 * 600);
    }
}

TEST_CASE(
    "a filter that still writes when its rank has ended has the time of --grace, and is named when that is over") {
    if (!have_binary()) return;
    const auto in_time = run({"-n", "1", "--grace", "20", "bash", "-c", "seq 3 > >(sleep 1.5; cat)"});
    CHECK(in_time.out == "[0] 1\n[0] 2\n[0] 3\n");
    CHECK(in_time.err.empty());
    const auto late = run({"-n", "1", "--grace", "200ms", "bash", "-c", "seq 3 > >(sleep 60; cat)"});
    CHECK(late.out.empty());
    CHECK(contains(late.err, "collx_run: ended what the ranks had left running: "));
    CHECK(contains(late.err, ", after 200 ms (--grace)"));
}

TEST_CASE("ranks that are stopped end with the launcher's signal all the same") {
    if (!have_binary()) return;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        tool t({"-n", "1", "sh", "-c", "echo pid=$$ ready; kill -STOP $$; sleep 60"});
        REQUIRE(t.wait_for("ready\n"));
        const auto pids = pids_in(t.seen().out);
        REQUIRE(pids.size() == 1);
        REQUIRE(is_stopped_within(pids[0], patient(20s)));
        kill(t.pid(), signal);
        CHECK(t.finish().status == 128 + signal);
    }
}

TEST_CASE("ranks that ignore a signal to end are killed after the grace time of the second one") {
    if (!have_binary()) return;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        tool t({"-n", "2", "--grace", "300ms", "sh", "-c",
                "trap '' TERM INT HUP; echo pid=$$ ready; while :; do sleep 0.1; done"});
        REQUIRE(t.wait_for("[0] pid="));
        REQUIRE(t.wait_for("[1] pid="));
        usleep(100'000); // the line is whole
        kill(t.pid(), signal);
        const auto pids = pids_in(t.seen().out);
        // A launcher that does not get to run takes two for one.
        for (const auto limit = steady::now() + patient(20s); !is_dead(t.pid()) && steady::now() < limit;) {
            usleep(400'000); // sooner, it would count as the same one
            kill(t.pid(), signal);
        }
        const auto r = t.finish();
        CHECK(r.status == 128 + signal);
        CHECK(contains(r.err, " again; ending ranks 0, 1"));
        CHECK(contains(r.err, "ranks 0, 1 did not end within 300 ms of SIGTERM and were killed"));
        CHECK(all_dead_within(pids, 20s));
    }
}

TEST_CASE("who survived a SIGTERM that was passed on long ago gets another one before it is killed") {
    if (!have_binary()) return;
    tool t(
        {"-n", "2", "--grace", "300ms", "sh", "-c",
         "trap 'echo saved' TERM; echo ready; while ! test -e $0 || test $COLLX_RANK = 0; do sleep 0.05; done; exit 3",
         "/tmp/collx-run-go-" + std::to_string(getpid())});
    REQUIRE(t.wait_for("[0] ready"));
    REQUIRE(t.wait_for("[1] ready"));
    kill(t.pid(), SIGTERM);
    REQUIRE(t.wait_for("[0] saved"));
    REQUIRE(t.wait_for("[1] saved"));
    usleep(500'000); // longer than --grace
    const std::string go = "/tmp/collx-run-go-" + std::to_string(getpid());
    close(open(go.c_str(), O_CREAT | O_WRONLY, 0600));
    const auto r = t.finish();
    std::filesystem::remove(go);
    CHECK(r.status == 3);
    CHECK(contains(r.err, "rank 0 did not end within 300 ms of SIGTERM and was killed"));
    std::size_t saved = 0;
    for (const auto& line : lines_of(r.out)) saved += line == "[0] saved";
    CHECK(saved == 2);
}

TEST_CASE("a limit of file size is an error of the output, and the job's folders are removed") {
    if (!have_binary()) return;
    char folder[] = "/tmp/collx-run-limit-XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    const std::string out = std::string(folder) + "/out", err = std::string(folder) + "/err";
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("TMPDIR", folder, 1);
        dup2(open(out.c_str(), O_CREAT | O_WRONLY, 0600), 1);
        dup2(open(err.c_str(), O_CREAT | O_WRONLY, 0600), 2);
        const rlimit few{16384, 16384};
        setrlimit(RLIMIT_FSIZE, &few);
        execl(std::getenv("RUN_BINARY"), "collx_run", "-n", "2", "--hosts", "2", "seq", "20000", nullptr);
        _exit(99);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    std::ifstream file(err);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    INFO(status << said);
    CHECK(contains(said, "collx_run: the output of the ranks is not complete: File too large"));
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) != 0));
    std::filesystem::remove(out);
    std::filesystem::remove(err);
    CHECK(std::filesystem::remove(folder)); // empty
}

TEST_CASE("where no file may have a byte, a job of several hosts is refused, and its folder is removed") {
    if (!have_binary()) return;
    char folder[] = "/tmp/collx-run-limit-XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    const auto [status, said] = end_of_child([&] {
        setenv("TMPDIR", folder, 1);
        const rlimit none{0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        execl(std::getenv("RUN_BINARY"), "collx_run", "-n", "2", "--hosts", "2", "echo", "hi", nullptr);
    });
    INFO(status << said);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 126));
    CHECK(contains(said, "cannot keep a key for the job: File too large (raise the limit of file size (ulimit -f))"));
    CHECK(std::filesystem::remove(folder)); // empty
}

TEST_CASE("a job runs without a standard output") {
    if (!have_binary()) return;
    const pid_t pid = fork();
    if (pid == 0) {
        close(1);
        execl(std::getenv("RUN_BINARY"), "collx_run", "-n", "2", "sh", "-c", "seq 1000; exit 7", nullptr);
        _exit(99);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
}
