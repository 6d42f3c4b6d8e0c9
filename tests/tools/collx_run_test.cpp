// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_run as users run it: started as a program, checked by its output, its status and the processes left afterwards.
// collx-test: serial timeout=240 env=RUN_BINARY=$<$<TARGET_EXISTS:collx_run>:$<TARGET_FILE:collx_run>>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/command_line.hpp"
#include "support/launch/output.hpp"

#include "collx_run_support.hpp"

using namespace collx_test;

TEST_CASE("each line of each rank has its prefix, also the last one without a line break") {
    if (!have_binary()) return;
    const auto r = run_shell("3", "echo one; echo two >&2; printf three");
    CHECK(r.status == 0);
    auto out = lines_of(r.out), err = lines_of(r.err);
    std::sort(out.begin(), out.end());
    std::sort(err.begin(), err.end());
    CHECK(out == std::vector<std::string>{"[0] one", "[0] three", "[1] one", "[1] three", "[2] one", "[2] three"});
    CHECK(err == std::vector<std::string>{"[0] two", "[1] two", "[2] two"});
    CHECK(r.out.back() == '\n');
}

TEST_CASE("--no-prefix leaves every byte as it is") {
    if (!have_binary()) return;
    const auto r = run_shell("2", "test $COLLX_RANK = 0 && printf 'a\\n\\nb'; exit 0", {"--no-prefix"});
    CHECK(r.out == "a\n\nb");
    CHECK(r.err.empty());
}

TEST_CASE("ranks find who they are; the job's name is the same in one launch and new in the next") {
    if (!have_binary()) return;
    const std::string script =
        "echo $COLLX_RANK $COLLX_SIZE $COLLX_LOCAL_RANK $COLLX_LOCAL_SIZE $COLLX_JOB ${COLLX_STORE-none} $MINE";
    setenv("COLLX_STORE", "file:/nowhere", 1);
    std::set<std::string> jobs;
    for (int launch = 0; launch < 2; ++launch) {
        const auto r = run_shell("2", script, {"--env", "MINE=a=b"});
        std::set<std::string> these;
        for (const auto& line : lines_of(r.out)) {
            const char rank = line[1];
            const std::string begin = std::string("[") + rank + "] " + rank + " 2 " + rank + " 2 ";
            CHECK(line.substr(0, begin.size()) == begin);
            CHECK(line.substr(begin.size() + 32) == " none a=b");
            these.insert(line.substr(begin.size(), 32));
        }
        REQUIRE(these.size() == 1);
        CHECK(these.begin()->find_first_not_of("0123456789abcdef") == std::string::npos);
        jobs.insert(*these.begin());
    }
    unsetenv("COLLX_STORE");
    CHECK(jobs.size() == 2);
}

TEST_CASE("the rank that fails first is named, its status returned, the others ended at once") {
    if (!have_binary()) return;
    const auto start = steady::now();
    const auto r = run_shell("3", "test $COLLX_RANK = 1 && exit 7; exec sleep 30");
    CHECK(r.status == 7);
    CHECK(contains(r.err, "collx_run: rank 1 (pid "));
    CHECK(contains(r.err, ") exited with status 7 after "));
    CHECK(contains(r.err, "ending ranks 0, 2"));
    CHECK(lines_of(r.err).size() == 1);
    CHECK(steady::now() - start < collx_test::patient(20s));
}

TEST_CASE("a crash is reported by the signal's name and as 128 + number") {
    if (!have_binary()) return;
    const auto r = run_shell("2", "test $COLLX_RANK = 0 && kill -SEGV $$; exec sleep 30");
    CHECK(r.status == 128 + SIGSEGV);
    CHECK(contains(r.err, "rank 0 (pid "));
    CHECK(contains(r.err, "was killed by SIGSEGV (Segmentation fault)"));
}

TEST_CASE("with --keep-going a failed rank does not end the others") {
    if (!have_binary()) return;
    const char* const script =
        "if [ $COLLX_RANK = 1 ]; then kill -KILL $$; fi; sleep 0.3; echo done; exit $((COLLX_RANK / 2 * 3))";
    const result r = run_shell("3", script, {"--keep-going"});
    CHECK(r.status == 0); // rank 0 ended successfully
    CHECK(lines_of(r.out).size() == 2);
    CHECK(contains(r.err, "rank 1"));
    CHECK(contains(r.err, "SIGKILL"));
    CHECK(contains(r.err, "ranks 0, 2 may go on"));
    CHECK(contains(r.err, "rank 2"));
    CHECK(run_shell("2", "exit $((COLLX_RANK + 5))", {"--keep-going"}).status >= 5); // no rank did
    CHECK(run_shell("2", script, {}).status == 128 + SIGKILL);
}

