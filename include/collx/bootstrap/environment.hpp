// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which rank of which job this process is, as its environment says. A list of probes, one per launcher, is asked in
// order; the first probe that recognises its variables decides. Joins no job and knows no transport.
#pragma once

#include <type_traits>

#include <collx/bootstrap/launchers.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

constexpr const variable& variable_named(const char* name) {
    for (const variable& v : variables) {
        const char *a = v.name, *b = name;
        while (*a != '\0' && *a == *b) {
            ++a;
            ++b;
        }
        if (*a == *b) return v;
    }
    throw "no row of this name in the table"; // only ever at compile time
}

// The value of a number, or -1 if it is not set. Values have been checked.
inline int number_in(const environment& env, const variable& v) {
    const char* value = env.get(v.name);
    return value != nullptr ? static_cast<int>(read_number(v, value)) : -1;
}

inline void fail_half(const char* present, const char* absent) {
    fail(errc::environment, -1, -1, "set both or neither; collx_run sets them for you", "%s is set but %s is not",
         present, absent);
}

// COLLX_JOB and COLLX_STORE, which the user sets, take precedence over what a launcher offers.
inline void read_meeting(const environment& env, job_description& d) {
    const char *job = env.get("COLLX_JOB"), *store = env.get("COLLX_STORE");
    if (job != nullptr && store != nullptr)
        fail(errc::environment, d.rank, -1, "unset one",
             "COLLX_JOB and COLLX_STORE both say how ranks find each other");
    if (job == nullptr && store == nullptr) return;
    d.job = job != nullptr ? job : "";
    d.store = store != nullptr ? store : "";
}

// COLLX_RANK and COLLX_SIZE: set by collx_run, usable by any script.
inline bool are_variables(const environment& env) {
    if (env.get("COLLX_RANK") != nullptr) return true;
    if (is_kubernetes(env)) return false; // there COLLX_SIZE belongs to the Kubernetes probe
    return env.get("COLLX_SIZE") != nullptr || env.get("COLLX_LOCAL_RANK") != nullptr ||
           env.get("COLLX_LOCAL_SIZE") != nullptr;
}
inline void describe_variables(const environment& env, job_description& d) {
    const int rank = number_in(env, variable_named("COLLX_RANK")), size = number_in(env, variable_named("COLLX_SIZE"));
    const int local_rank = number_in(env, variable_named("COLLX_LOCAL_RANK"));
    const int local_size = number_in(env, variable_named("COLLX_LOCAL_SIZE"));
    if (rank >= 0 && size < 0) fail_half("COLLX_RANK", "COLLX_SIZE");
    if (rank < 0 && size >= 0) fail_half("COLLX_SIZE", "COLLX_RANK");
    if (local_rank >= 0 && local_size < 0) fail_half("COLLX_LOCAL_RANK", "COLLX_LOCAL_SIZE");
    if (local_rank < 0 && local_size >= 0) fail_half("COLLX_LOCAL_SIZE", "COLLX_LOCAL_RANK");
    if (rank < 0) fail_half("COLLX_LOCAL_RANK", "COLLX_RANK");
    if (rank >= size)
        fail(errc::environment, -1, -1, "ranks count from 0 to COLLX_SIZE - 1",
             "COLLX_RANK=%d is not below COLLX_SIZE=%d", rank, size);
    if (local_rank >= local_size && local_rank >= 0)
        fail(errc::environment, rank, -1, "ranks count from 0", "COLLX_LOCAL_RANK=%d is not below COLLX_LOCAL_SIZE=%d",
             local_rank, local_size);
    if (local_size > size)
        fail(errc::environment, rank, -1, "a host has at most all ranks", "COLLX_LOCAL_SIZE=%d is above COLLX_SIZE=%d",
             local_size, size);
    d.rank = rank;
    d.size = size;
    d.local_rank = local_rank >= 0 ? local_rank : rank;
    d.local_size = local_size >= 0 ? local_size : size;
    if (size > 1 && env.get("COLLX_JOB") == nullptr && env.get("COLLX_STORE") == nullptr)
        fail(errc::environment, rank, -1,
             "start the ranks with collx_run, or set COLLX_JOB to one new name for all of them",
             "COLLX_SIZE=%d, but neither COLLX_JOB nor COLLX_STORE says how ranks find each other", size);
}

