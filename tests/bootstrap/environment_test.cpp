// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
//
// What the environment may contain, and the error for each kind of mistake. No test changes the real environment.
#include <collx/bootstrap/environment.hpp>

#include <unistd.h>

#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

struct entries {
    std::vector<const char*> list;
    entries(std::initializer_list<const char*> e) : list(e) { list.push_back(nullptr); }
    operator environment() const { return environment(list.data()); }
};

job_description describe(const entries& e) { return describe_job(e); }

// The text of the error, or "" if there is none; a wrong code is reported in the text.
std::string refusal(const entries& e) {
    try {
        (void)describe_job(e);
    } catch (const error& x) {
        return x.code() == errc::environment ? x.what() : std::string("wrong code: ") + x.what();
    }
    return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a process without a launcher is alone") {
    for (const entries& e :
         {entries{}, entries{"PATH=/bin", "RANK=3"}, entries{"WORLD_SIZE=4"}, entries{"RANK=0", "WORLD_SIZE=1"}}) {
        const job_description d = describe(e);
        CHECK(d.rank == 0);
        CHECK(d.size == 1);
        CHECK(d.local_rank == 0);
        CHECK(d.local_size == 1);
        CHECK(d.job.empty());
        CHECK(d.found_by == std::string("alone"));
        CHECK(d.timeout_ns == 60'000'000'000);
        CHECK(d.checked == -1);
        CHECK(d.arena_bytes == 0);
    }
    CHECK(describe_job(environment(nullptr)).size == 1);
}

TEST_CASE("the variables of collx_run describe a rank") {
    const job_description d =
        describe({"COLLX_RANK=5", "COLLX_SIZE=8", "COLLX_LOCAL_RANK=1", "COLLX_LOCAL_SIZE=4", "COLLX_JOB=0123abc"});
    CHECK(d.rank == 5);
    CHECK(d.size == 8);
    CHECK(d.local_rank == 1);
    CHECK(d.local_size == 4);
    CHECK(d.job == "0123abc");
    CHECK(d.store.empty());
    CHECK(d.found_by == std::string("environment"));
}

TEST_CASE("without local numbers all ranks are on one host") {
    const job_description d = describe({"COLLX_RANK=5", "COLLX_SIZE=8", "COLLX_STORE=file:/some/where"});
    CHECK(d.local_rank == 5);
    CHECK(d.local_size == 8);
    CHECK(d.store == "file:/some/where");
}

TEST_CASE("settings are read in their units") {
    CHECK(describe({"COLLX_TIMEOUT=2"}).timeout_ns == 2'000'000'000);
    CHECK(describe({"COLLX_TIMEOUT=0.25"}).timeout_ns == 250'000'000);
    CHECK(describe({"COLLX_TIMEOUT=1.0000000019"}).timeout_ns == 1'000'000'001);
    CHECK(describe({"COLLX_CHECKED=1"}).checked == 1);
    CHECK(describe({"COLLX_CHECKED=0"}).checked == 0);
    CHECK(describe({"COLLX_ARENA_BYTES=1G"}).arena_bytes == std::size_t{1} << 30);
    CHECK(describe({"COLLX_ARENA_BYTES=1536K"}).arena_bytes == 1536 * 1024);
    CHECK(describe({"COLLX_ARENA_BYTES=64T"}).arena_bytes == std::size_t{1} << 46);
    CHECK(describe({"COLLX_ARENA_BYTES=1048577"}).arena_bytes == 1048577);
    CHECK(describe({"COLLX_WAIT=spin"}).waiting == wait_choice::spin);
    CHECK(describe({"COLLX_WAIT=yield"}).waiting == wait_choice::yield);
    CHECK(describe({"COLLX_WAIT=auto"}).waiting == wait_choice::automatic);
    CHECK(describe({"COLLX_SINGLE_COPY=never"}).single_copy == single_copy_mode::never);
    CHECK(describe({"COLLX_SINGLE_COPY=always"}).single_copy == single_copy_mode::always);
    CHECK(describe({"COLLX_DEBUG=WARN"}).debug == debug_level::warn);
    CHECK(describe({"COLLX_DEBUG=INFO"}).debug == debug_level::info);
    CHECK(describe({"COLLX_DEBUG=info"}).debug == debug_level::info);
    CHECK(describe({}).record == 0);
    CHECK(describe({"COLLX_RECORD=64"}).record == 64);
    CHECK(describe({"COLLX_RECORD_DIR=/x"}).record == 256);
    CHECK(describe({"COLLX_RECORD_DIR=/x"}).record_directory == "/x");
    CHECK(describe({"COLLX_RECORD_DIR=/x", "COLLX_RECORD=7"}).record == 7);
}

namespace {

// Variables that launchers set, recorded from real ones (Open MPI 4.1.4, MPICH 4.0.2) or written from their
// documentation (torchrun, Slurm 22.05, Kubernetes). For the second of four ranks.
using texts = std::vector<std::string>;
const texts collx_run = {"COLLX_RANK=1", "COLLX_SIZE=4", "COLLX_LOCAL_RANK=1", "COLLX_LOCAL_SIZE=4", "COLLX_JOB=j"};
const texts hydra = {"PMI_FD=6",          "PMI_RANK=1",        "PMI_SIZE=4",
                     "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "HYDI_CONTROL_FD=7"};
const texts openmpi = {"OMPI_COMM_WORLD_RANK=1",       "OMPI_COMM_WORLD_SIZE=4",
                       "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
                       "PMIX_NAMESPACE=955580417",     "PMIX_RANK=1",
                       "PMIX_ID=955580417.1",          "PMIX_SERVER_URI2=955580416.0;tcp4://127.0.0.1:43397"};
const texts torchrun = {"TORCHELASTIC_RUN_ID=none",
                        "TORCHELASTIC_RESTART_COUNT=0",
                        "RANK=1",
                        "WORLD_SIZE=4",
                        "LOCAL_RANK=1",
                        "LOCAL_WORLD_SIZE=4",
                        "MASTER_ADDR=localhost",
                        "MASTER_PORT=29500",
                        "GROUP_RANK=0",
                        "TORCHELASTIC_USE_AGENT_STORE=True"};
const texts torch_by_hand = {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=localhost", "MASTER_PORT=29500"};
const texts slurm = {"SLURM_JOB_ID=7",         "SLURM_STEP_ID=0",        "SLURM_PROCID=1",
                     "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_TASKS_PER_NODE=4",
                     "SLURM_LOCALID=1",        "SLURM_NODEID=0"};
const texts batch_script = {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=0"};
// What ranks inherit from the job step that started them: one process per node.
const texts slurm_daemon = {"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"};
const texts kubernetes = {"JOB_COMPLETION_INDEX=1", "COLLX_SIZE=4", "COLLX_STORE=tcp:10.0.0.1:4000"};

job_description describe_all(std::initializer_list<texts> parts, std::string* refused = nullptr) {
    std::vector<const char*> list;
    for (const texts& part : parts)
        for (const std::string& entry : part) list.push_back(entry.c_str());
    list.push_back(nullptr);
    try {
        return describe_job(environment(list.data()));
    } catch (const error& x) {
        if (refused == nullptr || x.code() != errc::environment) throw;
        *refused = x.what();
    }
    return {};
}

} // namespace

TEST_CASE("each launcher is recognised, and the inner one of several") {
    const struct {
        const char* found_by;
        int rank, size, local_size;
        const char *job, *store; // the beginnings of the job's name and of the store
        std::initializer_list<texts> parts;
    } table[] = {
        {"environment", 1, 4, 4, "j", "", {collx_run}},
        {"PMI", 1, 4, 4, "", "pmi:6", {hydra}},
        {"PMIx", 1, 4, 4, "pmix-", "", {openmpi}},
        {"torchrun", 1, 4, 4, "torch-", "", {torchrun}},
        {"torch variables", 1, 4, 4, "torch-", "", {torch_by_hand}},
        {"Slurm", 1, 4, 4, "slurm-", "", {slurm}},
        {"Kubernetes", 1, 4, 1, "", "tcp:10.0.0.1:4000", {kubernetes}},
        {"alone", 0, 1, 1, "", "", {batch_script}},
        // collx_run inside any other launcher.
        {"environment", 1, 4, 4, "j", "", {collx_run, {"PMI_FD=6", "PMI_RANK=0", "PMI_SIZE=1"}}},
        {"environment", 1, 4, 4, "j", "", {collx_run, slurm_daemon, batch_script}},
        {"environment", 1, 4, 4, "j", "", {collx_run, {"TORCHELASTIC_RUN_ID=x", "RANK=0", "WORLD_SIZE=1"}}},
        {"environment", 1, 4, 4, "j", "", {collx_run, {"JOB_COMPLETION_INDEX=3"}}},
        // torchrun with an agent started by srun or mpirun.
        {"torchrun", 1, 4, 4, "torch-", "", {torchrun, slurm_daemon}},
        {"torchrun", 1, 4, 4, "torch-", "", {torchrun, {"PMI_FD=6", "PMI_RANK=0", "PMI_SIZE=1"}}},
        {"torchrun",
         1,
         4,
         4,
         "torch-",
         "",
         {torchrun, {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "PMIX_RANK=0", "PMIX_NAMESPACE=1"}}},
        // MPI launchers in a batch job: their daemons are job steps of Slurm.
        {"PMI", 1, 4, 4, "", "pmi:6", {slurm_daemon, hydra}},
        {"PMI", 1, 4, 4, "", "pmi:6", {batch_script, hydra}},
        // On one host, srun's own PMI is left to an MPI library, which cannot share it; on several hosts it is needed.
        {"PMI", 1, 4, 4, "slurm-", "", {{"PMI_FD=6", "PMI_RANK=1", "PMI_SIZE=4"}, slurm}},
        {"PMI",
         1,
         4,
         2,
         "",
         "pmi:6",
         {{"PMI_FD=6", "PMI_RANK=1", "PMI_SIZE=4", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)"},
          slurm}},
        {"PMIx", 1, 4, 4, "pmix-", "", {openmpi, slurm_daemon}},
        {"PMIx", 1, 4, 4, "pmix-", "", {openmpi, batch_script}},
        {"PMIx", 1, 4, 4, "pmix-", "", {slurm, {"PMIX_NAMESPACE=slurm.pmix.7.0", "PMIX_RANK=1"}}},
        // A script under an MPI launcher that correctly sets the variables of torch.
        {"PMI", 1, 4, 4, "", "pmi:6", {torch_by_hand, hydra}},
        {"PMIx", 1, 4, 4, "pmix-", "", {openmpi, torch_by_hand}},
        {"torch variables", 1, 4, 4, "torch-", "", {torch_by_hand, slurm_daemon}},
        {"Slurm", 1, 4, 4, "slurm-", "", {slurm, {"JOB_COMPLETION_INDEX=3"}}},
        // The user says how the ranks connect, or which launcher counts.
        {"PMI", 1, 4, 4, "mine", "", {hydra, {"COLLX_JOB=mine"}}},
        {"PMIx", 1, 4, 4, "", "file:d", {openmpi, {"COLLX_STORE=file:d"}}},
        {"Slurm", 1, 4, 4, "slurm-", "", {hydra, slurm, {"COLLX_BOOTSTRAP=slurm"}}},
        {"torch variables", 1, 4, 4, "torch-", "", {hydra, torch_by_hand, {"COLLX_BOOTSTRAP=torch"}}},
        {"PMIx", 1, 4, 4, "pmix-", "", {hydra, openmpi, {"COLLX_BOOTSTRAP=pmix"}}},
        {"alone", 0, 1, 1, "", "", {hydra, {"COLLX_BOOTSTRAP=single", "COLLX_JOB=mine"}}},
        // Incomplete sets of variables.
        {"alone", 0, 1, 1, "", "", {{"PMIX_RANK=1", "SLURM_PROCID=1", "SLURM_JOB_ID=7", "JOB_COMPLETION_INDEX=1"}}},
        {"alone", 0, 1, 1, "", "", {{"SLURM_STEP_ID=4294967290", "SLURM_PROCID=0", "SLURM_NTASKS=4"}}},
        {"alone", 0, 1, 1, "", "", {{"SLURM_STEP_ID=batch", "SLURM_PROCID=0", "SLURM_NTASKS=4"}}},
    };
    int row = 0;
    for (const auto& t : table) {
        INFO("row " << row++);
        const job_description d = describe_all(t.parts);
        CHECK(d.found_by == std::string(t.found_by));
        CHECK(d.rank == t.rank);
        CHECK(d.size == t.size);
        CHECK(d.local_size == t.local_size);
        CHECK(d.local_rank == (t.local_size == 1 ? 0 : t.rank));
        CHECK(d.job.starts_with(t.job));
        CHECK(d.job.empty() == (t.job[0] == '\0'));
        CHECK(d.store == t.store);
    }
}

TEST_CASE("launchers that contradict each other are refused with both and the way out") {
    std::string what;
    describe_all({{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=h", "MASTER_PORT=1"}, hydra}, &what);
    CHECK(has(what,
              "PMI says rank 1 of 4, but RANK=0 and WORLD_SIZE=1 (set COLLX_BOOTSTRAP=pmi or COLLX_BOOTSTRAP=torch)"));
    describe_all({{"PMI_FD=6", "PMI_RANK=0", "PMI_SIZE=1"}, openmpi}, &what);
    CHECK(has(what, "PMI says rank 0 of 1, but OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=4"));
    CHECK(has(what, "COLLX_BOOTSTRAP=pmi or COLLX_BOOTSTRAP=pmix"));
    describe_all({openmpi, {"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1"}}, &what);
    CHECK(has(what, "PMIx says rank 1 of 4, but RANK=2 and WORLD_SIZE=4"));
    describe_all({hydra, {"RANK=1", "WORLD_SIZE=5", "MASTER_ADDR=h", "MASTER_PORT=1"}}, &what); // only the size differs
    CHECK(has(what, "PMI says rank 1 of 4, but RANK=1 and WORLD_SIZE=5"));
    describe_all({hydra, {"COLLX_JOB=a", "COLLX_STORE=file:d"}}, &what);
    CHECK(has(what, "COLLX_JOB and COLLX_STORE both"));
}

TEST_CASE("a launcher's variables that make no sense are refused, whichever they are") {
    std::string what;
    describe_all({{"PMI_FD=6", "PMI_RANK=0"}}, &what);
    CHECK(has(what, "the variables of PMI are here, but PMI_SIZE is not set"));
    describe_all({{"TORCHELASTIC_RUN_ID=a", "RANK=0"}}, &what);
    CHECK(has(what, "the variables of torchrun are here, but WORLD_SIZE is not set"));
    describe_all({{"PMIX_NAMESPACE=a", "PMIX_RANK=0"}}, &what);
    CHECK(has(what, "no variable says how many ranks there are (include <collx/interop/pmix.hpp>"));
    describe_all({{"PMI_FD=6", "PMI_RANK=4", "PMI_SIZE=4"}}, &what);
    CHECK(has(what, "PMI_RANK=4 is not below PMI_SIZE=4"));
    describe_all({{"PMI_FD=-1", "PMI_RANK=0", "PMI_SIZE=4"}}, &what);
    CHECK(has(what, "PMI_FD=-1 makes no sense"));
    describe_all({torchrun, {"LOCAL_RANK=x"}}); // the first entry of a name counts
    describe_all({{"LOCAL_RANK=4"}, torchrun}, &what);
    CHECK(has(what, "LOCAL_RANK=4 makes no sense (give it a whole number from 0 to 3"));
    describe_all({{"SLURM_STEP_TASKS_PER_NODE=2(x", "SLURM_STEP_NUM_NODES=2"}, slurm}, &what);
    CHECK(has(what, "SLURM_STEP_TASKS_PER_NODE=2(x makes no sense on node 0"));
    describe_all({{"JOB_COMPLETION_INDEX=4"}, kubernetes}, &what);
    CHECK(has(what, "JOB_COMPLETION_INDEX=4 is not below COLLX_SIZE=4"));
}

TEST_CASE("places on several hosts") {
    const job_description d = describe_all({{"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NUM_NODES=3",
                                             "SLURM_STEP_TASKS_PER_NODE=4,2(x2)", "SLURM_NODEID=1", "SLURM_LOCALID=1"},
                                            slurm});
    CHECK(d.local_rank == 1);
    CHECK(d.local_size == 2);
    CHECK(d.job.empty()); // two hosts have nothing to connect by
    CHECK(has(d.remedy, "COLLX_STORE=tcp:"));
    CHECK(describe_all({{"LOCAL_WORLD_SIZE=2"}, torchrun}).job.empty());
    CHECK(describe_all({{"OMPI_COMM_WORLD_LOCAL_SIZE=2"}, openmpi}).job.empty());
    CHECK(describe_all({{"MPI_LOCALNRANKS=2"}, hydra}).local_size == 2);
}

TEST_CASE("ranks of one launch derive one name, other launches another") {
    const auto name = [](texts with) { return describe_all({with, torchrun}).job; };
    CHECK(name({"RANK=0", "LOCAL_RANK=0"}) == name({"RANK=3", "LOCAL_RANK=3"}));
    CHECK(name({}) != name({"MASTER_PORT=29501"}));
    CHECK(name({}) != name({"TORCHELASTIC_RESTART_COUNT=1"}));
    CHECK(name({}) != name({"TORCHELASTIC_RUN_ID=none0"}));
    CHECK(describe_all({slurm}).job != describe_all({{"SLURM_STEP_ID=1"}, slurm}).job);
    CHECK(describe_all({slurm}).job != describe_all({{"SLURM_JOB_ID=70"}, slurm}).job);
    CHECK(describe_all({openmpi}).job != describe_all({{"PMIX_NAMESPACE=2"}, openmpi}).job);
    CHECK(describe_all({openmpi}).job != describe_all({{"PMIX_SERVER_URI2=x"}, openmpi}).job);
    CHECK(describe_all({openmpi}).job == describe_all({{"OMPI_COMM_WORLD_RANK=2", "PMIX_RANK=2"}, openmpi}).job);
    // Values whose texts in a row are the same.
    const auto of = [](const entries& e) { return detail::derived_job("x", e, {"A", "B"}); };
    CHECK(of({"A=a:b", "B=c"}) == of({"A=a:b", "B=c"}));
    CHECK(of({"A=a:b", "B=c"}) != of({"A=a", "B=b:c"}));
}

TEST_CASE("Slurm's list of tasks per node") {
    using collx::detail::tasks_on_node;
    CHECK(tasks_on_node("4", 0) == 4);
    CHECK(tasks_on_node("4", 1) == -1);
    CHECK(tasks_on_node("4(x2),3", 1) == 4);
    CHECK(tasks_on_node("4(x2),3", 2) == 3);
    for (const char* bad :
         {"", "x", "4(", "4(x", "4(x2", "4(x0)", "(x2)", "4,", "4 ,3", "99999999999(x2)", "4(x99999999999)"})
        CHECK(tasks_on_node(bad, 1) == -1);
}

TEST_CASE("a way to find the job can be forced") {
    CHECK(describe({"COLLX_BOOTSTRAP=single", "COLLX_RANK=1", "COLLX_SIZE=2", "COLLX_JOB=a"}).size == 1);
    CHECK(describe({"COLLX_BOOTSTRAP=env", "COLLX_RANK=1", "COLLX_SIZE=2", "COLLX_JOB=a"}).size == 2);
    CHECK(
        has(refusal({"COLLX_BOOTSTRAP=env"}),
            "COLLX_BOOTSTRAP=env looked for COLLX_RANK COLLX_SIZE; not set: COLLX_RANK COLLX_SIZE (unset COLLX_BOOT"));
    CHECK(has(refusal({"COLLX_BOOTSTRAP=mpi"}),
              "COLLX_BOOTSTRAP=mpi makes no sense (give it one of env|torch|pmi|pmix|slurm|kubernetes|single"));
    CHECK(has(refusal({"COLLX_BOOTSTRAP=pmi", "PMI_RANK=0"}),
              "looked for PMI_FD PMI_RANK PMI_SIZE, or PMI_PORT PMI_ID; not set: PMI_FD PMI_SIZE PMI_PORT PMI_ID ("));
    CHECK(has(refusal({"COLLX_BOOTSTRAP=pmix", "PMI_FD=3", "PMI_RANK=0", "PMI_SIZE=1"}),
              "looked for PMIX_NAMESPACE PMIX_RANK; not set: PMIX_NAMESPACE PMIX_RANK"));
    CHECK(has(refusal({"COLLX_BOOTSTRAP=torch", "RANK=0", "WORLD_SIZE=1"}),
              "looked for TORCHELASTIC_RUN_ID RANK WORLD_SIZE, or RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; not set: "
              "TORCHELASTIC_RUN_ID MASTER_ADDR MASTER_PORT"));
    CHECK(
        has(refusal({"COLLX_BOOTSTRAP=slurm", "SLURM_STEP_ID=4294967291", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"}),
            "their values are not those of a rank"));
    CHECK(has(refusal({"COLLX_BOOTSTRAP=kubernetes", "JOB_COMPLETION_INDEX=0"}), "not set: COLLX_SIZE"));
}

TEST_CASE("numbers that do not fit together are refused with both") {
    CHECK(has(refusal({"COLLX_RANK=1"}), "COLLX_RANK is set but COLLX_SIZE is not"));
    CHECK(has(refusal({"COLLX_SIZE=1"}), "COLLX_SIZE is set but COLLX_RANK is not"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=1", "COLLX_LOCAL_RANK=0"}), "COLLX_LOCAL_SIZE is not"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=1", "COLLX_LOCAL_SIZE=1"}), "COLLX_LOCAL_RANK is not"));
    CHECK(has(refusal({"COLLX_LOCAL_RANK=0", "COLLX_LOCAL_SIZE=1"}), "COLLX_RANK is not"));
    CHECK(has(refusal({"COLLX_RANK=4", "COLLX_SIZE=4", "COLLX_JOB=a"}), "COLLX_RANK=4 is not below COLLX_SIZE=4"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=4", "COLLX_JOB=a", "COLLX_LOCAL_RANK=2", "COLLX_LOCAL_SIZE=2"}),
              "COLLX_LOCAL_RANK=2 is not below"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=4", "COLLX_JOB=a", "COLLX_LOCAL_RANK=0", "COLLX_LOCAL_SIZE=5"}),
              "COLLX_LOCAL_SIZE=5 is above"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=2"}), "neither COLLX_JOB nor COLLX_STORE"));
    CHECK(has(refusal({"COLLX_RANK=0", "COLLX_SIZE=2", "COLLX_JOB=a", "COLLX_STORE=file:d"}),
              "COLLX_JOB and COLLX_STORE both"));
    CHECK(refusal({"COLLX_RANK=0", "COLLX_SIZE=1"}).empty());
}

TEST_CASE("values that make no sense are refused with a remedy, whichever variable they are in") {
    const std::string huge(100'000, '9');
    const std::vector<std::string> never = {"",   " ",   "-1",  "x",        "1x",       "0x1",
                                            " 1", "1 ",  "+1",  "\xff\xfe", "\x1b[31m", "99999999999999999999",
                                            huge, "nan", "1e3", "NaN"};
    for (const variable& v : variables) {
        if (v.type == variable::kind::foreign) continue;
        for (const std::string& value : never) {
            if ((v.type == variable::kind::token || v.type == variable::kind::address) &&
                (value == "-1" || value == "x" || value == "1x" || value == "0x1" || value == "99999999999999999999" ||
                 value == "nan" || value == "1e3" || value == "NaN"))
                continue;                                                   // valid as a name
            if (v.type == variable::kind::path && !value.empty()) continue; // valid as a file name
            const std::string entry = v.name + ("=" + value);
            const std::string what = refusal({entry.c_str()});
            INFO(v.name << "=" << value.substr(0, 30) << ": " << what);
            CHECK(has(what, v.name));
            CHECK(has(what, value.empty() ? "is empty" : "makes no sense"));
            CHECK(has(what, "give it "));
            bool is_clean = true;
            for (const char c : what) is_clean = is_clean && c >= ' ' && c <= '~';
            CHECK(is_clean);
        }
    }
}

TEST_CASE("values at the edges") {
    CHECK(has(refusal({"COLLX_SIZE=0", "COLLX_RANK=0"}), "COLLX_SIZE=0 makes no sense"));
    CHECK(has(refusal({"COLLX_SIZE=1048577", "COLLX_RANK=0", "COLLX_JOB=a"}), "whole number from 1 to 1048576"));
    CHECK(refusal({"COLLX_SIZE=1048576", "COLLX_RANK=1048575", "COLLX_JOB=a"}).empty());
    for (const char* bad : {"COLLX_TIMEOUT=0",
                            "COLLX_TIMEOUT=0.0",
                            "COLLX_TIMEOUT=.5",
                            "COLLX_TIMEOUT=5.",
                            "COLLX_TIMEOUT=1,5",
                            "COLLX_TIMEOUT=1000000001",
                            "COLLX_TIMEOUT=1.5.5",
                            "COLLX_ARENA_BYTES=65T",
                            "COLLX_ARENA_BYTES=1023K",
                            "COLLX_ARENA_BYTES=1g",
                            "COLLX_ARENA_BYTES=1GB",
                            "COLLX_ARENA_BYTES=G",
                            "COLLX_ARENA_BYTES=9223372036854775807T",
                            "COLLX_CHECKED=2",
                            "COLLX_CHECKED=true",
                            "COLLX_WAIT=spinning",
                            "COLLX_WAIT=spin|yield",
                            "COLLX_DEBUG=3",
                            "COLLX_DEBUG=TRACE",
                            "COLLX_RECORD=-1",
                            "COLLX_RECORD=1048577",
                            "COLLX_RECORD=64 calls",
                            "COLLX_STORE=file:",
                            "COLLX_STORE=tcp:",
                            "COLLX_STORE=tcp:127.0.0.1",
                            "COLLX_STORE=tcp::80",
                            "COLLX_STORE=tcp:h:0",
                            "COLLX_STORE=tcp:h:65536",
                            "COLLX_STORE=tcp:h:8x",
                            "COLLX_STORE=http:x",
                            "COLLX_JOB=a b",
                            "COLLX_JOB=a/b"})
        CHECK(has(refusal({bad}), "makes no sense"));
    CHECK(has(refusal({("COLLX_JOB=" + std::string(129, 'a')).c_str()}), "makes no sense"));
    CHECK(refusal({("COLLX_JOB=" + std::string(128, 'a')).c_str(), "COLLX_BOOTSTRAP=single"}).empty());
    for (const char* good : {"COLLX_STORE=tcp:127.0.0.1:1", "COLLX_STORE=tcp:[::1]:65535", "COLLX_STORE=file:a"})
        CHECK(refusal({good, "COLLX_BOOTSTRAP=single"}).empty());
}

TEST_CASE("an unknown name that resembles none is a script's own: one warning for all of them") {
    std::FILE* caught = std::tmpfile();
    REQUIRE(caught != nullptr);
    const int usual = ::dup(2);
    ::dup2(::fileno(caught), 2);
    std::string refused = refusal({"COLLX_COMPLETELY_ELSE=1"});
    refused += refusal({"COLLX_FOO=1", "COLLX_=1"});
    refused += refusal({("COLLX_" + std::string(5000, 'A') + "=1").c_str()});
    ::dup2(usual, 2);
    ::close(usual);
    std::rewind(caught);
    char text[1000];
    const std::size_t length = std::fread(text, 1, sizeof text, caught);
    std::fclose(caught);
    CHECK(refused.empty());
    CHECK(std::string(text, length) == "collx: warning: unknown variable COLLX_COMPLETELY_ELSE is ignored\n");
}

TEST_CASE("half a launcher's variables are refused with those that are there and those that are not") {
    CHECK(has(refusal({"RANK=0", "WORLD_SIZE=2"}), "torch variables: RANK, WORLD_SIZE set, "
                                                   "MASTER_ADDR, MASTER_PORT missing (set the missing ones too, or"));
    CHECK(has(refusal({"RANK=0", "MASTER_ADDR=h", "MASTER_PORT=1"}), "RANK, MASTER_ADDR, MASTER_PORT set, WORLD_SIZE"));
    CHECK(has(refusal({"PMI_RANK=1", "PMI_SIZE=4"}), "PMI: PMI_RANK, PMI_SIZE set, PMI_FD missing"));
    CHECK(has(refusal({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"}),
              "PMIx: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE set, PMIX_NAMESPACE, PMIX_RANK"));
    CHECK(describe({"COLLX_BOOTSTRAP=single", "RANK=0", "WORLD_SIZE=2"}).size == 1);
}

TEST_CASE("a place to meet without a rank is refused: each process would be a job of its own") {
    for (const char* place : {"COLLX_STORE=tcp:10.0.0.1:5000", "COLLX_JOB=j"}) {
        CHECK(has(refusal({place}), " is set, but nothing says which rank this is (set COLLX_RANK and COLLX_SIZE"));
        CHECK(has(refusal({place, "JOB_COMPLETION_INDEX=0"}), "nothing says which rank this is"));
        CHECK(describe({place, "COLLX_BOOTSTRAP=single"}).size == 1);
        CHECK(describe({place, "COLLX_RANK=1", "COLLX_SIZE=2"}).size == 2);
    }
}

TEST_CASE("one variable about the host is enough to tell that there are several") {
    for (const texts& more : {texts{"LOCAL_WORLD_SIZE=2"}, texts{"LOCAL_RANK=0"}}) {
        const job_description d = describe_all({more, torch_by_hand});
        CHECK(d.job.empty());
        CHECK(d.local_size < d.size);
        CHECK(d.local_rank < d.local_size);
        CHECK(has(d.remedy, "COLLX_STORE=tcp:"));
    }
    CHECK(describe_all({{"LOCAL_WORLD_SIZE=2", "RANK=3"}, torch_by_hand}).local_rank == 1);
    CHECK_FALSE(describe_all({{"LOCAL_RANK=1"}, torch_by_hand}).job.empty());
    const job_description d =
        describe_all({{"SLURM_STEP_ID=0", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2"}});
    CHECK(d.job.empty());
    CHECK(d.local_size < d.size);
}

TEST_CASE("an unknown name is refused, with the name that was probably meant") {
    CHECK(has(refusal({"COLLX_RANKS=1"}), "unknown variable COLLX_RANKS (did you mean COLLX_RANK?"));
    CHECK(has(refusal({"COLLX_TIME_OUT=1"}), "did you mean COLLX_TIMEOUT?"));
    CHECK(has(refusal({"COLLX_SIEZ=1"}), "did you mean COLLX_SIZE?"));
    CHECK(has(refusal({"COLLX_rank=1"}), "did you mean"));
    CHECK(refusal({"COLLXY=1", "MY_COLLX_RANK=7", "COLLX", "COLLX_EXAMPLE_SHORT=1", "COLLX_TEST_NIGHTLY=1"}).empty());
}

TEST_CASE("the table says everything once") {
    for (const variable& v : variables) {
        int found = 0;
        for (const variable& w : variables) found += v.name == std::string(w.name);
        CHECK(found == 1);
        CHECK(std::strlen(v.meaning) > 8);
        CHECK(std::strncmp(v.name, "COLLX_", 6) == 0);
    }
    // The values of COLLX_BOOTSTRAP are the names of the probes, each once.
    std::string words;
    for (const bootstrap_probe& p : bootstrap_probes)
        if (!has(words, p.name)) words += (words.empty() ? "" : "|") + std::string(p.name);
    CHECK(words == detail::variable_named("COLLX_BOOTSTRAP").choices);
}
