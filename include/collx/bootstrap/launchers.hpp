// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each launcher leaves in the environment of the processes it starts: torchrun, PMI-1 (MPICH's mpiexec, srun
// --mpi=pmi2, Flux), PMIx (Open MPI's mpirun, PRRTE, srun --mpi=pmix), Slurm alone, Kubernetes. The functions of each
// launcher turn its variables into rank, size, place on the host and a way to meet. environment.hpp has the order in
// which launchers are asked, and the reasons. Does not communicate. Sources: docs/launchers.md.
#pragma once

#include <initializer_list>

#include <collx/bootstrap/description.hpp>
#include <collx/bootstrap/variables.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The value of a number that a launcher sets. Errors: environment when it is not set or makes no sense.
inline int launcher_number(const environment& env, const char* name, const char* launcher, int least, int most) {
    const char* value = env.get(name);
    if (value == nullptr)
        fail(errc::environment, -1, -1, "start the program with that launcher, or set COLLX_BOOTSTRAP to another",
             "the variables of %s are here, but %s is not set", launcher, name);
    const variable v{name, variable::kind::number, "", "it comes from the launcher", least, most};
    return static_cast<int>(read_number(v, value));
}
inline bool are_set(const environment& env, std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (env.get(name) == nullptr) return false;
    return true;
}

inline void read_ranks(const environment& env, const char* launcher, const char* rank, const char* size,
                       job_description& d) {
    d.size = launcher_number(env, size, launcher, 1, most_ranks);
    d.rank = launcher_number(env, rank, launcher, 0, most_ranks - 1);
    if (d.rank >= d.size)
        fail(errc::environment, -1, -1, "they are the launcher's: unset what was set by hand",
             "%s=%d is not below %s=%d", rank, d.rank, size, d.size);
}
// Reads the place on the host. Without these two variables all ranks are taken to be on one host. One of them alone can
// still show that there are several hosts: a size that is not the job's, or a local rank that is not the rank.
inline void read_locals(const environment& env, const char* launcher, const char* rank, const char* size,
                        job_description& d) {
    d.local_rank = d.rank;
    d.local_size = d.size;
    const bool has_rank = env.get(rank) != nullptr, has_size = env.get(size) != nullptr;
    if (has_size) {
        d.local_size = launcher_number(env, size, launcher, 1, d.size);
        d.local_rank = d.rank % d.local_size; // assumes that a host has consecutive ranks
    }
    if (!has_rank) return;
    d.local_rank = launcher_number(env, rank, launcher, 0, d.local_size - 1);
    if (!has_size && d.local_rank < d.rank) d.local_size = d.local_rank + 1; // a lower bound, below the job's size
}

// A name for the ranks of one launch on one host, from variables that the launcher sets alike for all of them. It is
// not secret: user ids, not names, decide who may join. The hash includes the lengths of the parts, so that different
// parts never make the same text.
inline kept_text derived_job(const char* launcher, const environment& env, std::initializer_list<const char*> names) {
    kept_text all;
    for (const char* name : names) {
        const char* value = env.get(name);
        const name_view text = value != nullptr ? value : "";
        all = joined({all, text.size(), value != nullptr ? ":" : "-", text});
    }
    char job[64];
    std::snprintf(job, sizeof job, "%s-%016llx%016llx", launcher,
                  static_cast<unsigned long long>(hash_bytes(all.data(), all.size(), 1)),
                  static_cast<unsigned long long>(hash_bytes(all.data(), all.size(), 2)));
    return job;
}

// --------------------------------------------------------------------------------------------- torchrun and its like

inline constexpr const char* several_hosts_remedy =
    "set COLLX_STORE=tcp:ADDRESS:PORT, an address of rank 0's host and a port that is free";