inline bool is_any(const environment&) { return true; }
inline void describe_alone(const environment&, job_description&) {}

} // namespace detail

// One launcher. `recognises` says whether the launcher's variables are set. `describe` fills in rank, size, local_rank,
// local_size and job or store; it refuses contradictory values with errc::environment.
struct bootstrap_probe {
    const char* name;     // word for COLLX_BOOTSTRAP; rows may share one
    const char* found_by; // value of job_description::found_by
    const char* wanted;   // the variables that the probe requires, separated by blanks
    bool (*recognises)(const environment&);
    void (*describe)(const environment&, job_description&);
    const char* rank = nullptr; // variables that must not contradict those of another probe that names some
    const char* size = nullptr;
};

// Probes are asked in this order. A launcher that may run inside another one, and so inherits its variables, comes
// before that other. collx_run and scripts run inside any launcher. torchrun's workers may come from srun or mpirun.
// MPICH's and Open MPI's launchers start their daemons with srun, so all their ranks inherit one SLURM_PROCID.
inline constexpr bootstrap_probe bootstrap_probes[] = {
    {"env", "environment", "COLLX_RANK COLLX_SIZE", detail::are_variables, detail::describe_variables},
    {"torch", "torchrun", "TORCHELASTIC_RUN_ID RANK WORLD_SIZE", detail::is_torchrun, detail::describe_torch},
    {"pmi", "PMI", "PMI_FD PMI_RANK PMI_SIZE", detail::is_pmi, detail::describe_pmi, "PMI_RANK", "PMI_SIZE"},
    {"pmi", "PMI", "PMI_PORT PMI_ID", detail::is_pmi_port, detail::describe_pmi_port},
    {"pmix", "PMIx", "PMIX_NAMESPACE PMIX_RANK", detail::is_pmix, detail::describe_pmix, "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE"},
    {"torch", "torch variables", "RANK WORLD_SIZE MASTER_ADDR MASTER_PORT", detail::is_torch_by_hand,
     detail::describe_torch, "RANK", "WORLD_SIZE"},
    {"slurm", "Slurm", "SLURM_STEP_ID SLURM_PROCID SLURM_STEP_NUM_TASKS", detail::is_slurm_step,
     detail::describe_slurm},
    {"kubernetes", "Kubernetes", "JOB_COMPLETION_INDEX COLLX_SIZE", detail::is_kubernetes, detail::describe_kubernetes},
    {"single", "alone", "", detail::is_any, detail::describe_alone},
};