TEST_CASE("the time limit says who was still running and returns 124") {
    if (!have_binary()) return;
    const auto r = run_shell("4", "test $COLLX_RANK = 2 && exit 0; exec sleep 30", {"--timeout", "2"});
    CHECK(r.status == 124);
    CHECK(contains(r.err, "collx_run: the time limit of 2 s has passed; still running: ranks 0, 1, 3"));
}

TEST_CASE("a program that cannot be run is one clear line") {
    if (!have_binary()) return;
    auto r = run({"-n", "4", "./no-such-program"});
    CHECK(r.status == 127);
    CHECK(r.err == "collx_run: cannot run './no-such-program': No such file or directory\n");
    r = run({"-n", "2", "no-such-program"});
    CHECK(r.err == "collx_run: cannot run 'no-such-program': No such file or directory in PATH\n");
    r = run({"-n", "2", "/etc/passwd"});
    CHECK(r.status == 126);
    CHECK(r.err == "collx_run: cannot run '/etc/passwd': Permission denied\n");
    const std::string script = "/tmp/collx-run-" + std::to_string(getpid());
    std::ofstream(script) << "#!/no/such/shell\n";
    chmod(script.c_str(), 0700);
    r = run({"-n", "2", script});
    unlink(script.c_str());
    CHECK(r.status == 127);
    CHECK(contains(r.err, "the program is there, but not what its first line or its header names to run it"));
}

TEST_CASE("where the system gives no more processes, one line says what to raise, and no rank is left") {
    if (!have_binary()) return;
    // Uses an otherwise unused user, since root has no limit on processes; the programs are opened before.
    const int self = open(std::getenv("RUN_BINARY"), O_RDONLY | O_CLOEXEC);
    REQUIRE(self >= 0);
    int err[2];
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    constexpr int no_user = 99;
    const pid_t pid = fork();
    if (pid == 0) {
        const uid_t user = getuid() == 0 ? 50'000 + static_cast<uid_t>(getpid()) % 10'000 : getuid();
        if (user != getuid() && (setgid(user) != 0 || setuid(user) != 0)) _exit(no_user);
        const rlimit few{3, 3}; // itself and two ranks; an ordinary user has more processes already
        setrlimit(RLIMIT_NPROC, &few);
        dup2(err[1], 2);
        const char* argv[] = {"collx_run", "-n", "8", "sleep", "30", nullptr};
        fexecve(self, const_cast<char**>(argv), environ);
        _exit(98);
    }
    close(err[1]);
    close(self);
    std::string text;
    for (char part[512]; const ssize_t n = read(err[0], part, sizeof part);) {
        if (n < 0) break;
        text.append(part, static_cast<std::size_t>(n));
    }
    close(err[0]);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == no_user) return collx_test::skip("this container has no other users");
    CAPTURE(text);
    CHECK(WEXITSTATUS(status) == 126);
    CHECK(contains(text, "collx_run: cannot start rank "));
    CHECK(contains(text, ": Resource temporarily unavailable (raise the limit of processes and threads (ulimit -u, "));
}

TEST_CASE("a wrong command line is one clear line and status 2") {
    if (!have_binary()) return;
    const std::string empty = std::string(collx::tools::empty_value) + "\n";
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
        {{"-n", "0", "true"}, "collx_run: The number of ranks must be from 1 to 1024, not 0.\n"},
        {{"-n", "-3", "true"}, "collx_run: The number of ranks must be from 1 to 1024, not -3.\n"},
        {{"-n", "2000", "true"}, "collx_run: The number of ranks must be from 1 to 1024, not 2000.\n"},
        {{"-n", "2"}, "collx_run: no program was given; for example: collx_run -n 4 ./app\n"},
        {{"-n", "2", "--bogus", "true"}, "collx_run: there is no option --bogus; collx_run --help lists them\n"},
        {{"-n", "2", "--env", "COLLX_JOB=1", "true"},
         "collx_run: --env COLLX_JOB=1: this variable is set by collx_run itself.\n"},
        {{"-n", "2", "--timeout", "", "true"}, "collx_run: --timeout: " + empty},
        {{"-n", "2", "--hosts", "", "true"}, "collx_run: --hosts: " + empty},
        {{"-n", "2", "--trace", "", "true"}, "collx_run: --trace: " + empty},
        {{"-n", "", "true"}, "collx_run: --ranks: " + empty},
        {{"-n", "0x2", "true"}, "collx_run: --ranks: '0x2' is not decimal; write the number with the digits 0 to 9\n"},
        {{"-n", "2", "--timeout", "soon", "true"},
         "collx_run: 'soon' is not a duration: it must begin with a digit.\n"}};
    for (const auto& [arguments, text] : cases) {
        const auto r = run(arguments);
        CHECK(r.status == 2);
        CHECK(r.err == text);
        CHECK(r.out.empty());
    }
    CHECK(run({"--help"}).status == 0);
    CHECK(run({"-n", "010", "sh", "-c", "test $COLLX_SIZE = 10"}).status == 0); // decimal, as 08 is
    CHECK(run({"-n", "08", "sh", "-c", "test $COLLX_SIZE = 8"}).status == 0);
}