// MASTER_PORT only becomes part of the name: torchrun's own store listens there.
inline void describe_torch(const environment& env, job_description& d) {
    read_ranks(env, "torchrun", "RANK", "WORLD_SIZE", d);
    read_locals(env, "torchrun", "LOCAL_RANK", "LOCAL_WORLD_SIZE", d);
    d.remedy = several_hosts_remedy;
    if (d.local_size == d.size)
        d.job = derived_job("torch", env,
                            {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"});
}
inline bool is_torchrun(const environment& env) { return are_set(env, {"TORCHELASTIC_RUN_ID"}); }
[[gnu::cold]] inline bool is_torch_by_hand(const environment& env) {
    return are_set(env, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
}

// --------------------------------------------------------------------------------------------- Slurm

// Number of tasks on `node` in a list such as 4(x2),3: two nodes of four, then one of three. -1 if the text is no list
// or does not reach that node.
inline int tasks_on_node(name_view list, int node) {
    const kept_text text(list); // a zero-terminated copy
    for (const char* at = text.c_str();;) {
        const std::int64_t tasks = read_digits(at, most_ranks);
        std::int64_t nodes = 1;
        if (at[0] == '(' && at[1] == 'x') {
            at += 2;
            nodes = read_digits(at, most_ranks);
            if (*at++ != ')') return -1;
        }
        if (tasks < 0 || nodes < 1) return -1;
        if (node < nodes) return static_cast<int>(tasks);
        node -= static_cast<int>(nodes);
        if (*at++ != ',') return -1;
    }
}

// Whether srun set a step number. The largest numbers stand for batch scripts and shells, which are one process however
// many tasks the job has.
inline bool is_slurm_step(const environment& env) {
    const char* step = env.get("SLURM_STEP_ID");
    if (step == nullptr || env.get("SLURM_PROCID") == nullptr) return false;
    const std::int64_t number = read_digits(step, 0xffff'ffef);
    return number >= 0 && *step == '\0' &&
           (env.get("SLURM_STEP_NUM_TASKS") != nullptr || env.get("SLURM_NTASKS") != nullptr);
}
inline const char* slurm_size_name(const environment& env) {
    return env.get("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}
inline void read_slurm_locals(const environment& env, job_description& d) {
    d.local_rank = d.rank;
    d.local_size = d.size;
    const char* list = env.get("SLURM_STEP_TASKS_PER_NODE");
    const bool is_one_node = env.get("SLURM_STEP_NUM_NODES") == nullptr ||
                             launcher_number(env, "SLURM_STEP_NUM_NODES", "Slurm", 1, most_ranks) == 1;
    if (is_one_node) return;
    if (list == nullptr) { // several nodes: the local size is a lower bound, below the job's size
        const bool has_place = env.get("SLURM_LOCALID") != nullptr;
        d.local_rank = has_place ? launcher_number(env, "SLURM_LOCALID", "Slurm", 0, d.rank) : 0;
        d.local_size = d.local_rank + 1 < d.size ? d.local_rank + 1 : 1;
        if (d.local_rank >= d.local_size) d.local_rank = 0;
        return;
    }
    const int node = launcher_number(env, "SLURM_NODEID", "Slurm", 0, most_ranks - 1);
    d.local_size = tasks_on_node(list, node);
    if (d.local_size < 1 || d.local_size > d.size)
        fail(errc::environment, d.rank, -1, "it comes from the launcher: unset what was set by hand",
             "SLURM_STEP_TASKS_PER_NODE=%s makes no sense on node %d", printable(list).text, node);
    d.local_rank = launcher_number(env, "SLURM_LOCALID", "Slurm", 0, d.local_size - 1);
}
inline kept_text slurm_job(const environment& env) {
    return derived_job("slurm", env, {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
}
inline void describe_slurm(const environment& env, job_description& d) {
    read_ranks(env, "Slurm", "SLURM_PROCID", slurm_size_name(env), d);
    read_slurm_locals(env, d);
    d.remedy = "use srun --mpi=pmi2, or set COLLX_STORE=tcp:ADDRESS:PORT, an address of rank 0's host";
    if (d.local_size == d.size) d.job = slurm_job(env);
}
// Whether srun itself, and not a launcher that it started, gives this process the same rank.
inline bool is_slurm_rank(const environment& env, int rank) {
    if (!is_slurm_step(env)) return false;
    const char* at = env.get("SLURM_PROCID");
    return read_digits(at, most_ranks) == rank && *at == '\0';
}

// --------------------------------------------------------------------------------------------- PMI-1 and PMIx

inline bool is_pmi(const environment& env) { return are_set(env, {"PMI_FD"}); }
inline void describe_pmi(const environment& env, job_description& d) {
    read_ranks(env, "PMI", "PMI_RANK", "PMI_SIZE", d);
    read_locals(env, "PMI", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", d); // hydra's; other managers say it over the socket
    // Slurm's manager takes one client per rank and ends the step when an MPI library comes second. If its variables
    // are enough, collx leaves the socket to that library.
    if (is_slurm_rank(env, d.rank) && launcher_number(env, slurm_size_name(env), "Slurm", 1, most_ranks) == d.size) {
        read_slurm_locals(env, d);
        if (d.local_size == d.size) d.job = slurm_job(env);
        if (!d.job.empty()) return;
    }
    d.store = joined({"pmi:", launcher_number(env, "PMI_FD", "PMI", 0, 1 << 20)});
}

// PMI-1 over TCP (mpiexec -pmi-port): the variables give the rank. The manager gives the number of ranks when the job
// is joined; until then the size is a lower bound.
inline bool is_pmi_port(const environment& env) { return are_set(env, {"PMI_PORT", "PMI_ID"}); }
inline void describe_pmi_port(const environment& env, job_description& d) {
    d.rank = launcher_number(env, "PMI_ID", "PMI", 0, most_ranks - 1);
    d.size = most_ranks;
    read_locals(env, "PMI", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", d);
    if (d.local_size == most_ranks) {
        d.local_rank = 0;
        d.local_size = 1;
    }
    d.size = d.rank < d.local_size ? d.local_size : d.rank + 1;
    d.pmi_port = env.get("PMI_PORT");
    d.store = "pmi:0";
}

inline bool is_pmix(const environment& env) { return are_set(env, {"PMIX_NAMESPACE", "PMIX_RANK"}); }
// Without the component the ranks of a single host can still meet: the server that they all share has a unique name.
inline void describe_pmix(const environment& env, job_description& d) {
    if (pmix != nullptr) {
        pmix->describe(d);
        d.store = "pmix:";
        return;
    }
    d.remedy = "include <collx/interop/pmix.hpp> and link collx::pmix, or set COLLX_STORE=tcp:ADDRESS:PORT";
    if (env.get("OMPI_COMM_WORLD_SIZE") != nullptr) {
        read_ranks(env, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", d);
        read_locals(env, "Open MPI", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", d);
    } else {
        const int rank = launcher_number(env, "PMIX_RANK", "PMIx", 0, most_ranks - 1);
        if (!is_slurm_rank(env, rank))
            fail(errc::environment, rank, -1,
                 "include <collx/interop/pmix.hpp> and link collx::pmix, or set COLLX_RANK, COLLX_SIZE and COLLX_JOB",
                 "a PMIx launcher started this process, but no variable says how many ranks there are");
        read_ranks(env, "Slurm", "PMIX_RANK", slurm_size_name(env), d);
        read_slurm_locals(env, d);
    }
    if (d.local_size == d.size)
        d.job = derived_job("pmix", env,
                            {"PMIX_NAMESPACE", "PMIX_SERVER_URI2", "PMIX_SERVER_URI3", "PMIX_SERVER_URI4",
                             "PMIX_SERVER_URI41", "PMIX_SERVER_TMPDIR", "OMPI_MCA_orte_hnp_uri"});
}

// --------------------------------------------------------------------------------------------- Kubernetes

// An Indexed Job tells each pod only its number. The size comes from the job file, as COLLX_SIZE.
inline bool is_kubernetes(const environment& env) { return are_set(env, {"JOB_COMPLETION_INDEX", "COLLX_SIZE"}); }
inline void describe_kubernetes(const environment& env, job_description& d) {
    read_ranks(env, "Kubernetes", "JOB_COMPLETION_INDEX", "COLLX_SIZE", d);
    d.local_rank = 0; // each pod has its own network and address space
    d.local_size = 1;
    d.remedy = "set COLLX_STORE=tcp:ADDRESS:PORT in the job file";
}

} // namespace detail

COLLX_END_NAMESPACE