namespace detail {

// Calls visit(name) for each variable that the probe requires.
template <class Visit>
void each_wanted(const bootstrap_probe& p, Visit&& visit) {
    for (name_view left = p.wanted; !left.empty();) {
        const std::size_t end = left.find(' ');
        visit(kept_text(left.substr(0, end)));
        left.remove_prefix(end == name_view::npos ? left.size() : end + 1);
    }
}

[[noreturn, gnu::cold]] inline void fail_forced(const environment& env, const char* forced) {
    kept_text looked_for, absent;
    for (const bootstrap_probe& p : bootstrap_probes) {
        if (std::strcmp(forced, p.name) != 0) continue;
        looked_for += looked_for.empty() ? "" : ", or ";
        looked_for += p.wanted;
        each_wanted(p, [&](const kept_text& name) {
            if (env.get(name.c_str()) == nullptr && absent.find(name) == kept_text::npos)
                absent = joined({absent, " ", name});
        });
    }
    fail(errc::environment, -1, -1, "unset COLLX_BOOTSTRAP or start the program with that launcher",
         "COLLX_BOOTSTRAP=%s looked for %s; %s%s", forced, looked_for.c_str(),
         absent.empty() ? "their values are not those of a rank" : "not set:", absent.c_str());
}

// Throws if another launcher's variables give another rank or size: one of the two is stale, and it is unknown which.
[[gnu::cold]] inline void check_agreement(const environment& env, const bootstrap_probe& found,
                                          const job_description& d) {
    if (found.rank == nullptr) return;
    for (const bootstrap_probe* p = &found + 1; p != bootstrap_probes + sizeof bootstrap_probes / sizeof *p; ++p) {
        if (p->rank == nullptr || !p->recognises(env) || !are_set(env, {p->rank, p->size})) continue;
        job_description other;
        read_ranks(env, p->found_by, p->rank, p->size, other);
        if (other.rank == d.rank && other.size == d.size) continue;
        char remedy[80];
        std::snprintf(remedy, sizeof remedy, "set COLLX_BOOTSTRAP=%s or COLLX_BOOTSTRAP=%s", found.name, p->name);
        fail(errc::environment, -1, -1, remedy, "%s says rank %d of %d, but %s=%d and %s=%d", found.found_by, d.rank,
             d.size, p->rank, other.rank, p->size, other.size);
    }
}

// Throws if this process would count as alone although a launcher's variables say otherwise: at least two of them are
// set, and others are missing. Rows without names for rank and size are skipped, because batch scripts have some of
// Slurm's variables, and the pods of any indexed job have Kubernetes's number.
[[gnu::cold]] inline void refuse_half_launchers(const environment& env) {
    for (const bootstrap_probe& p : bootstrap_probes) {
        if (p.rank == nullptr) continue;
        const char* size = env.get(p.size);
        if (size != nullptr && std::strcmp(size, "1") == 0) continue; // a job of one process
        kept_text there, missing;
        int count = 0;
        const auto look_at = [&](const kept_text& name) {
            const bool is_there = env.get(name.c_str()) != nullptr;
            kept_text& names = is_there ? there : missing;
            names = joined({names, names.empty() ? "" : ", ", name});
            count += is_there;
        };
        each_wanted(p, look_at);
        for (const char* name : {p.rank, p.size})
            if (std::strstr(p.wanted, name) == nullptr) look_at(kept_text(name));
        if (count < 2) continue;
        fail(errc::environment, -1, -1, "set the missing ones too, or COLLX_BOOTSTRAP=single for a process alone",
             "%s: %s set, %s missing", p.found_by, there.c_str(), missing.c_str());
    }
    for (const char* name : {"COLLX_STORE", "COLLX_JOB"}) // a place to meet, for a job of one
        if (env.get(name) != nullptr)
            fail(errc::environment, -1, -1,
                 "set COLLX_RANK and COLLX_SIZE, in a Kubernetes job COLLX_SIZE, or COLLX_BOOTSTRAP=single for a "
                 "process alone",
                 "%s is set, but nothing says which rank this is", name);
}

} // namespace detail

// Reads the variables for all communicators of this process, however its ranks find each other.
// Errors: environment, with what is wrong and a remedy.
[[gnu::cold]] inline void read_settings(const environment& env, job_description& d) {
    check_variables(env);
    const auto read = [&](const char* name, auto&& reader, auto& to) {
        const variable& v = detail::variable_named(name);
        if (const char* value = env.get(name))
            to = static_cast<std::remove_reference_t<decltype(to)>>(reader(v, value));
    };
    read("COLLX_TIMEOUT", detail::read_seconds, d.timeout_ns);
    read(
        "COLLX_CHECKED", [](const variable&, const char* value) { return value[0] - '0'; }, d.checked);
    read("COLLX_ARENA_BYTES", detail::read_bytes, d.arena_bytes);
    read("COLLX_WAIT", detail::read_choice, d.waiting);
    read("COLLX_SINGLE_COPY", detail::read_choice, d.single_copy);
    read("COLLX_DEBUG", detail::read_choice, d.debug);
    if (const char* directory = env.get("COLLX_RECORD_DIR")) {
        d.record_directory = directory;
        d.record = 256;
    }
    read("COLLX_RECORD", detail::read_number, d.record);
}

// Describes the job of this process as its environment does. Errors: environment, with what is wrong and a remedy.
[[gnu::cold]] inline job_description describe_job(const environment& env = environment()) {
    job_description d;
    read_settings(env, d);
    const char* forced = env.get("COLLX_BOOTSTRAP");
    for (const bootstrap_probe& p : bootstrap_probes) {
        if ((forced != nullptr && std::strcmp(forced, p.name) != 0) || !p.recognises(env)) continue;
        if (forced == nullptr && p.recognises == detail::is_any) detail::refuse_half_launchers(env);
        p.describe(env, d);
        if (forced == nullptr) detail::check_agreement(env, p, d);
        if (p.recognises != detail::is_any) detail::read_meeting(env, d);
        d.found_by = p.found_by;
        return d;
    }
    detail::fail_forced(env, forced);
}

COLLX_END_NAMESPACE