TEST_CASE("options end at the program's name") {
    if (!have_binary()) return;
    CHECK(run({"-n", "1", "echo", "-n", "5", "--timeout", "x"}).out == "[0] 5 --timeout x\n");
    CHECK(run({"-n", "1", "--", "echo", "a", "--", "b"}).out == "[0] a -- b\n");
}

TEST_CASE("standard input goes to rank 0 only") {
    if (!have_binary()) return;
    int in[2];
    REQUIRE(pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(write(in[1], "hello\n", 6) == 6);
    close(in[1]);
    const auto r = run({"-n", "3", "sh", "-c", "echo got:$(cat)"}, in[0]);
    close(in[0]);
    auto lines = lines_of(r.out);
    std::sort(lines.begin(), lines.end());
    CHECK(lines == std::vector<std::string>{"[0] got:hello", "[1] got:", "[2] got:"});
}

TEST_CASE("SIGTERM and SIGUSR1 are passed on") {
    if (!have_binary()) return;
    tool t({"-n", "2", "sh", "-c",
            "trap 'echo usr1' USR1; trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.05; done"});
    REQUIRE(t.wait_for("[0] ready"));
    REQUIRE(t.wait_for("[1] ready"));
    kill(t.pid(), SIGUSR1);
    REQUIRE(t.wait_for("[0] usr1"));
    REQUIRE(t.wait_for("[1] usr1"));
    kill(t.pid(), SIGTERM);
    const auto r = t.finish();
    CHECK(contains(r.out, "[0] term"));
    CHECK(contains(r.out, "[1] term"));
    CHECK(r.status == 0); // they ended with success
    CHECK(!contains(r.err, "collx_run:"));
}

TEST_CASE("a forwarded signal that kills the ranks becomes the status") {
    if (!have_binary()) return;
    tool t({"-n", "2", "sh", "-c", "echo ready; exec sleep 30"});
    REQUIRE(t.wait_for("[0] ready"));
    REQUIRE(t.wait_for("[1] ready"));
    kill(t.pid(), SIGINT);
    CHECK(t.finish().status == 128 + SIGINT);
}

TEST_CASE("kill -9 of the launcher leaves no process behind, not even what a rank's shell started") {
    if (!have_binary()) return;
    tool t({"-n", "3", "sh", "-c", "sleep 300 & echo pid=$! pid=$$ ready; wait"});
    for (const char* line : {"[0] pid=", "[1] pid=", "[2] pid="}) REQUIRE(t.wait_for(line));
    kill(t.pid(), SIGKILL);
    const auto r = t.finish();
    const auto pids = pids_in(r.out);
    REQUIRE(pids.size() == 6);
    CHECK(all_dead_within(pids, 20s));
}

TEST_CASE("sixteen ranks") {
    if (!have_binary()) return;
    const auto r = run_shell("16", "echo $COLLX_RANK of $COLLX_SIZE");
    std::set<std::string> want;
    for (int i = 0; i < 16; ++i) want.insert("[" + std::to_string(i) + "] " + std::to_string(i) + " of 16");
    const auto lines = lines_of(r.out);
    CHECK(lines.size() == 16);
    CHECK(std::set<std::string>(lines.begin(), lines.end()) == want);
    CHECK(r.status == 0);
}

TEST_CASE("a line that is broken for its length has no empty line behind it, wherever its line break comes") {
    using collx::tools::launch::line_splitter;
    constexpr std::size_t most = line_splitter::most_bytes;
    const auto lengths = [](const std::vector<std::string>& parts) {
        line_splitter lines;
        std::vector<std::size_t> all;
        const auto emit = [&](std::string_view line) { all.push_back(line.size()); };
        for (const auto& part : parts) lines.feed(part, emit);
        lines.finish(emit);
        return all;
    };
    const std::string whole(most, 'x');
    using list = std::vector<std::size_t>;
    CHECK(lengths({whole, "\ny\n"}) == list{most, 1});
    CHECK(lengths({whole + "\n", "y\n"}) == list{most, 1});
    CHECK(lengths({whole, "z\n\ny"}) == list{most, 1, 0, 1}); // an empty line of the program is one
    CHECK(lengths({whole, "\n\n"}) == list{most, 0});
    CHECK(lengths({whole, whole, "", "\n"}) == list{most, most});
    CHECK(lengths({"\n", "a\n"}) == list{0, 1});
}

TEST_CASE("a lot of output arrives completely and in order, line by line") {
    if (!have_binary()) return;
    const auto r = run_shell("3", "seq 1 60000");
    std::vector<int> next(3, 1);
    for (const auto& line : lines_of(r.out)) {
        const int rank = line[1] - '0';
        REQUIRE((rank >= 0 && rank < 3));
        REQUIRE(line == "[" + std::to_string(rank) + "] " + std::to_string(next[static_cast<std::size_t>(rank)]++));
    }
    CHECK(next == std::vector<int>{60001, 60001, 60001});
}

TEST_CASE("a host that an outer launcher named is not passed on to a job of one host") {
    if (!have_binary()) return;
    setenv("COLLX_HOST_ID", "outer", 1);
    const auto r = run_shell("2", "echo host ${COLLX_HOST_ID-none}");
    unsetenv("COLLX_HOST_ID");
    CHECK(r.status == 0);
    CHECK(contains(r.out, "host none"));
    CHECK(!contains(r.out, "outer"));
}

TEST_CASE("a way to start that was exported for another program does not make each rank a job of its own") {
    if (!have_binary()) return;
    setenv("COLLX_BOOTSTRAP", "single", 1);
    const auto r = run_shell("2", "echo by ${COLLX_BOOTSTRAP-default}");
    const auto own = run_shell("1", "echo by $COLLX_BOOTSTRAP", {"--env", "COLLX_BOOTSTRAP=env"});
    unsetenv("COLLX_BOOTSTRAP");
    CHECK(contains(r.out, "[0] by default\n"));
    CHECK(contains(r.out, "[1] by default\n"));
    CHECK(own.out == "[0] by env\n");
}

TEST_CASE("on a terminal prefixes are coloured unless NO_COLOR, typing reaches rank 0 and Ctrl-C each rank once") {
    if (!have_binary()) return;
    for (const bool colour : {true, false}) {
        int master = -1;
        const pid_t pid = forkpty(&master, nullptr, nullptr, nullptr);
        REQUIRE(pid >= 0);
        if (pid == 0) {
            setenv("TERM", "xterm", 1);
            colour ? unsetenv("NO_COLOR") : setenv("NO_COLOR", "1", 1);
            execl(std::getenv("RUN_BINARY"), "collx_run", "-n", "2", "sh", "-c",
                  "trap 'echo interrupted; exit 0' INT; test $COLLX_RANK = 0 && read line && echo typed:$line; echo "
                  "ready;"
                  "while :; do sleep 0.05; done",
                  nullptr);
            _exit(99);
        }
        std::string seen;
        const auto read_until = [&](const std::string& text, std::size_t times) {
            const auto deadline = steady::now() + 30s;
            const auto count = [&] {
                std::size_t n = 0;
                for (auto at = seen.find(text); at != std::string::npos; at = seen.find(text, at + 1)) ++n;
                return n;
            };
            while (count() < times && steady::now() < deadline) {
                pollfd p{master, POLLIN, 0};
                char buffer[4096];
                if (poll(&p, 1, 100) <= 0) continue;
                const auto n = read(master, buffer, sizeof buffer);
                if (n <= 0) break;
                seen.append(buffer, static_cast<std::size_t>(n));
            }
            return count();
        };
        CHECK(read_until("ready", 1) == 1); // rank 1; rank 0 waits for input
        CHECK(write(master, "abc\n", 4) == 4);
        CHECK(read_until("typed:abc", 1) == 1);
        CHECK(read_until("ready", 2) == 2);
        CHECK(write(master, "\003", 1) == 1);
        CHECK(read_until("interrupted", 3) == 2); // until the terminal closes
        CHECK(contains(seen, "\033[36m[0] \033[0mtyped") == colour);
        CHECK(contains(seen, "\n[0] typed") == !colour);
        kill(pid, SIGKILL);
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
        close(master);
    }
}

TEST_CASE("--bind core gives each rank a processor of its own, or says why not") {
    if (!have_binary()) return;
    cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    const int count = CPU_COUNT(&allowed);
    const auto r = run_shell(std::to_string(count), "grep Cpus_allowed_list /proc/self/status", {"--bind", "core"});
    std::set<std::string> places;
    for (const auto& line : lines_of(r.out)) places.insert(line.substr(line.find(']') + 1));
    CHECK(places.size() == static_cast<std::size_t>(count));
    for (const auto& p : places) CHECK(p.find_first_of(",-", p.find(':')) == std::string::npos);
    const auto many = run_shell(std::to_string(count + 1), "true", {"--bind", "core"});
    CHECK(many.status == 2);
    CHECK(contains(many.err, "--bind core needs a processor for each"));
}

TEST_CASE("--hosts lets the ranks take themselves for several hosts, and leaves nothing behind") {
    if (!have_binary()) return;
    const auto r =
        run_shell("5", "echo $COLLX_HOST_ID $COLLX_LOCAL_RANK/$COLLX_LOCAL_SIZE ${COLLX_JOB-none} $COLLX_STORE",
                  {"--hosts", "2"});
    CHECK(r.status == 0);
    std::string directory;
    int first = 0;
    for (const auto& line : lines_of(r.out)) {
        const auto at = line.find("none file:");
        REQUIRE(at != std::string::npos);
        directory = line.substr(at + 10);
        first += contains(line, "host0");
        CHECK((contains(line, "host0 0/3") || contains(line, "host0 1/3") || contains(line, "host0 2/3") ||
               contains(line, "host1 0/2") || contains(line, "host1 1/2")));
    }
    CHECK(first == 3);
    CHECK(access(directory.c_str(), F_OK) != 0);
    const auto too_many = run_shell("2", "true", {"--hosts", "3"});
    CHECK(too_many.status == 2);
    CHECK(contains(too_many.err, "--hosts 3: each host has at least one rank, and there are 2."));
}

TEST_CASE("--hosts with a list gives each host so many ranks") {
    if (!have_binary()) return;
    const auto r =
        run_shell("6", "echo =$COLLX_RANK $COLLX_HOST_ID $COLLX_LOCAL_RANK/$COLLX_LOCAL_SIZE", {"--hosts", "3,1,2"});
    CHECK(r.status == 0);
    for (const char* line :
         {"=0 host0 0/3", "=1 host0 1/3", "=2 host0 2/3", "=3 host1 0/1", "=4 host2 0/2", "=5 host2 1/2"})
        CHECK(contains(r.out, line));
    const auto [list, sentence] = GENERATE(table<std::string, std::string>({
        {"3,1", "The hosts have 4 ranks together, and -n says 6."},
        {"3,0,3", "--hosts 3,0,3: write the number of hosts, or the ranks of each"},
        {"3,,3", "--hosts 3,,3: write"},
        {"-6", "--hosts -6: write"},
        {"3,3,", "--hosts 3,3,: write"},
        {"node1,node2", "--hosts node1,node2: write"},
    }));
    const auto wrong = run_shell("6", "true", {"--hosts", list});
    INFO(wrong.err);
    CHECK(wrong.status == 2);
    CHECK(contains(wrong.err, sentence));
}

TEST_CASE("-np is mpirun's word for -n, and the program's own -np stays its own") {
    if (!have_binary()) return;
    const auto r =
        run({"--no-prefix", "--env", "MINE=1", "-np", "3", "sh", "-c", "echo $COLLX_SIZE $0 $1", "-np", "7"});
    CHECK(r.status == 0);
    CHECK(r.out == "3 -np 7\n3 -np 7\n3 -np 7\n");
    CHECK(run({"-np", "p", "true"}).status == 2);
    CHECK(run({"-np"}).status == 2);
}

TEST_CASE("--hosts gives the ranks a key, the same to all and another to each job, unless they have one") {
    if (!have_binary()) return;
    const char* show = "cat /proc/self/fd/$COLLX_KEY_FD; echo";
    const auto key_of = [&] {
        const auto r = run_shell("3", show, {"--hosts", "3"});
        CHECK(r.status == 0);
        std::set<std::string> keys;
        for (const auto& line : lines_of(r.out))
            if (const auto at = line.find("optional:"); at != std::string::npos) keys.insert(line.substr(at));
        REQUIRE(keys.size() == 1);
        CHECK(keys.begin()->size() == 9 + 64);
        return *keys.begin();
    };
    CHECK(key_of() != key_of());
    const char* is_there = "echo fd:${COLLX_KEY_FD-none}";
    CHECK(contains(run_shell("2", is_there, {}).out, "fd:none")); // one host has no connections that need a key
    CHECK(contains(run_shell("2", is_there, {"--hosts", "2", "--env", "COLLX_KEY_FILE=/some/file"}).out, "fd:none"));
}
