// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks under real launchers, and under environments that other launchers set: this program starts itself as the
// ranks, each with its own environment. Each rank sums the ranks' numbers and prints its identity. Also ranks that
// exchange a unique_id.
//
// collx-test: serial timeout=240 sanitize=no
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/collx.hpp>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <catch2/catch.hpp>

#include "bootstrap/store_support.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"

using namespace collx_test;

namespace {

std::string self() {
    char path[4096];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : std::string();
}
// Starts this program as a rank: the hidden case below. Contains no quotes, because it is put into quotes.
std::string rank_program() { return self() + " as_a_rank "; }

struct output {
    int status = -1;
    std::string text;
    int count(const std::string& part) const {
        int n = 0;
        for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
        return n;
    }
};
// Runs a shell line with a clean environment: only what it sets, and what Open MPI needs in a container.
output run(const std::string& line) {
    const char *path = std::getenv("PATH"), *folder = std::getenv("TMPDIR");
    const std::string clean = std::string("env -i PATH='") + (path != nullptr ? path : "/usr/bin:/bin") +
                              "' HOME=/ TMPDIR='" + (folder != nullptr ? folder : "/tmp") +
                              "' OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                              "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none "
                              "OMPI_MCA_plm=isolated COLLX_TIMEOUT=" +
                              std::to_string(collx_test::patient_s(20)) + " timeout -k 2 " +
                              std::to_string(collx_test::patient_s(40)) + " sh -c \"";
    std::string quoted;
    for (const char c : line) quoted += (std::strchr("\"$`\\", c) != nullptr ? "\\" : "") + std::string(1, c);
    output o;
    std::FILE* pipe = ::popen((clean + quoted + "\" 2>&1 </dev/null").c_str(), "r");
    if (pipe == nullptr) return o;
    char part[1024];
    while (std::fgets(part, sizeof part, pipe) != nullptr) o.text += part;
    const int status = ::pclose(pipe);
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return o;
}
bool has_launcher(const char* name) {
    if (std::system((std::string("command -v ") + name + " >/dev/null 2>&1").c_str()) == 0) return true;
    skip((std::string(name) + " is not installed").c_str());
    return false;
}
void check_four_ranks(const output& o, const char* found_by, int times = 1) {
    INFO(o.text);
    CHECK(o.status == 0);
    for (int r = 0; r < 4; ++r)
        CHECK(o.count("rank " + std::to_string(r) + " of 4 by " + found_by + ", sum 10\n") == times);
}

// Four ranks as background processes; `variables` contains each rank's number as r.
std::string four(const std::string& variables, const std::string& program, const char* ranks = "0 1 2 3") {
    return "p=; for r in " + std::string(ranks) + "; do " + variables + " " + program +
           " & p=\"$p $!\"; done; rc=0; for q in $p; do wait $q || rc=1; done; exit $rc";
}
const std::string torchrun_variables =
    "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 RANK=$r LOCAL_RANK=$r WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 "
    "MASTER_ADDR=127.0.0.1 MASTER_PORT=";
const std::string slurm_variables = "SLURM_JOB_ID=" + std::to_string(::getpid()) +
                                    " SLURM_STEP_ID=0 SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_NODEID=0 "
                                    "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=4";

} // namespace

TEST_CASE("as_a_rank", "[.rank]") {
    try {
        collx::communicator world;
        int x = world.rank() + 1;
        collx::all_reduce(world, collx::value(x));
        collx::communicator again; // a second communicator of the same job
        collx::barrier(again);
        // One write(), so that lines of different ranks do not mix.
        char line[200];
        const int n = std::snprintf(line, sizeof line, "\nrank %d of %d by %s, sum %d\n", world.rank(), world.size(),
                                    world.membership()->found_by, x);
        REQUIRE(::write(1, line, static_cast<std::size_t>(n)) == n);
    } catch (const collx::error& e) {
        const std::string line = std::string("\n") + collx::name_of(e.code()) + ": " + e.what() + "\n";
        (void)!::write(1, line.data(), line.size());
        FAIL("no rank");
    }
}

TEST_CASE("Open MPI's mpirun") {
    if (!has_launcher("mpirun.openmpi")) return;
    check_four_ranks(run("mpirun.openmpi -n 4 " + rank_program()), "PMIx");
    // Started inside a batch job and a torch script, whose variables its ranks inherit.
    check_four_ranks(run("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 mpirun.openmpi -n 4 " + rank_program()),
                     "PMIx");
    const output single = run("mpirun.openmpi -n 2 -x COLLX_BOOTSTRAP=single " + rank_program());
    INFO(single.text);
    CHECK(single.count("rank 0 of 1 by alone, sum 1\n") == 2);
    const output stale = run("RANK=0 WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=1 mpirun.openmpi -n 2 " + rank_program());
    INFO(stale.text);
    CHECK(stale.status != 0);
    CHECK(stale.count("environment: collx: PMIx says rank 0 of 2, but RANK=0 and WORLD_SIZE=1 (set COLLX_BOOTSTRAP=") ==
          1);
}

TEST_CASE("MPICH's mpiexec") {
    if (!has_launcher("mpiexec.hydra")) return;
    check_four_ranks(run("mpiexec.hydra -n 4 " + rank_program()), "PMI");
    check_four_ranks(run("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 mpiexec.hydra -launcher fork -rmk user "
                         "-n 4 " +
                         rank_program()),
                     "PMI");
    check_four_ranks(run("mpiexec.hydra -n 4 env COLLX_BOOTSTRAP=pmi " + rank_program()), "PMI");
    // Pretends to have two hosts: addresses go through PMI, data over sockets.
    check_four_ranks(run("mpiexec.hydra -n 4 sh -c 'COLLX_HOST_ID=host$((PMI_RANK / 2)) exec " + rank_program() + "'"),
                     "PMI");
    // Over TCP, where only the process manager knows the number of ranks.
    check_four_ranks(run("mpiexec.hydra -pmi-port -n 4 " + rank_program()), "PMI");
    check_four_ranks(
        run("mpiexec.hydra -pmi-port -n 4 sh -c 'COLLX_HOST_ID=host$((PMI_ID / 2)) exec " + rank_program() + "'"),
        "PMI");
    const output unanswered = run("PMI_PORT=127.0.0.1:1 PMI_ID=0 " + rank_program());
    INFO(unanswered.text);
    CHECK(unanswered.count("environment: collx: rank 0: no process manager answers at PMI_PORT=127.0.0.1:1 (") == 1);
    // Two programs in sequence in each rank: the first one finalizes PMI for both.
    const output two = run("mpiexec.hydra -n 2 sh -c \"" + rank_program() + "; " + rank_program() + "\"");
    INFO(two.text);
    CHECK(two.count("of 2 by PMI, sum 3\n") == 2);
    CHECK(two.count("peer_failed: collx: rank ") == 2);
    CHECK(two.count("has PMI only in the first)") == 2);
    // A rank that never starts costs the other ranks their deadline, not more.
    const output late = run("mpiexec.hydra -n 2 -env COLLX_TIMEOUT 2 sh -c 'test $PMI_RANK = 0 && exec " +
                            rank_program() + "; sleep 4'");
    INFO(late.text);
    CHECK(late.count("timeout: collx: rank 0: not all 2 ranks came to the PMI barrier") == 1);
    const output stale = run("PMI_FD=99 PMI_RANK=0 PMI_SIZE=2 " + rank_program());
    INFO(stale.text);
    CHECK(stale.count("environment: collx: rank 0: PMI_FD=99 is not a socket of a process manager (") == 1);
}

TEST_CASE("torchrun's variables, with MASTER_PORT taken as torchrun takes it") {
    const collx::tcp_server agent;
    const std::string port = std::to_string(agent.port());
    check_four_ranks(run(four(torchrun_variables + port, rank_program())), "torchrun");
    // Two programs in sequence in each rank have the same variables.
    check_four_ranks(
        run(four("env " + torchrun_variables + port, "sh -c \"" + rank_program() + "; " + rank_program() + "\"")),
        "torchrun", 2);
    check_four_ranks(run(four("RANK=$r WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port, rank_program())),
                     "torch variables");
    const output three = run(four(torchrun_variables + port + " COLLX_TIMEOUT=3", rank_program(), "0 1 3"));
    INFO(three.text);
    CHECK(three.count("1 of 4 ranks did not come: 2 (") == 3);
    const output hosts = run(four(torchrun_variables + port + " LOCAL_WORLD_SIZE=2", rank_program(), "0 1"));
    INFO(hosts.text);
    CHECK(hosts.count("unsupported: collx: rank 0: torchrun says that only 2 of 4 ranks are on this host (") == 1);
}

TEST_CASE("Slurm's, Kubernetes' and collx's own variables") {
    check_four_ranks(run(four(slurm_variables, rank_program())), "Slurm");
    scratch_directory d;
    check_four_ranks(run(four(slurm_variables + " COLLX_STORE=file:" + d.path + "/store", rank_program())), "Slurm");
    scratch_directory e;
    check_four_ranks(run(four(torchrun_variables +
                                  "1 LOCAL_WORLD_SIZE=2 LOCAL_RANK=$((r % 2)) COLLX_HOST_ID=h$((r / 2)) "
                                  "COLLX_STORE=file:" +
                                  e.path + "/store",
                              rank_program())),
                     "torchrun");
    const std::string job = "COLLX_JOB=launchers-" + std::to_string(::getpid());
    check_four_ranks(run(four("COLLX_RANK=$r COLLX_SIZE=4 " + job, rank_program())), "environment");
    const output batch = run("SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=4 " + rank_program());
    CHECK(batch.count("rank 0 of 1 by alone, sum 1\n") == 1);
    const output pod = run("JOB_COMPLETION_INDEX=0 COLLX_SIZE=1 " + rank_program());
    INFO(pod.text);
    CHECK(pod.count("rank 0 of 1 by Kubernetes, sum 1\n") == 1);
    const output pods = run("JOB_COMPLETION_INDEX=0 COLLX_SIZE=2 " + rank_program());
    INFO(pods.text);
    CHECK(pods.count("unsupported: collx: rank 0: Kubernetes says that only 1 of 2 ranks are on this host (") == 1);
}

TEST_CASE("ranks join with a unique id that the program has shipped") {
    constexpr int ranks = 3;
    const auto id = collx::unique_id::make(), other = collx::unique_id::make();
    CHECK_FALSE(id == other);
    CHECK(collx::unique_id::from_text(id.text()) == id);
    processes p;
    for (int r = 0; r < ranks; ++r)
        p.start(r, [&] {
            std::array<char, sizeof(collx::unique_id)> shipped;
            std::memcpy(shipped.data(), &id, sizeof id);
            collx::unique_id mine;
            std::memcpy(&mine, shipped.data(), sizeof mine);
            collx::communicator world(mine, r, ranks), turned(other, ranks - 1 - r, ranks);
            int x = world.rank() + 1, y = turned.rank();
            collx::all_reduce(world, collx::value(x));
            collx::broadcast(turned, collx::value(y), {.root = 2});
            return x == 6 && y == 2 && turned.rank() == ranks - 1 - r ? 0 : 1;
        });
    p.wait();
    for (int r = 0; r < ranks; ++r) {
        INFO(p[r].what);
        CHECK(p[r].is_ok());
    }
    const auto refused = [](collx::unique_id broken, collx::errc code) {
        try {
            collx::communicator world(broken, 0, 2, std::chrono::milliseconds(100));
        } catch (const collx::error& e) {
            INFO(e.what());
            CHECK(e.code() == code);
            return;
        }
        FAIL("joined");
    };
    refused(collx::unique_id{}, collx::errc::invalid_argument);
    collx::unique_id broken = id;
    broken.bytes[10] = '\n';
    refused(broken, collx::errc::invalid_argument);
    broken = id;
    broken.bytes[120] = 'x'; // a letter behind the end of the text
    refused(broken, collx::errc::invalid_argument);
    broken = id;
    broken.bytes[127] = 'x';
    refused(broken, collx::errc::invalid_argument);
    broken = id;
    broken.bytes[8] = id.bytes[8] == '0' ? '1' : '0';
    refused(broken, collx::errc::unsupported);
    refused(id, collx::errc::timeout);
    CHECK_THROWS_AS(collx::unique_id::from_text("collx-1-"), collx::invalid_argument);
    CHECK_THROWS_AS(collx::unique_id::from_text(std::string(128, 'a')), collx::invalid_argument);
}

TEST_CASE("ranks on several hosts join with a unique id that says where to meet") {
    constexpr int ranks = 5;
    CHECK(collx::unique_id::make().address().empty());
    ::setenv("COLLX_HOST_ID", "host0", 1);
    const auto id = collx::unique_id::make();
    ::unsetenv("COLLX_HOST_ID");
    CHECK(id.address() == "127.0.0.1");
    CHECK(id.port() > 0);
    CHECK(collx::unique_id::from_text(id.text()) == id);
    processes p;
    for (int r = 0; r < ranks; ++r)
        p.start(r, [&] {
            ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r / 2)).c_str(), 1);
            collx::communicator world(id, r, ranks);
            int x = world.rank() + 1;
            collx::all_reduce(world, collx::value(x));
            return x == 15 && !world.internals().net.is_one_host() ? 0 : 1;
        });
    p.wait();
    for (int r = 0; r < ranks; ++r) {
        INFO(p[r].what);
        CHECK(p[r].is_ok());
    }
    auto nowhere = id;
    char* const colon = std::strrchr(nowhere.bytes, ':');
    std::memset(colon + 2, 0, static_cast<std::size_t>(nowhere.bytes + sizeof nowhere.bytes - colon - 2));
    colon[1] = '1'; // a port without a listener
    try {
        collx::communicator world(nowhere, 0, 2, std::chrono::milliseconds(100));
        FAIL("joined");
    } catch (const collx::timed_out& e) {
        CHECK(std::string(e.what()).find("no store answers at 127.0.0.1") != std::string::npos);
    }
}
